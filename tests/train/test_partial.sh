#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Batches that are not full: rows that only fill them change no loss, gradient, metric or weight. Every task and every
# loss of preferences learns from three samples in batches of three, and again in batches of eight, and in evaluations.
#
#   test_partial.sh BIN-FOLDER SOURCES
bin=$1
losses=$2/models/task/preference_losses.def
. "${0%/*}/../program.sh"

write_small_text 20
write_small_config 1 16 128
"$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --output_dir "$work/gpt2" --block_size 16 \
    --max_steps 1 --threads 1 > "$work/out" 2> "$work/err" || fail "making a decoder"
bert='"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 64, "hidden_dropout_prob": 0,
    "attention_probs_dropout_prob": 0'
printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ncat\ndog\nsat\nran\nthe\n?\nwhere\n' > "$work/vocab.txt"
echo "{$bert, \"vocab_size\": 12}" > "$work/bert.json"

cat > "$work/pairs.jsonl" << EOF
{"prompt": "Where does it end?", "chosen": " In the salt marsh, behind the mill.", "rejected": " No.", "margin": 0.5}
{"prompt": "Who repaired the bell?", "chosen": " A smith.", "rejected": " Bells ring all the day.", "margin": 0}
{"prompt": "Short", "chosen": " yes", "rejected": " a long answer about ropes, nets and tar", "margin": 1}
EOF
cat > "$work/kto.jsonl" << EOF
{"prompt": "Where does it end?", "completion": " In the salt marsh.", "label": true}
{"prompt": "Who repaired the bell?", "completion": " Bells ring all the day.", "label": false}
{"prompt": "Short", "completion": " yes", "label": true}
EOF
printf 'sentence\tlabel\nthe cat sat\t1\nthe dog\t0\nthe dog ran\t1\n' > "$work/classes.tsv"
printf 'sentence\tlabel\nthe cat sat\t0.5\nthe dog\t1.5\nthe dog ran\t-2\n' > "$work/numbers.tsv"
printf '{"text": "the cat", "label": ["a", "b"]}\n{"text": "dog", "label": []}\n{"text": "ran", "label": ["b"]}\n' \
    > "$work/several.jsonl"
printf '{"tokens": ["the", "cat"], "tags": ["O", "A"]}\n{"tokens": ["dog"], "tags": ["A"]}\n%s\n' \
    '{"tokens": ["the", "dog", "ran"], "tags": ["O", "A", "O"]}' > "$work/tags.jsonl"
printf '{"anchor": "the cat", "positive": "cat sat"}\n{"anchor": "dog", "positive": "dog ran"}\n%s\n' \
    '{"anchor": "where", "positive": "the"}' > "$work/embed.jsonl"
printf '{"anchor": "the cat", "positive": "cat sat", "negative": "dog"}\n%s\n%s\n' \
    '{"anchor": "dog", "positive": "dog ran", "negative": "the"}' \
    '{"anchor": "where", "positive": "the", "negative": "ran cat"}' > "$work/triplets.jsonl"
printf '{"one": "the cat", "two": "cat sat", "score": 0.9}\n{"one": "dog", "two": "dog ran", "score": 0.5}\n%s\n' \
    '{"one": "where", "two": "the", "score": 0.1}' > "$work/scored.jsonl"
printf '{"sent1": "the cat", "sent2": "", "ending0": "sat", "ending1": "dog", "label": 0}\n%s\n%s\n' \
    '{"sent1": "the dog", "sent2": "", "ending0": "ran", "ending1": "the", "label": 1}' \
    '{"sent1": "where", "sent2": "", "ending0": "cat ?", "ending1": "?", "label": 0}' > "$work/choices.jsonl"
printf '{"id": "1", "question": "where ?", "context": "the cat sat", "answers": {"text": ["cat"], "answer_start": [4]}}\n%s\n%s\n' \
    '{"id": "2", "question": "the dog ?", "context": "dog ran", "answers": {"text": ["ran"], "answer_start": [4]}}' \
    '{"id": "3", "question": "cat ?", "context": "sat", "answers": {"text": ["sat"], "answer_start": [0]}}' \
    > "$work/questions.jsonl"
printf '{"prompt": "Where?", "completion": " In the marsh."}\n{"prompt": "Who?", "completion": " A smith did."}\n%s\n' \
    '{"prompt": "So", "completion": " yes"}' > "$work/chats.jsonl"
head -n 3 "$work/text" > "$work/lines.txt"

# figures FOLDER: numbers of the steps and of the evaluations, without those that measure time or padding
figures()
{
    grep -oE '"[a-z_/]*": (-?[0-9][-+.0-9e]*|NaN|-?Infinity)' "$work/$1/log.jsonl" |
        grep -vE 'second|waited|tokens"|runtime'
}

# check NAME DATA ARGUMENT...: three samples in full batches, in others, and in two micro-batches, of which the means
# over tokens are others
checked=0
check()
{
    name=$1 data=$2
    shift 2
    rm -rf "$work/full" "$work/partial" "$work/added" "$work/resumed"
    for folder in full partial added resumed; do
        rows=3 times=1 saved="--save_steps 2"
        [ $folder != resumed ] || saved="--save_strategy no --resume_from_checkpoint $work/full/checkpoint-2"
        [ $folder != partial ] || rows=8
        [ $folder != added ] || { rows=2 && times=2; }
        # shellcheck disable=SC2086
        outcome 0 "" "$bin/txtrain" --train_file "$work/$data" --validation_file "$work/$data" --threads 1 \
            --max_steps 3 --eval_strategy steps --eval_steps 1 --learning_rate 1e-2 $saved \
            --train_sampling_strategy sequential --per_device_train_batch_size $rows \
            --gradient_accumulation_steps $times \
            --per_device_eval_batch_size $rows --output_dir "$work/$folder" "$@"
        [ -f "$work/$folder/log.jsonl" ] || return
        figures $folder | sed 's/": .*//' > "$work/$folder.names"
        figures $folder | sed 's/.*": //' > "$work/$folder.numbers"
    done
    cmp -s "$work/full/model.safetensors" "$work/resumed/model.safetensors" ||
        fail "$name: other weights after a checkpoint"
    cmp -s "$work/full.names" "$work/partial.names" || fail "$name: other names"
    near "$work/full.numbers" "$work/partial.numbers" 2e-4 || {
        paste "$work/full.names" "$work/full.numbers" "$work/partial.numbers" > "$work/out"
        fail "$name: other numbers in a batch that is not full"
    }
    grep -qE 'NaN|Inf' "$work/added/log.jsonl" && fail "$name: not finite with a micro-batch that is not full"
    checked=$((checked + 1))
}

# Each loss of the table, with a teacher's smoothing where one needs it.
sed -n 's/^X(\([a-z_0-9]*\), \([A-Z]*\), \([A-Z |]*\),.*/\1 \2 \3/p' "$losses" > "$work/rows"
[ "$(wc -l < "$work/rows")" -eq "$(grep -c '^X(' "$losses")" ] || fail "not every loss of the table was read"
while read -r type method traits; do
    data=pairs.jsonl
    [ "$method" != KTO ] || data=kto.jsonl
    smooth=
    case $traits in *SMOOTHS*) smooth="--label_smoothing 0.1" ;; esac
    case $type in simpo) task=simpo ;; *) task=$(echo "$method" | tr "[:upper:]" "[:lower:]") ;; esac
    # shellcheck disable=SC2086
    check "$task $type" $data --task_name "$task" --loss_type "$type" --model_name_or_path "$work/gpt2" $smooth
done < "$work/rows"
for divergence in forward_kl js_divergence alpha_divergence; do
    check "dpo $divergence" pairs.jsonl --task_name dpo --model_name_or_path "$work/gpt2" --f_divergence_type $divergence
done
check "dpo, weighted" pairs.jsonl --task_name dpo --model_name_or_path "$work/gpt2" --use_weighting --ld_alpha 0.5
check "dpo, precomputed" pairs.jsonl --task_name dpo --model_name_or_path "$work/gpt2" --precompute_ref_log_probs
check "dpo, two losses" pairs.jsonl --task_name dpo --model_name_or_path "$work/gpt2" --loss_type sigmoid,sft
check "cpo, AlphaPO" pairs.jsonl --task_name cpo --model_name_or_path "$work/gpt2" --cpo_alpha 1 --simpo_gamma 0.5
check reward pairs.jsonl --task_name reward --model_name_or_path "$work/gpt2" --center_rewards_coefficient 0.1
check "causal LM" chats.jsonl --model_name_or_path "$work/gpt2" --max_seq_length 64
check "decoder's classes" classes.tsv --task_name classification --model_name_or_path "$work/gpt2"

# encoder NAME DATA ARGUMENT...: the same of a new encoder
encoder()
{
    encoder_name=$1 encoder_data=$2
    shift 2
    check "$encoder_name" "$encoder_data" --config_name "$work/bert.json" --tokenizer_name "$work/vocab.txt" \
        --max_seq_length 16 "$@"
}
encoder classes classes.tsv --task_name classification
encoder "classes, smoothed" classes.tsv --task_name classification --label_smoothing_factor 0.1
encoder numbers numbers.tsv
encoder "several labels" several.jsonl --task_name classification
encoder tags tags.jsonl --task_name ner
encoder embeddings embed.jsonl --task_name embedding
encoder triplets triplets.jsonl --task_name embedding
encoder "triplets, margin" triplets.jsonl --task_name embedding --embedding_loss TripletLoss
encoder "scored pairs" scored.jsonl --task_name embedding
encoder choices choices.jsonl --task_name multiple_choice
encoder questions questions.jsonl --task_name question_answering --doc_stride 2
encoder "masked words" lines.txt --line_by_line
verdict ": $checked losses"
