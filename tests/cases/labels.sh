#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The labels of data against those of a model: labels.sh BIN-FOLDER TEST-DATA. The losses are those of
# AutoModelForSequenceClassification and AutoModelForTokenClassification of transformers 5.23 for the same rows.
. "${0%/*}/cases.sh"

# train MODEL FILE [OPTION...]: one step without a change of weights, into the folder o
train()
{
    rm -rf o
    model=$1 file=$2
    shift 2
    "$bin/txtrain" --model_name_or_path "$model" --train_file "$file" --do_train --max_seq_length 32 --max_steps 1 \
        --learning_rate 0 --threads 1 --output_dir o "$@" > "$work/out" 2> "$work/err"
}

# learns LOSS MODEL FILE [OPTION...]: trains with this loss
learns()
{
    wanted=$1
    shift
    train "$@" || fail "$case_name: $*: refused"
    grep -q "^step 1/1 *loss $wanted " "$work/out" || fail "$case_name: $*: the loss is not $wanted"
}

# refuses TEXT MODEL FILE [OPTION...]
refuses()
{
    text=$1
    shift
    train "$@" && fail "$case_name: $*: not refused"
    says "$text"
}

# keeps_head: the last message does not propose a new head
keeps_head() { ! grep -q ignore_mismatched_sizes "$work/err" || fail "$case_name: proposes to drop the head"; }

# config TEXT: config.json of the trained model contains it, without white space
config() { tr -d ' \n' < o/config.json | grep -qF -- "$1" || fail "$case_name: config.json lacks $1"; }

# rows LABEL...: rows of texts with these labels, in the file made.jsonl
rows()
{
    i=0
    for label in "$@"; do
        i=$((i + 1))
        echo "{\"text\": \"$(echo "a bell,a rope,the mill,the quay" | cut -d, -f$i)\", \"label\": $label}"
    done > made.jsonl
}

# with FOLDER PROBLEM: sets problem_type of a model that has none
with() { sed -i "s/^{/{\"problem_type\": \"$2\",/" "$1/config.json"; }

# ---- One label ------------------------------------------------------------------------------------------------

open_case unlabelled-minus-one-is-a-class
learns 0.9254 model minus100.jsonl
says "1 row is left out"
learns 1.1386 model minus1.jsonl
says "1 row is left out"
config '"id2label":{"0":"LABEL_0","1":"LABEL_1","2":"LABEL_2"}'
learns 1.3565 model two_of_three.jsonl
train model minus1.jsonl --ignore_mismatched_sizes --validation_file minus100.jsonl --do_eval ||
    fail "$case_name: --ignore_mismatched_sizes is refused though the labels fit"
config '"2":"LABEL_2"}'
[ "$(grep -c "1 row is left out" "$work/err")" = 2 ] || fail "$case_name: the evaluation counts a row without a label"
rows 0 2 5
refuses 'row 3: label: "5" is not one of the model' model made.jsonl
keeps_head
rows 0 1 2 3
refuses 'ignore_mismatched_sizes' model made.jsonl
rows 1 2 3 # not the labels 0, 1 and 2
refuses 'row 3: label: "3"' model made.jsonl
keeps_head
rows 0.5 1.0
refuses 'row 1: label: "0.5"' model made.jsonl
rows '"LABEL_2"' '"LABEL_0"' '"LABEL_1"'
learns 1.1382 model made.jsonl
rows 2.0 0.0 '"1"'
learns 1.1382 model made.jsonl
rows '"x"' '"z"' '"y"' # a head without names gets those of the data, as in run_glue.py
learns 1.1488 model made.jsonl
config '"id2label":{"0":"x","1":"y","2":"z"}'
cp -R model regression
cp -R model several
cp -R model mnli
sed -i 's/LABEL_0/a/; s/LABEL_1/b/; s/LABEL_2/c/' model/config.json
learns 1.3565 model two_of_three.jsonl
config '"0":"a"'
rows '"a"' '"c"' '"c"'
learns 1.3565 model made.jsonl
rows '"a"' '"b"' '"d"'
refuses 'row 3: label: "d" is not one of the model' model made.jsonl
keeps_head
rows '"x"' '"y"' '"z"'
refuses 'ignore_mismatched_sizes' model made.jsonl
train model made.jsonl --ignore_mismatched_sizes || fail "$case_name: --ignore_mismatched_sizes is refused"
config '"id2label":{"0":"x","1":"y","2":"z"}'
with model single_label_classification
rows '[0, 1]' '[1]'
refuses 'label is a list, but problem_type of the model is "single_label_classification"' model made.jsonl
keeps_head

# The order of the model's labels, not that of the task.
sed -i 's/LABEL_0/CONTRADICTION/g; s/LABEL_1/NEUTRAL/g; s/LABEL_2/ENTAILMENT/g' mnli/config.json
{
    echo '{"premise": "a bell", "hypothesis": "the mill", "label": 0}'
    echo '{"premise": "a rope", "hypothesis": "the quay", "label": 1}'
    echo '{"premise": "gull", "hypothesis": "bell", "label": 2}'
} > pairs.jsonl
learns 1.1351 mnli pairs.jsonl --task_name mnli
config '"0":"CONTRADICTION"'
sed 's/"label": 0/"label": "entailment"/' pairs.jsonl > named.jsonl
learns 1.1351 mnli named.jsonl --task_name mnli
sed 's/premise/sentence1/; s/hypothesis/sentence2/' pairs.jsonl | head -n 2 > rte.jsonl
refuses 'a new head' mnli rte.jsonl --task_name rte

# ---- Several labels, several numbers ----------------------------------------------------------------------------

with regression regression
rows '[1, 2, 3]' '[0, 1, 0]'
learns 3.1227 regression made.jsonl
rows '[1, 0, 1]' '[0, 1, 0]'
learns 0.7682 regression made.jsonl
rows '[1, 0]' '[0, 1]'
refuses 'row 1: label: the row has 2 numbers, not 3' regression made.jsonl
rows 1.5 0
refuses 'label is not a list, but problem_type of the model is "regression"' regression made.jsonl
keeps_head
rows '[1.5, 0.0, 2.0]' '[0.0, 1.0, 1.0]' # transformers would take these as the labels of several classes
refuses 'set problem_type to "regression"' several made.jsonl
rows '[1, 0, 1]' '[0, 1, 0]'
learns 0.7057 several made.jsonl
config '"problem_type":"multi_label_classification"'
open_case multi-hot-read-as-ids
learns 0.6958 model_named vec.jsonl
learns 0.6958 model_named vec_int.jsonl
config '"id2label":{"0":"a","1":"b","2":"c"}'
rows '[0, 2]' '[1]'
learns 0.6946 model_named made.jsonl
rows '["c", "a"]' '["b"]'
learns 0.6946 model_named made.jsonl
rows '[true, false, true]' '[false, true, false]'
learns 0.6946 model_named made.jsonl
rows '[1, 0]' '[1, 1]'
refuses 'row 1: label: expected a vector of 3 values' model_named made.jsonl
rows '[0, 1, 0]' '[1]'
refuses 'row 1: label: the list has "0" twice' model_named made.jsonl
rows '[0, -1]' '[1]'
refuses 'row 1: label: "-1"' model_named made.jsonl
rows 0 1
refuses 'label is not a list, but problem_type' model_named made.jsonl
keeps_head
open_case one-label-integers-refused
for file in stars stars_f; do
    learns 15.6409 model_one $file.jsonl
done
learns 0.7895 model_one pairs01.jsonl
config '"problem_type":"regression"'
rows -1 2 -100 # numbers as others
learns 3330.5000 model_one made.jsonl
rows 1 2 '"neg"'
refuses 'row 3: label: "neg" is not a number' model_one made.jsonl
keeps_head
with model_one single_label_classification
sed -i 's/"problem_type": "regression",//' model_one/config.json
refuses 'needs two labels or more' model_one pairs01.jsonl

# ---- A new head, and data that were read later -------------------------------------------------------------------

open_case base-encoder-own-labels
train model train.csv || fail "$case_name: refused"
config '"id2label":{"0":"anger","1":"fear","2":"joy"}'
rows '[1, 0, 1]' '[0, 1, 0]'
train model made.jsonl --task_name classification || fail "$case_name: refuses vectors"
config '"id2label":{"0":"LABEL_0","1":"LABEL_1","2":"LABEL_2"}'
rows 0 -1 1 -100
train model made.jsonl --task_name classification || fail "$case_name: refuses rows without a label"
config '"id2label":{"0":"0","1":"1"}'
says "2 rows are left out"
open_case blank-label-is-a-class
refuses "row 3: label is empty" ../base-encoder-own-labels/model train.csv
open_case empty-label-is-a-class
for file in miss.csv miss.jsonl; do
    refuses "row 2: label is empty" bert_cls $file --ignore_mismatched_sizes
done
refuses "row 2: label is empty" bert_reg missr.tsv
keeps_head
open_case eval-label-unseen-mapped
refuses 'dev.csv: row 1: label: "1"' ../unlabelled-minus-one-is-a-class/several train.csv --validation_file dev.csv \
    --do_eval --ignore_mismatched_sizes
open_case multilabel-list-silent
train ../base-encoder-own-labels/model train.jsonl --task_name classification || fail "$case_name: refused"
config '"problem_type":"multi_label_classification"'
open_case txcheck-good-messages
outcome 0 "" "$bin/txcheck" file m.jsonl

# A resumed run has the labels of the first, and the optimizer that wrote the states.
cd ../base-encoder-own-labels || exit 1
rows '[1, 0]' '[0, 1]'
train model made.jsonl --task_name classification --save_steps 1 || fail "$case_name: refused"
cp -R o/checkpoint-1 first
# shellcheck disable=SC2317 # outcome calls it
resume() { "$bin/txtrain" --resume_from_checkpoint first --output_dir next --max_steps 2 --threads 1 "$@"; }
outcome 0 "step 2/2" resume
outcome 1 'optim was "adamw_torch_fused" and is "lion" now; give the same' resume --optim lion

# ---- Words ---------------------------------------------------------------------------------------------------------

# words TAGS [TAGS]: rows of words with these tags
words()
{
    for tags in "$@"; do
        echo "{\"tokens\": [\"a\", \"bell\", \"mill\"], \"ner_tags\": $tags}"
    done > words.jsonl
}
words '["O", "B-X", "I-X"]'
train model words.jsonl --task_name ner || fail "$case_name: refuses words"
cp -R o tagger
words '[0, 1, 1]' '[-1, -100, 2]' '[-100, -1, -1]'
train tagger words.jsonl --task_name ner --do_eval --validation_file words.jsonl ||
    fail "$case_name: refuses ids of tags"
says "1 row is left out"
config '"id2label":{"0":"B-X","1":"I-X","2":"O"}'
words '["O", "B-X", "B-Y"]'
refuses 'row 1: label: "B-Y" is not one of the model' tagger words.jsonl --task_name ner
keeps_head

# ---- Endings ------------------------------------------------------------------------------------------------------

for label in 0 -1 1.0; do
    echo "{\"sent1\": \"a bell\", \"sent2\": \"the\", \"ending0\": \"mill\", \"ending1\": \"quay\", \"label\": $label}"
done > endings.jsonl
train model endings.jsonl --task_name multiple_choice || fail "$case_name: refuses endings"
says "1 row is left out"
verdict ""
