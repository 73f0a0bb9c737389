#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A small BERT on texts with labels: training, evaluation and prediction as in run_glue, from files of all formats. Also
# runs that only evaluate, rows of several lengths, regression, a resumed run, and ranks.
#
#   test_glue.sh BIN-FOLDER LAUNCHER DEVICE     LAUNCHER "": no ranks
. "${0%/*}/../device.sh"

# A model without weights of its own head, and a WordPiece over a few words.
mkdir "$work/model"
cat > "$work/model/config.json" << 'END'
{"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 23, "hidden_size": 24,
 "num_hidden_layers": 2,
 "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 32, "hidden_dropout_prob": 0.1}
END
cat > "$work/model/tokenizer.json" << 'END'
{"version": "1.0", "truncation": null, "padding": null,
 "added_tokens": [{"id": 0, "content": "[PAD]", "single_word": false, "lstrip": false, "rstrip": false,
 "normalized": false, "special": true},
  {"id": 2, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
   "special": true},
  {"id": 3, "content": "[SEP]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
   "special": true}],
 "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
 "lowercase": true},
 "pre_tokenizer": {"type": "BertPreTokenizer"},
 "post_processor": {"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
  {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
  "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
  {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
   {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
  "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]", "ids": [3],
  "tokens": ["[SEP]"]}}},
 "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
 "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
 "max_input_chars_per_word": 100,
  "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "the": 4, "cat": 5, "dog": 6, "bird": 7, "sat": 8, "ran": 9,
   "a": 10, "on": 11, "##s": 12, ",": 13, ".": 14, "mat": 15, "big": 16, "small": 17, "red": 18, "blue": 19,
   "and": 20, "\"": 21, "it": 22}}}
END

# Two texts are alike where both have the same animal. A .tsv, the same as .csv with quotes, and as .jsonl by other
# names.
awk 'BEGIN {
    split("cat dog bird", animal, " "); split("big small red blue", kind, " ")
    print "label\tsentence1\tsentence2"
    for (i = 0; i < 150; i++) {
        first = i % 3 + 1; second = i * 7 % 5 < 2 ? first : (first + i) % 3 + 1; tail = ""
        for (k = 0; k < i % 9; k++) tail = tail " and " kind[(i + k) % 4 + 1]
        print (first == second) "\tthe " animal[first] tail "\ta \"" animal[second] "\", sat."
    }
}' > "$work/train.tsv"
awk -F'\t' '{ gsub(/"/, "\"\"", $3); print $1 ",\"" $2 "\",\"" $3 "\"" }' "$work/train.tsv" > "$work/train.csv"
awk -F'\t' 'NR > 1 { gsub(/"/, "\\\"", $3); print "{\"sentence1\": \"" $2 "\", \"sentence2\": \"" $3 \
    "\", \"label\": \"" \
    ($1 ? "equivalent" : "not_equivalent") "\"}" }' "$work/train.tsv" > "$work/train.jsonl"
head -n 41 "$work/train.tsv" > "$work/dev.tsv"
cut -f 2,3 "$work/dev.tsv" > "$work/test.tsv"
mkdir "$work/dataset"
cp "$work/train.tsv" "$work/dev.tsv" "$work/test.tsv" "$work/dataset"

# glue FOLDER ARGUMENT...
glue()
{
    folder=$1
    shift
    "$bin/txtrain" --device "$device" --threads 1 --disable_tqdm --logging_strategy no --learning_rate 5e-3 \
        --per_device_train_batch_size 8 --max_seq_length 24 --output_dir "$work/$folder" "$@" > "$work/out" \
        2> "$work/err"
}

# Of new weights.
new="--config_name $work/model --task_name mrpc --max_steps 24 --save_strategy no"
# shellcheck disable=SC2086
{
glue whole $new --train_file "$work/train.tsv" --validation_file "$work/dev.tsv" --test_file "$work/test.tsv" \
    --do_train --do_eval --do_predict || fail "training"
grep -q '"BertForSequenceClassification"' "$work/whole/config.json" &&
    grep -q '"1": "equivalent"' "$work/whole/config.json" ||
    fail "the configuration does not know head and labels"
[ "$(head -n 1 "$work/whole/predict_results_mrpc.txt")" = "$(printf 'index\tprediction')" ] &&
    [ "$(wc -l < "$work/whole/predict_results_mrpc.txt")" -eq 41 ] || fail "the file of predictions"
# Accuracy and F1 from the file of predictions, which are of the same texts.
tail -n +2 "$work/dev.tsv" | cut -f 1 > "$work/truth"
# Scores of each label add up to 1, and the predicted label has the greatest.
[ "$(wc -l < "$work/whole/predict_scores.tsv")" -eq 41 ] || fail "the file of scores"
paste "$work/whole/predict_results_mrpc.txt" "$work/whole/predict_scores.tsv" | awk -F '\t' '
    NR == 1 { first = $4; second = $5; next }
    { sum = $4 + $5; best = $4 > $5 ? first : second; if (!(sum > 0.999 && sum < 1.001) || $2 != best) exit 1 }' ||
    fail "scores of labels"
tail -n +2 "$work/whole/predict_results_mrpc.txt" | cut -f 2 | paste "$work/truth" - | awk '
    { guess = $2 == "equivalent"; right += guess == $1; tp += guess && $1; wrong += guess != $1 }
    END { f1 = 2 * tp / (2 * tp + wrong); printf "%.6f\n%.6f\n%.6f\n", right / NR, (right / NR + f1) / 2, f1 }' \
    > "$work/a"
for key in eval_accuracy eval_combined_score eval_f1; do
    numbers $key "$work/whole/eval_results.json"
done | awk '{ printf "%.6f\n", $1 }' > "$work/b"
cmp -s "$work/a" "$work/b" || { diff "$work/a" "$work/b"; fail "metrics are not those of the predictions"; }

for format in csv jsonl; do
    glue $format $new --train_file "$work/train.$format" || fail "$format"
    same whole $format
done

# A folder as a dataset, with GLUE's names of files, and without any: the dataset of the task, as run_glue takes it.
mkdir -p "$work/home/datasets/nyu-mll/glue"
cp -r "$work/dataset" "$work/home/datasets/nyu-mll/glue/mrpc"
for way in "--dataset_name $work/dataset" ""; do
    TX_HOME=$work/home glue data $new $way --overwrite_output_dir --do_train --do_eval --do_predict || fail "data: $way"
    same whole data
    cmp -s "$work/data/predict_results_mrpc.txt" "$work/whole/predict_results_mrpc.txt" ||
        fail "data: other predictions: $way"
done
glue none --config_name "$work/model" --task_name cola --do_train && fail "data that are nowhere"
grep -q "nyu-mll/glue/cola: no such dataset here; to fetch it" "$work/err" || fail "data that are nowhere: $(cat "$work/err")"

# Without task_name a base encoder gets a new head, with the labels of the data.
sed 's/^0\t/no\t/; s/^1\t/yes\t/' "$work/train.tsv" > "$work/own.tsv"
glue own --config_name "$work/model" --train_file "$work/own.tsv" --max_steps 1 --save_strategy no || fail "own labels"
grep -q '"1": "yes"' "$work/own/config.json" && grep -q BertForSequenceClassification "$work/own/config.json" ||
    fail "own labels: another head"

# A run that only evaluates and predicts needs no task_name: the model knows its labels.
glue alone --model_name_or_path "$work/whole" --validation_file "$work/dev.tsv" --test_file "$work/test.tsv" --do_eval \
    --do_predict --per_device_eval_batch_size 5 || fail "evaluation alone"
[ "$(numbers eval_accuracy "$work/alone/eval_results.json")" \
    = "$(numbers eval_accuracy "$work/whole/eval_results.json")" ] ||
    fail "evaluation alone gives another accuracy"
cmp -s "$work/alone/predict_results.txt" "$work/whole/predict_results_mrpc.txt" || fail "prediction alone gives others"
[ ! -e "$work/alone/train_results.json" ] || fail "evaluation alone trained"

# Rows of several lengths give the same model, except for rounding. Dropout depends on the position, not on the length.
glue lengths $new --train_file "$work/train.tsv" --pad_to_max_length false || fail "several lengths"
numbers loss "$work/whole/log.jsonl" > "$work/a"
numbers loss "$work/lengths/log.jsonl" | paste "$work/a" - | awk '{ d = $1 - $2; if (!(d < 1e-4 && d > -1e-4)) bad = 1 }
    END { exit bad || NR != 24 }' || fail "several lengths give other losses"

# The best model is the one with the greatest accuracy. A resumed run ends with the same bytes.
steps="$new --train_file $work/train.tsv --validation_file $work/dev.tsv --eval_strategy steps --eval_steps 8 \
    --save_strategy steps --save_steps 8 --metric_for_best_model accuracy --load_best_model_at_end \
    --pad_to_max_length false"
glue kept $steps || fail "with checkpoints"
{ numbers best_metric "$work/kept/trainer_state.json"; numbers eval_accuracy "$work/kept/log.jsonl"; } |
    awk 'NR == 1 { best = $1 } NR > 1 && $1 > most { most = $1 }
        END { exit !(NR == 4 && best - most < 1e-6 && most - best < 1e-6) }' ||
    fail "the best is not the greatest accuracy"
mkdir "$work/on"
cp -r "$work/kept/checkpoint-8" "$work/on"
glue on $steps --resume_from_checkpoint || fail "going on"
same kept on
cmp -s "$work/kept/checkpoint-24/optimizer.safetensors" "$work/on/checkpoint-24/optimizer.safetensors" ||
    fail "going on: other moments"

# Regression: numbers that are not whole. Labels of any names.
awk -F'\t' 'NR == 1 { print; next } { print $1 + 0.5 "\t" $2 "\t" $3 }' "$work/train.tsv" > "$work/numbers.tsv"
glue number --config_name "$work/model" --task_name stsb --max_steps 24 --save_strategy no \
    --train_file "$work/numbers.tsv" \
    --validation_file "$work/numbers.tsv" --test_file "$work/test.tsv" --do_train --do_eval --do_predict ||
    fail "regression"
grep -q '"problem_type": "regression"' "$work/number/config.json" || fail "regression is not in the configuration"
[ -n "$(numbers eval_pearson "$work/number/eval_results.json")" ] &&
    [ -n "$(numbers eval_spearmanr "$work/number/eval_results.json")" ] ||
    fail "regression without correlations"
tail -n 1 "$work/number/predict_results_stsb.txt" | grep -qE '^39.-?[0-9]+\.[0-9]{3}$' || fail "predicted numbers"
sed 's/not_equivalent/no/; s/"equivalent/"yes/; s/sentence1/sentence/' "$work/train.jsonl" > "$work/names.jsonl"
sed 's/MaskedLM/SequenceClassification/' "$work/model/config.json" > "$work/config.json"
glue names --config_name "$work/config.json" --tokenizer_name "$work/model" --max_steps 3 --save_strategy no \
    --train_file "$work/names.jsonl" || fail "labels by any names"
grep -q '"0": "no"' "$work/names/config.json" || fail "names of labels are not in the configuration"

# A classifier of other labels: its head alone begins anew, where that was asked for.
other="--model_name_or_path $work/whole --task_name mnli --train_file $work/train.tsv --max_steps 2 --save_strategy no --learning_rate 0"
outcome 1 "the model has 2 labels, the data have 3: use --ignore_mismatched_sizes" glue other $other
glue other $other --ignore_mismatched_sizes || fail "a head of other labels"
grep -q "lacks classifier.weight, classifier.bias, or has them in another shape" "$work/err" || fail "a new head is not told of"
grep -q '"2": "contradiction"' "$work/other/config.json" || fail "a new head has not the labels of the data"
# all but (2 * 24 + 2) * 4 bytes, which lie last
tail -c 40968 "$work/whole/model.safetensors" | head -c 40768 > "$work/a.kept"
tail -c 41068 "$work/other/model.safetensors" | head -c 40768 | cmp -s - "$work/a.kept" ||
    fail "more than the head is new"
glue again --model_name_or_path "$work/other" $other --ignore_mismatched_sizes || fail "a head of the same labels"
same other again

# Nor is a head of another shape lost where another task's weights have one.
cp -r "$work/whole" "$work/masked"
sed -i 's/BertForSequenceClassification/BertForMaskedLM/' "$work/masked/config.json"
glue head $other --model_name_or_path "$work/masked" && fail "a head of another shape is lost"
grep -q "wrong shape classifier.weight" "$work/err" || fail "a head of another shape is not told of"
glue head $other --model_name_or_path "$work/masked" --ignore_mismatched_sizes || fail "a head of another task"
same other head
glue further $other --max_steps 1 --save_strategy steps --save_steps 1 --ignore_mismatched_sizes || fail "a run with a checkpoint"
outcome 1 "the model has 3 labels, the data have 2: a resumed run must have the same labels" \
    glue further $other --task_name mrpc --resume_from_checkpoint "$work/further/checkpoint-1" --ignore_mismatched_sizes

# A classifier learns from another one's scores; a regression cannot.
glue taught $new --train_file "$work/train.tsv" --teacher_model_name_or_path "$work/whole" || fail "from a teacher"
cmp -s "$work/whole/model.safetensors" "$work/taught/model.safetensors" && fail "the teacher changed nothing"
glue refused --config_name "$work/model" --task_name stsb --max_steps 3 --train_file "$work/numbers.tsv" \
    --teacher_model_name_or_path "$work/number" && fail "a regression from a teacher"
grep -q "does not support distillation" "$work/err" || fail "a regression from a teacher: not told"

# Ranks: the same losses, and stages of ZeRO the same weights.
if [ -n "$launcher" ]; then
    for stage in 0 2 3; do
        timeout -s KILL 300 "$launcher" -n 2 "$bin/txtrain" --device "$device" --threads 1 --disable_tqdm \
            --logging_strategy no --learning_rate 5e-3 --per_device_train_batch_size 4 --max_seq_length 24 $new \
            --train_file "$work/train.tsv" --validation_file "$work/dev.tsv" --test_file "$work/test.tsv" --do_train \
            --do_eval --do_predict --pad_to_max_length false --zero_stage $stage --output_dir "$work/ranks$stage" \
            > "$work/out" 2> "$work/err" || fail "2 ranks, stage $stage"
    done
    same ranks0 ranks2
    numbers loss "$work/ranks0/log.jsonl" | paste "$work/a" - |
        awk '{ d = $1 - $2; if (!(d < 1e-4 && d > -1e-4)) bad = 1 }
        END { exit bad || NR != 24 }' || fail "2 ranks: other losses"
    cmp -s "$work/ranks0/predict_results_mrpc.txt" "$work/whole/predict_results_mrpc.txt" ||
        fail "2 ranks predict others"
fi

# The logits of a text, as a classifier's; it continues none.
outcome 0 "" "$bin/txgen" --model "$work/whole" --device "$device" --ids "2 4 5 3" --logits "$work/logits.safetensors"
grep -qa '"shape": \[1, 2\]' "$work/logits.safetensors" || fail "logits of a classifier are not [1, 2]"
outcome 1 "cannot generate text: use txgen --classify" "$bin/txgen" --model "$work/whole" --device "$device" --ids "2 4 5 3"

# What does not fit.
printf '{"model_type": "phi3", "architectures": ["Phi3ForSequenceClassification"], "vocab_size": 23}' > "$work/phi3.json"
outcome 1 "Phi3ForSequenceClassification: TX has no classifiers of model type phi3, only of" \
    glue x --config_name "$work/phi3.json" --tokenizer_name "$work/model" --task_name mrpc --train_file "$work/train.tsv"
sed 's/"vocab_size": 23/"vocab_size": 22/' "$work/model/config.json" > "$work/fewer.json"
outcome 1 "the tokenizer has 23 ids, the model's vocab_size is 22: give the tokenizer of this model (--tokenizer_name)" \
    glue x --config_name "$work/fewer.json" --tokenizer_name "$work/model" --task_name mrpc --train_file "$work/train.tsv"
outcome 1 "the run does not train" glue x --config_name "$work/model" --validation_file "$work/dev.tsv" --do_eval
{ head -n 3 "$work/train.tsv"; echo "perhaps	the cat	a dog"; } > "$work/bad.tsv"
outcome 1 "row 3" glue x $new --train_file "$work/bad.tsv"
sed '4s/^./\t/; 4s/\t\t/\t/' "$work/dev.tsv" > "$work/dataset/dev.tsv"
outcome 1 "dev.tsv: row 3: label is empty" glue x $new --dataset_name "$work/dataset" --do_train --do_eval
outcome 0 "dev.tsv: 1 malformed row is skipped, the first is row 3" \
    glue skipped $new --max_steps 1 --dataset_name "$work/dataset" --do_train --do_eval --skip_bad 1
}
verdict
