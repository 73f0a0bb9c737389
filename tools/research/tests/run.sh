#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares predictions of `txresearch scale` with SimGrid's SMPI, which sends the same buckets over a simulated network.
# Step time and exposed communication must agree within 10 %. Takes a minute or two on two cores, and needs
# libsimgrid-dev.
#
#   run.sh TXRESEARCH [long]
#
# The exchange among 256 ranks has 65,280 concurrent messages, for which SMPI takes some 50 s per bucket. "long" adds it
# with few buckets.
txresearch=$1
source=smpi.c
. "${0%/*}/smpi.sh"
step_ms=300
settings=--cfg=smpi/shared-malloc-blocksize:16777216 # few mappings per buffer, because the system limits their number

# compare RANKS ALGORITHM GBIT [OPTION...]
compare()
{
    ranks=$1
    algorithm=$2
    gbit=$3
    shift 3
    what="$ranks ranks, $algorithm, $gbit Gbit/s${*:+, $*}"
    "$txresearch" scale --config gpt2 --step_ms $step_ms --ranks "$ranks" --algorithm "$algorithm" --gbit "$gbit" \
        --latency_us $latency_us --gap_us 0 --json "$@" > "$work/json" 2> "$work/err" ||
        { fail "$what: txresearch"; return; }
    predicted=$(sed 's/.*"step_ms": \([0-9.]*\).*/\1/' "$work/json") # of the last row
    tr '{}' '\n' < "$work/json" | sed -n 's/"ready_ms": \([^,]*\), .*"sent": \([0-9]*\)/\1 \2/p' > "$work/schedule"
    platform "$ranks" "$(awk "BEGIN { printf \"%.9g\", $gbit * 0.94 / 8 }")"
    begin=$(date +%s)
    simulate "$ranks" "$work/schedule" $step_ms "$algorithm" || { fail "$what: smpirun"; return; }
    simulated=$(sed -n 's/^step //p' "$work/out")
    # A difference that is not a number is an error.
    awk -v predicted="$predicted" -v simulated="$simulated" -v alone=$step_ms -v what="$what" \
        -v wall=$(($(date +%s) - begin)) '
        function off(a, b) { return a > b ? (a - b) / b : (b - a) / b }
        BEGIN {
            if (predicted !~ /^[0-9.]+$/ || simulated !~ /^[0-9.]+$/ || !(simulated * 1000 > alone))
                exit 1
            step = 1000 * simulated
            whole = off(predicted, step)
            exposed = off(predicted - alone, step - alone)
            printf "%-44s predicted %9.3f ms, simulated %9.3f ms, ", what, predicted, step
            printf "step %5.2f %% off, exposed %5.2f %% off (%d s)\n", 100 * whole, 100 * exposed, wall
            exit !(whole <= 0.1 && exposed <= 0.1)
        }' || fail "$what: predicted \"$predicted\" ms, simulated \"$simulated\" s"
}

compare 8 ring 10
compare 8 ring 100
compare 8 ring 100 --ddp_comm bf16
compare 8 exchange 10
compare 8 exchange 100
compare 64 ring 10
compare 64 ring 100
compare 64 ring 400
compare 64 exchange 100
compare 256 ring 100
if [ "${2-}" = long ]; then
    compare 256 ring 10
    compare 256 exchange 100 --ddp_bucket_cap_mb 180
fi
verdict ", within 10 %"
