#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs of 2 and 3 ranks, each with one fault at a random moment, from before the start to after the end: a rank is
# killed, stopped, or receives a signal to end. Every run ends within the limit plus five seconds. It returns 0 only if
# its model is written and equal to that of the undisturbed run. It leaves no process and no shared memory.
#   test_ranks_chaos.sh BIN LAUNCHER [RUNS [SEED]]
runs=${3:-}
runs=${runs:-12}
device=cpu
. "${0%/*}/ranks.sh"
command -v pgrep > /dev/null || { echo "skipped: pgrep is missing: apt-get install procps"; exit 77; }
seed=${4:-$$}
limit=3
echo "seed $seed"

# begin N FOLDER: a run of N ranks, in the background
begin()
{
    "$launcher" -n "$1" "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" \
        --config_overrides n_layer=6,n_embd=96 --block_size 32 --threads 1 --seed 3 --max_steps 40 \
        --learning_rate 1e-3 \
        --logging_strategy no --ddp_overlap no --global_batch_size 12 --per_device_train_batch_size 2 \
        --save_strategy steps \
        --save_steps 15 --comm_timeout $limit --start_timeout $limit --output_dir "$2" > "$work/out" 2> "$work/err" &
    pid=$!
}

now()
{
    echo $(($(date +%s%N) / 1000000))
}

# await PID MILLISECONDS: returns false if the process has not ended by then
await()
{
    until_=$(($(now) + $2))
    while kill -0 "$1" 2> /dev/null; do
        [ "$(now)" -lt $until_ ] || return 1
        sleep 0.02
    done
}

for n in 2 3; do
    from=$(now)
    begin $n "$work/whole$n"
    wait $pid || fail "the undisturbed run of $n ranks"
    eval "took$n=$(($(now) - from))"
done

i=0
struck=0
behind=0
while [ $i -lt "$runs" ]; do
    i=$((i + 1))
    n=$((2 + i % 2))
    eval "took=\$took$n"
    random 4
    signal=$(echo KILL STOP STOP TERM | cut -d ' ' -f $((drawn + 1)))
    random $((took + took / 10))
    moment=$drawn
    random $n
    victim=$drawn
    folder=$work/run$i
    what="run $i: $n ranks, $signal to one of them after $moment of $took ms"
    begin $n "$folder"
    sleep "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))"
    hit=$(pgrep -f "^$bin/txtrain .*--output_dir $folder\$" | sed -n "$((victim + 1))p")
    [ -z "$hit" ] || kill -"$signal" "$hit" 2> /dev/null && struck=$((struck + 1))
    # A run that is not disturbed any more may take its usual time. The limit counts from the fault on.
    if ! await $pid $((1000 * (limit + 5) + took)); then
        # If a process is stopped after MPI_Finalize, everything is written and only the launcher waits.
        left=$(pgrep -f "^$bin/txtrain .*--output_dir $folder\$")
        if [ "$signal" = STOP ] && [ "$left" = "$hit" ]; then
            kill -CONT "$hit"
            behind=$((behind + 1))
        fi
        await $pid 5000 || fail "$what: has not ended"
        pkill -KILL -f -- "--output_dir $folder"
    fi
    wait $pid
    status=$?
    if [ $status -eq 0 ]; then
        cmp -s "$work/whole$n/model.safetensors" "$folder/model.safetensors" || fail "$what: status 0 without the model"
        [ -s "$folder/all_results.json" ] || fail "$what: status 0 without the results"
    fi
    tries=0
    while pgrep -f -- "--output_dir $folder\$" > /dev/null && [ $tries -lt 100 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    [ -z "$(pgrep -f -- "--output_dir $folder\$")" ] || fail "$what: processes are left"
    rm -rf "$folder"
done
[ -z "$(find /dev/shm -maxdepth 1 -type f -name 'tx*' -user "$(id -u)" 2> /dev/null)" ] || fail "shared memory is left"

echo "$struck of $runs runs were struck, $behind of them behind MPI's end"
[ $behind -le $((1 + runs / 10)) ] || fail "too many were struck behind MPI's end"
[ $struck -gt 0 ] || fail "no run was struck"
verdict
