#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The cable between two hosts is cut at a random moment. The job ends by itself with an error that names the unreachable
# rank. Under txlaunch it resumes when the cable is joined, and ends with the weights of the undisturbed run.
#   test_ranks_cut.sh BIN LAUNCHER DEVICE [WAY [TIMES]]      WAY: how the model is divided, see ranks.sh
device=$3
times=${5:-1}
. "${0%/*}/ranks.sh"
. "${0%/*}/../hosts.sh"
divided "${4:-}"

long_run "$work/whole" on_hosts 1 > "$work/out" 2> "$work/err" || fail "the unbroken run"

# cut_cable FOLDER: at a random step of the run into FOLDER
cut_cable()
{
    await_moment "$1"
    ip -n "$host_a" link set $cable down
}

limit_seconds=60
i=0
while [ $i -lt "$times" ]; do
    long_run "$work/alone$i" on_hosts 1 > "$work/out" 2> "$work/err" &
    pid=$!
    cut_cable "$work/alone$i"
    wait $pid
    status=$?
    [ $status -ne 0 ] && [ $status -ne 137 ] || fail "the launcher ended with $status"
    grep -q "^txtrain: rank 1 on $host_b " "$work/err" || fail "rank 1 is not named"
    for process in $(ip netns pids "$host_b"); do # which nobody can reach
        kill -s KILL "$process" 2> /dev/null
    done
    ip -n "$host_a" link set $cable up

    long_run "$work/again$i" timeout -s KILL 150 "$work/near" "$bin/txlaunch" --launcher "$work/mpiexec" -n 2 \
        --hosts 10.77.94.1,10.77.94.2 --max_restarts 9 --start_timeout 8 --heartbeat_timeout 4 -- \
        > "$work/out" 2> "$work/err" &
    pid=$!
    cut_cable "$work/again$i"
    await grep -qs "restart 1 of" "$work/err"
    ip -n "$host_a" link set $cable up
    wait $pid
    status=$?
    [ $status -eq 0 ] || fail "txlaunch ended with $status"
    grep -q "rank 1 on $host_b" "$work/err" || fail "txlaunch names no rank"
    same whole "again$i"
    rm -rf "$work/alone$i" "$work/again$i"
    i=$((i + 1))
done

verdict
