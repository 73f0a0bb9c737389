#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the command txresearch methods: a row for each method, and the cost of sizes.
#
#   bench_methods.sh TXRESEARCH
txresearch=$1
source=${0%/*}/../../..
. "$source/tests/program.sh"
echo '{"model_type": "gpt2", "vocab_size": 300, "n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 4}' \
    > "$work/config.json"
outcome 0 "" "$txresearch" methods --config "$work/config.json" --block 32 --seconds 600 --json
rows=$(grep -c '^TX_METHOD(' "$source/tools/research/methods.def")
[ "$(grep -o '"method":' "$work/out" | wc -l)" -eq "$rows" ] || fail "not a row for each method"
grep -q '"state": "failed"' "$work/out" && fail "a method failed"
grep -q '"dimension": "head size"' "$work/out" || fail "no figures of sizes"
outcome 1 "more than the model's 64 positions" "$txresearch" sizes --config "$work/config.json" --block 65

verdict
