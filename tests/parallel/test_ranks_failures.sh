#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks that die or stop at moments that nobody chose: the job ends by itself, not 0, with one line that names the rank;
# under txlaunch it ends with the weights of the run that nothing happened to.
#   test_ranks_failures.sh BIN LAUNCHER DEVICE [TIMES]
set -u
bin=$1
launcher=$2
device=$3
times=${4:-2}
. "${0%/*}/ranks.sh"
seed=$$
command -v pgrep > /dev/null || { echo "skipped: pgrep is missing: apt-get install procps"; exit 77; }

# random N: 0 .. N-1
random()
{
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    echo $((seed / 65536 % $1))
}

set -- --train_file "$work/text" --config_name "$work/config.json" --config_overrides n_layer=6,n_embd=96 --block_size 32 \
    --threads 1 --seed 3 --max_steps 200 --learning_rate 1e-3 --logging_strategy no --ddp_overlap no --device "$device" \
    --per_device_train_batch_size 4 --save_strategy steps --save_steps 20 --save_total_limit 2 --comm_timeout 3

timeout -s KILL 300 "$launcher" -n 2 "$bin/txtrain" "$@" --output_dir "$work/whole" > "$work/out" 2> "$work/err" ||
    fail "the unbroken run"

# strike SIGNAL FOLDER: to a random rank of the run into FOLDER, at a random moment after its first steps
strike()
{
    tries=0
    until [ -s "$2/log.jsonl" ] || [ $tries -ge 600 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    sleep "$(random 3).$(random 10)"
    pids=$(pgrep -f "^$bin/txtrain .*--output_dir $2\$|^$bin/txtrain .*--output_dir $2 ")
    [ "$(echo "$pids" | wc -w)" -ge 2 ] || return 1
    victim=$(echo "$pids" | sed -n "$(($(random 2) + 1))p")
    kill -"$1" "$victim"
}

i=0
while [ $i -lt "$times" ]; do
    for signal in KILL STOP; do
        # By the MPI launcher alone: it ends, and where it leaves time for that a line tells of the rank.
        folder=$work/alone$i$signal
        timeout -s KILL 120 "$launcher" -n 2 "$bin/txtrain" "$@" --output_dir "$folder" > "$work/out" 2> "$work/err" &
        pid=$!
        strike $signal "$folder"
        struck=$?
        wait $pid
        status=$?
        [ $struck -ne 0 ] || { [ $status -ne 0 ] && [ $status -ne 137 ]; } ||
            fail "$signal: the launcher ended with $status"
        [ $struck -ne 0 ] || [ $signal = KILL ] || [ "$(grep -c "^txtrain: rank [01] on .* does not answer: its last step is" \
            "$work/err")" -eq 1 ] || fail "$signal: no line, or several"
        # Under txlaunch it goes on.
        folder=$work/again$i$signal
        timeout -s KILL 200 "$bin/txlaunch" --launcher "$launcher" -n 2 --max_restarts 2 --heartbeat_timeout 4 -- \
            "$bin/txtrain" "$@" --output_dir "$folder" > "$work/out" 2> "$work/err" &
        pid=$!
        strike $signal "$folder"
        struck=$?
        wait $pid
        status=$?
        [ $status -eq 0 ] || fail "$signal: txlaunch ended with $status"
        [ $struck -ne 0 ] || grep -q "rank [01] on" "$work/err" || fail "$signal: txlaunch names no rank"
        cmp -s "$work/whole/model.safetensors" "$folder/model.safetensors" || fail "$signal: other weights"
        rm -rf "$folder" "$work/alone$i$signal"
    done
    i=$((i + 1))
done

[ $failures -eq 0 ] && echo "all good"
exit $((failures != 0))
