#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txtrain and txgen from the outside: options, errors, dry run, training, signals, sampling.
#
#   test_cli.sh BIN-FOLDER LAUNCHER DEVICE
. "${0%/*}/../device.sh"

# expect STATUS TEXT PROGRAM ARGUMENT...: checks the exit status, and that the output contains TEXT
expect()
{
    wanted=$1
    text=$2
    shift 2
    program=$1
    shift
    outcome "$wanted" "$text" "$bin/$program" "$@"
    if [ "$wanted" -eq 1 ] || [ "$wanted" -eq 2 ]; then
        [ "$(grep "^$program: " "$work/err" | grep -vc "^$program: warning: ")" -eq 1 ] || fail "$program $*: not one line of error"
    fi
}


# ---- options -----------------------------------------------------------------------------------
expect 0 "--per_device_train_batch_size" txtrain --help
expect 0 "txtrain 0." txtrain --version
expect 0 "cpu " txtrain --list_devices
expect 2 "--learning_rate" txtrain --learning-rat 1
expect 2 "--xyzzy" txtrain --xyzzy
expect 2 "text.txt" txtrain text.txt
expect 2 "--seed" txtrain --seed
expect 2 "--max_steps" txtrain --max_steps 1.5
expect 2 "--learning_rate" txtrain --learning_rate fast
expect 2 "--learning_rate" txtrain --learning_rate nan
expect 2 "--adam_beta1" txtrain --adam_beta1=1.5
expect 2 "linear|cosine|" txtrain --lr-scheduler-type steep
outcome 2 "usage: txtrain" "$bin/txtrain"
[ "$(wc -l < "$work/err")" -eq 5 ] || fail "the usage is not five lines"
expect 2 "--train_file" txtrain --output_dir "$work/none"
expect 2 "--output_dir" txtrain --train_file "$work/text"
expect 2 "--config_name" txtrain --model_name_or_path a --config-name b
expect 2 "--model" txgen --prompt a
expect 2 "--temperature" txgen --temprature 1

# ---- files ---------------------------------------------------------------------------------------
write_small_config 2 24 24 0.1
write_small_text 41
: > "$work/empty"
echo '{"model_type": "mamba"}' > "$work/mamba.json"
printf 'short' > "$work/short"
common="--config_name $work/config.json --block_size 20 --device $device --threads 2 --learning_rate 1e-2
    --per_device_train_batch_size 3 --gradient_accumulation_steps 2"

# train STATUS TEXT FOLDER ARGUMENT...
train()
{
    wanted=$1
    text=$2
    folder=$3
    shift 3
    # shellcheck disable=SC2086
    expect "$wanted" "$text" txtrain --train_file "$work/text" --output_dir "$work/$folder" $common "$@"
}

expect 1 "$work/gone" txtrain --train_file "$work/gone" --output_dir "$work/none" --device "$device"
expect 1 "$work/empty" txtrain --train_file "$work/empty" --output_dir "$work/none" --device "$device"
expect 1 "5 tokens" txtrain --train_file "$work/short" --output_dir "$work/none" --device "$device"
expect 1 "24 positions" txtrain --config_name "$work/config.json" --block_size 25 \
    --train_file "$work/text" --output_dir "$work/none"
expect 1 "gpt3" txtrain --config_name gpt3 --dry-run
expect 1 "$work/gone" txtrain --model_name_or_path "$work/gone" --dry_run
expect 1 "no device \"nonsense\": there are cpu (" txtrain --device nonsense --dry-run
expect 1 "through OpenCL" txtrain --device cuda --dry-run
expect 1 "TX has no such type" txtrain --config_name "$work/mamba.json" --dry-run
expect 2 "did you mean cosine? " txtrain --lr_scheduler_type cosin
expect 2 "too small: must be between 0 and" txtrain --seed -1
expect 2 "--seed 99999999999999999999: too large: must be between 0 and 9223372036854775807" txtrain --seed 99999999999999999999
# More threads than cores: the program begins anew with threads that sleep while they wait, unless it is told how. OpenMP
# runtimes, of which a program may load several, print their settings: some whenever they are loaded, others when first used.
runtimes_told()
{
    env -u OMP_WAIT_POLICY OMP_DISPLAY_ENV=true "$@" "$bin/txtrain" --config_name "$work/config.json" --block_size 8 \
        --dry_run --threads 4096 2>&1 > "$work/out" | grep -c 'DISPLAY ENVIRONMENT BEGIN'
}
once=$(runtimes_told OMP_WAIT_POLICY=active)
[ "$once" -gt 0 ] && [ "$(runtimes_told)" -gt "$once" ] ||
    fail "4096 threads: not begun anew, or though the user said how to wait"
# A vocabulary of another size than the bytes' needs no tokenizer if no data are named.
sed 's/"vocab_size": *257/"vocab_size": 300/' "$work/config.json" > "$work/wide.json"
expect 0 "300" txtrain --config_name "$work/wide.json" --block_size 8 --dry_run
# The tokens of a text that was read are cached; no other file is written.
[ ! -e "$work/none" ] || [ "$(ls -A "$work/none")" = cache ] || fail "a run that could not start left files"

# ---- training --------------------------------------------------------------------------------------
train 0 "" a --max_steps 12 --validation_file "$work/text" --eval_strategy steps --eval_steps 5 \
    --warmup_steps 3 --profile
grep -q "allocations .* 0$" "$work/out" || fail "allocations within the run"
# Planned and counted bytes are in the columns before MiB and in the last column.
awk '$1 == "total" { total++; if ($2 != $NF) exit 1 }
     $0 ~ /^  (weights|optimizer states|gradients|activations and temporary|functionality) / {
         n = split($0, word, " +"); for (i = 1; i <= n && word[i] !~ /^[0-9]+$/; i++); rows++
         if (word[i] != $NF) exit 1
     }
     END { if (total != 1 || rows != 5) exit 1 }' "$work/out" || fail "memory counted is not what was planned"
awk '$1 == "total" { print $2 }' "$work/out" > "$work/total"
[ "$(grep -c '"loss"' "$work/a/log.jsonl")" -eq 12 ] || fail "log.jsonl does not have 12 lines with a loss"
[ "$(grep -c '"eval_loss".*"perplexity"' "$work/a/log.jsonl")" -eq 3 ] || fail "not 3 evaluations"
grep -q '^{"step": 1, "epoch": .*"loss": .*"grad_norm": .*"learning_rate": 0, "tokens": 120, "padded_tokens": 120, "tokens_per_second": ' \
    "$work/a/log.jsonl" || fail "the first line of log.jsonl"
ended "$work/a" 12
for file in config.json tokenizer.json; do
    [ -s "$work/a/$file" ] || fail "$file is missing"
done
awk -F'"loss": ' '/"loss"/ { split($2, n, ","); if (!first) first = n[1]; last = n[1] }
    END { exit !(last < first - 1) }' "$work/a/log.jsonl" || fail "the loss did not fall"

train 1 "$work/a" a --max_steps 1
train 0 "" a --max_steps 1 --overwrite-output-dir
ended "$work/a" 1
train 0 "" none --dry_run --validation_file "$work/text" --eval_strategy steps
[ "$(awk '$1 == "total" { print $2 }' "$work/out")" = "$(cat "$work/total")" ] ||
    fail "a dry run says other than the run did"

train 0 "" b --max_steps 12 --seed=7
train 0 "" c --max_steps 12 --seed=7
train 0 "" d --max_steps 12 --seed=8
cmp -s "$work/b/model.safetensors" "$work/c/model.safetensors" || fail "two runs with one seed differ"
! cmp -s "$work/b/model.safetensors" "$work/d/model.safetensors" || fail "two seeds give the same model"

# An epoch of 122 blocks is 21 steps, the last with one micro-batch of two blocks.
train 0 "" e --num_train_epochs 1.5
ended "$work/e" 32
grep -q '"step": 21, "epoch": 1,.*"tokens": 2440,' "$work/e/log.jsonl" || fail "the end of the first epoch"

# Tokens need no tokenizer; the model is then written without one.
head -c 2000 "$work/text" | sed 's/./&\n/g' | awk '{ printf "%c%c", 65 + NR % 26, 0 }' |
    tr '\000' '\001' > "$work/tokens.bin"
expect 0 "" txtrain --train_file "$work/tokens.bin" --config_name "$work/config.json" \
    --config_overrides vocab_size=400 --block_size 20 --max_steps 2 --output_dir "$work/tokens" --device "$device"
[ -s "$work/tokens/model.safetensors" ] && [ ! -e "$work/tokens/tokenizer.json" ] || fail "a model of bare tokens"

# A rate of 0 leaves the weights that the run began with.
expect 0 "" txtrain --model_name_or_path "$work/b" --train_file "$work/text" --max_steps 2 --learning_rate 0 \
    --output_dir "$work/f" --device "$device"
cmp -s "$work/b/model.safetensors" "$work/f/model.safetensors" || fail "the run does not begin with the model's weights"

mkdir -p "$work/g/log.jsonl"
train 0 "log.jsonl: a folder" g --max_steps 3 --overwrite_output_dir
[ "$(grep -c "warning: " "$work/err")" -eq 1 ] || fail "not one warning of a log that cannot be written"
ended "$work/g" 3

# The moments of this model are over 120 KiB, its weights are not: no checkpoint can be written, the model can.
(
    trap '' XFSZ
    ulimit -f 240
    failures=0
    train 1 "3 checkpoints" unsaved --max_steps 12 --save_steps 5
    exit "$failures"
) || fail "a run without its checkpoints"
[ -s "$work/unsaved/model.safetensors" ] && [ -s "$work/unsaved/all_results.json" ] ||
    fail "no model where checkpoints could not be written"
[ "$(grep -c "warning: .*checkpoint" "$work/err")" -eq 3 ] || fail "not 3 checkpoints told as not written"

# Without epsilon Adam divides 0 by 0 at positions that are never used.
train 1 "" h --max_steps 20 --adam_epsilon 0
[ "$(grep -c "warning: " "$work/err")" -eq 5 ] || fail "not 5 updates told as skipped"
numbers loss "$work/h/log.jsonl" | grep -q NaN || fail "the log hides a loss that is not finite"
[ ! -e "$work/h/model.safetensors" ] || fail "a damaged model was written"

# signal NAME STATUS: ends a long run after its first steps
signal()
{
    # shellcheck disable=SC2086
    "$bin/txtrain" --train_file "$work/text" --output_dir "$work/$1" $common --max_steps 1000000 > "$work/out" \
        2> "$work/err" &
    process=$!
    await has_logged "$work/$1" 2
    kill -s "$1" $process
    wait $process
    status=$?
    [ $status -eq "$2" ] || fail "SIG$1: status $status, expected $2"
    [ -s "$work/$1"/checkpoint-*/manifest.json ] || fail "SIG$1: no checkpoint was written"
}
signal INT 130
signal TERM 143

# ---- generation ------------------------------------------------------------------------------------
generate="--model $work/b --device $device --threads 2"
# shellcheck disable=SC2086
for arguments in "--seed 1" "--seed 1 --top_k 5 --temperature 0.7" "--temperature 0"; do
    expect 0 "the cat" txgen $generate --prompt "the cat" --max_new_tokens 12 $arguments
    cp "$work/out" "$work/first"
    expect 0 "the cat" txgen $generate --prompt "the cat" --max_new_tokens 12 $arguments
    cmp -s "$work/first" "$work/out" || fail "txgen $arguments: two runs differ"
done
# shellcheck disable=SC2086
expect 1 "24 positions" txgen $generate --temperature 0 --prompt "the cat" --max_new_tokens 18
# shellcheck disable=SC2086
expect 1 "257" txgen $generate --ids "1 257" --logits "$work/logits"
[ ! -e "$work/logits" ] || fail "logits were written for an id outside the vocabulary"
# shellcheck disable=SC2086
expect 1 "--ids" txgen $generate --temperature 0 --ids "1 x"
rm "$work/b/tokenizer.json"
# shellcheck disable=SC2086
expect 0 "" txgen $generate --ids "1 2,3" --logits "$work/logits"
header=$(od -An -t u8 -N 8 "$work/logits" | tr -d ' ')
[ "$(wc -c < "$work/logits")" -eq $((8 + header + 3 * 257 * 4)) ] || fail "the size of the logits"
tail -c +9 "$work/logits" | head -c "$header" | grep -q '"logits".*"F32".*\[ *1, *3, *257 *\]' ||
    fail "the header of the logits"

verdict " on $device"
