#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Learning from rewards. The memory is as planned, completions do not depend on the ranks, a resumed run ends with the
# same bytes, and a reward program that fails ends the run after a checkpoint. Wrong options and data are refused.
#
#   test_rewards.sh BIN-FOLDER LAUNCHER DEVICE    LAUNCHER "": this build has none
. "${0%/*}/../device.sh"

cat > "$work/config.json" << 'END'
{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 257,
 "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 64, "bos_token_id": 256,
 "eos_token_id": 256}
END
for i in 0 1 2 3 4 5; do
    echo "{\"prompt\": \"$i+1=\", \"answer\": \"$((i + 1))\", \"words\": [$i]}"
done > "$work/prompts.jsonl"

# A reward program: `program HOW`, which counts its starts in the file `starts`.
cat > "$work/program" << 'END'
#!/bin/sh
echo start >> "${0%/*}/starts"
read -r line
echo '{"ok": true}'
while read -r line; do
    id=${line#*\"id\": }
    id=${id%%,*}
    list=
    for _ in $(echo "$line" | grep -o '"completion":'); do
        list="$list, 0.5"
    done
    list=${list#, }
    case $1 in
    hang) sleep 100 ;;
    slow) sleep 2 ;;
    crash) exit 3 ;;
    nan) list=NaN${list#0.5} ;;
    few) list=${list%, 0.5} ;;
    text) list="\"1\"${list#0.5}" ;;
    large) head -c 100000000 /dev/zero | tr '\0' 1 ;;
    once) [ "$(wc -l < "${0%/*}/starts")" -gt 1 ] || exit 3 ;;
    null) list=null${list#0.5} ;;
    esac
    echo "{\"id\": $id, \"rewards\": [$list]}"
done
END
chmod +x "$work/program"

# run FOLDER ARGUMENT...: learns from rewards for four steps
run()
{
    folder=$1
    shift
    if [ -n "$rewards" ]; then
        set -- --reward_funcs "$rewards" "$@"
    else
        set -- --reward_funcs regex,number --reward_config '{"regex": {"pattern": "[a-z]"}}' "$@"
    fi
    # shellcheck disable=SC2086
    $start "$bin/txtrain" --task_name ${task:-grpo} --train_file "$work/prompts.jsonl" --model_name_or_path "$work/model" \
        --device "$device" --threads 1 --max_steps 4 --per_device_train_batch_size ${rows:-4} --num_generations 4 \
        --max_completion_length 6 --learning_rate 1e-3 \
        --save_total_limit 0 --output_dir "$work/$folder" "$@" \
        > "$work/out" 2> "$work/err"
}
start='' rewards=''
write_small_text 10
"$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --output_dir "$work/model" --block_size 16 \
    --max_steps 1 --threads 1 > "$work/out" 2> "$work/err" || fail "making a model"

# A model that scores texts, and a classifier. Both are of another kind than the model in training.
for i in 1 2 3 4; do
    echo "{\"prompt\": \"$i\", \"chosen\": \"ab$i\", \"rejected\": \"z\"}"
done > "$work/pairs.jsonl"
sed 's/"hidden_size": 64/"hidden_size": 32/' "$work/config.json" > "$work/judge.json"
"$bin/txtrain" --train_file "$work/text" --config_name "$work/judge.json" --output_dir "$work/small" --block_size 16 \
    --max_steps 1 --threads 1 > "$work/out" 2> "$work/err" || fail "making a small model"
"$bin/txtrain" --task_name reward --train_file "$work/pairs.jsonl" --model_name_or_path "$work/small" --threads 1 \
    --output_dir "$work/judge" --max_steps 4 --learning_rate 1e-2 > "$work/out" 2> "$work/err" || fail "making a judge"
{ echo "sentence,label"; awk '{ print $0 "," (NR % 3 ? "good" : "bad") }' "$work/text"; } > "$work/labels.csv"
"$bin/txtrain" --task_name classification --train_file "$work/labels.csv" --config_name "$work/judge.json" --threads 1 \
    --output_dir "$work/critic" --max_steps 1 > "$work/out" 2> "$work/err" || fail "making a critic"
models="model:$work/judge,model:$work/critic,length" label='{"critic":{"label":"good","max_length":30}}'

ways="--bf16 --gradient_checkpointing|--lora_r 2 --beta 0.1|--beta 0.1|--num_iterations 2 --gradient_accumulation_steps 2"
[ "$device" = cpu ] && ways="|$ways|--dtype bfloat16|--lora_r 2 --load_in_4bit|--loss_type cispo --steps_per_generation 2"
old=$IFS
IFS='|'
for way in $ways; do
    IFS=' '
    # shellcheck disable=SC2086
    run way --overwrite_output_dir --profile $way || fail "$way: the run"
    as_planned "$way"
    [ "$(numbers reward "$work/way/log.jsonl" | wc -l)" -ge 2 ] || fail "$way: no rewards"
    grep -aqs teacher "$work"/way/*.safetensors && fail "$way: the reference was saved"
    IFS='|'
done
IFS=$old

# Models as rewards live in the memory of the plan, and their texts do not change what is generated.
rewards=$models
for way in "" "--bf16 --beta 0.1" "--lora_r 2" "--dtype bfloat16"; do
    [ "$device" = cpu ] || [ "$way" = "--bf16 --beta 0.1" ] || continue
    # shellcheck disable=SC2086
    run models --overwrite_output_dir --profile --reward_config "$label" $way || fail "$way: models as rewards"
    as_planned "models as rewards $way"
    [ "$(numbers rewards/judge/mean "$work/models/log.jsonl" | sort -u | wc -l)" -ge 2 ] || fail "$way: the judge"
    grep -aqs reward_ "$work"/models/*.safetensors && fail "$way: a reward model was saved"
done
rewards=

# At the first step after a generation the ratios are 1, also if the old log-probabilities are from an evaluation.
run way --overwrite_output_dir --num_iterations 2 --gradient_accumulation_steps 2 --loss_type grpo || fail "two passes"
numbers loss "$work/way/log.jsonl" | head -n 1 > "$work/first"
echo 0 > "$work/zero"
near "$work/zero" "$work/first" 1e-6 || fail "advantages of a group whose mean is not 0"

# Rows that are shorter than max_completion_length have the losses of whole rows. The prompts have five tokens.
for _ in 1 2 3 4 5 6; do
    echo '{"completion_ids": [49, 50, 256], "rewards": {"a": 1}}'
    echo '{"completion_ids": [51, 256], "rewards": {"a": 0.5}}'
    echo '{"completion_ids": [52], "rewards": {"a": 0}}'
    echo '{"completion_ids": [49, 256], "rewards": {"a": 0.25}}'
done > "$work/recorded.jsonl"
for way in "" --pad_to_max_length; do
    # shellcheck disable=SC2086
    "$bin/txtrain" --task_name grpo --train_file "$work/prompts.jsonl" --model_name_or_path "$work/model" \
        --rollout_file "$work/recorded.jsonl" --device "$device" --threads 1 --max_steps 3 --num_generations 4 \
        --per_device_train_batch_size 4 --max_completion_length 40 --max_seq_length 64 --num_iterations 2 \
        --learning_rate 1e-3 --mask_truncated_completions --overwrite_output_dir --output_dir "$work/rows$way" $way \
        > "$work/out" 2> "$work/err" || fail "recorded completions $way"
    numbers loss "$work/rows$way/log.jsonl" > "$work/losses$way"
done
[ "$(numbers padded_tokens "$work/rows/log.jsonl" | head -n 1)" -eq 32 ] || fail "the rows are not short"
near "$work/losses--pad_to_max_length" "$work/losses" 1e-5 || fail "short rows have other losses"

for way in "" "--lora_r 2" rloo "--num_iterations 3 --logging_steps 4" "--top_entropy_quantile 0.5 --entropy_coef 0.1" \
    "--loss_type vespo --num_iterations 2 --reward_config $label"; do
    task='' file=model.safetensors rewards=
    case $way in *critic*) rewards=$models ;; esac
    case $way in [a-z]*) task=$way way= ;; esac
    [ "$way" = "--lora_r 2" ] && file=adapter_model.safetensors
    # shellcheck disable=SC2086
    run whole --overwrite_output_dir --save_steps 2 --log_completions $way || fail "$task $way: the unbroken run"
    rm -rf "$work/part"
    # shellcheck disable=SC2086
    run part --save_steps 2 --log_completions $way --resume_from_checkpoint "$work/whole/checkpoint-2" ||
        fail "$task $way: the resumed run"
    same whole part $file checkpoint-4/optimizer.safetensors checkpoint-4/rollout.json
    [ "$device" = cpu ] || break
done
task='' rewards=
run whole --overwrite_output_dir --log_completions || fail "the run with logged completions"
[ "$(cat "$work"/whole/completions/completions_0000?.jsonl | wc -l)" -eq 16 ] || fail "not four completions a step"
grep -q '"prompt": "[0-5]+1=", "completion": ".*", "regex": [01].0, "number": [01].0, "advantage": ' \
    "$work/whole/completions/completions_00002.jsonl" || fail "a logged completion"

if [ -n "$launcher" ] && [ "$device" = cpu ]; then
    start="timeout -s KILL 120 $launcher -n 2"
    for stage in 0 1 2; do
        rows=2
        run "rank-$stage" --zero_stage $stage --log_completions || fail "two ranks, stage $stage"
        same rank-0 "rank-$stage" completions/completions_00001.jsonl completions/completions_00004.jsonl
    done
    rewards=$models
    run judged-ranks --reward_config "$label" --log_completions || fail "two ranks with models as rewards"
    start='' rows=''
    run judged --reward_config "$label" --log_completions || fail "models as rewards"
    for i in judged judged-ranks; do
        sed 's/.*"judge": \([^,]*\), "critic": \([^,]*\),.*/\1\n\2/' "$work/$i/completions/completions_00001.jsonl" \
            > "$work/$i.scores"
    done
    near "$work/judged.scores" "$work/judged-ranks.scores" 1e-5 || fail "two ranks have other scores than one"
    start="timeout -s KILL 120 $launcher -n 2" rows='' rewards=''
    same whole rank-0 completions/completions_00001.jsonl completions/completions_00003.jsonl
    rows=2 rewards="command:$work/program crash"
    run ranks --overwrite_output_dir && fail "two ranks with a program that crashes"
    grep -q "program: ended with status 3 before it answered; stopped" "$work/err" || fail "two ranks: no message"
    # A program that takes longer than the limit of a rank that is stuck
    rewards="command:$work/program slow"
    run ranks --overwrite_output_dir --comm_timeout 1 || fail "a slow program on two ranks"
    start='' rows='' rewards=''
    numbers loss "$work/whole/log.jsonl" > "$work/alone.losses"
    numbers loss "$work/rank-0/log.jsonl" > "$work/ranks.losses"
    near "$work/alone.losses" "$work/ranks.losses" 1e-5 || fail "two ranks have other losses than one"
fi
[ "$device" = cpu ] || verdict " on $device"

# ---- Reward programs -----------------------------------------------------------------------------------------------

# program HOW STATUS MESSAGE
program()
{
    rewards="command:$work/program $1"
    rm -f "$work/starts"
    outcome "$2" "$3" run programs --overwrite_output_dir --reward_timeout 1
    rewards=
}
program good 0 ""
[ "$(numbers rewards/program/mean "$work/programs/log.jsonl" | sort -u)" = 0.5 ] || fail "the rewards of a program"
program hang 1 "no answer in 1 s"
[ "$(wc -l < "$work/starts")" -eq 2 ] || fail "a program that hangs was not started twice"
program crash 1 "ended with status 3"
program nan 1 "program"
program few 1 "3 numbers for 4 completions"
program text 1 "expected a number"
program large 1 "its answer is longer than"
program once 0 "it is started again"
program null 0 ""

# The steps before the failure are saved.
cat > "$work/late" << 'END'
#!/bin/sh
read -r line
echo '{"ok": true}'
while read -r line; do
    case $line in *'"step": 3,'*) exit 1 ;; esac
    id=${line#*\"id\": }
    echo "{\"id\": ${id%%,*}, \"rewards\": [1, 0, 1, null]}"
done
END
chmod +x "$work/late"
rewards="command:$work/late"
outcome 1 "stopped after step 2, which is saved" run later --save_strategy no
[ -d "$work/later/checkpoint-2" ] || fail "no checkpoint before the failure"

# ---- Refusals ------------------------------------------------------------------------------------------------------

rewards=exactly
outcome 1 "--reward_funcs exactly: must be exact, number," run wrong
rewards=length,length
outcome 1 "two rewards have the name length" run wrong
rewards="command:./a'b"
outcome 1 "is no name of" run wrong
rewards=regex
outcome 1 "pattern: is missing" run wrong
rewards=length
outcome 1 "goal: the function has no such setting; it has: target" run wrong --reward_config '{"length": {"goal": 3}}'
outcome 1 '"number" is not one of --reward_funcs' run wrong --reward_config '{"number": {}}'
outcome 1 "give one weight for each of the 1 rewards" run wrong --reward_weights 1,2
rewards=model:$work/critic
outcome 1 "choose one in --reward_config: bad, good" run wrong
outcome 1 "has no such setting; it has: label max_length" run wrong --reward_config '{"critic": {"column": "a"}}'
rewards=model:$work/judge
outcome 1 "which is the reward: leave it out" run wrong --reward_config '{"judge": {"label": "good"}}'
outcome 1 "max_length: the model has 64 positions" run wrong --reward_config '{"judge": {"max_length": 65}}'
outcome 1 "are planned: give a greater max_length" run short --reward_config '{"judge": {"max_length": 4}}'
rewards=model:$work/model
outcome 1 "gives no rewards" run wrong
rewards=model:$work/nothing
outcome 1 "nothing" run wrong
rewards=exact
outcome 1 'no column "solution"' run column --reward_config '{"exact": {"column": "solution"}}'
rewards=
outcome 1 "not a multiple of --num_generations 3" run wrong --num_generations 3
outcome 1 "but a generation batch of 32" run wrong --per_device_train_batch_size 32
outcome 1 "prompts are never truncated" run wrong --max_completion_length 60 --max_seq_length 32
outcome 2 "must be dapo, grpo, bnpo" run wrong --loss_type sigmoid
outcome 2 "--zero_stage 3 is not supported" run wrong --zero_stage 3
outcome 2 "evaluations do not generate" run wrong --validation_file "$work/prompts.jsonl" --do_train
outcome 2 "--rollout_file and --reward_funcs exclude" run wrong --rollout_file "$work/prompts.jsonl"
outcome 1 "--num_generations is for rewards" "$bin/txtrain" --train_file "$work/text" --num_generations 2 --max_steps 1 \
    --output_dir "$work/wrong"
echo '{"prompt": ""}' >> "$work/prompts.jsonl"
outcome 1 "line 7: prompt: it has no tokens" run wrong
verdict " on $device"
