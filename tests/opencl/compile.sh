#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles every OpenCL program as OpenCL C 1.2 for an AMD and an NVIDIA target, in the forms that CPU devices and GPUs get:
# compile.sh KERNEL_TEXTS. Skipped (77) without clang.
set -u
command -v clang >/dev/null 2>&1 || { echo "no clang: skipped"; exit 77; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
"$1" "$folder" || exit 1
failures=0

# compile TEXT OPTION...
compile()
{
    text=$1
    shift
    for target in "amdgcn -mcpu=gfx90a" nvptx64; do
        # shellcheck disable=SC2086 # a target and its options
        if ! clang -x cl -cl-std=CL1.2 -target $target -D__OPENCL_VERSION__=120 -Xclang -finclude-default-header \
            -Xclang -cl-ext=+cl_khr_fp16 -nogpulib -Wall -Wno-unused-function -Werror -O1 "$@" -S -o /dev/null \
            "$folder/$text.cl"; then
            echo "kernels/$text.cl does not compile for $target with $*"
            failures=$((failures + 1))
        fi
    done
}

for text in elementwise norm softmax reduce movement optimizer; do
    compile $text -DVW=16 -DWG=1 -DRUN=64
    compile $text -DVW=4 -DWG=128
    compile $text -DVW=1 -DWG=64
done
compile norm -DRMS=1 -DVW=4 -DWG=128
for kind in 1 2; do
    compile reduce -DKIND=$kind -DPARTS=8 -DVW=4 -DWG=32
done
for type in bf16 f16; do
    compile movement -DIN=$type -DOUT=$type -DVW=16
    compile movement -DIN=$type -DOUT=$type -DVW=4
    compile movement -DIN=$type -DOUT=$type
done
facts="-DD=72 -DCAUSAL=1 -DLENGTHS=1 -DDROPOUT=1"
for kernel in "" _grad_q _grad_kv; do
    # shellcheck disable=SC2086 # one option a word
    compile attention_cpu$kernel $facts -DCACHED=0 -DVW=16 -DROWS=64 -DCOLS=64 -DMR=8
    for tile in "-DROWS=64 -DWG=64 -DMR=8 -DAR=8" "-DROWS=64 -DWG=256 -DMR=4 -DAR=4" "-DROWS=8 -DWG=32 -DMR=4 -DAR=4"; do
        # shellcheck disable=SC2086
        compile attention_gpu$kernel $facts -DCACHED=0 -DVW=4 -DCOLS=64 $tile
    done
done
# shellcheck disable=SC2086
compile attention_gpu $facts -DCACHED=1 -DVW=4 -DROWS=8 -DCOLS=64 -DWG=32 -DMR=4 -DAR=4
# shellcheck disable=SC2086
compile attention_delta $facts -DCACHED=0 -DVW=16 -DWG=1 -DLANES=1
# shellcheck disable=SC2086
compile attention_delta $facts -DCACHED=0 -DVW=4 -DWG=128 -DLANES=16
for trans in 0 1; do
    facts="-DTRANS_B=$trans -DROWS=3"
    # shellcheck disable=SC2086
    compile gemm_few $facts -DAB=f32 -DY=f32 -DVW=16 -DRUN=4 -DACROSS=1 -DALONG=1 -DCOLUMNS=9
    for vector in 1 4; do
        # shellcheck disable=SC2086
        compile gemm_few $facts -DAB=bf16 -DY=bf16 -DVW=$vector -DRUN=1 -DACROSS=8 -DALONG=32 -DCOLUMNS=1
    done
done
[ $failures -eq 0 ] && echo "all kernel texts compile"
exit $((failures > 0))
