#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Adapters on weights of 4 and 8 bits: the loss compared with bf16, memory as planned, an unchanged base, and resumed
# runs with the same bytes. Also the memory of a 7B model, generation with weights of 4 bits, and refusals.
#
#   test_qlora.sh BIN-FOLDER LAUNCHER DEVICE
. "${0%/*}/../device.sh"
write_small_text 400
cat > "$work/config.json" << 'END'
{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 384, "num_attention_heads": 4,
 "num_key_value_heads": 4, "max_position_embeddings": 64, "vocab_size": 257, "bos_token_id": 256, "eos_token_id": 256}
END

# train FOLDER ARGUMENT...
train()
{
    folder=$1
    shift
    "$bin/txtrain" --train_file "$work/text" --block_size 32 --device "$device" --bf16 --learning_rate 2e-3 \
        --per_device_train_batch_size 4 --logging_strategy no --save_strategy no --output_dir "$work/$folder" \
        "$@" > "$work/out" 2> "$work/err"
}
adapt()
{
    folder=$1
    shift
    train "$folder" --model_name_or_path "$work/base" --lora_r 8 --lora_alpha 16 --lora_target_modules all-linear \
        --lr_scheduler_type constant --profile "$@" || fail "$folder: $(cat "$work/err")"
    as_planned "$folder"
    awk '$1 == "weights" { print $2 }' "$work/out" > "$work/$folder.weights"
}
# mean FOLDER: of the losses of the last 20 steps
mean()
{
    numbers loss "$work/$1/log.jsonl" | tail -n 20 | awk '{ sum += $1 } END { print sum / NR }'
}
# near A B RATIO: fails on NaN
near()
{
    awk -v a="$1" -v b="$2" -v most="$3" 'BEGIN { d = a / b - 1; exit !(b > 0 && d <= most && d >= -most) }'
}

train base --config_name "$work/config.json" --max_steps 60 || fail "the base"
cp "$work/base/model.safetensors" "$work/base.before"

# 200 steps: within 2 % of bf16, and yet not the same.
adapt wide --max_steps 200
adapt nf4 --max_steps 200 --load_in_4bit
adapt eight --max_steps 200 --load_in_8bit
adapt double --max_steps 200 --load_in_4bit --bnb_4bit_use_double_quant --bnb_4bit_compute_dtype bfloat16
for folder in nf4 double eight; do
    near "$(mean $folder)" "$(mean wide)" 0.02 || fail "$folder: loss $(mean $folder), in bf16 $(mean wide)"
    cmp -s "$work/$folder/adapter_model.safetensors" "$work/wide/adapter_model.safetensors" &&
        fail "$folder: as in bf16"
done
near "$(mean wide)" "$(numbers loss "$work/wide/log.jsonl" | head -n 1)" 0.05 && fail "nothing was learnt"
cmp -s "$work/nf4/adapter_model.safetensors" "$work/double/adapter_model.safetensors" && fail "double: as without"
cmp -s "$work/base/model.safetensors" "$work/base.before" || fail "the base has changed"
# The 2 layers have 425,984 elements in matrices, which take 851,968 bytes in bf16, or 4.5, 4.13 and 8.5 bits an
# element.
awk -v wide="$(cat "$work/wide.weights")" -v nf4="$(cat "$work/nf4.weights")" -v twice="$(cat "$work/double.weights")" \
    -v eight="$(cat "$work/eight.weights")" \
    'BEGIN { n = wide - nf4; t = nf4 - twice; e = wide - eight
             exit !(n > 600000 && n < 620000 && t > 8000 && t < 20000 && e > 390000 && e < 400000) }' ||
    fail "weights take $(cat "$work/wide.weights"), $(cat "$work/nf4.weights"), $(cat "$work/double.weights")," \
         "$(cat "$work/eight.weights") bytes"

# Stopped and resumed, to the byte.
adapt whole --max_steps 8 --save_strategy steps --save_steps 4 --load_in_4bit --bnb_4bit_use_double_quant \
    --gradient_checkpointing
cp -r "$work/whole" "$work/resumed"
rm -r "$work/resumed/checkpoint-8" "$work/resumed/adapter_model.safetensors"
"$bin/txtrain" --resume_from_checkpoint --output_dir "$work/resumed" > "$work/out" 2> "$work/err" || fail "resumed"
grep -q "NF4_DOUBLE" "$work/out" "$work/err" || fail "resumed in another type"
cmp -s "$work/whole/adapter_model.safetensors" "$work/resumed/adapter_model.safetensors" ||
    fail "resumed to another adapter"
adapt eights --max_steps 8 --save_strategy steps --save_steps 4 --load_in_8bit --gradient_checkpointing
cp -r "$work/eights" "$work/again"
rm -r "$work/again/checkpoint-8" "$work/again/adapter_model.safetensors"
"$bin/txtrain" --resume_from_checkpoint --output_dir "$work/again" > "$work/out" 2> "$work/err" || fail "8 bits resumed"
grep -q "in Q8" "$work/out" "$work/err" || fail "8 bits resumed in another type"
cmp -s "$work/eights/adapter_model.safetensors" "$work/again/adapter_model.safetensors" ||
    fail "8 bits resumed to another adapter"
adapt away --max_steps 8 --save_strategy steps --save_steps 4 --load_in_4bit --bnb_4bit_use_double_quant \
    --gradient_checkpointing --offload_param cpu
cmp -s "$work/whole/adapter_model.safetensors" "$work/away/adapter_model.safetensors" ||
    fail "another adapter with the base in the host's memory"
mkdir "$work/disk"
adapt filed --max_steps 8 --save_strategy steps --save_steps 4 --load_in_4bit --bnb_4bit_use_double_quant \
    --offload_param nvme --nvme_path "$work/disk"
cmp -s "$work/whole/adapter_model.safetensors" "$work/filed/adapter_model.safetensors" ||
    fail "another adapter with the base in a file"

adapt filed8 --max_steps 8 --save_strategy no --load_in_8bit --gradient_checkpointing \
    --offload_param nvme --nvme_path "$work/disk"
cmp -s "$work/eights/adapter_model.safetensors" "$work/filed8/adapter_model.safetensors" ||
    fail "8 bits: another adapter with the base in a file"

# Adapters of experts, next to a base of 8 bits, resumed to the byte.
cat > "$work/experts.json" << 'END'
{"model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 64, "moe_intermediate_size": 32, "head_dim": 16,
 "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 4,
 "num_experts_per_tok": 2, "max_position_embeddings": 64, "vocab_size": 257, "bos_token_id": 256, "eos_token_id": 256}
END
train mixture --config_name "$work/experts.json" --max_steps 2 || fail "a mixture"
train experts --model_name_or_path "$work/mixture" --lora_r 4 --load_in_8bit --max_steps 4 --save_strategy steps \
    --save_steps 2 --target_parameters mlp.experts.gate_up_proj,mlp.experts.down_proj || fail "experts"
grep -q ": 7168 parameters are trained" "$work/out" || fail "experts: other parameters: $(grep ^lora "$work/out")"
cp -r "$work/experts" "$work/experts2"
rm -r "$work/experts2/checkpoint-4" "$work/experts2/adapter_model.safetensors"
"$bin/txtrain" --resume_from_checkpoint --output_dir "$work/experts2" > "$work/out" 2> "$work/err" ||
    fail "experts resumed"
cmp -s "$work/experts/adapter_model.safetensors" "$work/experts2/adapter_model.safetensors" ||
    fail "experts resumed to another adapter"

# Text is nearly as likely as with the base's own weights.
perplexity()
{
    "$bin/txgen" --model "$work/base" --device "$device" --perplexity "$work/text" --max_length 32 "$@" 2> "$work/err" |
        awk '/perplexity/ { for (i = 1; i <= NF; i++) if ($i + 0 > 0) { print $i + 0; exit } }'
}
plain=$(perplexity)
packed=$(perplexity --load_in_4bit --bnb_4bit_use_double_quant)
near "$packed" "$plain" 0.05 || fail "perplexity $packed in 4 bits, $plain in fp32"
[ "$packed" = "$plain" ] && fail "4 bits change no perplexity"

# A model of 7B.
cat > "$work/7b.json" << 'END'
{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008,
 "num_attention_heads": 32,
 "num_key_value_heads": 32, "max_position_embeddings": 4096, "vocab_size": 32000, "tie_word_embeddings": false}
END
outcome 0 "" "$bin/txtrain" --dry_run --config_name "$work/7b.json" --lora_r 16 --load_in_4bit \
    --bnb_4bit_use_double_quant --bf16 \
    --gradient_checkpointing --block_size 512 --per_device_train_batch_size 1 --device "$device"
awk '$1 == "total" && $2 > 3e9 && $2 < 8 * 2 ^ 30 { fits = 1 } END { exit !fits }' "$work/out" ||
    fail "7B: $(grep total "$work/out")"
# In 16 bits, if the device holds two of its layers at a time.
if [ "$device" != cpu ]; then
    outcome 0 "" "$bin/txtrain" --dry_run --config_name "$work/7b.json" --lora_r 16 --dtype bfloat16 \
        --offload_param cpu --gradient_checkpointing --block_size 512 --per_device_train_batch_size 1 --device "$device"
    awk '$1 == "total" { here = $2 } $1 == "offloaded" { away = $2 } END { exit !(here < 1.5e9 && away > 13e9) }' \
        "$work/out" ||
        fail "7B: $(grep "total\|offloaded" "$work/out")"
fi

outcome 2 "needs --lora_r" train refused --model_name_or_path "$work/base" --load_in_4bit
outcome 2 "needs --lora_r" train refused --model_name_or_path "$work/base" --load_in_8bit
outcome 2 "exclude each other" train refused --model_name_or_path "$work/base" --lora_r 4 --load_in_8bit --use_dora
outcome 2 "nf4" train refused --model_name_or_path "$work/base" --lora_r 4 --load_in_4bit --bnb_4bit_quant_type fp4
outcome 2 "without --bf16" train refused --model_name_or_path "$work/base" --lora_r 4 --load_in_4bit --bnb_4bit_compute_dtype float32
outcome 2 "needs --load_in_4bit" train refused --model_name_or_path "$work/base" --lora_r 4 --bnb_4bit_use_double_quant
outcome 2 "--load_in_4bit and --use_dora exclude each other" train refused --model_name_or_path "$work/base" --lora_r 4 --load_in_4bit --use_dora
outcome 1 "cannot be merged into 4-bit weights" "$bin/txgen" --adapter "$work/nf4" --load_in_4bit --device "$device" --ids 1
outcome 2 "needs --load_in_4bit" "$bin/txgen" --model "$work/base" --bnb_4bit_use_double_quant --ids 1
sed 's/384/380/' "$work/config.json" > "$work/odd.json"
outcome 1 "multiples of 64" "$bin/txtrain" --dry_run --config_name "$work/odd.json" --lora_r 4 --load_in_4bit --device "$device"
outcome 2 "needs --lora_r" "$bin/txmem" --model "$work/7b.json" --load_in_4bit
outcome 2 "needs --lora_r" "$bin/txmem" --model "$work/7b.json" --load_in_8bit

verdict " on $device"
