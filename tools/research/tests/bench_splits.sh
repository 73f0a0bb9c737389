#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the command txresearch splits: shapes, options, figures of cards, errors.
#
#   bench_splits.sh TXRESEARCH
subcommand=splits
. "${0%/*}/expect.sh"

# table NAME: prints its rows in the JSON output, one per line
table()
{
    sed "s/.*\"$1\": \[//; s/\].*//" "$work/out" | sed 's/}, {/}\n{/g'
}

# all KEY VALUE: checks that all rows have it
all()
{
    [ "$(table best | grep -c "\"$1\": $2[,}]")" -eq "$(table best | grep -c .)" ] || fail "not all have $1 $2"
}

for shape in gpt2-xl llama-7b llama-70b mixtral-8x7b; do
    expect 0 '"best": [{"devices": ' --config $shape --json
    [ "$(table best | grep -c .)" -ge 8 ] && [ "$(table built | grep -c .)" -ge 5 ] || fail "$shape: too few rows"
    table best | awk -F '[:,]' '{
        for (i = 1; i < NF; i++) { gsub(/[ "{]/, "", $i); v[$i] = $(i + 1) }
        sum = v["compute_ms"] + v["bubble_ms"] + v["tensor_ms"] + v["pipeline_ms"]
        sum += v["context_ms"] + v["expert_ms"] + v["data_ms"] + v["update_ms"]
        if (v["data"] * v["tensor"] * v["pipeline"] * v["context"] != v["devices"] || !(v["memory_gb"] <= 134) ||
            !((sum - v["step_ms"]) ^ 2 < 0.01) || !(v["mfu"] > 0.05 && v["mfu"] < 0.607)) exit 1 }' ||
        fail "$shape: a row does not add up"
done
expect 0 '"nothing_fits": "8"' --config llama-70b --json
expect 0 "without pipeline +" --config llama-70b --devices 4096
expect 0 '"why": "without zero +' --config llama-70b --devices 64 --pipeline 8 --context 4 --json
expect 0 '"memory_gb": 80.0' --card a100 --devices 8 --json
expect 0 '"devices_a_host": 4, "inside_gbyte_per_second": 16.0' --devices 8 --host 4 --inside_gbyte 20 --json
expect 0 "" --devices 64 --tokens 131072 --top 9 --zero 1 --tensor 2 --pipeline 4 --context 2 --batch 1 --json
[ "$(table best | grep -c .)" -eq 8 ] || fail "not one row for each schedule, with checkpointing and without"
for key in "zero 1" "tensor 2" "pipeline 4" "context 2" "batch 1" "data 4"; do
    all "${key% *}" "${key#* }"
done
[ "$(table built)" = "" ] || fail "the engine has pipelines now: tx_split_is_built does not know"
expect 0 "" --config mixtral-8x7b --devices 64 --expert 8 --json
all expert 8
# A config.json, on slower cards.
echo '{"model_type": "gpt2", "vocab_size": 300, "n_positions": 512, "n_embd": 256, "n_layer": 4, "n_head": 4}' \
    > "$work/config.json"
expect 0 '"rows": 64' --config "$work/config.json" --devices 4 --tokens 32768 --tflops 1 --json

expect 1 "no such split fits: the smallest takes 1" --config llama-70b --devices 8
expect 1 "heads and rows of a step (1024) must be multiples" --devices 24 --pipeline 7
expect 1 '--card: "b580" is not one of h200, a100' --card b580
expect 1 "no published model" --config nothing
expect 1 "llama-7b has 4096 positions" --block 8192
expect 2 "must be between" --zero 4
verdict
