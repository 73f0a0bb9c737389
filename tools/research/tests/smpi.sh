# SPDX-License-Identifier: Apache-2.0
# What the comparisons with SimGrid's SMPI share: the program $work/smpi and a network for it. Sourced, with $source, the program's text.
# shellcheck shell=sh disable=SC2154
. "${0%/*}/../../../tests/program.sh"
for tool in smpicc smpirun; do
    command -v $tool > /dev/null || { echo "skipped: no $tool (apt-get install libsimgrid-dev)"; exit 77; }
done
smpicc -O2 -Wall -Wextra "${0%/*}/$source" -o "$work/smpi" > "$work/out" 2>&1 || { fail "smpicc"; exit 1; }
latency_us=10

# platform RANKS GBYTE: a switch; a message crosses the link of the sender and that of the receiver.
platform()
{
    seq 0 $(($1 - 1)) | sed 's/^/n-/' > "$work/hosts"
    half=$(awk "BEGIN { print $latency_us / 2 }")
    cat > "$work/platform.xml" << END
<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
<cluster id="c" prefix="n-" suffix="" radical="0-$(($1 - 1))" speed="1Gf" bw="${2}GBps" lat="${half}us"
    sharing_policy="SPLITDUPLEX"/>
</platform>
END
}

# simulate RANKS ARGUMENT...: the program's output in $work/out. The factors are those of a measured cluster unless they are 1; sums
# and copies cost nothing, as in the models.
simulate()
{
    n=$1
    shift
    # shellcheck disable=SC2086
    smpirun -np "$n" -platform "$work/platform.xml" -hostfile "$work/hosts" --cfg=smpi/host-speed:1Gf \
        --cfg=smpi/simulate-computation:no --cfg=smpi/bw-factor:0:1 --cfg=smpi/lat-factor:0:1 \
        --cfg=network/crosstraffic:no ${settings-} "$work/smpi" "$@" > "$work/out" 2> "$work/err"
}
