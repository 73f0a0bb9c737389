#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs of GPT-2 124M with AMD's own OpenCL runtime, without AMD's hardware (amd_offline.c). Debian's
# rocm-opencl-icd conflicts with PoCL, so it is installed in a root file system of its own, ~/.cache/tx/amd.
#
#     amd_offline.sh BIN    BIN holds amd_offline and kernel_texts
#
# Exit status 77: the file system cannot be made, or no OpenCL device is here.
set -u

bin=$1
root=${XDG_CACHE_HOME:-$HOME/.cache}/tx/amd
targets='gcn gfx906
cdna2 gfx90a
cdna3 gfx942
rdna3 gfx1100
rdna4 gfx1201'

if [ "$(id -u)" != 0 ]; then
    echo "skipped: only root can make and enter a file system"
    exit 77
fi
if [ ! -f "$root/complete" ]; then
    command -v debootstrap > /dev/null && mkdir -p "$root" &&
        debootstrap --variant=minbase --include=rocm-opencl-icd,ocl-icd-libopencl1 sid "$root" > "$root.log" 2>&1 &&
        touch "$root/complete"
fi
if [ ! -f "$root/complete" ]; then
    echo "skipped: debootstrap is missing or failed: $root.log"
    exit 77
fi
work=$root/check.$$
mkdir -p "$work" && cp "$bin/amd_offline" "$work/" || exit 1
trap 'rm -rf "$work"' EXIT

failed=0
while read -r device target; do
    "$bin/kernel_texts" "$device" gpt2 "$work" || exit $?
    # Products have a second form, with swizzled lines.
    cut -f1,5 "$work/launches.tsv" | sort -u | awk '{ print }
        /^gemm_matrix/ { sub("WMMA11", "& -DSWIZZLE=1") ? sub("VW=1", "VW=4") : sub("-DATOM", "-DSWIZZLE=1 &"); print }' \
        > "$work/programs.tsv"
    chroot "$root" env OCL_ICD_VENDORS=amdocl64.icd "/check.$$/amd_offline" "$target" "/check.$$" || failed=$?
done << END
$targets
END
exit $failed
