#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks that die or stop at random moments: the job ends by itself with an error in one line that names the rank. Under
# txlaunch it ends with the weights of the undisturbed run.
#   test_ranks_failures.sh BIN LAUNCHER DEVICE [WAY [TIMES]]      WAY: how the model is divided, see ranks.sh
device=$3
times=${5:-2}
. "${0%/*}/ranks.sh"
divided "${4:-}"
command -v pgrep > /dev/null || { echo "skipped: pgrep is missing: apt-get install procps"; exit 77; }

long_run "$work/whole" timeout -s KILL 300 "$launcher" -n 2 > "$work/out" 2> "$work/err" || fail "the unbroken run"

# Processes of the run into FOLDER
of()
{
    pgrep -f "^$bin/txtrain .*--output_dir $1\$|^$bin/txtrain .*--output_dir $1 "
}

# strike SIGNAL FOLDER: to a random rank of the run into FOLDER, at a random step
strike()
{
    await_moment "$2"
    pids=$(of "$2")
    [ "$(echo "$pids" | wc -w)" -ge 2 ] || return 1
    random 2
    victim=$(echo "$pids" | sed -n "$((drawn + 1))p")
    kill -"$1" "$victim"
}

i=0
while [ $i -lt "$times" ]; do
    for signal in KILL STOP; do
        # Under only the MPI launcher the run ends, and a line names the rank if the launcher leaves time for it.
        folder=$work/alone$i$signal
        long_run "$folder" timeout -s KILL 120 "$launcher" -n 2 > "$work/out" 2> "$work/err" &
        pid=$!
        strike $signal "$folder"
        struck=$?
        wait $pid
        status=$?
        [ $struck -eq 0 ] || fail "$signal: the run was over"
        { [ $status -ne 0 ] && [ $status -ne 137 ]; } || fail "$signal: the launcher ended with $status"
        [ $signal = KILL ] || [ "$(grep -c "^txtrain: rank [01] on " "$work/err")" -eq 1 ] || fail "$signal: no line, or several"
        [ -z "$(of "$folder")" ] || fail "$signal: ranks are left"
        # Under txlaunch the run resumes.
        folder=$work/again$i$signal
        long_run "$folder" timeout -s KILL 200 "$bin/txlaunch" --launcher "$launcher" -n 2 --max_restarts 2 \
            --heartbeat_timeout 4 -- > "$work/out" 2> "$work/err" &
        pid=$!
        strike $signal "$folder"
        struck=$?
        wait $pid
        status=$?
        [ $struck -eq 0 ] || fail "$signal: the run was over"
        [ $status -eq 0 ] || fail "$signal: txlaunch ended with $status"
        grep -q "rank [01] on" "$work/err" || fail "$signal: txlaunch names no rank"
        [ -z "$(of "$folder")" ] || fail "$signal: txlaunch leaves ranks"
        cmp -s "$work/whole/model.safetensors" "$folder/model.safetensors" || fail "$signal: other weights"
        rm -rf "$folder" "$work/alone$i$signal"
    done
    i=$((i + 1))
done

# Killed while it starts: before it has reported, before the log is open, and after.
i=0
while [ $i -lt $((2 * times)) ]; do
    folder=$work/start$i
    long_run "$folder" timeout -s KILL 200 "$bin/txlaunch" --launcher "$launcher" -n 2 -- > "$work/out" 2> "$work/err" &
    pid=$!
    victims=
    until [ "$(echo "$victims" | wc -w)" -ge 2 ] || ! kill -0 $pid; do
        victims=$(of "$folder")
    done
    random 15
    sleep "$(printf 0.%02d "$drawn")"
    random 2
    kill -KILL "$(echo "$victims" | sed -n "$((drawn + 1))p")"
    wait $pid
    status=$?
    [ $status -eq 0 ] || fail "killed while it starts: txlaunch ended with $status"
    grep -q "restart 1 of 3" "$work/err" || fail "killed while it starts: no restart"
    cmp -s "$work/whole/model.safetensors" "$folder/model.safetensors" || fail "killed while it starts: other weights"
    rm -rf "$folder"
    i=$((i + 1))
done

verdict
