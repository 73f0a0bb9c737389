#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Masked language modelling, end to end: a small BERT learns, by blocks and by lines. The same seed gives the same bits.
# Also a resumed run, rows of several lengths, and ranks.
#
#   test_masked.sh BIN-FOLDER LAUNCHER DEVICE     LAUNCHER "": no ranks
. "${0%/*}/../device.sh"

mkdir "$work/model"
cat > "$work/model/config.json" << 'END'
{"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 12, "hidden_size": 24,
 "num_hidden_layers": 2,
 "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 40, "hidden_dropout_prob": 0,
 "attention_probs_dropout_prob": 0}
END
cat > "$work/model/tokenizer.json" << 'END'
{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "BertPreTokenizer"},
 "post_processor": {"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
  {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
  "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
  "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]", "ids": [2],
  "tokens": ["[SEP]"]}}},
 "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
 "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
 "max_input_chars_per_word": 100,
  "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3, "the": 4, "cat": 5, "dog": 6, "bird": 7, "fish": 8,
  "on": 9, "mat": 10, "sun": 11}}}
END
awk 'BEGIN {
    split("cat dog bird fish", who, " "); split("mat sun", where, " ")
    for (i = 0; i < 120; i++) {
        line = "the " who[i % 4 + 1] " on the " where[i % 2 + 1]
        print line (i % 3 ? " " line : "")
        if (i % 7 == 0) print ""
    }
}' > "$work/text"
tail -n 60 "$work/text" > "$work/dev"

# masks FOLDER ARGUMENT...
masks()
{
    folder=$1
    shift
    $run "$bin/txtrain" --device "$device" --threads 1 --disable_tqdm --logging_strategy no \
        --config_name "$work/model" \
        --train_file "$work/text" --per_device_train_batch_size 4 --learning_rate 1e-2 --max_seq_length 24 \
        --save_strategy no --output_dir "$work/$folder" "$@" > "$work/out" 2> "$work/err"
}
run=
same()
{
    cmp -s "$work/$1/model.safetensors" "$work/$2/model.safetensors"
}
for most in "false 1.7" "true 0.8"; do
    lines=${most% *}
    masks "learnt$lines" --line_by_line $lines --max_steps 300 --learning_rate 3e-3 --validation_file "$work/dev" ||
         fail "training, lines $lines"
    awk -v loss="$(numbers eval_loss "$work/learnt$lines/eval_results.json")" \
        -v much="$(numbers perplexity "$work/learnt$lines/eval_results.json")" \
        -v most="${most#* }" \
        'BEGIN { d = exp(loss) / much - 1; exit !(loss < most && d < 1e-6 && d > -1e-6) }' ||
        fail "nothing is learnt, lines $lines"
done
grep -q BertForMaskedLM "$work/learnttrue/config.json" || fail "another kind of model"

# The same seed gives the same bits. The masked tokens are drawn again in each epoch, and depend on the probability.
masks once --max_steps 20 || fail "a run"
masks twice --max_steps 20 || fail "its repetition"
same once twice || fail "another run of the same seed"
masks seed --max_steps 20 --data_seed 7 && same once seed && fail "the seed changes nothing"
masks share --max_steps 20 --mlm_probability 0.3 && same once share && fail "mlm_probability changes nothing"
masks epochs --max_steps -1 --num_train_epochs 2 --learning_rate 0 --train_sampling_strategy sequential ||
    fail "two epochs"
[ "$(numbers loss "$work/epochs/log.jsonl" | sort -u | wc -l)" -gt \
    "$(($(numbers loss "$work/epochs/log.jsonl" | wc -l) / 2 + 1))" ] ||
    fail "an epoch hides what the one before has hidden"

# From a checkpoint on, to the byte.
masks kept --line_by_line --max_steps 24 --save_strategy steps --save_steps 8 || fail "with checkpoints"
mkdir "$work/on"
cp -r "$work/kept/checkpoint-8" "$work/on"
masks on --resume_from_checkpoint --save_strategy steps || fail "going on"
same kept on || fail "going on: other weights"
cmp -s "$work/kept/checkpoint-24/optimizer.safetensors" "$work/on/checkpoint-24/optimizer.safetensors" ||
    fail "going on: other moments"
outcome 1 "mlm_probability" masks on --resume_from_checkpoint --mlm_probability 0.2 --max_steps 30

# Rows of several lengths give the results of rows of one length, except for rounding; ranks give those of one rank.
masks whole --line_by_line --max_steps 12 || fail "one length"
numbers loss "$work/whole/log.jsonl" > "$work/a"
masks lengths --line_by_line --max_steps 12 --pad_to_max_length false || fail "several lengths"
numbers loss "$work/lengths/log.jsonl" > "$work/b"
near "$work/a" "$work/b" 1e-4 || fail "several lengths give other losses"
if [ -n "$launcher" ]; then
    run="timeout -s KILL 120 $launcher -n 2"
    masks ranks --line_by_line --max_steps 12 --per_device_train_batch_size 2 --zero_stage 2 || fail "ranks"
    numbers loss "$work/ranks/log.jsonl" > "$work/b"
    near "$work/a" "$work/b" 1e-4 || fail "ranks give other losses"
    run=
fi

# Refusals.
write_small_config 1 16 24
outcome 1 "is for masked language modelling" masks none --config_name "$work/config.json" --line_by_line
sed 's/MASK/NONE/' "$work/model/tokenizer.json" > "$work/tokenizer.json" && mv "$work/tokenizer.json" "$work/model"
outcome 1 "no mask token" masks none

verdict " on $device"
