#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks that divide a model generate the ids of one rank, and rank 0 prints them once: the most likely tokens, samples,
# beams and batches. Each of two ranks has about half of the weights and caches.
#   test_ranks_generate.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"

cat > "$work/llama.json" << 'EOF'
{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 4,
 "intermediate_size": 128, "max_position_embeddings": 64, "vocab_size": 257}
EOF
cat > "$work/gpt2.json" << 'EOF'
{"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 64, "vocab_size": 257}
EOF
cat > "$work/mixtral.json" << 'EOF'
{"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
 "num_key_value_heads": 4, "intermediate_size": 64, "num_local_experts": 4, "num_experts_per_tok": 2,
 "max_position_embeddings": 64, "vocab_size": 257}
EOF

# generate RANKS OPTION...: the ids in $work/RANKS
model=$work/model
generate()
{
    count=$1
    shift
    set -- "$bin/txgen" --device "$device" --model "$model" "$@"
    [ "$count" -gt 1 ] && set -- "$launcher" -n "$count" "$@"
    timeout -s KILL 60 "$@" > "$work/$count" 2> "$work/err"
}

# number WORD: the number of megabytes after a word of the last line
number()
{
    sed -n "s/.*$1 \([0-9.]*\) MB.*/\1/p" "$work/err" | tail -n 1
}

for family in llama gpt2 mixtral; do
    rm -rf "$work/model" "$work/err"
    "$bin/txtrain" --config_name "$work/$family.json" --train_file "$work/text" --block_size 32 --max_steps 40 \
        --per_device_train_batch_size 8 --learning_rate 1e-2 --output_dir "$work/model" --device "$device" \
        > "$work/train" 2>&1 || { fail "$family: no model: $(tail -n 1 "$work/train")"; continue; }
    while read -r how <&3; do
        # shellcheck disable=SC2086
        set -- $how --max_new_tokens 20 --ids "76 105 110 101" --ids "32 115 97 121 115" --ids "49 50"
        generate 1 "$@" || fail "$family $how: one rank: $(tail -n 1 "$work/err")"
        weights=$(number weights) caches=$(number caches)
        for ranks in 2 4; do
            generate $ranks "$@" || fail "$family $how: $ranks ranks: $(tail -n 1 "$work/err")"
            cmp -s "$work/1" "$work/$ranks" || fail "$family $how: $ranks ranks generate other ids than one"
            [ $ranks -eq 2 ] || continue
            awk -v w="$(number weights)" -v c="$(number caches)" -v ow="$weights" -v oc="$caches" \
                'BEGIN { exit !(w > 0.4 * ow - 0.06 && w < 0.65 * ow + 0.06 && (oc < 0.3 || c < 0.65 * oc)) }' ||
                fail "$family $how: $(number weights) of $weights MB of weights, $(number caches) of $caches of caches"
        done
    done 3<< 'END'
--do_sample false
--do_sample true --temperature 0.9 --top_p 0.9 --seed 7
--do_sample false --num_beams 3
--do_sample false --batch_size 2 --dtype bfloat16
--do_sample false --prompt_lookup_num_tokens 3 --batch_size 1
END
    # Ranks divide the values of a GGUF file, not its blocks.
    [ $family = gpt2 ] || continue
    model=$work/blocks.gguf
    "$bin/txconvert" "$work/model" --to "$model" --outtype q8_0 > "$work/out" 2> "$work/err" || fail "no GGUF file"
    generate 1 --ids "76 105 110 101" --max_new_tokens 20 --temperature 0 --dtype float32 || fail "GGUF: one rank"
    generate 2 --ids "76 105 110 101" --max_new_tokens 20 --temperature 0 || fail "GGUF: two ranks"
    cmp -s "$work/1" "$work/2" || fail "GGUF: two ranks generate other ids than one"
    model=$work/model
done

# txlaunch knows that the ranks have finished.
"$bin/txlaunch" -n 2 --launcher "$launcher" "$bin/txgen" --device "$device" --model "$work/model" --ids 76 \
    --max_new_tokens 4 --temperature 0 > "$work/2" 2> "$work/err" || fail "txlaunch: $(tail -n 1 "$work/err")"
[ "$(wc -l < "$work/2")" -eq 1 ] || fail "txlaunch: not one line of ids"

# One line for one mistake, and what cannot be divided.
while IFS='|' read -r words options <&3; do
    # shellcheck disable=SC2086
    generate 2 $options && fail "$options: two ranks"
    [ "$(grep -c "$words" "$work/err")" -eq 1 ] || fail "$options: the reason is not given once: $(cat "$work/err")"
done 3<< 'END'
standard input reaches only rank 0|--max_new_tokens 2
standard input reaches only rank 0|--prompts -
start --classify|--perplexity x
leave out --device_map|--ids 1 --load_in_4bit
unknown option|--no_such_option
END
sed -i 's/"num_attention_heads": *[0-9]*/"num_attention_heads": 1/; s/"num_key_value_heads": *[0-9]*/"num_key_value_heads": 1/' \
    "$work/model/config.json"
generate 2 --ids 1 && fail "one head for two ranks"
grep -q "txgen: .*divide" "$work/err" || fail "one head for two ranks: $(cat "$work/err")"

verdict
