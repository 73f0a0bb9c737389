#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Options together with each way to divide a model: 2 ranks, and 4 ranks in one group and in two groups, train as one
# rank does.
#   test_ranks_pairs.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/split.sh"
mkdir "$work/disk"
rate=1e-3

# split RANKS PARTS NAME ARGUMENT...: 12 rows a step, divided as $kind says
split()
{
    n=$1 parts=$2 name=$3
    shift 3
    rows=$((12 * parts / n))
    case $kind in
    one) ;;
    sequence) set -- --tensor_parallel "$parts" --sequence_parallel "$@" ;;
    expert) rows=$((12 / n)); set -- --expert_parallel "$parts" "$@" ;;
    pipeline)
        rows=$((4 * parts / n))
        set -- --pipeline_parallel "$parts" --gradient_accumulation_steps 3 "$@"
        ;;
    *) set -- --${kind}_parallel "$parts" "$@" ;;
    esac
    ranks "$n" "$name" --per_device_train_batch_size $rows --overwrite_output_dir "$@"
}

# model NAME KEYS: one that has learnt a step, in the folder $work/NAME
model()
{
    echo "{\"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"vocab_size\": 257,
        \"max_position_embeddings\": 32, $2}" > "$work/$1.json"
    from="--config_name $work/$1.json --train_file $work/text --block_size 32"
    ranks 1 "$1" --max_steps 1 --per_device_train_batch_size 4 || fail "$1"
}
llama='"model_type": "llama", "intermediate_size"'
model small "$llama: 64, \"hidden_size\": 32"
model other "$llama: 96, \"hidden_size\": 48"
model wide "$llama: 256, \"hidden_size\": 256"
model experts '"model_type": "mixtral", "intermediate_size": 64, "hidden_size": 64, "num_local_experts": 4'

# pairs MODEL "KIND..." ARGUMENT...: runs that use the options, and for each kind of split the model divided
pairs()
{
    from="--model_name_or_path $work/$1 --train_file $work/text --block_size 32" kinds=$2
    shift 2
    kind=one
    split 1 1 one "$@" || { fail "$*"; return; }
    for kind in $kinds; do
        for way in 2.2 4.4 4.2; do
            split "${way%.*}" "${way#*.}" "$kind$way" "$@" --ddp_check 6 || { fail "$*: $kind $way"; continue; }
            alike one "$kind$way"
        done
    done
}
adapter="--lora_r 4 --lora_target_modules all-linear"

# shellcheck disable=SC2086
{
    pairs wide "tensor sequence pipeline context" $adapter --load_in_4bit
    pairs wide "tensor sequence pipeline context" $adapter --load_in_8bit
    pairs other "context" $adapter --lora_dropout 0.2 --use_dora
    pairs other "context" $adapter --lora_modules_to_save lm_head,embed_tokens
    pairs other "context" $adapter --trainable_token_indices 32,97
    pairs small "tensor sequence context" --teacher_model_name_or_path "$work/other" --distill_temperature 3
    pairs small "context" --neftune_noise_alpha 25
    pairs experts "expert" --teacher_model_name_or_path "$work/other"
    pairs experts "expert context" --teacher_model_name_or_path "$work/experts"
    pairs small "tensor sequence pipeline" --offload_optimizer nvme --nvme_path "$work/disk"
    pairs experts "expert" --offload_optimizer nvme --nvme_path "$work/disk"
    pairs small "tensor sequence pipeline" --sparsity 0.5
    pairs small "tensor sequence pipeline" --sparsity 0.5 --mask_structure 2:4
    pairs experts "expert" $adapter --lora_dropout 0.2
    pairs experts "tensor context pipeline" $adapter \
        --lora_target_parameters mlp.experts.gate_up_proj,mlp.experts.down_proj
    pairs experts "expert" $adapter --load_in_4bit
    pairs experts "expert" $adapter --load_in_8bit
    pairs small "tensor sequence pipeline context" --activation_offloading
    pairs experts "expert" --activation_offloading
    pairs experts "context" --router_z_loss_coef 0.3
    pairs small "sequence context pipeline" --debug underflow_overflow
}
# Pipelines of other shares of the rows.
from="--model_name_or_path $work/small --train_file $work/text --block_size 32" kind=one
split 1 1 one || fail "one rank"
kind=pipeline
split 4 2 shares --batch_weights 1,3 --ddp_check 6 || fail "pipelines with shares of the rows"
alike one shares
# A number that is not finite ends the run, and a rank names the node.
from="--model_name_or_path $work/small --train_file $work/text --block_size 32 --debug underflow_overflow"
for kind in tensor sequence context pipeline; do
    refused "embed_tokens.weight: NaN or infinity" 2 2 --adam_epsilon 0 --max_steps 20
done
# Ranks would divide the weights that share a scale of scales.
from="--model_name_or_path $work/wide --train_file $work/text --block_size 32" kind=tensor
# shellcheck disable=SC2086
refused "o_proj.weight is stored in NF4_DOUBLE: 2 ranks cannot divide it" 2 2 $adapter --load_in_4bit \
    --bnb_4bit_use_double_quant true
ends
