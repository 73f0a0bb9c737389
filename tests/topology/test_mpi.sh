#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txtopo --mpi: alone, several ranks of one host, and two hosts: network namespaces with names of their own, joined by a
# virtual cable. Without root, or without what that needs, the last part is skipped.
#
#   test_mpi.sh TXTOPO LAUNCHER(empty: built without MPI) one|two
txtopo=$1
launcher=$2
part=$3
. "${0%/*}/../program.sh"

# says TEXT COUNT: so many lines of the output hold the text
says()
{
    [ "$(grep -cF -- "$1" "$work/out")" -eq "$2" ] || fail "\"$1\" is not there $2 times"
}

# matrices COUNT: so many hosts are shown, with devices or without
matrices()
{
    [ "$(grep -cE 'CPU Affinity|^No GPU, no NIC' "$work/out")" -eq "$1" ] || fail "not $1 hosts are shown"
}

[ -z "$launcher" ] || command -v "$launcher" > /dev/null || { echo "skipped: $launcher is missing: apt-get install mpich"; exit 77; }

if [ "$part" = one ]; then
    "$txtopo" --mpi --measure > "$work/out" 2> "$work/err" || fail "alone: status $?"
    says "1 host: $(uname -n)." 1
    says "there is nothing to measure between hosts" 1
    matrices 1
    "$txtopo" --mpi --json > "$work/out" 2> "$work/err" && fail "--mpi --json is accepted"
    [ -n "$launcher" ] || exit $((failures > 0))
    "$launcher" -n 3 "$txtopo" --mpi > "$work/out" 2> "$work/err" || fail "three ranks: status $?"
    says "1 host: $(uname -n)." 1
    matrices 1
    OCL_ICD_VENDORS=/nowhere "$launcher" -n 2 "$txtopo" --mpi > "$work/out" 2> "$work/err" || fail "no OpenCL: status $?"
    says "1 host: $(uname -n)." 1
    exit $((failures > 0))
fi

# ---- two hosts --------------------------------------------------------------------------------------
[ -n "$launcher" ] || { echo "skipped: built without MPI"; exit 77; }
. "${0%/*}/../hosts.sh"
limit_seconds=30

# MPICH 4.0 over UCX 1.13's TCP sometimes waits for ever in MPI_Finalize, or dies there, when all is said: what counts is what
# was said, and that txtopo complained of nothing. A run that was cut before its end is tried again.
hosts()
{
    for _ in 1 2 3; do
        on_hosts 1 "$txtopo" --mpi "$@" > "$work/out" 2> "$work/err"
        grep -q "^txtopo: " "$work/err" && return 1
        grep -q "^2 hosts" "$work/out" && { [ $# -eq 0 ] || grep -q "^$host_b  *$host_a " "$work/out"; } && return 0
    done
    [ -s "$work/out" ] || skip "MPI does not get from one network namespace to another: $(head -n 1 "$work/err")"
    return 1
}

hosts --measure || fail "two hosts"
says "2 hosts, all of one kind." 1
says "Kind 1, 2 hosts: $host_a, $host_b" 1
matrices 1
says "Measured between hosts" 1
for way in "$host_a $host_b" "$host_b $host_a"; do
    awk -v way="$way" '$1 " " $2 == way && $3 > 0 && $4 > 0 { found++ } END { exit found != 1 }' "$work/out" ||
        fail "no rate from host to host: $way"
done

# The second host has another machine's tree.
echo 'export HWLOC_SYNTHETIC="pack:2 [numa(memory=1073741824)] core:2 pu:2" HWLOC_THISSYSTEM=0' > "$work/second"
hosts || fail "unlike hosts"
says "2 hosts, 2 kinds." 1
says "Kind 2, 1 host: " 1
says "Not as in kind 1:" 1
says "  NUMA nodes: 2, not" 1
matrices 2

[ $failures -eq 0 ]
