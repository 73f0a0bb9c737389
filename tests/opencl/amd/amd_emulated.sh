#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Products and attention with known answers, and the conformance suite, on simulated cards of AMD. The kernels are
# compiled to the cards' machine code, and an emulator (amd_card.c) runs it instead of PoCL. In the suite matrix units
# compute the shapes that they support, and tiles the rest.
#
#     amd_emulated.sh CARD BIN AMD_CARD STAND_IN [OP...]
#
# CARD is mi300x (gfx942), rx7900xtx (gfx1100) or rx9070 (gfx1201). BIN holds txcheck, test_amd_products and
# test_matrix_attention. AMD_CARD and STAND_IN are the two libraries. OP... are ops of api/ops.def, by default those
# that dominate a training step. TX_CACHE_DIR names a folder that keeps compiled programs (empty it when amd_compile.py
# changes); without it none are kept. Exit status 77: PoCL, a compiler for AMD (clang-19, llvm-19, libclc-19) or
# python3 is missing.
set -u

card=$1
bin=$2
libraries="$3 $4"
shift 4
[ $# -gt 0 ] || set -- matmul attention attention_grad layer_norm layer_norm_grad cross_entropy cross_entropy_grad \
    fused_classifier

clang=$(for n in 30 29 28 27 26 25 24 23 22 21 20 19; do command -v "clang-$n"; done | head -n 1)
version=${clang##*-}
if [ -z "$clang" ] || ! command -v "llvm-objdump-$version" "llvm-readelf-$version" python3 > /dev/null ||
    [ ! -f /usr/lib/clc/amdgcn--amdhsa.bc ]; then
    echo "skipped: it takes python3, clang-19 or newer, llvm-objdump and llvm-readelf of its version, and libclc-19"
    exit 77
fi
if [ -z "${TX_CACHE_DIR:-}" ]; then
    TX_CACHE_DIR=$(mktemp -d) || exit 1
    export TX_CACHE_DIR
    trap 'rm -rf "$TX_CACHE_DIR"' EXIT
fi
case $card in
    mi300x) units='amd-mfma bf16 f16 f32 , amd-mfma-swizzle bf16 f16 f32' ;;
    *) units='amd-wmma bf16 f16 , amd-wmma-swizzle bf16 f16' ;;
esac

# emulated PROGRAM ARGUMENT...
emulated()
{
    env LD_PRELOAD="$libraries" TX_TEST_CARD="$card" TX_GEMM_TUNE=0 TX_GEMM=amd "$@"
}

# shellcheck disable=SC2086
emulated "$bin/test_amd_products" $units , portable-tile-128x128x8 f32 , portable-tile-64x128x8 f32 || exit $?
emulated "$bin/test_matrix_attention" || exit $?
for op in "$@"; do
    emulated "$bin/txcheck" ops --device opencl --op "$op" --every 4 --small || exit $?
done
