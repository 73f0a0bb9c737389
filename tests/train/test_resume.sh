#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run that resumes from a checkpoint ends with the same bytes as one that never stopped: weights, moments, log.
#
#   test_resume.sh BIN-FOLDER LAUNCHER DEVICE
. "${0%/*}/../device.sh"

# 121 blocks in micro-batches of 3, 2 a step: 21 steps an epoch, the last with one micro-batch of one block.
write_small_text 42
head -c 2425 "$work/text" > "$work/cut" && mv "$work/cut" "$work/text"
write_small_config 2 24 24 0.1

# run FOLDER ARGUMENT...
run()
{
    folder=$1
    shift
    "$bin/txtrain" --train_file "${data:-$work/text}" --validation_file "$work/text" --config_name "$work/config.json" \
        --block_size 20 --device "$device" --threads 2 --learning_rate 1e-2 --per_device_train_batch_size 3 \
        --gradient_accumulation_steps 2 --max_steps 45 --warmup_steps 4 --lr_scheduler_type cosine \
        --eval_strategy steps --eval_steps 10 --logging_steps 7 --save_total_limit 0 --output_dir "$work/$folder" "$@" \
        > "$work/out" 2> "$work/err"
}

# Prints everything that must be equal: all but times, the mean loss of the call, and options that differ.
facts()
{
    sed 's/, "tokens_per_second": .*//' "$1/log.jsonl"
    sed '/_runtime"\|_per_second"\|"train_loss"\|"save_steps"\|"best_model_checkpoint"/d' "$1/trainer_state.json"
}

# compare FOLDER WHAT
compare()
{
    cmp -s "$work/whole/model.safetensors" "$work/$1/model.safetensors" || fail "$2: the weights differ"
    cmp -s "$work/whole/checkpoint-45/optimizer.safetensors" "$work/$1/checkpoint-45/optimizer.safetensors" ||
        fail "$2: the moments differ"
    facts "$work/whole" > "$work/a"
    facts "$work/$1" > "$work/b"
    cmp -s "$work/a" "$work/b" || { diff "$work/a" "$work/b"; fail "$2: the log or the history differs"; }
}

run whole --save_steps 1 || fail "the unbroken run"
[ "$(grep -c '"loss"' "$work/whole/log.jsonl")" -eq 45 ] || fail "not 45 steps in the log"
lines=$(wc -l < "$work/whole/log.jsonl")

# The first step, the last of an epoch, the first of the next, one between, with other workers.
for k in 1 21 22 30; do
    mkdir "$work/part-$k"
    cp -r "$work/whole/checkpoint-$k" "$work/moved $k"
    run "part-$k" --save_steps 45 --resume_from_checkpoint "$work/moved $k" --dataloader_num_workers 2 ||
        fail "resume from step $k"
    compare "part-$k" "resumed from step $k"
done

# A signal at any moment, most likely during accumulation: the step is finished and is the checkpoint's.
run_until_signal()
{
    run signal --save_steps 45 &
    process=$!
    await has_logged "$work/signal" 9
    pkill -TERM -P $process txtrain || kill -TERM $process
    wait $process
}
run_until_signal
status=$?
if [ $status -eq 143 ]; then
    [ "$(ls -d "$work"/signal/checkpoint-* | wc -l)" -eq 1 ] || fail "not one checkpoint after the signal"
    run signal --save_steps 45 --resume_from_checkpoint || fail "resume after a signal"
else
    [ $status -eq 0 ] || fail "the interrupted run ended with $status"
fi
compare signal "resumed after a signal"

# Other data, and another batch, are refused; another rate gives a message.
mkdir "$work/other"
head -c 2400 "$work/text" > "$work/text2"
data=$work/text2
run other --resume_from_checkpoint "$work/moved 21" && fail "other data were taken"
data=
grep -q "data" "$work/err" || fail "the message does not name the data"
run other --resume_from_checkpoint "$work/moved 21" --gradient_accumulation_steps 3 && fail "another batch was taken"
grep -q "a step had 6 blocks and has 9" "$work/err" || fail "the message does not name the batch"
run other --resume_from_checkpoint "$work/moved 21" --learning_rate 2e-2 || fail "another rate"
grep -q "warning: .*learning_rate" "$work/err" || fail "another rate is not told"
cmp -s "$work/other/model.safetensors" "$work/whole/model.safetensors" && fail "the rate made no difference"

# Nothing left, and nothing there.
run whole --resume_from_checkpoint || fail "resume at the end"
[ "$(wc -l < "$work/whole/log.jsonl")" -eq "$lines" ] || fail "it trained beyond the end"
run none --resume_from_checkpoint && fail "resumed from nothing"
[ "$(grep -c . "$work/err")" -eq 1 ] || fail "not one line of error"

# In mixed precision: a checkpoint holds the fp32 weights, of which the 16-bit copies are made again.
mv "$work/whole" "$work/fp32"
run whole --bf16 --save_steps 22 || fail "the unbroken run in mixed precision"
run half --bf16 --save_steps 45 --resume_from_checkpoint "$work/whole/checkpoint-22" || fail "resume in mixed precision"
compare half "resumed in mixed precision"
cmp -s "$work/fp32/model.safetensors" "$work/whole/model.safetensors" && fail "mixed precision made no difference"
[ "$(wc -c < "$work/fp32/model.safetensors")" -eq "$(wc -c < "$work/whole/model.safetensors")" ] ||
    fail "the weights of mixed precision are not saved in fp32"

# In fp16 from a scale that is too large: each overflow only halves the scale, then the run recovers. A resumed run
# restores scale and count.
rm -rf "$work/whole"
run whole --fp16 --init_scale 1e10 --growth_interval 11 --save_steps 1 || fail "the unbroken run in fp16"
numbers loss_scale "$work/whole/log.jsonl" > "$work/scales"
numbers skipped "$work/whole/log.jsonl" > "$work/skipped"
paste "$work/scales" "$work/skipped" | awk -v scale=1e10 '
    function far(a, b) { return !(a > b * (1 - 1e-7) && a < b * (1 + 1e-7)) }
    { if ($2 > skipped) { drops++; bad += far($1 * 2, scale); good = 0 }
      else if (++good == 11) { grown++; bad += far($1, 2 * scale); good = 0 }
      else bad += $1 != scale
      scale = $1; skipped = $2 }
    END { exit !(NR == 45 && !bad && drops == skipped && drops >= 3 && grown >= 1) }' ||
    { cat "$work/scales" "$work/skipped"; fail "scales and skipped steps in fp16"; }
# As transformers' Trainer: `if not self.accelerator.optimizer_step_was_skipped: self.lr_scheduler.step()`.
numbers learning_rate "$work/fp32/log.jsonl" > "$work/rates"
numbers learning_rate "$work/whole/log.jsonl" | paste "$work/rates" - "$work/skipped" | awk '
    { rate[NR] = $1; if ($2 != rate[NR - skipped]) bad = 1; skipped = $3 }
    END { exit !(NR == 45 && !bad) }' || fail "the schedule runs on in skipped steps"
cmp -s "$work/whole/checkpoint-1/model.safetensors" "$work/whole/checkpoint-2/model.safetensors" ||
    fail "a skipped step changes weights"
# The device chooses the right rate also if the host learns of a skipped step after it has given the next one.
run late --fp16 --init_scale 1e10 --growth_interval 11 --save_steps 45 ||
    fail "a run in fp16 without checkpoints in between"
cmp -s "$work/late/model.safetensors" "$work/whole/model.safetensors" ||
    fail "the rate depends on when the host learns of skipped steps"
cmp -s "$work/whole/checkpoint-1/optimizer.safetensors" "$work/whole/checkpoint-2/optimizer.safetensors" ||
    fail "a skipped step changes moments"
for k in 2 21 30; do
    run "fp16-$k" --fp16 --init_scale 1e10 --growth_interval 11 --save_steps 45 \
        --resume_from_checkpoint "$work/whole/checkpoint-$k" || fail "resume in fp16 from step $k"
    compare "fp16-$k" "resumed in fp16 from step $k"
done
run mixed --resume_from_checkpoint "$work/whole/checkpoint-30" --fp16 false || fail "resume of an fp16 run in fp32"
tail -n 10 "$work/mixed/log.jsonl" | grep -q loss_scale && fail "a run in fp32 scales its losses"

verdict " on $device"
