#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs a part of the conformance suite on rusticl, Mesa's OpenCL, with its CPU device llvmpipe, in both variants of the
# kernels. Debian's mesa-opencl-icd and libclc-19 conflict, so rusticl is installed in its own root file system.
#
#     rusticl.sh BIN [FOLDER]    BIN holds txcheck; FOLDER (default ~/.cache/tx/rusticl) holds the file system, which
#                                the script makes if it is missing
#
# llvmpipe takes minutes to compile large kernels, which are skipped: the gradient of attention, and for the CPU variant
# products and attention. Exit status 77: the file system cannot be made.
set -u

bin=$1
folder=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/tx/rusticl}
packages=mesa-opencl-icd,ocl-icd-libopencl1,libclblast1,libdnnl2,libgomp1,libjansson4,libhwloc15,libmpich12,libssl3,libyaml-0-2,zlib1g,libzstd1,libsnappy1v5,\
libpcre2-8-0,libutf8proc2
rows='add layer_norm softmax cross_entropy cross_entropy_grad reduce adamw embedding scatter_add dropout'

if [ "$(id -u)" != 0 ]; then
    echo "skipped: only root can make and enter a file system"
    exit 77
fi
if [ ! -f "$folder/complete" ]; then
    command -v debootstrap > /dev/null && mkdir -p "$folder" &&
        debootstrap --variant=minbase --include="$packages" bookworm "$folder" > "$folder.log" 2>&1 &&
        touch "$folder/complete"
fi
if [ ! -f "$folder/complete" ]; then
    echo "skipped: debootstrap is not here or failed: $folder.log"
    exit 77
fi
mkdir -p "$folder/check" && cp "$bin/txcheck" "$folder/check/txcheck.$$" || exit 1
trap 'rm -f "$folder/check/txcheck.$$"' EXIT

# check VARIANT OP...
check()
{
    variant=$1
    shift
    for op in "$@"; do
        chroot "$folder" env RUSTICL_ENABLE=llvmpipe OCL_ICD_VENDORS=rusticl.icd TX_CACHE_DIR=/check/cache \
            "TX_OCL_VARIANT=$variant" TX_GEMM_TUNE=0 "/check/txcheck.$$" ops --device opencl --op "$op" --every 4 ||
            return $?
    done
}

# shellcheck disable=SC2086
check cpu $rows && check gpu $rows matmul attention
