#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txbench scale from the outside: given and measured compute, the files it writes, errors.
#
#   bench_scale.sh TXBENCH
set -u
txbench=$1
. "${0%/*}/../program.sh"

# expect STATUS TEXT ARGUMENT...: the exit status, and a text in what was printed; errors are one line.
expect()
{
    wanted=$1
    text=$2
    shift 2
    outcome "$wanted" "$text" "$txbench" scale "$@"
    if [ "$wanted" -eq 0 ]; then
        [ ! -s "$work/err" ] || fail "$*: complains"
    else
        [ "$(wc -l < "$work/err")" -eq 1 ] && [ ! -s "$work/out" ] || fail "$*: not one line of error alone"
    fi
}

# rows: the table's rows of one algorithm each, "ranks" by "ranks"
rows()
{
    awk '$1 == "'"$1"'" { printf "%s ", $2 }' "$work/out"
}

# ---- given ------------------------------------------------------------------------------------------
expect 0 "497.9 MB of gradients in 14 buckets, sent as fp32, during the backward" --step_ms 300 --schedule "$work/schedule"
[ "$(rows ring)" = "1 2 4 8 16 32 64 128 256 512 1024 " ] || fail "the ranks are $(rows ring)"
[ "$(awk '$2 == 1' "$work/out" | grep -c ' 300.0  *1.000 ')" -eq 4 ] || fail "one rank takes longer than one rank"
[ "$(head -n 1 "$work/schedule")" = "compute 0.1 0.2 0" ] || fail "the schedule begins $(head -n 1 "$work/schedule")"
[ "$(grep -c '^bucket ' "$work/schedule")" -eq 14 ] || fail "the schedule has not 14 buckets"
[ "$(tail -n 1 "$work/schedule")" = "bucket 0.3 154533888" ] || fail "the last bucket is not the embedding's table"
expect 0 "compute  100.0 ms a step of 2 x 4 x 256 tokens" --tokens_per_second 20480 --accumulation 2 --ranks 6 --algorithm tree
[ "$(rows tree)" = "1 2 4 6 " ] && [ -z "$(rows ring)" ] || fail "the ranks are $(rows tree)"
expect 0 "; 4 ranks a host, 20 GB/s among them" --step_ms 300 --host_ranks 4
expect 0 '"efficiency": 1.0,' --step_ms 300 --ranks 1 --json
expect 0 "sent as bf16, after the backward" --step_ms 300 --overlap false --ddp_comm bf16

# ---- measured -----------------------------------------------------------------------------------------
echo '{"model_type": "gpt2", "vocab_size": 300, "n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 4}' > "$work/config.json"
expect 0 '"compute": "measured"' --config "$work/config.json" --block 32 --batch 2 --steps 2 --ranks 2 --json
# Each layer takes some time; together they take what the step does.
sed 's/.*"forward_ms": \([^,]*\), "backward_ms": \([^,]*\), "update_ms": .*"layers": \[\(.*\)\], "overlap".*/total \1 \2 \3/' \
    "$work/out" | tr -d '{}",' | sed 's/forward_ms: //g; s/backward_ms: //g' | awk '
    { forward = $2; backward = $3
      for (i = 4; i <= NF; i += 2) { f += $i; b += $(i + 1); bad += !($i > 0) + !($(i + 1) > 0) }
      exit !(NF == 13 && bad == 0 && f > 0.999 * forward && f < 1.001 * forward && b > 0.999 * backward && b < 1.001 * backward) }' ||
    fail "the layers do not add up"

# ---- errors ------------------------------------------------------------------------------------------
expect 2 "not a number" --step_ms nan
expect 2 "must lie between" --gbit 0
expect 2 "must lie between" --ranks 0
expect 2 "must lie between" --ddp_bucket_cap_mb -1
expect 2 "say the same" --step_ms 1 --tokens_per_second 1
expect 2 "must be one or more of ring|tree|rabenseifner|exchange" --algorithm star
expect 2 "did you mean --latency_us" --latency 3
expect 1 "more than the model's 1024 positions" --step_ms 1 --block 1025
expect 1 "no published model" --step_ms 1 --config nothing
expect 1 "$work/none/schedule" --step_ms 1 --schedule "$work/none/schedule"

[ $failures -eq 0 ] && echo "all good"
exit $((failures != 0))
