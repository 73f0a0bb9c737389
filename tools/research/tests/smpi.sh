# SPDX-License-Identifier: Apache-2.0
# Common code of the comparisons with SimGrid's SMPI: builds $work/smpi from $source and makes a network. A script sets
# $source and sources this.
# shellcheck shell=sh disable=SC2154
. "${0%/*}/../../../tests/program.sh"
for tool in smpicc smpirun; do
    command -v $tool > /dev/null || { echo "skipped: no $tool (apt-get install libsimgrid-dev)"; exit 77; }
done
smpicc -O2 -Wall -Wextra "${0%/*}/$source" -o "$work/smpi" > "$work/out" 2>&1 || { fail "smpicc"; exit 1; }
latency_us=10

# platform RANKS GBYTE: describes a network with a switch. A message uses the links of the sender and of the receiver.
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

# simulate RANKS ARGUMENT...: runs the program with its output in $work/out. The factors are set to 1, because their
# defaults are those of a measured cluster. Sums and copies take no time, as in the models.
simulate()
{
    n=$1
    shift
    # shellcheck disable=SC2086
    smpirun -np "$n" -platform "$work/platform.xml" -hostfile "$work/hosts" --cfg=smpi/host-speed:1Gf \
        --cfg=smpi/simulate-computation:no --cfg=smpi/bw-factor:0:1 --cfg=smpi/lat-factor:0:1 \
        --cfg=network/crosstraffic:no ${settings-} "$work/smpi" "$@" > "$work/out" 2> "$work/err"
}
