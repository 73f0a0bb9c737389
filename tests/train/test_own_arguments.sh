#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The training_args.json that a run writes starts the same run again: each option then has a value from a file, most of
# them their defaults, and a default is no wish. One run of each task.
#   test_own_arguments.sh BIN
# shellcheck disable=SC2154
bin=$1
. "${0%/*}/../program.sh"
i=0
while [ $i -lt 60 ]; do
    echo "Line $i says what line $((i * 7 % 60)) says" >> "$work/text"
    printf '{"messages": [{"role": "user", "content": "greet %d"}, {"role": "assistant", "content": "hi %d"}]}\n' $i \
        $i >> "$work/talk.jsonl"
    i=$((i + 1))
done
awk 'BEGIN { print "sentence\tlabel"; for (i = 0; i < 40; i++) print "the line " i "\t" i % 2 }' > "$work/texts.tsv"

# config NAME KEYS: a small model with a tokenizer of its kind
config()
{
    mkdir "$work/$1"
    cp "${0%/*}"/../chat/golden/tokenizer*.json "$work/$1"
    echo "{\"vocab_size\": 342, \"num_hidden_layers\": 1, \"hidden_size\": 16, \"num_attention_heads\": 2," \
        "\"intermediate_size\": 24," \
        "\"max_position_embeddings\": 48, $2}" > "$work/$1/config.json"
}
config gpt2 '"model_type": "gpt2"'
config llama '"model_type": "llama", "num_key_value_heads": 1, "eos_token_id": 2'
config words '"model_type": "bert"'
mkdir "$work/masked"
cat > "$work/masked/tokenizer.json" << 'END'
{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "BertPreTokenizer"},
 "post_processor": null,
 "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
 "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
 "max_input_chars_per_word": 100,
  "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3, "Line": 4, "says": 5, "what": 6, "line": 7}}}
END
echo '{"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 8, "num_hidden_layers": 1,
 "hidden_size": 16,
 "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 48}' > "$work/masked/config.json"

# again NAME ARGUMENT...: a run, and the same from its file
again()
{
    name=$1
    shift
    outcome 0 "" "$bin/txtrain" --config_name "$work/$name" --output_dir "$work/run" --overwrite_output_dir \
        --max_steps 2 --threads 1 --per_device_train_batch_size 2 "$@"
    [ "$status" -eq 0 ] || return
    cp "$work/run/model.safetensors" "$work/first"
    cp "$work/run/training_args.json" "$work/arguments.json"
    outcome 0 "" "$bin/txtrain" "$work/arguments.json" --overwrite_output_dir
    grep -q "without effect" "$work/err" && fail "$name: a default is taken for a wish"
    cmp -s "$work/run/model.safetensors" "$work/first" || fail "$name: other weights from the run's own file"
}
again gpt2 --train_file "$work/text" --block_size 32
again llama --train_file "$work/talk.jsonl" --chat_template chatml --max_seq_length 48
again masked --train_file "$work/text" --max_seq_length 32
again words --train_file "$work/texts.tsv" --task_name sst2 --max_seq_length 24
verdict
