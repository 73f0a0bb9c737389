#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the command txresearch scale: given and measured compute time, errors.
#
#   bench_scale.sh TXRESEARCH
subcommand=scale
. "${0%/*}/expect.sh"

# rows ALGORITHM: prints the ranks of its rows in the table
rows()
{
    awk '$1 == "'"$1"'" { printf "%s ", $2 }' "$work/out"
}

# buckets: prints the number of buckets in the JSON output, and their bytes
buckets()
{
    grep -o '"bytes": [0-9]*' "$work/out" | awk '{ n++; sum += $2 } END { print n, sum }'
}

# ---- given ------------------------------------------------------------------------------------------
expect 0 "compute " --step_ms 300
[ "$(rows ring)" = "1 2 4 8 16 32 64 128 256 512 1024 " ] || fail "the ranks are $(rows ring)"
[ "$(awk '$2 == 1 && $3 == 0 && $4 == 0 && $5 == 300 && $6 == 1' "$work/out" | wc -l)" -eq 4 ] ||
    fail "one rank takes longer than one rank"
expect 0 '"compute": "given", "compute_ms": 300.0, ' --step_ms 300 --json
[ "$(buckets)" = "14 497903616" ] || fail "the buckets are $(buckets)"
grep -q '{"ready_ms": 300.0, [^}]*}]' "$work/out" || fail "the last bucket is not ready at the end"
expect 0 '"tokens_per_second_at_most": 20480.0' --step_ms 100 --accumulation 2 --ranks 6 --algorithm tree --json
expect 0 "" --step_ms 100 --ranks 6 --algorithm tree
[ "$(rows tree)" = "1 2 4 6 " ] && [ -z "$(rows ring)" ] || fail "the ranks are $(rows tree)"
expect 0 '"host_ranks": 4, "host_gbyte": 20.0' --step_ms 300 --host_ranks 4 --json
expect 0 '"efficiency": 1.0,' --step_ms 300 --ranks 1 --json
expect 0 '"bytes": 9446400, "sent": 4723200}' --step_ms 300 --overlap false --ddp_comm bf16 --json

# ---- measured -----------------------------------------------------------------------------------------
echo '{"model_type": "gpt2", "vocab_size": 300, "n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 4}' \
    > "$work/config.json"
expect 0 '"compute": "measured"' --config "$work/config.json" --block 32 --batch 2 --ranks 2 --json
sed 's/.*"compute_ms": \([^,]*\), .*/\1/' "$work/out" | awk '{ exit !($1 > 0) }' || fail "a step takes no time"

# ---- errors ------------------------------------------------------------------------------------------
expect 2 "not a number" --step_ms nan
expect 2 "must be between" --gbit 0
expect 2 "must be between" --ranks 0
expect 2 "must be between" --ddp_bucket_cap_mb -1
expect 2 "must be one or more of ring|tree|rabenseifner|exchange" --algorithm star
expect 2 "did you mean --latency_us" --latency 3
expect 1 "more than the model's 1024 positions" --step_ms 1 --block 1025
expect 1 "no published model" --step_ms 1 --config nothing

verdict
