#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Signals to a run: SIGTERM and others end it with a checkpoint and one line, and SIGUSR1 requests a checkpoint.
#   test_signals.sh BIN [LAUNCHER]
#
# If this shell ignores SIGHUP, as under nohup, its children would ignore it, too.
[ -n "${heeds_hup:-}" ] || exec env --default-signal=HUP heeds_hup=yes sh "$0" "$@"
bin=$1
launcher=${2:-}
. "${0%/*}/../program.sh"
seq 1 500 | sed 's/$/ is a number/' > "$work/text"
echo '{"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 32, "vocab_size": 257}' \
    > "$work/config.json"

# train NAME STEPS [ARGUMENT...]
train()
{
    name=$1
    steps=$2
    shift 2
    exec "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --block_size 32 --threads 1 \
        --seed 3 --per_device_train_batch_size 2 --save_strategy no --max_steps "$steps" --output_dir "$work/$name" "$@"
}

# await_step NAME STEP: until the log has it
await_step()
{
    tries=0
    until grep -q "\"step\": $2," "$work/$1/log.jsonl" 2> /dev/null || [ $tries -ge 1000 ]; do
        sleep 0.01
        tries=$((tries + 1))
    done
}

# checkpoint NAME: sets $saved to the step of the only one
checkpoint()
{
    saved=$(ls "$work/$1" | sed -n 's/^checkpoint-//p')
    [ -n "$saved" ] && "$bin/txcheck" file "$work/$1/checkpoint-$saved" > "$work/out" 2>&1
}

# ends NAME SIGNAL STATUS: it does, with a checkpoint and one line
ends()
{
    (train "$1" 1000000 > "$work/out" 2> "$work/err") &
    pid=$!
    await_step "$1" 20
    kill -"$2" $pid
    wait $pid
    status=$?
    [ $status -eq "$3" ] || fail "SIG$2: status $status, not $3"
    [ "$(grep -c '^txtrain: ' "$work/err")" -eq 1 ] || fail "SIG$2: not one line"
    grep -q -- "--resume_from_checkpoint" "$work/err" || fail "SIG$2: what to do is not told"
    checkpoint "$1" || fail "SIG$2: no checkpoint that verifies"
}
ends interrupted INT 130
ends terminated TERM 143
ends hangup HUP 129
ends user USR2 140

# The reader of the output is gone.
{
    (train pipe 1000000 --logging_steps 1 2> "$work/err")
    echo $? > "$work/status"
} | head -n 12 > "$work/out"
[ "$(cat "$work/status")" -eq 141 ] || fail "SIGPIPE: status $(cat "$work/status")"
grep -q "signal 13" "$work/err" || fail "SIGPIPE: not told"
checkpoint pipe || fail "SIGPIPE: no checkpoint"

# The log reaches the largest size that a file may have; 400 blocks of 512 bytes hold every file of a checkpoint.
(
    ulimit -f 800
    train large 1000000 > "$work/out" 2> "$work/err"
)
status=$?
[ $status -eq 153 ] || fail "SIGXFSZ: status $status"
grep -q "signal 25" "$work/err" || fail "SIGXFSZ: not told"
checkpoint large || fail "SIGXFSZ: no checkpoint"

# An ignored signal stays ignored, as under nohup.
(trap '' HUP; train nohup 2500 > "$work/out" 2> "$work/err") &
pid=$!
await_step nohup 20
kill -HUP $pid
wait $pid || fail "nohup: SIGHUP ended the run"

# SIGUSR1 saves a checkpoint, also before the first step, and the run ends as without it.
(train usr1 2500 > "$work/out" 2> "$work/err") &
pid=$!
await_step usr1 20
kill -USR1 $pid
wait $pid || fail "SIGUSR1: the run failed"
checkpoint usr1 || fail "SIGUSR1: no checkpoint"
(train whole 2500 > "$work/out" 2> "$work/err") || fail "the run to compare with"
cmp -s "$work/whole/model.safetensors" "$work/usr1/model.safetensors" || fail "SIGUSR1: other weights"
(train early 600 > "$work/out" 2> "$work/err") &
pid=$!
kill -USR1 $pid 2> /dev/null
wait $pid
status=$?
# 138: before it was a txtrain
{ [ $status -eq 0 ] || [ $status -eq 138 ]; } || fail "SIGUSR1 at the start: status $status"

# If one of many ranks receives the signal, all ranks save.
if [ -n "$launcher" ] && command -v "$launcher" > /dev/null && command -v pgrep > /dev/null; then
    "$launcher" -n 2 "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --block_size 32 \
        --threads 1 --seed 3 --per_device_train_batch_size 2 --save_strategy no --max_steps 2500 \
        --output_dir "$work/many" > "$work/out" 2> "$work/err" &
    pid=$!
    await_step many 20
    kill -USR1 "$(pgrep -f "^$bin/txtrain .*--output_dir $work/many\$" | tail -n 1)"
    wait $pid || fail "SIGUSR1 to a rank of two: the run failed"
    checkpoint many || fail "SIGUSR1 to a rank of two: no checkpoint"
fi

verdict
