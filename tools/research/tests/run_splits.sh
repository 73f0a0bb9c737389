#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares the times of message patterns in the model of txresearch splits with SimGrid's SMPI, which sends them over a
# simulated network. They must agree within 10 %. Started by hand; takes some seconds, and needs libsimgrid-dev.
#
#   run_splits.sh SPLIT_FORMULA
formula=$1
source=smpi_splits.c
. "${0%/*}/smpi.sh"
gbyte=40

# compare PATTERN RANKS BYTES [MICRO SECONDS]
compare()
{
    pattern=$1
    ranks=$2
    bytes=$3
    shift 3
    platform "$ranks" $gbyte
    predicted=$("$formula" "$pattern" "$ranks" "$bytes" "${latency_us}e-6" "${gbyte}e9" "$@") ||
        { fail "formula"; return; }
    simulate "$ranks" "$pattern" "$bytes" "$@" || { fail "$pattern of $ranks: smpirun"; return; }
    simulated=$(sed -n 's/^seconds //p' "$work/out")
    awk -v predicted="$predicted" -v simulated="$simulated" -v what="$ranks ranks, $pattern, $bytes bytes${*:+, $*}" '
        BEGIN {
            if (predicted !~ /^[0-9.]+$/ || simulated !~ /^[0-9.]+$/ || !(simulated > 0))
                exit 1
            off = predicted / simulated - 1
            printf "%-48s predicted %10.3f ms, simulated %10.3f ms, %+.2f %%\n", what, 1000 * predicted,
                1000 * simulated, 100 * off
            exit !(off <= 0.1 && off >= -0.1)
        }' || fail "$pattern of $ranks: predicted \"$predicted\" s, simulated \"$simulated\" s"
}

for ranks in 2 8 64; do
    compare sum $ranks 67108864
    compare sum $ranks 1048576
    compare exchange $ranks 67108864
done
compare pipeline 2 8388608 4 0.01
compare pipeline 4 8388608 8 0.01
compare pipeline 8 8388608 64 0.01
compare pipeline 8 67108864 16 0.01
verdict ", within 10 %"
