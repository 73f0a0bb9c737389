#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two ranks train as one does with every optimizer. All ZeRO stages give the same bits, also if a run resumes in another
# stage, with states in a file and then, on a device, in host memory.
#   test_ranks_optimizers.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"

# A model whose files have separate q, k and v, gate and up, and experts.
cat > "$work/apart.json" << 'EOF'
{"model_type": "qwen2_moe", "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 4,
 "num_key_value_heads": 2,
 "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "shared_expert_intermediate_size": 14,
 "max_position_embeddings": 32, "vocab_size": 257}
EOF
gpt2=$from

# Matrices have 64 columns, so that adamw_8bit keeps 8 bits. Optimizers that round or use signs amplify rounding errors.
limit=1e-3
rate=3e-3
while read -r name model optim arguments <&3; do
    from="--config_name $work/apart.json --train_file $work/text --block_size 32"
    [ "$model" = gpt2 ] && from="$gpt2 --config_overrides n_embd=64,n_layer=2"
    set -- --ddp_bucket_cap_mb 1 --learning_rate $rate --optim "$optim"
    [ -n "$arguments" ] && set -- "$@" --optim_args "$arguments"
    case $optim in schedule_free*) set -- "$@" --lr_scheduler_type constant --warmup_steps 4 ;; esac
    ranks 1 "$name.one" "$@" --per_device_train_batch_size 6 || fail "$name: one rank"
    for stage in 0 1 2 3; do
        ranks 2 "$name.$stage" "$@" --per_device_train_batch_size 3 --zero_stage $stage --ddp_check 4 ||
            fail "$name: stage $stage"
        same "$name.0" "$name.$stage"
    done
    near "$name.one" "$name.0"
    ranks 2 "$name.1" "$@" --per_device_train_batch_size 3 --zero_stage 1 --save_strategy steps --save_steps 5 \
        --overwrite_output_dir --offload_optimizer nvme --nvme_path "$work" || fail "$name: saves"
    ranks 2 "$name.on" "$@" --per_device_train_batch_size 3 --zero_stage 2 \
        --offload_optimizer cpu --resume_from_checkpoint "$work/$name.1/checkpoint-5" ||
        fail "$name: goes on in stage 2"
    same "$name.0" "$name.on"
done 3<< 'END'
nesterov gpt2 sgd momentum=0.9,nesterov=True
adafactor apart adafactor
relative gpt2 adafactor relative_step=True,scale_parameter=True
adamw_8bit gpt2 adamw_8bit
anyprecision gpt2 adamw_anyprecision momentum_dtype=bfloat16,use_kahan_summation=True
muon apart muon
lion_8bit gpt2 lion_8bit
ademamix gpt2 ademamix t_alpha=8,t_beta3=8
stable apart stable_adamw
apollo gpt2 apollo_adamw rank=4,update_proj_gap=3
apollo_mini apart apollo_adamw rank=1,scale=16,scale_type=tensor
free_adamw gpt2 schedule_free_adamw
free_sgd gpt2 schedule_free_sgd
END

# Rates by group (LoRA+): neighbours in memory have different rates.
from="--model_name_or_path $work/nesterov.one --train_file $work/text --block_size 32"
for stage in 0 1 2 3; do
    ranks 2 "plus$stage" --lora_r 4 --loraplus_lr_ratio 16 --per_device_train_batch_size 3 --zero_stage $stage ||
        fail "LoRA+: stage $stage"
    cmp -s "$work/plus0/adapter_model.safetensors" "$work/plus$stage/adapter_model.safetensors" ||
        fail "LoRA+: stage $stage has other bits"
done
ranks 1 plus --lora_r 4 --per_device_train_batch_size 6 || fail "LoRA"
cmp -s "$work/plus0/adapter_model.safetensors" "$work/plus/adapter_model.safetensors" && fail "LoRA+ gives LoRA's adapter"

verdict
