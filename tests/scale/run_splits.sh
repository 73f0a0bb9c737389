#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares what the model of txbench splits says of patterns of messages with SimGrid's SMPI, which carries them over a
# simulated network: within 10 %. Started by hand; takes some seconds, and needs libsimgrid-dev.
#
#   run_splits.sh SPLIT_FORMULA
set -u
formula=$1
. "${0%/*}/../program.sh"
for tool in smpicc smpirun; do
    command -v $tool > /dev/null || { echo "skipped: no $tool (apt-get install libsimgrid-dev)"; exit 77; }
done
smpicc -O2 -Wall -Wextra "${0%/*}/smpi_splits.c" -o "$work/smpi" > "$work/out" 2>&1 || { fail "smpicc"; exit 1; }

latency_us=10
gbyte=40

# platform RANKS: a switch; a message crosses the link of the sender and that of the receiver.
platform()
{
    seq 0 $(($1 - 1)) | sed 's/^/n-/' > "$work/hosts"
    half=$(awk "BEGIN { print $latency_us / 2 }")
    cat > "$work/platform.xml" << END
<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
<cluster id="c" prefix="n-" suffix="" radical="0-$(($1 - 1))" speed="1Gf" bw="${gbyte}GBps" lat="${half}us"
    sharing_policy="SPLITDUPLEX"/>
</platform>
END
}

# compare PATTERN RANKS BYTES [MICRO SECONDS]
compare()
{
    pattern=$1
    ranks=$2
    bytes=$3
    shift 3
    platform "$ranks"
    predicted=$("$formula" "$pattern" "$ranks" "$bytes" "${latency_us}e-6" "${gbyte}e9" "$@") || { fail "formula"; return; }
    smpirun -np "$ranks" -platform "$work/platform.xml" -hostfile "$work/hosts" --cfg=smpi/host-speed:1Gf \
        --cfg=smpi/simulate-computation:no --cfg=smpi/bw-factor:0:1 --cfg=smpi/lat-factor:0:1 \
        --cfg=network/crosstraffic:no "$work/smpi" "$pattern" "$bytes" "$@" > "$work/out" 2> "$work/err" ||
        { fail "$pattern of $ranks: smpirun"; return; }
    simulated=$(sed -n 's/^seconds //p' "$work/out")
    awk -v predicted="$predicted" -v simulated="$simulated" -v what="$ranks ranks, $pattern, $bytes bytes${*:+, $*}" '
        BEGIN {
            if (predicted !~ /^[0-9.]+$/ || simulated !~ /^[0-9.]+$/ || !(simulated > 0))
                exit 1
            off = predicted / simulated - 1
            printf "%-48s predicted %10.3f ms, simulated %10.3f ms, %+.2f %%\n", what, 1000 * predicted, 1000 * simulated, 100 * off
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
[ $failures -eq 0 ] && echo "all within 10 %"
exit $((failures != 0))
