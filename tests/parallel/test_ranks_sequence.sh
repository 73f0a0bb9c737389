#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sequence parallelism: groups of 2 and 4 ranks divide the activations between products by positions. They train as one
# rank does, in less memory than without. Checkpoints hold whole tensors, and any other split resumes from them.
# Unsupported combinations are refused.
#   test_ranks_sequence.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/split.sh"
sed 's/"n_head": 2/"n_head": 4/' "$work/config.json" > "$work/heads.json"
from="--config_name $work/heads.json --train_file $work/text --block_size 32"

# split RANKS PARTS NAME ARGUMENT...
split()
{
    n=$1 parts=$2 name=$3
    shift 3
    [ "$parts" -eq 1 ] || set -- --sequence_parallel "$@"
    ranks "$n" "$name" --tensor_parallel "$parts" --per_device_train_batch_size $((12 * parts / n)) "$@"
}

trains_alike 2
split 4 2 grid --pipeline_parallel 2 --per_device_train_batch_size 4 --gradient_accumulation_steps 3 ||
    fail "stages of groups"
alike one grid
for bits in --bf16 --fp16; do
    # shellcheck disable=SC2086
    { split 1 1 half1 $bits --overwrite_output_dir && split 4 2 half2 $bits --overwrite_output_dir --ddp_check 6; } ||
        fail "$bits"
    alike half1 half2 3e-3
done
hands_over by2.2:1.1 by4.2:1.1 one:2.2 one:4.2 by2.2:4.4
llama_alike

# also NAME [LIMIT]: a model trains as the run `one` did, on 2 and 4 ranks, with activations computed again and in stages;
# in bf16 as with tensor parallelism only
also()
{
    for way in 2.2 4.4; do
        split ${way%.*} ${way#*.} way --ddp_check 4 --overwrite_output_dir || fail "$1, $way"
        alike one way "${2:-}"
    done
    split 2 2 way --gradient_checkpointing --overwrite_output_dir || fail "$1, checkpointing"
    alike one way "${2:-}"
    split 4 2 way --pipeline_parallel 2 --per_device_train_batch_size 12 --overwrite_output_dir || fail "$1, stages"
    alike one way "${2:-}"
    { ranks 4 half1 --tensor_parallel 4 --per_device_train_batch_size 12 --bf16 --overwrite_output_dir &&
        split 4 4 half2 --bf16 --overwrite_output_dir; } || fail "$1, bf16"
    alike half1 half2 1e-2 # rounding changes choices of experts
}

# Experts: ranks gather the positions, and all choose the same experts. Latents of attention are those of chunks.
# Adapters, also of matrices that no rank divides.
sizes='"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 32, "vocab_size": 257'
while read -r kind keys <&3; do
    echo "{\"model_type\": \"$kind\", $sizes, $keys}" > "$work/$kind.json"
    from="--config_name $work/$kind.json --train_file $work/text --block_size 32"
    split 1 1 one --overwrite_output_dir || fail "$kind, one rank"
    also "$kind"
    split 1 1 base --max_steps 1 --overwrite_output_dir || fail "$kind, a base"
    from="--model_name_or_path $work/base --train_file $work/text --block_size 32 --lora_r 4
        --lora_target_modules all-linear"
    { split 1 1 one --overwrite_output_dir && split 2 2 way --overwrite_output_dir; } || fail "$kind, an adapter"
    alike one way
done 3<< 'END'
mixtral "num_key_value_heads": 2, "num_local_experts": 4, "attention_dropout": 0.1, "output_router_logits": true, "router_aux_loss_coef": 0.02
qwen2_moe "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 16
granitemoe "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2
deepseek_v3 "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 12, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8
END

# Layers with embeddings, heads, keys and streams of their own.
write_layers
for model in shared streams; do
    from="--config_name $work/$model.json --train_file $work/text --block_size 32"
    split 1 1 one --overwrite_output_dir || fail "$model, one rank"
    also $model 1e-5
done

# Heads: that of masked words reads chunks, classifiers and embeddings read whole rows. Rows are padded, and of several
# lengths. Samples side by side in a row have positions of their own.
write_texts
write_masks
write_talk
rate=3e-4
awk 'BEGIN {
    split("cat dog bird", animal, " ")
    for (i = 0; i < 120; i++) {
        words = labels = ""
        for (k = 0; k <= i % 9; k++) {
            words = words (k ? ", " : "") "\"" animal[(i + k) % 3 + 1] "\""
            labels = labels (k ? ", " : "") ((i + k) % 3 ? "\"A\"" : "\"B\"")
        }
        printf "{\"tokens\": [%s], \"ner_tags\": [%s]}\n", words, labels
    }
}' > "$work/labels.jsonl"
awk 'BEGIN {
    split("cat dog bird", animal, " ")
    for (i = 0; i < 120; i++)
        printf "{\"anchor\": \"the %s %d\", \"positive\": \"a %s and %d\"}\n", animal[i % 3 + 1], i, animal[i % 3 + 1], i
}' > "$work/pairs.jsonl"
while read -r kind data keys <&3; do
    rm -rf "$work/model"
    mkdir "$work/model"
    echo "{\"model_type\": \"$kind\", \"vocab_size\": 342, $keys}" > "$work/model/config.json"
    from="--config_name $work/model --tokenizer_name $work/model --max_seq_length"
    case $data in
    words) from="$from 32 --train_file $work/text --line_by_line" ;;
    texts) from="$from 20 --train_file $work/texts.tsv --task_name sst2 --pad_to_max_length false" ;;
    labels) from="$from 20 --train_file $work/labels.jsonl --task_name ner" ;;
    pairs) from="$from 20 --train_file $work/pairs.jsonl --task_name embedding" ;;
    talk) from="$from 64 --train_file $work/talk.jsonl --chat_template chatml --packing true" ;;
    esac
    case $data in
    words) cp "$work/masked/tokenizer.json" "$work/model" ;;
    *) cp "${0%/*}"/../chat/golden/tokenizer*.json "$work/model" ;;
    esac
    split 1 1 one --overwrite_output_dir || fail "$kind, $data, one rank"
    also "$kind, $data"
done 3<< 'END'
bert words "architectures": ["BertForMaskedLM"], "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 32
electra words "architectures": ["ElectraForMaskedLM"], "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "embedding_size": 16, "max_position_embeddings": 32
roberta labels "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "pad_token_id": 0, "max_position_embeddings": 32
bert texts "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 32
llama texts "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "pad_token_id": 0, "max_position_embeddings": 32
gpt2 texts "n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 32, "pad_token_id": 0
qwen3 pairs "architectures": ["Qwen3Model"], "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48, "max_position_embeddings": 32
gpt2 talk "n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 64
END
rate=1e-2

# A part of the saved activations is divided: the residual stream and the gathered inputs of products.
planned()
{
    ranks 4 plan --tensor_parallel 4 --per_device_train_batch_size 12 --dry_run --overwrite_output_dir "$@" ||
        fail "plans $*"
    awk '$1 == "activations" { print $2; exit }' "$work/out"
}
from="--config_name $work/heads.json --train_file $work/text --block_size 32 --config_overrides n_layer=8"
whole=$(planned)
parts=$(planned --sequence_parallel)
[ $((3 * parts)) -lt $((2 * whole)) ] || fail "activations take $parts bytes, with all positions $whole"
whole=$(planned --gradient_checkpointing)
parts=$(planned --sequence_parallel --gradient_checkpointing)
[ $((2 * parts)) -lt "$whole" ] || fail "with checkpointing activations take $parts bytes, with all positions $whole"

from="--config_name $work/heads.json --train_file $work/text"
refused "30 positions cannot be divided among 4 ranks" 4 4 --block_size 30
ends
