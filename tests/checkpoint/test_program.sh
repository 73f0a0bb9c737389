#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txtrain under faults: killed at any call, a disk that fails or fills up, damaged checkpoints, two runs in one folder,
# signals, a log that cannot be written. After each of them a resumed run ends with the bytes of an unbroken one.
#
#   test_program.sh BIN-FOLDER SHIM DEVICE
bin=$1
shim=$2
device=$3
. "${0%/*}/../program.sh"
out=$work/disk/out

need_device

write_small_text
write_small_config 1 16 16 0.1

# run FOLDER ARGUMENT...: a run, with $preload preloaded unless it is empty
preload=
run()
{
    folder=$1
    shift
    env ${preload:+LD_PRELOAD="$shim"} "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" \
        --block_size 16 --device "$device" --threads 2 --learning_rate 1e-2 --per_device_train_batch_size 2 \
        --max_steps 8 --save_steps 2 --save_total_limit 2 --output_dir "$folder" "$@" > "$work/out" 2> "$work/err"
}

# fault MODE AT ARGUMENT...: a run under the shim, in a new folder or resumed
fault()
{
    TX_FAULT_FOLDER=$work/disk TX_FAULT_MODE=$1 TX_FAULT_AT=$2 TX_FAULT_LOG=$work/log
    export TX_FAULT_FOLDER TX_FAULT_MODE TX_FAULT_AT TX_FAULT_LOG
    shift 2
    preload=yes
    run "$out" "$@"
    status=$?
    preload=
    return $status
}

fresh()
{
    rm -rf "$work/disk"
    mkdir "$work/disk"
}

# compare FOLDER WHAT: weights, moments, log
compare()
{
    cmp -s "$work/whole/model.safetensors" "$1/model.safetensors" || fail "$2: the weights differ"
    cmp -s "$work/whole/checkpoint-8/optimizer.safetensors" "$1/checkpoint-8/optimizer.safetensors" ||
        fail "$2: the moments differ"
    sed 's/, "tokens_per_second": .*//' "$work/whole/log.jsonl" > "$work/a"
    sed 's/, "tokens_per_second": .*//' "$1/log.jsonl" > "$work/b"
    cmp -s "$work/a" "$work/b" || fail "$2: the log differs"
}

# Resumes the run, or starts again if there is no checkpoint. Then no temporary file is left.
go_on()
{
    if ls "$out" 2> /dev/null | grep -q '^checkpoint-'; then
        run "$out" --resume_from_checkpoint || fail "$1: resume"
    else
        run "$out" --overwrite_output_dir || fail "$1: a new start"
    fi
    [ -z "$(ls -A "$out" | grep '^\.checkpoint\|\.tmp$')" ] || fail "$1: something temporary is left"
    compare "$out" "$1"
}

one_line()
{
    [ "$(grep "^txtrain: " "$work/err" | grep -vc "^txtrain: warning: ")" -eq 1 ] || fail "$1: not one line of error"
}

run "$work/whole" || fail "the unbroken run"
points=6
[ "$device" = cpu ] || points=3

# ---- killed, and disks that fail -----------------------------------------------------------------
if [ -n "$shim" ]; then
    fresh
    fault none 0 || fail "a run that is watched"
    compare "$out" "a run that is watched"
    calls=$(grep -a '^[A-Z] [0-9]' "$work/log" | tail -1 | cut -d ' ' -f 2)
    [ "$calls" -gt 100 ] || fail "the shim sees only $calls calls"
    for mode in kill eio readonly; do
        i=0
        while [ $i -lt $points ]; do
            at=$((1 + (i * calls + calls / 3) / points))
            i=$((i + 1))
            fresh
            fault $mode $at
            status=$?
            case $mode-$status in
            kill-137 | eio-0 | readonly-0) ;;
            eio-1 | readonly-1) one_line "$mode at $at" ;;
            *) fail "$mode at $at: status $status" ;;
            esac
            [ $status -ne 0 ] || ! grep "warning: .*checkpoint" "$work/err" | grep -qv "old checkpoint is kept" ||
                fail "$mode at $at: a missing checkpoint is success"
            go_on "$mode at call $at of $calls"
        done
    done
    # One kill after the other: each run comes a little further.
    fresh
    at=40
    while [ $at -lt $((calls * 2)) ]; do
        fault kill $at --resume_from_checkpoint || [ $? -eq 137 ] || fault kill $at --overwrite_output_dir
        at=$((at + calls / 6))
    done
    go_on "killed again and again"
    # The disk fills up: training continues without a checkpoint and warns.
    bytes=$(du -sb "$work/whole" | cut -f 1)
    for part in 1 2 3 4; do
        fresh
        fault full $((bytes * part / 5))
        status=$?
        [ $status -eq 1 ] || fail "a full disk: status $status"
        one_line "a full disk"
        grep -q "No space left" "$work/err" || fail "a full disk is not told"
        go_on "a disk that is full after $((bytes * part / 5)) bytes"
    done
    fresh
    fault full $((bytes / 2)) --on_save_error stop
    [ "$(numbers step "$out/log.jsonl" | tail -n 1)" != 8 ] || fail "on_save_error stop goes on"
    # A slow disk: training continues while a checkpoint is flushed, up to the next one.
    fresh
    fault slow 50 --logging_steps 1 || fail "a slow disk"
    compare "$out" "a slow disk"
    awk '/^saved .*checkpoint-2$/ { early = !later } /^step 3\// { later = 1 } END { exit early }' "$work/out" ||
        fail "training waits for the disk"
    awk '/^saved .*checkpoint-2$/ { ok = !later } /^step 5\// { later = 1 } END { exit !ok }' "$work/out" ||
        fail "the second checkpoint does not wait for the first"
fi

# ---- killed whenever it may be ---------------------------------------------------------------------
fresh
for delay in 0.05 0.2 0.1 0.4; do
    { run "$out" --resume_from_checkpoint || run "$out" --overwrite_output_dir; } &
    shell=$!
    sleep $delay
    pkill -KILL -P $shell txtrain 2> /dev/null
    wait $shell
done
go_on "killed by the clock"

# ---- damaged checkpoints ---------------------------------------------------------------------------
damage()
{
    size=$(wc -c < "$1")
    printf '\377\376\375' | dd of="$1" bs=1 seek=$((size / 2)) conv=notrunc 2> /dev/null
}
fresh
cp -r "$work/whole" "$out"
damage "$out/checkpoint-8/optimizer.safetensors"
go_on "the newest checkpoint is damaged"
grep -q "warning: .*checkpoint-8/optimizer.safetensors: " "$work/err" || fail "damage is not told"
grep -q "checkpoint-6" "$work/out" || fail "the checkpoint that was taken is not told"
: > "$out/checkpoint-8/trainer_state.json"
rm "$out/checkpoint-6/model.safetensors" "$out/model.safetensors"
run "$out" --resume_from_checkpoint && fail "started although all checkpoints are damaged"
one_line "all checkpoints are damaged"
[ ! -e "$out/model.safetensors" ] || fail "all damaged: a model was written"

# ---- two runs, signals -------------------------------------------------------------------------------
# A run that lasts: wait_for_run FOLDER waits for its first steps.
start_long()
{
    "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --block_size 16 --device "$device" \
        --threads 2 --learning_rate 1e-2 --per_device_train_batch_size 2 --max_steps 10000000 --save_strategy no \
        --output_dir "$1" > "$work/long" 2> "$work/long_err" &
    process=$!
    await has_logged "$1" 2
}
odd="$work/odd ü 'name"
ln -s "$odd" "$work/link"
mkdir "$odd"
start_long "$odd"
for way in "$odd" "$work/link"; do
    run "$way" --overwrite_output_dir && fail "a second run in one folder"
    one_line "a second run"
    grep -q "process $process on " "$work/err" || fail "the message does not name the process"
done
kill -TERM $process
wait $process
status=$?
[ $status -eq 143 ] || fail "SIGTERM: status $status"
[ "$(ls "$odd" | grep -c '^checkpoint-')" -eq 1 ] || fail "SIGTERM: not one checkpoint"
run "$work/link" --max_steps 1000000 --resume_from_checkpoint --dry_run || fail "the checkpoint of SIGTERM"

# The second signal ends the run at once, at any moment of the save: everything named as a checkpoint is complete.
for signals in "TERM TERM 143" "INT INT 130" "TERM INT 130"; do
    set -- $signals
    rm -rf "$work/twice"
    start_long "$work/twice"
    kill -s "$1" $process
    kill -s "$2" $process
    wait $process
    status=$?
    # Signals of one kind that arrive together may be merged.
    [ $status -eq "$3" ] || [ $status -eq 143 ] || fail "SIG$1, SIG$2: status $status"
    if ls "$work/twice" | grep -q '^checkpoint-'; then
        run "$work/twice" --max_steps 1000000 --resume_from_checkpoint --dry_run || fail "SIG$1, SIG$2: the checkpoint"
    fi
done

# ---- numbers that are not finite, a log that cannot be written ----------------------------------------
# A weight is so large that every gradient overflows: the updates are skipped, and the saved state does not change.
cp -r "$work/whole" "$work/huge"
rm -r "$work/huge"/checkpoint-*
size=$(wc -c < "$work/huge/model.safetensors")
printf '\377\377\177\177\377\377\177\377' |
    dd of="$work/huge/model.safetensors" bs=1 seek=$((size - 8)) conv=notrunc 2> /dev/null
"$bin/txtrain" --train_file "$work/text" --model_name_or_path "$work/huge" --block_size 16 --device "$device" \
    --per_device_train_batch_size 2 --max_steps 8 --save_steps 1 --max_bad_steps 3 --output_dir "$work/bad" \
    > "$work/out" 2> "$work/err" && fail "went on without numbers"
one_line "numbers that are not finite"
grep -q "3 times" "$work/err" || fail "the end for want of numbers is not told"
[ "$(grep -c "warning: " "$work/err")" -eq 3 ] || fail "not 3 updates told as skipped"
[ "$(numbers grad_norm "$work/bad/log.jsonl" | grep -c 'NaN\|Infinity')" -eq 3 ] || fail "the log hides a norm"
for folder in "$work"/bad/checkpoint-*; do
    cmp -s "$work/huge/model.safetensors" "$folder/model.safetensors" || fail "a skipped update changed the weights"
    tail -c 100 "$folder/optimizer.safetensors" | od -An -t x1 | grep -q '[1-9a-f]' && fail "or the moments"
done
ls "$work/bad" | grep -q '^checkpoint-2$' || fail "no checkpoint before the end for want of numbers"

# No driver at all: said for a device that was asked for, and nothing else is taken instead.
OCL_ICD_VENDORS=$work/nowhere OPENCL_VENDOR_PATH=$work/nowhere
export OCL_ICD_VENDORS OPENCL_VENDOR_PATH
if ! "$bin/txtrain" --list-devices | grep -q '^opencl'; then
    run "$work/none" --device opencl && fail "trains on a device that there is not"
    one_line "no OpenCL driver"
    grep -q opencl "$work/err" || fail "no OpenCL driver: the message"
    run "$work/other" --device cpu || fail "no OpenCL driver and a run on the CPU"
fi
unset OCL_ICD_VENDORS OPENCL_VENDOR_PATH

verdict " on $device"
