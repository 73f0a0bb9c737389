#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Expert parallelism: groups of 2 and 4 ranks, one or several, train as one rank does. Checkpoints hold whole tensors,
# and any other split resumes from them. Unsupported combinations are refused, and a rank that dies or stops ends the
# run.
#   test_ranks_expert.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/split.sh"
cat > "$work/experts.json" << 'EOF'
{"model_type": "mixtral", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 257, "num_local_experts": 4,
 "attention_dropout": 0.1}
EOF
from="--config_name $work/experts.json --train_file $work/text --block_size 32"

# split RANKS PARTS NAME ARGUMENT...: 12 rows a step on ranks that divide experts, their matrices, or with kind=both
# experts in groups of 2 and matrices in groups of PARTS
kind=expert
split()
{
    n=$1 parts=$2 name=$3
    shift 3
    case $kind in
    expert) set -- --expert_parallel "$parts" --per_device_train_batch_size $((12 / n)) "$@" ;;
    tensor) set -- --tensor_parallel "$parts" --per_device_train_batch_size $((12 * parts / n)) "$@" ;;
    both)
        set -- --expert_parallel 2 --tensor_parallel "$parts" --per_device_train_batch_size $((12 * parts / n)) "$@"
        ;;
    esac
    ranks "$n" "$name" "$@"
}

trains_alike 1
split 1 1 half1 --bf16 || fail "bf16 on one rank"
split 4 2 half2 --bf16 --ddp_check 6 || fail "bf16"
alike half1 half2 3e-3

# Groups of experts, biases of the choice, a shared expert and latent attention with an index, which is not trained; also
# with tensor parallelism.
cat > "$work/groups.json" << 'EOF'
{"model_type": "deepseek_v32", "index_n_heads": 3, "index_head_dim": 6, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 4, "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 257,
 "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 4,
 "topk_group": 2, "first_k_dense_replace": 1, "q_lora_rank": 12, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
 "qk_rope_head_dim": 4, "v_head_dim": 8}
EOF
experts=$from
from="--config_name $work/groups.json --train_file $work/text --block_size 32"
{ split 1 1 groups1 && split 4 2 groups2 && split 4 4 groups4; } || fail "groups of experts"
alike groups1 groups2
alike groups1 groups4
ranks 2 groups_tp --tensor_parallel 2 --per_device_train_batch_size 12 || fail "latent attention, tensor parallelism"
alike groups1 groups_tp
from=$experts

# Tensor-parallel ranks divide the positions, too, and gather them before they choose experts.
ranks 4 positions --expert_parallel 2 --tensor_parallel 2 --sequence_parallel --per_device_train_batch_size 6 \
    --ddp_check 4 || fail "positions"
alike one positions

# Only matrices outside of the experts are pruned.
{ split 1 1 pruned1 --sparsity 0.5 && split 4 2 pruned2 --sparsity 0.5; } || fail "a pruned model"
alike pruned1 pruned2
split 4 2 pruned4 --mask_structure 2:4 || fail "a model pruned by groups"

# Any split resumes from any checkpoint, with weights and moments to the bit and the same steps.
hands_over by2.2:1.1 by4.2:1.1 one:2.2 one:4.2 by2.2:4.4

# Losses of routers and dropped choices depend on a micro-batch's rows: data-parallel ranks with as many rows agree.
routers="--expert_capacity_factor 0.7 --router_z_loss_coef 0.01"
# shellcheck disable=SC2086
{ split 4 1 full $routers && split 4 2 full2 $routers; } || fail "a capacity"
alike full full2
numbers dropped "$work/full/log.jsonl" > "$work/expected"
numbers dropped "$work/full2/log.jsonl" > "$work/got"
{ [ "$(sort -n "$work/got" | tail -n 1)" -gt 0 ] && cmp -s "$work/expected" "$work/got"; } ||
    fail "other numbers of choices are dropped"

# Evaluations, whose last round has fewer batches than ranks.
from="$from --validation_file $work/text $evaluates"
{ split 1 1 eval1 && split 4 4 eval4; } || fail "evaluations"
alike eval1 eval4

# Adapters of the experts' matrices
from=$experts
ranks 1 base --max_steps 1 --per_device_train_batch_size 12 || fail "a model to begin with"
from="--model_name_or_path $work/base --train_file $work/text --block_size 32 --lora_r 3 --lora_target_modules q_proj"
from="$from --lora_target_parameters mlp.experts.gate_up_proj,mlp.experts.down_proj"
weights=adapter_model.safetensors
rm -rf "$work/one" "$work"/by* "$work"/stage* "$work/folded"
trains_alike 1
hands_over by2.2:1.1 one:2.2 by4.2:4.4
kind=tensor
# shellcheck disable=SC2086
{ divides 2.2 tensor2.2 $saves && divides 4.2 tensor4.2 $saves --zero_stage 3; }
hands_over by2.2:2.2 tensor2.2:1.1 one:4.4
kind=both
# shellcheck disable=SC2086
divides 4.2 both $saves
kind=expert
hands_over tensor2.2:2.2 both:4.4
from=$experts

refused "must be a multiple of the group size" 2 4
refused "take AdamW, SGD or Lion" 2 2 --optim adafactor
refused "cannot be divided among 3 ranks" 3 3
from="--config_name $work/config.json --train_file $work/text --block_size 32"
refused "this model has none" 2 2

# A rank that dies, and one that stops while its group waits for it: the run ends by itself and names it.
command -v pgrep > /dev/null || { echo "pgrep is missing: no rank dies"; exit $((failures != 0)); }
ends_alone "$work/experts.json" --expert_parallel 2
ends
