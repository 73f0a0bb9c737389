#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txgen --assistant_model: the guesses of a smaller model change no text, in any type of weights, sampled or not, for
# prompts and conversations.
#
#   test_assistant.sh BIN-FOLDER LAUNCHER DEVICE
. "${0%/*}/../device.sh"

for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    echo "line $i: the cat sat on the mat, and caf$(printf '\303\251') was shut"
done > "$work/text"

# train NAME LAYERS WIDTH: a Llama, whose matrices GGUF files can hold in blocks
train()
{
    cat > "$work/config.json" << END
{"model_type": "llama", "vocab_size": 257, "max_position_embeddings": 160, "hidden_size": $3, "num_hidden_layers": $2,
 "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 64}
END
    "$bin/txtrain" --config_name "$work/config.json" --train_file "$work/text" --output_dir "$work/$1" --block_size 40 \
        --max_steps 60 --learning_rate 1e-2 --per_device_train_batch_size 4 --device "$device" --threads 2 \
        > "$work/out" 2> "$work/err" || { fail "the model cannot be made: $(cat "$work/err")"; exit 1; }
}

# check MODEL ARGUMENT...: runs txgen without and with an assistant
check()
{
    model=$1
    shift
    outcome 0 "" "$bin/txgen" --model "$model" --device "$device" --threads 2 --max_new_tokens 40 "$@" < "$work/lines"
    cp "$work/out" "$work/kept"
    outcome 0 "guesses accepted" "$bin/txgen" --model "$model" --device "$device" --threads 2 --max_new_tokens 40 \
        --assistant_model "$work/draft" --num_assistant_tokens 5 "$@" < "$work/lines"
    cmp -s "$work/kept" "$work/out" || fail "$model $*: another text with an assistant"
}

train model 2 64
train draft 1 32
printf 'the cat\nline 7\n' > "$work/lines"
for dtype in float32 bfloat16; do
    check "$work/model" --prompt "line 1" --temperature 0 --dtype $dtype
    grep -q "txgen: [1-9][0-9]* of [1-9][0-9]* guesses" "$work/err" && grep -q "assistant [0-9.]* MB" "$work/err" ||
        fail "no guess was right: $(cat "$work/err")"
    check "$work/model" --prompt "line 1" --temperature 1 --seed 5 --dtype $dtype
done
check "$work/model" --prompt "line 1" --temperature 0 --cache_type q8_0
outcome 0 "" "$bin/txgen" --model "$work/model" --device "$device" --prompt "line 1" --num_beams 3 --cache_type q8_0
check "$work/model" --prompts "$work/lines" --batch_size 1 --temperature 0
check "$work/model" --ids "1 2 3" --temperature 1 --repetition_penalty 1.3
check "$work/model" --prompt "line 1" --temperature 0 --stop cat
check "$work/model" --chat --chat_template zephyr --temperature 0
if [ "$device" = cpu ]; then
    "$bin/txconvert" "$work/model" --to "$work/model.gguf" --outtype q8_0 > "$work/out" 2>&1 || fail "no GGUF file"
    check "$work/model.gguf" --prompt "line 1" --temperature 0
fi

# ---- errors ------------------------------------------------------------------------------------------------
# refuse STATUS TEXT ARGUMENT...
refuse()
{
    wanted=$1
    text=$2
    shift 2
    outcome "$wanted" "$text" "$bin/txgen" --model "$work/model" --device "$device" --prompt a "$@"
    [ "$(wc -l < "$work/err")" -eq 1 ] || fail "more than one line: $(cat "$work/err")"
}

cp -r "$work/draft" "$work/other"
sed 's/"a": 97,/"a": 98,/; s/"b": 98,/"b": 97,/' "$work/draft/tokenizer.json" > "$work/other/tokenizer.json"
refuse 1 "assistant_model $work/other: id 97 is another token" --assistant_model "$work/other"
rm "$work/other"/tokenizer*
"$bin/txtok" train --tokenizer "$work/other" --vocab_size 300 "$work/text" > "$work/out" 2>&1 || fail "no tokenizer"
sed -i 's/"vocab_size": *257/"vocab_size": 300/' "$work/other/config.json"
refuse 1 "assistant_model $work/other: its tokenizer has" --assistant_model "$work/other"
refuse 1 "assistant_model $work/gone" --assistant_model "$work/gone"
refuse 2 "assistant_model" --assistant_model "$work/draft" --num_beams 2
refuse 2 "prompt_lookup_num_tokens" --assistant_model "$work/draft" --prompt_lookup_num_tokens 2
outcome 2 "assistant_model" "$bin/txgen" --model "$work/model" --assistant_model "$work/draft" --device_map cpu=2 -p a
refuse 2 "num_assistant_tokens" --num_assistant_tokens 2
refuse 1 "q8_0 or auto" --cache_type q4_0
outcome 2 "cache_type" "$bin/txgen" --model "$work/model" --perplexity "$work/text" --cache_type q8_0
refuse 2 "num_assistant_tokens" --assistant_model "$work/draft" --num_assistant_tokens 8

verdict " on $device"
