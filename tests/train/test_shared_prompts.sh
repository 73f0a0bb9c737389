#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Completions that share the tokens of their prompt in a step learn what they learn alone: the same losses, gradient
# norms, divergences and weights, with positions of each kind, windows, adapters and completions of different lengths.
# Rows are alone if an evaluation batch has one.
#
#   test_shared_prompts.sh BIN-FOLDER LAUNCHER DEVICE
. "${0%/*}/../device.sh"

write_small_text 10
i=0
for text in a "the cat sat" "the cat sat on the mat and looked" "birds, birds and more birds: how many" "mat" \
    "on the mat the cat looked at a bird"; do
    i=$((i + 1))
    echo "{\"prompt\": \"$text\", \"answer\": \"$i\"}"
done > "$work/prompts.jsonl"

# make TYPE MEMBERS: a small model of a type
make()
{
    echo "{\"model_type\": \"$1\", \"vocab_size\": 257, \"bos_token_id\": 256, \"eos_token_id\": 256, $2}" > "$work/config.json"
    "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --output_dir "$work/$1" --block_size 16 \
        --max_steps 1 --threads 1 > "$work/out" 2> "$work/err" || fail "making a $1"
}
wide='"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96'
make llama "$wide, \"max_position_embeddings\": 64"
make gemma3_text "$wide, \"head_dim\": 16, \"query_pre_attn_scalar\": 16, \"max_position_embeddings\": 64, \"pad_token_id\": 0,
    \"sliding_window\": 12, \"layer_types\": [\"sliding_attention\", \"full_attention\"]"
make bloom '"hidden_size": 64, "n_layer": 2, "n_head": 4, "hidden_dropout": 0, "attention_dropout": 0'
make gpt2 '"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0'

# learn FOLDER ROWS ARGUMENT...: four steps, with evaluation batches of so many rows
learn()
{
    folder=$1 rows=$2
    shift 2
    "$bin/txtrain" --task_name grpo --train_file "$work/prompts.jsonl" --device "$device" --threads 1 --max_steps 4 \
        --per_device_train_batch_size 4 --per_device_eval_batch_size "$rows" --num_generations 4 --logging_steps 1 \
        --max_completion_length 10 --max_seq_length 56 --learning_rate 1e-3 --adam_epsilon 1e-5 --overwrite_output_dir \
        --reward_funcs length,regex --reward_config '{"regex": {"pattern": "[a-m]"}, "length": {"target": 8}}' \
        --save_strategy no --output_dir "$work/$folder" "$@" > "$work/out" 2> "$work/err" || fail "$*"
}

# compare MODEL ARGUMENT...
compare()
{
    model=$1
    shift
    learn alone 1 --model_name_or_path "$work/$model" "$@"
    grep -q "compute a prompt once" "$work/out" "$work/err" && fail "$model $*: rows of one share a prompt"
    learn shared 4 --model_name_or_path "$work/$model" --profile "$@"
    grep -q "compute a prompt once for 4 completions" "$work/out" "$work/err" || fail "$model $*: no prompt is shared"
    as_planned "$model $*"
    for name in loss grad_norm kl entropy completions/mean_length; do
        for run in alone shared; do
            numbers $name "$work/$run/log.jsonl" > "$work/$run.numbers"
        done
        [ $name = kl ] && [ ! -s "$work/alone.numbers" ] || near "$work/alone.numbers" "$work/shared.numbers" 2e-5 ||
            fail "$model $*: other $name"
    done
    [ "$(numbers grad_norm "$work/shared/log.jsonl" | awk '$1 > 0.01' | wc -l)" -ge 3 ] || fail "$model $*: no gradients"
}

compare llama
compare gpt2 --beta 0.1 --num_iterations 2 --gradient_accumulation_steps 2
compare gemma3_text --lora_r 2 --beta 0.1 --seed 4 # with gradients in all steps
[ "$device" = cpu ] || verdict
compare gemma3_text --gradient_checkpointing
compare bloom
compare llama --top_entropy_quantile 0.4 --loss_type cispo --steps_per_generation 2
compare llama --task_name rloo --beta 0.1
verdict
