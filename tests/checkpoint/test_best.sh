#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The best checkpoint is kept and loaded even if the run's folder is moved or the run resumes in another folder or
# working directory. If it is missing, the run writes its last weights and fails.
#
#   test_best.sh BIN-FOLDER
bin=$1
. "${0%/*}/../program.sh"

write_small_text
write_small_config 1 16 16

# run STATUS TEXT STEPS RATE FOLDER ARGUMENT...: evaluated and saved after every second step
run()
{
    wanted=$1
    text=$2
    steps=$3
    rate=$4
    folder=$5
    shift 5
    outcome "$wanted" "$text" "$bin/txtrain" --train_file "$work/text" --validation_file "$work/text" \
        --config_name "$work/config.json" --block_size 16 --threads 1 --per_device_train_batch_size 2 \
        --lr_scheduler_type constant --eval_strategy steps --eval_steps 2 --save_strategy steps --save_steps 2 \
        --save_total_limit 2 --load_best_model_at_end --max_steps "$steps" --learning_rate "$rate" \
        --output_dir "$folder" "$@"
    [ "$wanted" -ne 1 ] || [ "$(grep "^txtrain: " "$work/err" | grep -vc "^txtrain: warning: ")" -eq 1 ] ||
        fail "not one line of error"
}

# ends_with MODEL FOLDER...: the folders have that model
ends_with()
{
    model=$1
    shift
    for folder in "$@"; do
        cmp -s "$model" "$folder/model.safetensors" || fail "$folder: not the weights of $model"
    done
}

best=$work/best.safetensors
cd "$work" || exit 1
run 0 "" 4 1e-2 first
ends_with first/checkpoint-4/model.safetensors first
cp first/checkpoint-4/model.safetensors "$best"
grep -q '"best_model_checkpoint": *"first/checkpoint-4"' first/checkpoint-4/trainer_state.json ||
    fail "best_model_checkpoint is not what transformers writes"

# Values of another metric are not compared with the best loss.
cp -r first metric
run 0 'metric_for_best_model was "eval_loss" and is "perplexity" now' 6 1e-2 metric --resume_from_checkpoint \
    --metric_for_best_model perplexity
grep -q '"best_model_checkpoint": *"metric/checkpoint-6"' metric/trainer_state.json ||
    fail "the best of another metric stays"

# The folder is moved, and the run resumes from another working directory. At this learning rate nothing improves.
mkdir away
mv first away/moved
cp -r away/moved away/kept
cd away || exit 1
run 0 "" 10 3 moved --resume_from_checkpoint
ends_with "$best" moved moved/checkpoint-4
[ -d moved/checkpoint-10 ] && [ ! -d moved/checkpoint-8 ] || fail "not the newest and the best are kept"

# The run resumes in another folder; the best checkpoint stays in the first folder and is used.
run 0 "/away/kept/checkpoint-4" 8 3 other --resume_from_checkpoint kept/checkpoint-4
ends_with "$best" other kept/checkpoint-4
[ -d other/checkpoint-6 ] && [ -d other/checkpoint-8 ] || fail "the best of another folder counts in this one"
mkdir deeper
cd deeper || exit 1
run 0 "/away/kept/checkpoint-4" 10 3 ../other --resume_from_checkpoint
ends_with "$best" ../other ../kept/checkpoint-4
# The run resumes in the first folder again, and the best checkpoint is there like any other.
run 0 "" 14 3 ../kept --resume_from_checkpoint ../other/checkpoint-10
ends_with "$best" ../kept ../kept/checkpoint-4

# It is gone: said at the beginning, and at the end; the last weights are written.
cd .. || exit 1
rm -r kept/checkpoint-4
run 1 "best checkpoint" 12 3 other --resume_from_checkpoint
grep -q "warning: .*/kept/checkpoint-4: " "$work/err" || fail "not said at the start"
ends_with other/checkpoint-12/model.safetensors other
ended other 12

# An evaluation that is never a number, here a correlation with equal labels, has no best: that is an error in the end,
# and early stopping counts it as none that is better.
mkdir "$work/bert"
echo '{"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
 "intermediate_size": 16,
 "max_position_embeddings": 64, "vocab_size": 257}' > "$work/bert/config.json"
{ echo "sentence,label"; awk '{ print $0 "," NR % 2 + 0.5 }' "$work/text"; } > "$work/train.csv"
{ echo "sentence,label"; awk '{ print $0 ",1.3" }' "$work/text"; } > "$work/equal.csv"
# never STATUS TEXT ARGUMENT...
never()
{
    wanted=$1
    text=$2
    shift 2
    outcome "$wanted" "$text" "$bin/txtrain" --train_file "$work/train.csv" --validation_file "$work/equal.csv" \
        --task_name stsb \
        --config_name "$work/bert" --max_seq_length 32 --threads 1 --max_steps 8 --eval_strategy steps --eval_steps 2 \
        --metric_for_best_model pearson --output_dir never --overwrite_output_dir "$@"
}
never 1 "eval_pearson was not a number in 4 of 4 evaluations; the run keeps the last weights" --save_steps 2 --load_best_model_at_end
ends_with never/checkpoint-8/model.safetensors never
ended never 8
never 1 "save_strategy best: there is no best evaluation" --save_strategy best
never 0 "early stopping after step 6: 3 evaluations without a better eval_pearson" --early_stopping_patience 3 --save_strategy no
never 1 "none was made after a step" --save_steps 2 --load_best_model_at_end --eval_delay 50
verdict
