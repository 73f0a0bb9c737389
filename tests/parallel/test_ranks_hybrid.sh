#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models with recurrent layers: tensor-parallel groups of 2 and 4 ranks train as one rank does, with whole checkpoints
# that any other split resumes from, with sequence parallelism, ZeRO, checkpointing, 16 bits, adapters and pipelines.
# They generate the ids of one rank. What cannot be divided is refused with the reason.
#   test_ranks_hybrid.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/split.sh"
rate=1e-3

# split RANKS PARTS NAME ARGUMENT...
split()
{
    n=$1 parts=$2 name=$3
    shift 3
    ranks "$n" "$name" --tensor_parallel "$parts" --per_device_train_batch_size $((12 * parts / n)) "$@"
}

# model NAME KEYS: its configuration becomes that of the next runs
model()
{
    layers='"num_hidden_layers": 2,'
    case $2 in *num_hidden_layers*) layers= ;; esac
    cat > "$work/$1.json" << END
{"model_type": "$1", "vocab_size": 257, "max_position_embeddings": 64, "hidden_size": 32, $layers
 "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, $2}
END
    from="--config_name $work/$1.json --train_file $work/text --block_size 32"
    rm -rf "${work:?}/one" "${work:?}"/by?.?
}

# generates RANKS...: so many ranks generate the ids of one, also with draft tokens and beams
generates()
{
    counts="1 $*"
    for how in "" "--num_beams 3" "--prompt_lookup_num_tokens 3 --batch_size 1"; do
        for n in $counts; do
            set -- "$bin/txgen" --device "$device" --model "$work/one" --do_sample false --max_new_tokens 20
            # shellcheck disable=SC2086
            set -- "$@" --ids "76 105 110 101" --ids "32 115 97 121 115" $how
            [ "$n" -gt 1 ] && set -- "$launcher" -n "$n" "$@"
            timeout -s KILL 60 "$@" > "$work/ids$n" 2> "$work/err" ||
                fail "$kind $how: $n ranks: $(tail -n 1 "$work/err")"
            cmp -s "$work/ids1" "$work/ids$n" || fail "$kind $how: $n ranks generate other ids"
        done
    done
}

# In each: 2 ranks have whole groups. With 4, pairs share a group and its norm, or heads of keys. Granite and Bamba have
# one group, and its norm is over all ranks.
while read -r kind keys <&3; do
    echo "$kind"
    model "$kind" "$keys"
    # shellcheck disable=SC2086
    { split 1 1 one $saves && divides 2.2 by2.2 $saves; } || fail "$kind"
    ways="by2.2:1.1 one:2.2" most=2
    if [ "$kind" != qwen3_next ]; then
        # shellcheck disable=SC2086
        divides 4.4 by4.4 $saves
        ways="$ways by4.4:1.1 one:4.4" most="2 4"
    fi
    # shellcheck disable=SC2086
    hands_over $ways
    # shellcheck disable=SC2086
    generates $most
    split 4 2 way --zero_stage 3 --gradient_checkpointing --gradient_accumulation_steps 3 \
        --per_device_train_batch_size 2 --overwrite_output_dir || fail "$kind: stage 3 and checkpointing"
    alike one way
    ranks 2 way --pipeline_parallel 2 --gradient_accumulation_steps 3 --per_device_train_batch_size 4 \
        --overwrite_output_dir || fail "$kind: two stages"
    alike one way
    split 2 2 way --sequence_parallel --ddp_check 4 --overwrite_output_dir || fail "$kind: positions"
    alike one way
    { split 1 1 half1 --bf16 --overwrite_output_dir && split 2 2 half2 --bf16 --overwrite_output_dir; } ||
        fail "$kind: bf16"
    alike half1 half2 3e-3
    refused "context parallelism is not implemented for .*: use tensor or pipeline parallelism" 2 1 \
        --context_parallel 2
done 3<< 'END'
qwen3_5_text "head_dim": 8, "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12
qwen3_next "head_dim": 8, "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12, "mlp_only_layers": [0], "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "rms_norm_eps": 0.1
granitemoehybrid "layer_types": ["mamba", "attention"], "num_local_experts": 0, "shared_intermediate_size": 48, "mamba_n_heads": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "residual_multiplier": 0.5
bamba "attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_state": 8, "mamba_n_groups": 1
mamba2 "num_heads": 8, "head_dim": 8, "n_groups": 2, "state_size": 8
falcon_h1 "mamba_d_ssm": 48, "mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 8, "mamba_rms_norm": true, "ssm_multipliers": [0.9, 1.1, 0.7, 1.3, 0.8], "mlp_multipliers": [0.6, 1.4]
nemotron_h "head_dim": 8, "num_hidden_layers": 4, "hybrid_override_pattern": "M*-E", "ssm_state_size": 8, "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "moe_shared_expert_intermediate_size": 16
lfm2 "layer_types": ["conv", "full_attention"], "block_multiple_of": 8
minimax "head_dim": 8, "layer_types": ["linear_attention", "full_attention"], "num_local_experts": 4, "num_experts_per_tok": 2, "full_attn_alpha_factor": 0.7, "mlp_beta_factor": 1.3
END

# Adapters of packed projections, whose rows belong to different ranks: the file of two ranks is that of one.
while read -r kind keys <&3; do
    model "$kind" "$keys"
    split 1 1 base --max_steps 1 --overwrite_output_dir || fail "$kind: a base"
    from="--model_name_or_path $work/base --train_file $work/text --block_size 32 --lora_r 4
        --lora_target_modules all-linear"
    # shellcheck disable=SC2086
    { split 1 1 one $saves && split 2 2 by2.2 $saves; } || fail "$kind: an adapter"
    alike one by2.2
    go_on by2.2 on
    split 1 1 on --resume_from_checkpoint || fail "$kind: an adapter on one rank"
    alike one on
done 3<< 'END'
granitemoehybrid "layer_types": ["mamba", "attention"], "num_local_experts": 0, "mamba_n_heads": 8, "mamba_d_state": 8, "mamba_n_groups": 1
qwen3_5_text "head_dim": 8, "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12
END

# What cannot be divided.
model mamba2 '"num_heads": 8, "head_dim": 8, "n_groups": 2, "state_size": 8'
sed -i 's/"num_heads": 8, "head_dim": 8/"num_heads": 2, "head_dim": 32/' "$work/mamba2.json"
refused "num_heads: 2 cannot be divided among 4 ranks" 4 4
model mamba2 '"num_heads": 12, "head_dim": 8, "n_groups": 3, "state_size": 8, "expand": 3'
refused "n_groups: 3 cannot be divided among 4 ranks" 4 4
model qwen3_next '"layer_types": ["linear_attention", "full_attention"], "mlp_only_layers": [0, 1],
 "linear_num_key_heads": 2, "linear_num_value_heads": 4'
refused "linear_num_key_heads: 2 cannot be divided among 4 ranks" 4 4
model lfm2 '"layer_types": ["conv", "full_attention"], "block_multiple_of": 8'
sed -i 's/"hidden_size": 32/"hidden_size": 30/; s/_heads": 4/_heads": 3/; s/_heads": 2/_heads": 1/' "$work/lfm2.json"
refused "hidden_size: 30 cannot be divided among 4 ranks" 4 4
ends
