#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A GGUF file as a model: training, generation and adapters give the results of the folder that the file was made from.
# Unreadable files are refused in one line.
#
#   test_gguf.sh BIN-FOLDER LAUNCHER DEVICE
. "${0%/*}/../device.sh"
write_small_text 60
cat > "$work/config.json" << 'END'
{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
 "num_key_value_heads": 2, "max_position_embeddings": 32, "vocab_size": 257, "bos_token_id": 256, "eos_token_id": 256}
END

# train FOLDER ARGUMENT...
train()
{
    folder=$1
    shift
    "$bin/txtrain" --train_file "$work/text" --block_size 24 --device "$device" --threads 1 --learning_rate 1e-2 \
        --per_device_train_batch_size 4 --max_steps 4 --save_strategy no --output_dir "$work/$folder" "$@" \
        > "$work/out" 2> "$work/err" || fail "$folder"
}
# say ARGUMENT...: text of a model
say()
{
    "$bin/txgen" --device "$device" --threads 1 --prompt "the " --max_new_tokens 12 --temperature 0 "$@" 2> "$work/err"
}
for model in "$work/config.json" gpt2; do
    rm -rf "$work/base" "$work/base.gguf" "$work/of_folder" "$work/of_file" "$work/adapter"
    small=
    [ "$model" = gpt2 ] &&
        small="n_layer=2,n_embd=36,n_head=3,n_positions=32,vocab_size=257,bos_token_id=256,eos_token_id=256"
    train base --config_name "$model" ${small:+--config_overrides "$small"}
    "$bin/txconvert" "$work/base" --to "$work/base.gguf" > "$work/out" 2> "$work/err" || fail "no GGUF file"
    train of_folder --model_name_or_path "$work/base"
    train of_file --model_name_or_path "$work/base.gguf"
    cmp -s "$work/of_folder/model.safetensors" "$work/of_file/model.safetensors" || fail "$model: other weights"
    cmp -s "$work/of_folder/tokenizer.json" "$work/of_file/tokenizer.json" || fail "$model: another tokenizer"
    [ "$(say --model "$work/base.gguf")" = "$(say --model "$work/base")" ] || fail "$model: other text"
    train adapter --model_name_or_path "$work/base.gguf" --lora_r 2
    say --adapter "$work/adapter" > "$work/out" || fail "$model: the adapter does not find its base"
    [ "$(say --adapter "$work/adapter" --model "$work/base")" = "$(cat "$work/out")" ] || fail "$model: another adapter"
done

# Types of few bits: the importance of one input changes its matrix.
train few --config_name "$work/config.json"
{ printf '\001\000\000\000\025\000\000\000blk.1.ffn_down.weight\001\000\000\000\140\000\000\000'
  for i in $(seq 95); do printf '\000\000\200\077'; done
  printf '\000\000\200\107'; } > "$work/importance.dat"
"$bin/txconvert" "$work/few" --to "$work/plain.gguf" --outtype q4_0 > "$work/out" 2> "$work/err" || fail "no q4_0"
"$bin/txconvert" "$work/few" --to "$work/weighted.gguf" --outtype q4_0 --imatrix "$work/importance.dat" \
    > "$work/out" 2> "$work/err" || fail "no q4_0 with importance"
grep -q "imatrix lacks 13 matrices" "$work/err" || fail "no warning of missing matrices"
cmp -s "$work/plain.gguf" "$work/weighted.gguf" && fail "importance changes nothing"
say --model "$work/weighted.gguf" > "$work/out" || fail "q4_0 does not generate"
outcome 0 "mean KL divergence 0.000000, same most likely token 100.00 %" "$bin/txgen" --device "$device" \
    --model "$work/few" --reference "$work/few" --perplexity "$work/text" --max_length 24
outcome 0 "mean KL divergence 0.0" "$bin/txgen" --device "$device" --model "$work/weighted.gguf" \
    --reference "$work/few" --perplexity "$work/text" --max_length 24
grep -q "divergence 0.000000" "$work/out" && fail "q4_0 does not differ from its source"
outcome 1 "does not use it" "$bin/txconvert" "$work/few" --to "$work/none.gguf" --imatrix "$work/importance.dat"
# The importance over a text has all matrices, and is the same in a file.
outcome 0 "" "$bin/txconvert" "$work/few" --to "$work/first.gguf" --outtype q4_0 --calibrate "$work/text" \
    --imatrix "$work/importance.gguf" --device "$device" --threads 1
grep -q "imatrix lacks" "$work/err" && fail "matrices without importance"
outcome 0 "" "$bin/txconvert" "$work/few" --to "$work/second.gguf" --outtype q4_0 --imatrix "$work/importance.gguf"
cmp -s "$work/first.gguf" "$work/second.gguf" || fail "--imatrix differs from --calibrate"
cmp -s "$work/first.gguf" "$work/plain.gguf" && fail "a text changes nothing"
head -c 20 "$work/text" > "$work/short"
outcome 2 "threads is for --calibrate" "$bin/txconvert" "$work/few" --to "$work/none.gguf" --threads 1
outcome 2 "seed is for several adapters" "$bin/txconvert" "$work/few" --to "$work/none.gguf" --seed 1
outcome 2 "outtype is for one MODEL" "$bin/txconvert" "$work/few" "$work/few" --to "$work/none" --outtype bf16
outcome 1 "give one of at least" "$bin/txconvert" "$work/few" --to "$work/none.gguf" --outtype q4_0 \
    --calibrate "$work/short" --device "$device"
outcome 1 "does not use it" "$bin/txconvert" "$work/few" --to "$work/none.gguf" --calibrate "$work/text"
outcome 1 "a name that ends with .gguf" "$bin/txconvert" "$work/few" --to "$work/none.gguf" --outtype q4_0 \
    --calibrate "$work/text" --imatrix "$work/importance.dat"

outcome 1 "txgen --adapter $work/adapter --save_merged" "$bin/txconvert" "$work/adapter" --outfile "$work/none.gguf"
head -c 3000 "$work/base.gguf" > "$work/cut.gguf"
for bad in none cut; do
    outcome 1 "$bad.gguf" "$bin/txtrain" --train_file "$work/text" --output_dir "$work/none" \
        --model_name_or_path "$work/$bad.gguf"
    [ "$(wc -l < "$work/err")" = 1 ] || fail "$bad.gguf: not one line"
    outcome 1 "$bad.gguf" "$bin/txgen" --model "$work/$bad.gguf" --prompt "the "
done

verdict " on $device"
