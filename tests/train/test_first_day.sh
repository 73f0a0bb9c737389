#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Problems of new users: launchers of other systems than MPI, invalid checkpoints, resumed runs with other
# options, files that belong to a model, and the time until a run prints its first line.
#
#   test_first_day.sh BIN-FOLDER LAUNCHER    LAUNCHER: MPI's launcher, or "" if TX was built without MPI
bin=$1
launcher=$2
. "${0%/*}/../program.sh"
write_small_text
sed 's/cat/dog/' "$work/text" > "$work/text2"

# go FOLDER ARGUMENT...: a run of a small model
go()
{
    folder=$1
    shift
    "$bin/txtrain" --train_file "$work/text" --output_dir "$work/$folder" --config_overrides \
        n_layer=1,n_embd=16,n_head=2,n_positions=32 --block_size 16 --per_device_train_batch_size 2 --threads 1 "$@"
}
says() { grep -qF -- "$*" "$work/out" "$work/err" || fail "does not say: $*"; }

# ---- launchers ---------------------------------------------------------------------------------------
# Each of their processes would train the whole model: they end with the line that starts one run of many ranks.
for variables in "WORLD_SIZE=4 RANK=1 LOCAL_RANK=1" "SLURM_NTASKS=4 SLURM_PROCID=2" \
    "SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0" \
    "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0" "FLUX_JOB_SIZE=4 FLUX_TASK_RANK=3"; do
    # shellcheck disable=SC2086
    outcome 1 "${variables%%=*}" env $variables "$bin/txtrain" --train_file "$work/a text" --output_dir "$work/launched"
    [ -z "$launcher" ] ||
        says "${launcher##*/} -n 4 $bin/txtrain --train_file '$work/a text' --output_dir $work/launched"
    [ ! -e "$work/launched" ] || fail "$variables: a process of four has trained"
done
outcome 0 "" env WORLD_SIZE=1 RANK=0 "$bin/txtrain" --list_devices

# ---- how soon it speaks, and early stopping ---------------------------------------------------------------
go whole --max_steps 6 --save_steps 2 > "$work/out" 2> "$work/err" || fail "the run"
says "step 1/6  loss "
[ "$(grep -c '^step ' "$work/out")" -eq 1 ] || fail "more than the first step is printed within 30 seconds"

# ---- early stopping -----------------------------------------------------------------------------------
# At a rate of 0 nothing improves. A resumed run keeps the count of evaluations without improvement.
early="--max_steps 20 --learning_rate 0 --validation_file $work/text2 --eval_strategy steps --eval_steps 1"
early="$early --save_steps 2"
# shellcheck disable=SC2086
outcome 0 "early stopping after step 5: 4 evaluations without a better eval_loss" go early $early --early_stopping_patience 4
ended "$work/early" 5
outcome 0 "early stopping after step 5: 4 evaluations" "$bin/txtrain" --output_dir "$work/early2" \
    --resume_from_checkpoint "$work/early/checkpoint-4" --save_steps 5

# ---- a run that had ended ------------------------------------------------------------------------------
# files FOLDER: their digests
files() { (cd "$1" && find . -type f ! -name .lock -exec cksum {} + | sort); }
# rests TEXT FOLDER COMMAND...: says that it is complete, and changes nothing there
rests()
{
    text=$1
    folder=$2
    shift 2
    files "$folder" > "$work/before"
    outcome 0 "already complete: $text" "$@" --output_dir "$folder" --resume_from_checkpoint
    files "$folder" | cmp -s - "$work/before" || fail "$*: files of $folder have changed"
}
rests "$work/whole/checkpoint-6 is after step 6 of 6; nothing changes" "$work/whole" "$bin/txtrain"
rests "$work/whole/checkpoint-6 is after step 6 of 3" "$work/whole" "$bin/txtrain" --max_steps 3
rests "$work/whole/checkpoint-6 is after step 6 of" "$work/whole" "$bin/txtrain" --num_train_epochs 0.1
rests "$work/early2/checkpoint-5 is after step 5 of 20 (early stopping)" "$work/early2" "$bin/txtrain"
[ -z "$launcher" ] || rests "$work/whole/checkpoint-6 is after step 6 of 6" "$work/whole" "$launcher" -n 2 "$bin/txtrain"
# An evaluation is made again if that is asked for; what training left stays.
files "$work/early" | grep -v "eval_results\|all_results" > "$work/before"
rm "$work/early/eval_results.json"
outcome 0 "eval_loss" "$bin/txtrain" --output_dir "$work/early" --resume_from_checkpoint --do_eval
files "$work/early" | grep -v "eval_results\|all_results" | cmp -s - "$work/before" ||
    fail "an evaluation changes what training left"
[ -s "$work/early/eval_results.json" ] || fail "no evaluation of a run that had ended"
# Its end was cut short: the model is written, and no results that are none.
cp -r "$work/early2" "$work/cut"
rm "$work/cut/train_results.json" "$work/cut/model.safetensors"
outcome 0 "the model is written to $work/cut" "$bin/txtrain" --output_dir "$work/cut" --resume_from_checkpoint
cmp -s "$work/cut/model.safetensors" "$work/early2/model.safetensors" || fail "another model than that of the whole run"
grep -q "null" "$work/cut/train_results.json" && fail "results of no training"
rests "$work/cut/checkpoint-5 is after step 5" "$work/cut" "$bin/txtrain"

# shellcheck disable=SC2086
outcome 2 "--early_stopping_patience needs --eval_strategy" go r --early_stopping_patience 4
outcome 1 "the task has only loss and perplexity" go r --metric_for_best_model accuracy
outcome 2 "it has weight_decay, momentum, nesterov" go r --optim sgd --optim_args beta1=0.5
outcome 2 "--use_cpu and --device exclude each other" go r --use_cpu --device opencl
outcome 2 "needs either" go r --lr_scheduler_type cosine_with_min_lr
outcome 1 "--dataloader_drop_last drops all data" go r --dataloader_drop_last --per_device_train_batch_size 64

# ---- a rate that follows the evaluations ------------------------------------------------------------------
# Nothing improves by nine tenths, so that the rate halves every second step. A resumed run keeps the count.
plateau="--max_steps 8 --save_steps 3 --validation_file $work/text2 --eval_strategy steps --eval_steps 1"
plateau="$plateau --learning_rate 0.01"
kwargs='{"patience": 1, "threshold": 0.9, "factor": 0.5, "min_lr": 0.002}'
for type in reduce_lr_on_plateau greedy; do
    # shellcheck disable=SC2086
    outcome 0 "" go $type $plateau --lr_scheduler_type $type --lr_scheduler_kwargs "$kwargs"
    outcome 0 "" "$bin/txtrain" --output_dir "$work/$type-2" --resume_from_checkpoint "$work/$type/checkpoint-3"
    cmp -s "$work/$type/model.safetensors" "$work/$type-2/model.safetensors" ||
        fail "$type: other weights after going on"
    numbers learning_rate "$work/$type-2/log.jsonl" > "$work/a"
    numbers learning_rate "$work/$type/log.jsonl" | cmp -s - "$work/a" || fail "$type: other rates after going on"
done
[ "$(numbers learning_rate "$work/reduce_lr_on_plateau/log.jsonl" | tr '\n' ' ')" = \
    "0.01 0.01 0.01 0.005 0.005 0.0025 0.0025 0.002 " ] || fail "the rates of reduce_lr_on_plateau"
outcome 2 "it needs --eval_strategy" go r --lr_scheduler_type reduce_lr_on_plateau

# ---- Folders that are not checkpoints ----------------------------------------------------------------
mkdir -p "$work/empty" "$work/trainer/checkpoint-7"
for name in config.json model.safetensors trainer_state.json; do
    cp "$work/whole/checkpoint-4/$name" "$work/trainer/checkpoint-7"
done
: > "$work/trainer/checkpoint-7/optimizer.pt"
outcome 1 "not a checkpoint (it has no" go r --resume_from_checkpoint "$work/empty"
outcome 1 "no such folder: check the spelling" go r --resume_from_checkpoint "$work/whole/chekpoint-4"
outcome 1 "it contains checkpoint-6" go r --resume_from_checkpoint "$work/whole"
outcome 1 "--model_name_or_path $work/trainer/checkpoint-7" go r --resume_from_checkpoint "$work/trainer/checkpoint-7"
says "transformers' Trainer"
outcome 1 "transformers' Trainer" go trainer --resume_from_checkpoint
outcome 1 "leave --resume_from_checkpoint out" go nothing --resume_from_checkpoint
mkdir "$work/model"
cp "$work/whole/config.json" "$work/whole/model.safetensors" "$work/whole"/tokenizer*.json "$work/model"
outcome 1 "a model, but not a checkpoint" go r --resume_from_checkpoint "$work/model"

# ---- what differs, in words --------------------------------------------------------------------------
from=$work/whole/checkpoint-2
outcome 1 "train_file was \"$work/text\" and is \"$work/text2\" now" "$bin/txtrain" --resume_from_checkpoint "$from" \
    --train_file "$work/text2" --output_dir "$work/r"
outcome 1 "eval_strategy was \"no\" and is \"epoch\" now" "$bin/txtrain" --resume_from_checkpoint "$from" \
    --eval_strategy epoch --save_strategy epoch --output_dir "$work/r"
says "the first texts of the training file are held out"
outcome 1 "a step had 2 blocks and has 6 now" "$bin/txtrain" --resume_from_checkpoint "$from" \
    --gradient_accumulation_steps 3 --output_dir "$work/r"
cp "$work/text" "$work/kept"
cat "$work/text2" >> "$work/text"
outcome 1 "or its tokenizer, have changed" "$bin/txtrain" --resume_from_checkpoint "$from" --output_dir "$work/r"
mv "$work/kept" "$work/text"
outcome 0 "the run resumes with different options: learning_rate was 5e-5 and is 0.0001 now, weight_decay was 0.0 and is 0.5 now" \
    "$bin/txtrain" --resume_from_checkpoint "$from" --learning_rate 1e-4 --weight_decay 0.5 --output_dir "$work/told"

# The newest checkpoint by name is damaged, or only its options are: the one before is used, with its own options. If
# those of the damaged one are intact and differ, the run says what to do.
cp -r "$work/whole" "$work/damaged"
printf 'x' >> "$work/damaged/checkpoint-6/model.safetensors"
outcome 0 "after step 4" "$bin/txtrain" --resume_from_checkpoint --output_dir "$work/damaged"
rm -rf "$work/damaged"
cp -r "$work/whole" "$work/damaged"
sed -i 's/"learning_rate": 5e-0*5/"learning_rate": 0.25/' "$work/damaged/checkpoint-6/training_args.json"
outcome 0 "after step 4" "$bin/txtrain" --resume_from_checkpoint --output_dir "$work/damaged"
rm -rf "$work/damaged"
cp -r "$work/whole" "$work/damaged"
rm -rf "$work/damaged/checkpoint-6"
outcome 0 "learning_rate was 5e-5 and is 0.25 now" "$bin/txtrain" --resume_from_checkpoint --output_dir "$work/damaged" \
    --learning_rate 0.25
printf 'x' >> "$work/damaged/checkpoint-6/model.safetensors"
outcome 1 "learning_rate was 0.25 and is 5e-5 now" "$bin/txtrain" --resume_from_checkpoint --output_dir "$work/damaged"
says "to use it, give it"

# ---- Files that belong to a model --------------------------------------------------------------------------
echo '{"do_sample": true, "temperature": 0.7}' > "$work/model/generation_config.json"
echo '{"eos_token": "<|endoftext|>"}' > "$work/model/special_tokens_map.json"
echo '{{ messages }}' > "$work/model/chat_template.jinja"
"$bin/txtrain" --model_name_or_path "$work/model" --train_file "$work/text" --block_size 16 --max_steps 2 \
    --save_steps 1 \
    --threads 1 --output_dir "$work/tuned" > "$work/out" 2> "$work/err" || fail "the run of a model with files"
"$bin/txtrain" --resume_from_checkpoint "$work/tuned/checkpoint-1" --output_dir "$work/tuned2" > "$work/out" \
    2> "$work/err" ||
    fail "going on with a model with files"
for name in generation_config.json special_tokens_map.json chat_template.jinja tokenizer.json tokenizer_config.json; do
    for folder in tuned tuned/checkpoint-2 tuned2; do
        cmp -s "$work/model/$name" "$work/$folder/$name" || fail "$folder: $name is not what the model came with"
    done
done

verdict
