#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs a part of the conformance suite on rusticl, Mesa's OpenCL, with its CPU device llvmpipe, in both variants of the
# kernels. Each suite of Debian has its own Mesa: bookworm 22.3, trixie 25.0, sid the newest. rusticl is installed in
# a root file system of its own, because mesa-opencl-icd and PoCL's libclc conflict.
#
#     rusticl.sh BIN [SUITE...]    BIN holds txcheck; the suites are bookworm, trixie and sid by default
#
# The file systems are kept in ~/.cache/tx/rusticl. llvmpipe takes minutes to compile large kernels, because it makes
# barriers suspensions of coroutines, and LLVM needs long for their frames: 13 minutes for attention with LLVM 15 of
# bookworm. Skipped are the gradient of attention, and for the CPU variant products and attention.
# Exit status 77: no file system can be made.
set -u

bin=$1
shift
[ $# -gt 0 ] || set -- bookworm trixie sid
folder=${XDG_CACHE_HOME:-$HOME/.cache}/tx/rusticl
packages=mesa-opencl-icd,ocl-icd-libopencl1,libgomp1
rows='add layer_norm softmax cross_entropy cross_entropy_grad reduce adamw embedding scatter_add dropout rotary'

if [ "$(id -u)" != 0 ]; then
    echo "skipped: only root can make and enter a file system"
    exit 77
fi

# Makes the file system of a suite, with txcheck and its libraries.
prepare()
{
    root=$folder/$1
    if [ ! -f "$root/complete" ]; then
        command -v debootstrap > /dev/null && mkdir -p "$root" &&
            debootstrap --variant=minbase --include="$packages" "$1" "$root" > "$root.log" 2>&1 &&
            touch "$root/complete"
    fi
    [ -f "$root/complete" ] || return 1
    mkdir -p "$root/check.$$" && cp "$bin/txcheck" "$root/check.$$/" || exit 1
    ldd "$bin/txcheck" | sed -n 's|.*=> \(/[^ ]*\).*|\1|p' |
        grep -vE '/lib(c|m|dl|rt|pthread|gomp|stdc\+\+|gcc_s|OpenCL)\.so' | xargs -I '{}' cp -L '{}' "$root/check.$$/"
}

# check VARIANT OP...
check()
{
    variant=$1
    shift
    for op in "$@"; do
        chroot "$root" env RUSTICL_ENABLE=llvmpipe OCL_ICD_VENDORS=rusticl.icd LD_LIBRARY_PATH="/check.$$" \
            TX_CACHE_DIR="/check.$$/cache" "TX_OCL_VARIANT=$variant" TX_GEMM_TUNE=0 \
            "/check.$$/txcheck" ops --device opencl --op "$op" --every 4 || return $?
    done
}

run=0
for suite in "$@"; do
    if ! prepare "$suite"; then
        echo "skipped: $suite (debootstrap is missing or failed: $folder/$suite.log)"
        continue
    fi
    trap 'rm -rf "$root/check.$$"' EXIT
    echo "Mesa of $suite"
    # shellcheck disable=SC2086
    check cpu $rows && check gpu $rows matmul attention || exit 1
    rm -rf "$root/check.$$"
    run=1
done
[ $run = 1 ] || exit 77
