#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the models and data that a document names, as tiny stand-ins in the current folder and in TX's folder.
# run.py calls it once for each document, with TX's programs in PATH.
#
#   stand_ins.sh DOCUMENT
#
# Models have random weights. Names of real models stand for the same architecture with two narrow layers.
set -eu
document=$1

# named NAME: true if the document uses this name.
named()
{
    grep -qF -- "$1" "$document"
}

# model NAME CONFIG [DATA OPTION...]: a folder with new weights of this configuration. GPT-2 is found by its name
# instead, so that txmem plans the real gpt2.
model()
{
    name=$1
    named "$name" || return 0
    echo "$2" > config.json
    shift 2
    folder=$name
    [ "$name" != gpt2 ] || folder=$HOME/.local/share/tx/models/gpt2
    [ ! -d "$folder" ] || return 0
    txtrain --config_name config.json "${@:---train_file=book.txt}" --per_device_train_batch_size 2 --max_steps 1 \
        --learning_rate 0 --save_strategy no --device cpu --output_dir "$folder" > model.log 2>&1 ||
        { cat model.log; exit 1; }
    (cd "$folder" && rm -rf cache README.md log.jsonl ./*_results.json trainer_state.json training_args.json)
    rm config.json model.log
}

# text LINES FIRST: lines of text that a model can learn.
text()
{
    awk -v lines="$1" -v first="$2" 'BEGIN {
        split("cat dog bird fish horse", who, " ")
        split("sat on the mat;ran over the hill;looked at the moon;slept all day", did, ";")
        for (i = first; i < first + lines; i++)
            print "Chapter " i ": the " who[i % 5 + 1] " " did[int(i / 3) % 4 + 1] " while the " \
                who[int(i / 7) % 5 + 1] " " did[i % 4 + 1] "."
    }'
}

# chats LINES FIRST: conversations, one JSON object a line.
chats()
{
    awk -v lines="$1" -v first="$2" 'BEGIN {
        split("cat dog cow duck", who, " ")
        split("Miaow Woof Moo Quack", says, " ")
        for (i = first; i < first + lines; i++)
            print "{\"messages\": [{\"role\": \"user\", \"content\": \"What does a " who[i % 4 + 1] " say?\"}, " \
                "{\"role\": \"assistant\", \"content\": \"" says[i % 4 + 1] ".\"}]}"
    }'
}

# preferences LINES FIRST: pairs of answers, one JSON object a line.
preferences()
{
    chats "$1" "$2" | sed 's/"messages"/"prompt"/; s/, \({"role": "assistant".*}\)\]}$/], "chosen": [\1], "rejected": [{"role": "assistant", "content": "I am a fish."}]}/'
}

# labels LINES FIRST: a table of texts with labels.
labels()
{
    echo "sentence,label"
    text "$1" "$2" | awk '{ print "\"" $0 "\"," (/cat/ ? "cat" : "none") }'
}

# Documents use some files of the repository by their paths.
named tests/ && ln -s "$(cd "${0%/*}/.." && pwd)" tests

text 400 1 > book.txt
mkdir my-folder
text 300 1 > my-folder/train.txt
text 40 500 > my-folder/validation.txt
mkdir chats
chats 60 0 > chats/train.jsonl
chats 8 3 > chats/validation.jsonl
preferences 40 0 > preferences.jsonl
labels 120 1 > train.csv
labels 30 200 > dev.csv

text 40 1 | awk '{ print "{\"text\": \"" $0 "\", \"summary\": \"" $4 "\"}" }' > texts.jsonl
text 40 1 | awk '{ print "{\"anchor\": \"" $0 "\", \"positive\": \"the " $4 "\"}" }' > pairs.jsonl

bytes='"vocab_size": 257, "bos_token_id": 256, "eos_token_id": 256'
llama='"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,'
model gpt2 "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 64, \"n_head\": 2, \"n_positions\": 512, $bytes}"
model Llama-3.2-1B "{\"model_type\": \"llama\", $llama $bytes}"
model Qwen1.5-MoE-A2.7B "{\"model_type\": \"qwen2_moe\", \"num_experts\": 4, \"num_experts_per_tok\": 2,
    \"moe_intermediate_size\": 32, \"shared_expert_intermediate_size\": 64, $llama $bytes}"
model t5-small '{"model_type": "t5", "d_model": 64, "d_kv": 32, "d_ff": 128, "num_layers": 2, "num_heads": 2,
    "decoder_start_token_id": 0, "vocab_size": 257, "eos_token_id": 256}' --train_file=texts.jsonl

# Encoders have a WordPiece tokenizer of letters.
if named bert-base || named all-MiniLM-L6-v2; then
    mkdir tokenizer
    # special ID NAME: a special token
    special()
    {
        printf '{"id": %d, "content": "%s", "single_word": false, "lstrip": false, "rstrip": false,' "$1" "$2"
        printf ' "normalized": false, "special": true}\n'
    }
    cls='{"SpecialToken": {"id": "[CLS]", "type_id": 0}}'
    first='{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}'
    second='{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}'
    cat > tokenizer/tokenizer.json << END
{"version": "1.0", "added_tokens": [$(special 0 '[PAD]'), $(special 1 '[UNK]'), $(special 2 '[CLS]'),
    $(special 3 '[SEP]'), $(special 4 '[MASK]')],
 "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
    "lowercase": true},
 "pre_tokenizer": {"type": "BertPreTokenizer"},
 "post_processor": {"type": "TemplateProcessing", "single": [$cls, $first], "pair": [$cls, $first, $second],
    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
        "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
 "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
 "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
    "vocab": {$(awk 'BEGIN {
        letters = "abcdefghijklmnopqrstuvwxyz0123456789.,:;?!"
        for (i = 1; i <= length(letters); i++) {
            c = substr(letters, i, 1)
            print "\"" c "\": " 3 + 2 * i ", \"##" c "\": " 4 + 2 * i ","
        }
    }') "[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}}}
END
    bert='{"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 89,
        "intermediate_size": 128, "max_position_embeddings": 512}'
    for name in bert-base-uncased bert-base-cased; do
        model $name "$bert" --train_file=book.txt --line_by_line --tokenizer_name=tokenizer
    done
    model all-MiniLM-L6-v2 "$bert" --task_name=embedding --train_file=pairs.jsonl --tokenizer_name=tokenizer
    rm -r tokenizer
fi

# A real Qwen3 has a tokenizer with the special tokens of its chat template.
if named Qwen3-0.6B || named qwen3-moe; then
    mkdir tokenizer
    cp "${0%/*}"/../chat/golden/tokenizer*.json tokenizer
    model Qwen3-0.6B \
        "{\"model_type\": \"qwen3\", \"head_dim\": 32, $llama \"vocab_size\": 342, \"eos_token_id\": 334}" \
        --train_file=book.txt --tokenizer_name=tokenizer
    model qwen3-moe "{\"model_type\": \"qwen3_moe\", \"head_dim\": 32, \"num_experts\": 4, \"num_experts_per_tok\": 2,
        \"moe_intermediate_size\": 32, $llama \"vocab_size\": 342, \"eos_token_id\": 334}" \
        --train_file=book.txt --tokenizer_name=tokenizer
    rm -r tokenizer
    for name in Qwen3-0.6B qwen3-moe; do
        [ -d $name ] || continue
        cat > $name/chat_template.jinja << 'END'
{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
END
    done
fi
