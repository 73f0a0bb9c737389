#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Adapters, end to end: resumed runs with the same bytes, and the same files with recomputed activations and with any
# number of ranks that shard the states. Memory is as planned, and the base does not change. Adapter and merged model
# generate the same text.
#
#   test_lora.sh BIN-FOLDER LAUNCHER DEVICE      (no many ranks where LAUNCHER is empty)
. "${0%/*}/../device.sh"

write_small_text 60
cat > "$work/config.json" << 'END'
{"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 4,
 "num_key_value_heads": 2, "max_position_embeddings": 32, "vocab_size": 257, "bos_token_id": 256, "eos_token_id": 256}
END

# train FOLDER ARGUMENT...: 12 steps, with checkpoints after 6 and 12
train()
{
    folder=$1
    shift
    $run "$bin/txtrain" --train_file "$work/text" --block_size 24 --device "$device" --threads 1 --learning_rate 1e-2 \
        --per_device_train_batch_size 4 --max_steps 12 --save_steps 6 --logging_strategy no \
        --output_dir "$work/$folder" "$@" > "$work/out" 2> "$work/err"
}
run=
adapt()
{
    folder=$1
    shift
    train "$folder" --model_name_or_path "$work/base" --lora_r 4 --lora_alpha 16 --lora_dropout 0.1 --profile "$@" ||
        fail "$folder"
    as_planned "$folder"
}

# Sums in another order: after 12 steps the losses of two runs differ in the fifth digit.
near_losses()
{
    last "$1" > "$work/expected"
    last "$2" > "$work/got"
    near "$work/expected" "$work/got" 1e-4 ||
        fail "$3: $(last "$2") in place of $(last "$1")"
}

train base --config_name "$work/config.json" --save_strategy no || fail "the base"
cp "$work/base/model.safetensors" "$work/base.before"

# The A of q and of v are a tensor each in the adapter's file: Adafactor has sums of columns of each.
adapt sums --lora_target_modules q_proj,v_proj --optim adafactor
grep -aq 'q_proj|v_proj.lora_A.weight.exp_avg_sq_col": {[^}]*"shape": \[2, 48\]' \
    "$work/sums/checkpoint-12/optimizer.safetensors" ||
    fail "adafactor takes two A as one"

adapt whole --lora_target_modules "q_proj, v_proj"
[ -e "$work/whole/checkpoint-6/model.safetensors" ] && fail "a checkpoint holds the base"
[ "$(wc -c < "$work/whole/adapter_model.safetensors")" -lt 20000 ] || fail "the adapter is not small"
awk '$1 == "weights" { bytes = $2 } $1 == "gradients" { g = $2 } END { exit !(g > 0 && 8 * g < bytes) }' "$work/out" ||
    fail "frozen weights have gradients"

# Stopped and resumed; computed again; by accumulation.
cp -r "$work/whole" "$work/resumed"
rm -r "$work/resumed/checkpoint-12" "$work/resumed/adapter_model.safetensors"
"$bin/txtrain" --resume_from_checkpoint --output_dir "$work/resumed" > "$work/out" 2> "$work/err" || fail "resumed"
same whole resumed adapter_model.safetensors checkpoint-12/optimizer.safetensors
for how in 2 auto; do
    adapt again-$how --gradient_checkpointing $how
    same whole again-$how adapter_model.safetensors checkpoint-12/optimizer.safetensors
done
adapt away --lora_target_modules "q_proj, v_proj" --offload_param cpu
same whole away adapter_model.safetensors checkpoint-12/optimizer.safetensors
mkdir "$work/disk"
adapt filed --lora_target_modules "q_proj, v_proj" --offload_param nvme --nvme_path "$work/disk"
same whole filed adapter_model.safetensors checkpoint-12/optimizer.safetensors
adapt halves --per_device_train_batch_size 2 --gradient_accumulation_steps 2
near_losses whole halves accumulation

# In bf16 frozen matrices take half the memory, and the loss is the same except for rounding.
weights=$(awk '$1 == "weights" { print $2 }' "$work/out")
adapt bf16 --bf16 --optim adamw_8bit
awk -v a="$(last whole)" -v b="$(last bf16)" 'BEGIN { d = a / b - 1; exit !(d < 0.01 && d > -0.01) }' ||
    fail "bf16: $(last bf16) instead of $(last whole)"
awk -v full="$weights" '$1 == "weights" { bytes = $2 } END { exit !(bytes < 0.6 * full) }' "$work/out" ||
    fail "bf16: frozen weights are not of 16 bits"

# Many ranks: the same files in every stage.
if [ -n "$launcher" ] && command -v "$launcher" > /dev/null; then
    run="$launcher -n 2"
    for stage in 0 1 2 3; do
        adapt rank-$stage --per_device_train_batch_size 2 --zero_stage $stage
        same rank-0 rank-$stage adapter_model.safetensors checkpoint-12/optimizer.safetensors
    done
    run=
    near_losses whole rank-0 "2 ranks"

    # Tensor-parallel ranks and pipeline stages train the same adapter, and resume from one rank's checkpoint.
    for split in tensor pipeline; do
        for how in "" --use_dora "--init_lora_weights pissa" "--trainable_token_indices 49,32,51,50"; do
            case "$split $how" in "tensor --trainable"*) continue ;; esac # is refused
            run=
            # shellcheck disable=SC2086
            adapt one --lora_target_modules all-linear --lora_dropout 0 --overwrite_output_dir $how
            cp -r "$work/one" "$work/handed"
            rm -r "$work/handed/checkpoint-12"
            run="$launcher -n 2"
            # shellcheck disable=SC2086
            adapt two --lora_target_modules all-linear --lora_dropout 0 --overwrite_output_dir $how \
                --${split}_parallel 2
            $run "$bin/txtrain" --resume_from_checkpoint --output_dir "$work/handed" --${split}_parallel 2 \
                > "$work/out" 2> "$work/err" || fail "$split $how: resumed"
            for other in two handed; do
                near_losses one $other "$split $how"
            done
            rm -r "$work/handed"
        done
    done
    run=
    outcome fails "tensor parallelism divides the inputs of" "$launcher" -n 2 "$bin/txtrain" --model_name_or_path \
        "$work/base" --train_file "$work/text" --block_size 24 --device "$device" --threads 1 --lora_r 4 \
        --lora_target_modules o_proj --lora_dropout 0.1 --tensor_parallel 2 --output_dir "$work/refused"
fi

# An adapter that takes over a part of the weights, and rows of tokens: resumed runs have the same bytes.
for how in "--init_lora_weights pissa" "--init_lora_weights loftq" "--trainable_token_indices [49,32,51,50]"; do
    # shellcheck disable=SC2086
    adapt began --overwrite_output_dir $how
    cp -r "$work/began" "$work/resumed-began"
    rm -r "$work/resumed-began/checkpoint-12" "$work/resumed-began/adapter_model.safetensors"
    "$bin/txtrain" --resume_from_checkpoint --output_dir "$work/resumed-began" > "$work/out" 2> "$work/err" ||
        fail "resumed $how"
    same began resumed-began adapter_model.safetensors checkpoint-12/optimizer.safetensors
    rm -r "$work/resumed-began"
done
outcome 1 "--trainable_token_indices: the adapter in" "$bin/txtrain" --resume_from_checkpoint \
    "$work/began/checkpoint-6" --trainable_token_indices 49 --output_dir "$work/other"
outcome 1 "3 occurs twice" train refused --model_name_or_path "$work/base" --lora_r 4 --trainable_token_indices 3,3
outcome 1 "q_proj is no embedding" train refused --model_name_or_path "$work/base" --lora_r 4 \
    --trainable_token_indices '{"q_proj": [3]}'
outcome 2 "leave --use_dora out" train refused --model_name_or_path "$work/base" --lora_r 4 --use_dora \
    --init_lora_weights loftq

# The adapter is trained further, with its own settings. Also modules to save, and the best weights at the end.
train further --model_name_or_path "$work/whole" || fail "an adapter trained further"
grep -q '"lora_alpha": 16' "$work/further/adapter_config.json" || fail "an adapter trained further has lost its alpha"
outcome 1 "leave the option out" train refused --model_name_or_path "$work/whole" --lora_r 8
outcome 1 "--use_dora: the adapter" train refused --model_name_or_path "$work/whole" --use_dora
outcome 1 "--lora_dropout: the adapter" train refused --model_name_or_path "$work/whole" --lora_dropout 0.2
outcome 0 "" train repeated --model_name_or_path "$work/whole" --lora_r 4 --lora_alpha 16 --use_dora false --dry_run
outcome 2 "--use_dora needs --lora_r" train refused --model_name_or_path "$work/base" --use_dora
adapt best --lora_target_modules all-linear --lora_modules_to_save norm --eval_strategy steps --eval_steps 6 \
    --validation_file "$work/text" --load_best_model_at_end
grep -q '"norm"' "$work/best/adapter_config.json" || fail "adapter_config.json has no modules_to_save"
grep -aq input_layernorm.weight "$work/best/adapter_model.safetensors" || fail "a module to save is not saved"

# Refusals.
outcome 1 "its modules are embed_tokens, q_proj, k_proj" train refused --model_name_or_path "$work/base" --lora_r 4 --lora_target_modules q
outcome 2 "the model to adapt" train refused --config_name "$work/config.json" --lora_r 4
outcome 1 "the adapter has r 4, alpha 16" "$bin/txtrain" --resume_from_checkpoint "$work/whole/checkpoint-6" --lora_alpha 8
train base2 --config_name "$work/config.json" --save_strategy no --seed 7 || fail "another base"
cp "$work/base2/model.safetensors" "$work/base/model.safetensors"
outcome 1 "base_model was" "$bin/txtrain" --resume_from_checkpoint "$work/whole/checkpoint-6" --output_dir "$work/other"
cp "$work/base.before" "$work/base/model.safetensors"

# Text of the adapter, of the merged model, and of the base.
generate()
{
    "$bin/txgen" "$@" --device "$device" --ids "108 105 110 101" -n 12 --temperature 0 2> "$work/err" || fail "txgen $*"
}
outcome 0 "" "$bin/txgen" --adapter "$work/best" --save_merged "$work/merged"
generate --adapter "$work/best" > "$work/applied"
generate --model "$work/best" > "$work/named"
generate --model "$work/merged" > "$work/joined"
generate --model "$work/base" > "$work/plain"
cmp -s "$work/applied" "$work/joined" && cmp -s "$work/applied" "$work/named" || fail "other text of the merged model"
cmp -s "$work/applied" "$work/plain" && fail "the adapter changes nothing"
cp -r "$work/best" "$work/foreign"
echo '{"model_type": "gpt2"}' > "$work/foreign/config.json"
outcome 1 "the adapter belongs to a gpt2, the model is a llama" "$bin/txgen" --model "$work/foreign" --ids "1 2" -n 2
outcome 1 "is the model itself" "$bin/txgen" --adapter "$work/best" --save_merged "$work/base"
cmp -s "$work/base/model.safetensors" "$work/base.before" || fail "the base has changed"

verdict " on $device"
