#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Learning from preferences. The memory is as planned, a resumed run ends with the same bytes, and ranks and ZeRO stages
# agree. The reference's log-probabilities are read again from the cache. Wrong files are refused by line and key.
#
#   test_preferences.sh BIN-FOLDER LAUNCHER DEVICE    LAUNCHER "": this build has none
. "${0%/*}/../device.sh"

write_small_text 40
i=0
while [ $i -lt 24 ]; do
    echo "{\"prompt\": \"say $((i % 5)):\", \"chosen\": \" cat $((i % 3))\", \"rejected\": \" a dog, $i fish\"}"
    i=$((i + 1))
done > "$work/pairs.jsonl"
head -n 6 "$work/pairs.jsonl" > "$work/held.jsonl"

# run FOLDER ARGUMENT...: learns from the pairs
run()
{
    folder=$1
    shift
    # shellcheck disable=SC2086
    $start "$bin/txtrain" --task_name ${task:-dpo} --train_file "$work/${data:-pairs.jsonl}" --model_name_or_path "$work/model" \
        --device "$device" --threads 1 --max_steps 6 --per_device_train_batch_size 4 --learning_rate 1e-3 \
        --save_total_limit 0 --output_dir "$work/$folder" "$@" > "$work/out" 2> "$work/err"
}
start=
write_small_config 2 64 48 0.1
"$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --output_dir "$work/model" --block_size 16 \
    --max_steps 1 --threads 1 > "$work/out" 2> "$work/err" || fail "making a model"

for way in "" "--bf16 --gradient_checkpointing" "--dtype bfloat16" "--lora_r 2" "--lora_r 2 --load_in_4bit" \
    "--precompute_ref_log_probs" "--reference_free" "--ref_model $work/model"; do
    # shellcheck disable=SC2086
    run "way" --overwrite_output_dir --profile $way || fail "$way: the run"
    as_planned "$way"
    [ "$(numbers rewards/margins "$work/way/log.jsonl" | wc -l)" -eq 6 ] || fail "$way: not six margins"
    grep -aqs teacher "$work"/way/*.safetensors && fail "$way: the reference was saved"
done

# At the first step the model is its reference.
[ "$(numbers rewards/margins "$work/way/log.jsonl" | head -n 1)" = 0 ] || fail "rewards before the first update"

for way in "" "--precompute_ref_log_probs" "--lora_r 2" cpo orpo kto reward; do
    file=model.safetensors task=
    case $way in [a-z]*) task=$way way= ;; esac
    [ "$way" = "--lora_r 2" ] && file=adapter_model.safetensors
    # shellcheck disable=SC2086
    run whole --overwrite_output_dir --save_steps 3 --logging_steps 4 $way || fail "$task $way: the unbroken run"
    rm -rf "$work/part"
    # shellcheck disable=SC2086
    run part --save_steps 3 --logging_steps 4 $way --resume_from_checkpoint "$work/whole/checkpoint-3" ||
        fail "$task $way: the resumed run"
    same whole part $file checkpoint-6/optimizer.safetensors
    for folder in whole part; do
        grep -E '"(rewards|logps)/|_reward"' "$work/$folder/checkpoint-6/trainer_state.json" > "$work/$folder.logged"
    done
    [ -s "$work/whole.logged" ] && cmp -s "$work/whole.logged" "$work/part.logged" ||
        fail "$task $way: other means in the history"
done
task=

run cached --precompute_ref_log_probs || fail "the run that computes"
grep -q "24 samples computed" "$work/out" || fail "not computed"
cp "$work/cached/model.safetensors" "$work/first"
run cached --precompute_ref_log_probs --overwrite_output_dir || fail "the run that reads"
grep -q "24 samples read" "$work/out" || fail "not read from the cache"
cmp -s "$work/cached/model.safetensors" "$work/first" || fail "other bytes with log-probabilities that were read"
for file in "$work"/cached/cache/*; do
    printf X | dd of="$file" bs=1 seek=3 conv=notrunc 2> /dev/null
done
run cached --precompute_ref_log_probs --overwrite_output_dir || fail "the run with a damaged cache"
grep -q "24 samples computed" "$work/out" || fail "a damaged cache was read"
cmp -s "$work/cached/model.safetensors" "$work/first" || fail "other bytes after a damaged cache"

run evaluated --validation_file "$work/held.jsonl" --do_train --do_eval || fail "with an evaluation"
for key in eval_loss eval_rewards/chosen eval_rewards/accuracies eval_logps/rejected eval_logits/chosen eval_entropy \
    eval_mean_token_accuracy; do
    [ "$(numbers $key "$work/evaluated/eval_results.json" | wc -l)" -eq 1 ] || fail "no $key"
done

if [ -n "$launcher" ]; then
    start="timeout -s KILL 120 $launcher -n 2"
    for stage in 0 1 2 3; do
        run "rank-$stage" --per_device_train_batch_size 2 --zero_stage $stage || fail "two ranks, stage $stage"
        same rank-0 "rank-$stage"
    done
    run ranks --per_device_train_batch_size 2 --precompute_ref_log_probs || fail "two ranks, precomputed"
    start=
    run alone || fail "one rank"
    numbers loss "$work/alone/log.jsonl" > "$work/alone.losses"
    numbers loss "$work/rank-0/log.jsonl" > "$work/rank.losses"
    near "$work/alone.losses" "$work/rank.losses" 1e-5 || fail "two ranks have other losses than one"
fi

# wrong LINE MESSAGE: a file with this second line is refused
wrong()
{
    { head -n 1 "$work/pairs.jsonl" && echo "$1"; } > "$work/wrong.jsonl"
    data=wrong.jsonl
    outcome 1 "$2" run wrong --overwrite_output_dir
    outcome 0 "1 malformed" run wrong --overwrite_output_dir --skip_bad 1
    data=
}
wrong '{"prompt": "a", "chosen": "b"}' "line 2: rejected is missing"
wrong '{"prompt": "a", "chosen": "b", "rejected": []}' "line 2: rejected: expected a text, because prompt is a text"
wrong '{"prompt": 3, "chosen": "b", "rejected": "c"}' "line 2: prompt: expected a text or a list of messages"
wrong '{"chosen": "a b", "rejected": ["c"]}' "line 2: rejected: expected a text, because chosen is a text"
wrong '{"chosen": [{"role": "user", "content": "b"}], "rejected": [{"role": "user", "content": "c"}]}' \
    "no first message in common"
wrong '["prompt"]' "line 2: expected an object"
task=kto
wrong '{"prompt": "a", "completion": "b", "label": "yes"}' "line 2: label: expected true or false"
wrong '{"prompt": "a", "label": true}' "line 2: completion is missing"
task=reward
wrong '{"prompt": "a", "chosen": "b", "rejected": "c", "margin": "x"}' "line 2: margin: expected a number"
task=
outcome 2 "--loss_type kto: must be one or more of sigmoid, hinge" run wrong --overwrite_output_dir --loss_type kto
outcome 2 "one weight for each of the 2 losses" run wrong --overwrite_output_dir --loss_type ipo,sft --loss_weights 1
outcome 2 "only reverse_kl" run wrong --overwrite_output_dir --loss_type bco_pair --f_divergence_type forward_kl
outcome 2 "--use_weighting weights losses of pairs" run wrong --overwrite_output_dir --loss_type ipo,sft --use_weighting
outcome 2 "exo_pair needs --label_smoothing" run wrong --overwrite_output_dir --loss_type exo_pair
wrong '{"prompt": "a", "chosen": "b", "rejected": "c"' "line 2: "
outcome 1 "--task_name dpo" "$bin/txtrain" --train_file "$work/pairs.jsonl" --model_name_or_path "$work/model" \
    --max_steps 1 --output_dir "$work/wrong" --overwrite_output_dir
outcome 1 "--beta is for preferences" "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" \
    --beta 2 --max_steps 1 --block_size 16 --output_dir "$work/wrong" --overwrite_output_dir
outcome 2 "--label_smoothing_factor is not supported with --task_name dpo" run wrong --overwrite_output_dir \
    --label_smoothing_factor 0.1
outcome 1 "--lora_modules_to_save: the reference" run wrong --overwrite_output_dir --lora_r 2 \
    --lora_modules_to_save ln_f
outcome 2 "--ref_model and --precompute_ref_log_probs exclude" run wrong --ref_model "$work/model" \
    --precompute_ref_log_probs
verdict " on $device"
