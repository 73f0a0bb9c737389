#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs the conformance suite on Intel's OpenCL runtime for CPUs, which has another compiler than PoCL, in both variants
# of the kernels. Also runs products and attention by all vendors' matrix units, with emulated instructions.
#
#     intel_runtime.sh BIN [FOLDER]    BIN holds programs of a build; FOLDER (default ~/.cache/tx/intel-opencl) holds
#                                      the runtime, which the script downloads if it is missing
#
# With TX_TEST_TURN=N it runs only turn N % 12 of 12: every twelfth case, the units of one vendor, attention on two cards.
#
# Exit status 77: the runtime cannot be downloaded, or finds no device.
set -u

bin=$1
folder=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/tx/intel-opencl}
packages='intel-opencl-rt intel-cmplr-lib-rt tbb'

# Wheels are zip files; their libraries go into one folder, without the loader, which is the system's.
fetch()
{
    # shellcheck disable=SC2086
    mkdir -p "$folder/lib" "$folder/vendors" &&
        python3 -m pip download --no-deps -q -d "$folder/wheels" $packages &&
        (cd "$folder" && python3 -c 'import glob, zipfile
for wheel in glob.glob("wheels/*.whl"):
    zipfile.ZipFile(wheel).extractall("unpacked")' && rm -r wheels) &&
        find "$folder/unpacked" -path '*/data/lib/*' -type f ! -name 'libOpenCL*' -exec ln -sf {} "$folder/lib" \; &&
        echo "$folder/lib/libintelocl.so" > "$folder/vendors/intel.icd"
}

if [ ! -f "$folder/vendors/intel.icd" ] && ! fetch; then
    echo "skipped: pip cannot download $packages"
    exit 77
fi
OCL_ICD_VENDORS=$folder/vendors
LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OCL_ICD_VENDORS LD_LIBRARY_PATH

turn=$((${TX_TEST_TURN:-0} % 12))
every=4
makers='nvidia amd intel'
cards='h200 mi300x rx7900xtx rx9070 a770 b580'
if [ -n "${TX_TEST_TURN:-}" ]; then
    every=12
    makers=$(echo "$makers" | cut -d ' ' -f $((turn % 3 + 1)))
    cards=$(echo "$cards" | cut -d ' ' -f $((turn % 3 * 2 + 1)),$((turn % 3 * 2 + 2)))
fi

ops()
{
    TX_OCL_VARIANT=$1 TX_GEMM=portable TX_GEMM_TUNE=0 "$bin/txcheck" ops --device opencl --every "$every" --turn "$turn"
}

# The compiler crashes when it vectorizes products by the units of NVIDIA and AMD, and the CPU decides which attention
# kernels it can vectorize. The vectorizer is off, so that all machines run the same code. Tiles of Hopper need more
# local memory than the runtime offers on some CPUs.
units()
{
    export CL_CONFIG_CPU_VECTORIZER_MODE=1 CL_CONFIG_CPU_FORCE_LOCAL_MEM_SIZE=1MB
    for maker in $makers; do
        "$bin/test_stand_in" products "$maker" || return 1
    done
    for card in $cards; do
        LD_PRELOAD=$bin/../tests/opencl/libstand_in_card.so TX_TEST_CARD=$card "$bin/test_matrix_attention" || return 1
    done
}

# The compiler uses one core, and takes longest for the kernels for GPUs.
ops gpu &
ops cpu && units
status=$?
wait $! || status=$?
exit $status
