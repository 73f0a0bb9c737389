#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of many ranks: the same files in every stage, resumed by other numbers of ranks and on other devices; a
# signal.
#   test_ranks_resume.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"

# stop_at STEP NAME: removes everything that a run wrote after a checkpoint, as a crash would
stop_at()
{
    find "$work/$2" -mindepth 1 -maxdepth 1 ! -name "checkpoint-$1" ! -name cache -exec rm -rf {} +
}

ranks 4 whole --per_device_train_batch_size 3 --save_strategy steps --save_steps 6 || fail "4 ranks"
for stage in 0 1 2 3; do
    ranks 4 s$stage --per_device_train_batch_size 3 --save_strategy steps --save_steps 6 --zero_stage $stage ||
        fail "stage $stage"
    for file in model.safetensors optimizer.safetensors; do
        cmp -s "$work/whole/checkpoint-6/$file" "$work/s$stage/checkpoint-6/$file" || fail "stage $stage: other $file"
    done
    stop_at 6 s$stage
done

# The same ranks in another stage go on to the bit; fewer or more keep the rows of a step.
ranks 4 s0 --per_device_train_batch_size 3 --resume_from_checkpoint --zero_stage 2 || fail "from stage 0 to 2"
same whole s0
ranks 2 s1 --per_device_train_batch_size 3 --resume_from_checkpoint --zero_stage 1 || fail "4 ranks to 2"
near whole s1
ranks 1 s2 --per_device_train_batch_size 5 --resume_from_checkpoint || fail "4 ranks to 1"
near whole s2
other=cpu
[ "$device" = cpu ] && "$bin/txtrain" --list-devices | grep -q "^opencl" && other=opencl
cp -r "$work/whole" "$work/moved"
stop_at 6 moved
limit=1e-5
(device=$other && mixed=no && ranks 3 moved --per_device_train_batch_size 4 --resume_from_checkpoint) ||
    fail "4 ranks to 3 on $other"
near whole moved

# An optimizer with one state: the same files in every stage, and a run that resumes in another stage.
for stage in 0 1 2 3; do
    ranks 4 lion$stage --optim lion_32bit --per_device_train_batch_size 3 --save_strategy steps --save_steps 6 \
        --zero_stage $stage || fail "Lion, stage $stage"
    for file in model.safetensors optimizer.safetensors; do
        cmp -s "$work/lion0/checkpoint-6/$file" "$work/lion$stage/checkpoint-6/$file" ||
            fail "Lion, stage $stage: other $file"
    done
done
same lion0 lion1
same lion0 lion2
cmp -s "$work/lion0/model.safetensors" "$work/whole/model.safetensors" && fail "Lion gives AdamW's weights"
stop_at 6 lion1
ranks 4 lion1 --optim lion_32bit --per_device_train_batch_size 3 --resume_from_checkpoint --zero_stage 2 ||
    fail "Lion, from stage 1 to 2"
same lion0 lion1

# Another number of rows a step is another run.
stop_at 6 moved
cp -r "$work/whole/checkpoint-6" "$work/moved/"
ranks 4 moved --per_device_train_batch_size 2 --resume_from_checkpoint && fail "resumed with other steps"
grep -q "global_batch" "$work/err" || fail "the other global batch is not named"

# No file may pass 8 MiB, which MPI needs, so that rank 0 can write no checkpoint of this model; the others, whose
# moments it collects, learn of it. A thread writes it, so they may only notice this when they save the next one.
for action in continue stop; do
    rm -rf "$work/full"
    (
        trap '' XFSZ
        ulimit -f 16384
        export TX_COMM_SHM=0
        ranks 2 full --config_overrides n_layer=4,n_embd=256 --per_device_train_batch_size 2 --zero_stage 2 \
            --max_steps 18 --save_strategy steps --save_steps 6 --on_save_error $action
    ) && fail "the final model was written, though it is too large"
    found=stop
    [ "$(numbers step "$work/full/log.jsonl" | tail -n 1)" -eq 18 ] && found=continue
    [ $found = $action ] || fail "on_save_error $action: it was $found"
done

# The disk has space for the model but not for the moments: the model is written, and all ranks end with 1.
(
    trap '' XFSZ
    ulimit -f 16384
    export TX_COMM_SHM=0 bin="$bin" work="$work"
    # shellcheck disable=SC2016
    set -- --train_file "$work/text" --config_name "$work/config.json" --config_overrides n_layer=2,n_embd=256 \
        --block_size 32 \
        --threads 1 --max_steps 4 --save_steps 2 --output_dir "$work/lacks" --device "$device" \
        --per_device_train_batch_size 2
    # shellcheck disable=SC2016
    timeout -s KILL 120 "$launcher" -n 2 sh -c \
        '"$bin/txtrain" "$@"; ended=$?; echo $ended >> "$work/ended"; exit $ended' sh "$@" > "$work/out" 2> "$work/err"
) && fail "ranks that lack checkpoints end with 0"
[ "$(sort "$work/ended" | uniq -c | tr -s ' ')" = " 2 1" ] || fail "not every rank ended with 1: $(cat "$work/ended")"
[ "$(grep -c "^txtrain: 2 checkpoints " "$work/err")" -eq 1 ] ||
    fail "what is lacking is not told once"
[ -s "$work/lacks/model.safetensors" ] || fail "no model where its checkpoints could not be written"

# If autotuners of ranks choose different kernels, as on a busy host, all ranks use the same ones, and so does a resumed
# run.
if [ "$device" = opencl ] && [ "$mixed" = no ]; then
    # shellcheck disable=SC2086
    set -- $from --threads 1 --seed 3 --max_steps 12 --learning_rate 1e-2 --save_strategy steps --save_steps 6 --bf16 \
        --logging_strategy no --ddp_overlap no --output_dir "$work/kernels" --device "$device" \
        --per_device_train_batch_size 3
    "$launcher" -n 1 env TX_GEMM=portable "$bin/txtrain" "$@" : -n 1 env TX_GEMM=x86 "$bin/txtrain" "$@" \
        > "$work/out" 2> "$work/err" || fail "ranks with other kernels"
    cp -r "$work/kernels" "$work/on"
    stop_at 6 on
    ranks 2 on --per_device_train_batch_size 3 --bf16 --resume_from_checkpoint || fail "ranks with other kernels go on"
    same kernels on
fi

# SIGTERM to the launcher, which passes it on: all end after the same step, and go on as if nothing had been.
rm -rf "$work/signal"
set -- --train_file "$work/text" --config_name "$work/config.json" --block_size 32 --threads 1 --seed 3 \
    --max_steps 100000 \
    --learning_rate 1e-4 --save_strategy no --logging_steps 1 --output_dir "$work/signal" --device "$device" \
    --per_device_train_batch_size 3
"$launcher" -n 2 "$bin/txtrain" "$@" > "$work/out" 2> "$work/err" &
pid=$!
tries=0
until numbers step "$work/signal/log.jsonl" | grep -qx 5 || [ $tries -ge 1200 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -TERM $pid
wait $pid
status=$?
# Open MPI's launcher has an exit status of its own.
expected=143
"$launcher" --version 2>&1 | grep -q "Open MPI\|OpenRTE" && expected=1
[ $status -eq $expected ] || fail "the launcher ended with $status, not $expected"
grep -q "signal 15" "$work/err" || fail "the signal is not told"
step=$(ls "$work/signal" | sed -n 's/^checkpoint-//p')
[ -n "$step" ] || fail "no checkpoint after the signal"
if [ -n "$step" ]; then
    goal=$((step + 3))
    set -- --per_device_train_batch_size 3 --max_steps $goal --learning_rate 1e-4 --lr_scheduler_type constant
    rm -rf "$work/a" "$work/b"
    ranks 2 a "$@" --save_strategy steps --save_steps "$step" || fail "the run to step $goal"
    cp -r "$work/a" "$work/b"
    stop_at "$step" b
    ranks 2 b "$@" --resume_from_checkpoint || fail "the run from step $step"
    same a b
fi

verdict
