#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models of experts, end to end: resumed runs with the same bytes, recomputed activations with the same bits, and bf16.
# Also dropped choices, losses of routers, adapters, memory as planned, and generation with caches.
#
#   test_experts.sh BIN-FOLDER LAUNCHER DEVICE      (no many ranks where LAUNCHER is empty)
. "${0%/*}/../device.sh"

write_small_text 60
cat > "$work/mixtral.json" << 'END'
{"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 24, "num_attention_heads": 4,
 "num_key_value_heads": 2, "max_position_embeddings": 32, "vocab_size": 257, "bos_token_id": 256, "eos_token_id": 256,
 "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": true, "router_aux_loss_coef": 0.02}
END
more='"decoder_sparse_step": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 20'
sed "s/\"mixtral\"/\"qwen2_moe\"/; s/num_local_experts/num_experts/; s/}\$/, $more}/" "$work/mixtral.json" \
    > "$work/qwen.json"

# train FOLDER ARGUMENT...: 8 steps, with checkpoints after 4 and 8
train()
{
    folder=$1
    shift
    $run "$bin/txtrain" --train_file "$work/text" --block_size 24 --device "$device" --threads 1 --learning_rate 1e-2 \
        --per_device_train_batch_size 4 --max_steps 8 --save_steps 4 --logging_strategy no \
        --output_dir "$work/$folder" "$@" > "$work/out" 2> "$work/err" || fail "$folder"
}
run=
# near A B SHARE: of the losses
near()
{
    awk -v a="$(last "$1")" -v b="$(last "$2")" -v most="$3" \
        'BEGIN { d = a / b - 1; exit !(a > 0 && d <= most && d >= -most) }' ||
        fail "$1: loss $(last "$1"), $2: $(last "$2")"
}

for model in mixtral qwen; do
    train $model --config_name "$work/$model.json" --profile
    as_planned "$model"
    awk -v a="$(numbers loss "$work/$model/log.jsonl" | head -n 1)" -v b="$(last $model)" \
        'BEGIN { exit !(b < a - 1) }' ||
        fail "$model: nothing was learned"
    grep -q '"dropped"' "$work/$model/log.jsonl" && fail "$model: drops without a capacity"
    # Stopped and resumed, to the byte.
    cp -r "$work/$model" "$work/$model-resumed"
    rm -r "$work/$model-resumed/checkpoint-8" "$work/$model-resumed/model.safetensors"
    "$bin/txtrain" --resume_from_checkpoint --output_dir "$work/$model-resumed" > "$work/out" 2> "$work/err" ||
        fail "$model resumed"
    same $model $model-resumed
    train $model-again --config_name "$work/$model.json" --gradient_checkpointing
    same $model $model-again
    train $model-bf16 --config_name "$work/$model.json" --bf16
    near $model-bf16 $model 0.02
    # Prompts in one batch, then token by token with caches.
    "$bin/txgen" --model "$work/$model" --ids "108 105 110 101" -n 12 --temperature 0 --device "$device" > "$work/text.$model" \
        2> "$work/err" || fail "$model: no text"
    [ -s "$work/text.$model" ] || fail "$model: an empty text"
done

# The loss that balances counts in each micro-batch for its share.
train halves --config_name "$work/mixtral.json" --per_device_train_batch_size 2 --gradient_accumulation_steps 2
near halves mixtral 0.01
sed 's/"output_router_logits": true/"output_router_logits": false/' "$work/mixtral.json" > "$work/plain.json"
train plain --config_name "$work/plain.json"
cmp -s "$work/plain/model.safetensors" "$work/mixtral/model.safetensors" && fail "output_router_logits has no effect"
train squares --config_name "$work/plain.json" --router_z_loss_coef 0.1
cmp -s "$work/plain/model.safetensors" "$work/squares/model.safetensors" && fail "router_z_loss_coef has no effect"

# A capacity of all is none; of half an even share at least a third of the choices are dropped.
train all --config_name "$work/mixtral.json" --expert_capacity_factor 4
same all mixtral
[ "$(numbers dropped "$work/all/log.jsonl" | sort -u)" = 0 ] || fail "a capacity of all drops some"
train half --config_name "$work/mixtral.json" --expert_capacity_factor 0.5
numbers dropped "$work/half/log.jsonl" | awk -v all=$((4 * 24 * 2 * 2)) '{ n++; if ($1 * 3 < all || $1 > all) bad = 1 }
    END { exit !(n == 8 && !bad) }' || fail "dropped: $(numbers dropped "$work/half/log.jsonl" | tr '\n' ' ')"

# Padding chooses no expert and counts in no loss: neither in short rows nor in the rows that a batch lacks.
cat > "$work/talk.jsonl" << 'END'
{"prompt": "abc", "completion": "defghi"}
{"prompt": "the cat", "completion": "sat on the mat"}
{"prompt": "x", "completion": "y"}
END
# pads FOLDER LENGTH ROWS ARGUMENT...
pads()
{
    folder=$1 length=$2 rows=$3
    shift 3
    "$bin/txtrain" --train_file "$work/talk.jsonl" --config_name "$work/mixtral.json" --device "$device" --threads 1 \
        --learning_rate 1e-2 \
        --router_z_loss_coef 0.3 --expert_capacity_factor 0.7 --max_steps 8 --logging_strategy no --save_strategy no \
        --train_sampling_strategy sequential --max_seq_length "$length" --per_device_train_batch_size "$rows" \
        --output_dir "$work/$folder" "$@" > "$work/out" 2> "$work/err" || fail "$folder"
}
pads rows 32 3
pads wide 32 3 --pad_to_max_length
pads lacks 28 8 --pad_to_max_length
for folder in wide lacks; do
    near $folder rows 2e-6
    numbers dropped "$work/$folder/log.jsonl" > "$work/got"
    numbers dropped "$work/rows/log.jsonl" | cmp -s - "$work/got" || fail "$folder: padding takes the room of experts"
done
tokens=$(sed -n 's/^train .*: \([0-9]*\) tokens.*/\1/p' "$work/out")
for folder in rows wide lacks; do
    [ "$(numbers tokens "$work/$folder/log.jsonl" | tail -n 1)" -eq $((8 * tokens)) ] ||
        fail "$folder: padding counts as tokens"
done
[ "$(numbers padded_tokens "$work/wide/log.jsonl" | tail -n 1)" -eq $((8 * 3 * 32)) ] || fail "padded_tokens"
[ "$(numbers padded_tokens "$work/lacks/log.jsonl" | tail -n 1)" -eq $((8 * 3 * 28)) ] ||
    fail "padded_tokens of rows that are there"
grep -q "^trained 8 steps, $((8 * tokens)) tokens ($((8 * 3 * 28)) with padding)" "$work/out" || fail "the last line counts other tokens"
[ "$(numbers num_input_tokens_seen "$work/lacks/trainer_state.json")" -eq $((8 * tokens)) ] ||
    fail "num_input_tokens_seen"

# Two ranks give the same in every stage and as one rank; the numbers of dropped choices are summed.
if [ -n "$launcher" ] && command -v "$launcher" > /dev/null; then
    run="$launcher -n 2"
    for stage in 0 3; do
        train rank-$stage --config_name "$work/plain.json" --per_device_train_batch_size 2 --zero_stage $stage
    done
    same rank-0 rank-3
    train rank-half --config_name "$work/plain.json" --per_device_train_batch_size 2 --expert_capacity_factor 0.5
    run=
    near rank-0 plain 1e-5
    numbers dropped "$work/rank-half/log.jsonl" |
        awk -v all=$((4 * 24 * 2 * 2)) '{ n++; if ($1 * 3 < all || $1 > all) bad = 1 }
        END { exit !(n == 8 && !bad) }' ||
        fail "dropped on 2 ranks: $(numbers dropped "$work/rank-half/log.jsonl" | tr '\n' ' ')"
fi

train adapter --model_name_or_path "$work/mixtral" --lora_r 4 --save_strategy no
[ -s "$work/adapter/adapter_model.safetensors" ] || fail "no adapter"
train adapter-linear --model_name_or_path "$work/qwen" --lora_r 4 --lora_target_modules all-linear --bf16 \
    --save_strategy no
[ -s "$work/adapter-linear/adapter_model.safetensors" ] || fail "no adapter of all linear layers"
outcome 1 "experts cannot be trained fully" "$bin/txtrain" --train_file "$work/text" --block_size 24 --device "$device" \
    --max_steps 1 --output_dir "$work/refused" --model_name_or_path "$work/mixtral" --lora_r 4 \
    --lora_modules_to_save block_sparse_moe
outcome 1 "router_jitter_noise" "$bin/txtrain" --train_file "$work/text" --block_size 24 --device "$device" --max_steps 1 \
    --output_dir "$work/refused" --config_name "$work/mixtral.json" --config_overrides router_jitter_noise=0.1

verdict " on $device"
