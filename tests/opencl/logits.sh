#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The chunks of the classifier in training (models/job/logits.c): as large as the memory of a GPU allows, which PoCL
# simulates, and 256 MiB on the cpu. On NVIDIA, work-items keep rows in bf16 in registers.
#
#   logits.sh BIN STAND_IN    STAND_IN: the library stand_in_card
bin=$1
stand_in=$2
device=opencl
. "${0%/*}/../program.sh"
need_device

# logits WIDTH BYTES COMMAND...: the logits of a plan that has 3,072 rows of 32,768
logits()
{
    width=$1 bytes=$2
    shift 2
    echo "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": $width, \"n_head\": $((width / 64))," \
        "\"n_positions\": 384, \"vocab_size\": 32768, \"bos_token_id\": 256, \"eos_token_id\": 256}" > "$work/config.json"
    outcome 0 "" "$@" "$bin/txtrain" --config_name "$work/config.json" --dry_run --block_size 384 \
        --per_device_train_batch_size 8
    [ "$(awk '/^  temporary.*matmul/ { print $2; exit }' "$work/out")" = "$bytes" ] ||
        fail "width $width, $*: not $bytes bytes of logits"
}

plain() { env LD_PRELOAD="$stand_in" TX_TEST_CARD=plain TX_GEMM_TUNE=0 "$@" --device opencl; }
logits 64 402653184 plain        # of 2 GiB: one chunk
logits 1472 201326592 plain      # weights, gradients and states do not leave enough
logits 64 201326592 env

export TX_OCL_LOG="$work/builds"
outcome 0 "22 of 22 cases passed" env LD_PRELOAD="$stand_in" TX_TEST_CARD=h200 TX_CACHE_DIR="$work/cache" \
    "$bin/txcheck" ops --device opencl --op fused_classifier
grep -q "fused_classifier.*-DH=bf16 -DHELD=4$" "$TX_OCL_LOG" || fail "no rows in registers"
verdict
