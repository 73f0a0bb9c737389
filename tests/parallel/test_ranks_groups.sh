#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Groups of several kinds together train as one rank does, evaluations included. Checkpoints hold whole models, and any
# other split resumes from them. Unsupported combinations are refused. Sends are synchronous.
#   test_ranks_groups.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/split.sh"
export TX_COMM_SYNCHRONOUS=1
cat > "$work/experts.json" << 'EOF'
{"model_type": "mixtral", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
 "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 257, "num_local_experts": 4,
 "attention_dropout": 0.1}
EOF
sed 's/"n_layer": 3/"n_layer": 4/' "$work/config.json" > "$work/layers.json"

# split RANKS WAY NAME ARGUMENT...: 12 rows a step, in 3 micro-batches; of WAY each letter is a kind of groups of two
split()
{
    n=$1 kinds=$2 name=$3 same=1 of=
    shift 3
    case $kinds in *e*) of="$of --expert_parallel 2" ;; esac
    case $kinds in *t*) of="$of --tensor_parallel 2" same=$((2 * same)) ;; esac
    case $kinds in *c*) of="$of --context_parallel 2" same=$((2 * same)) ;; esac
    case $kinds in *p*) of="$of --pipeline_parallel 2" same=$((2 * same)) ;; esac
    # shellcheck disable=SC2086
    ranks "$n" "$name" $of --gradient_accumulation_steps 3 --per_device_train_batch_size $((4 * same / n)) "$@"
}

bits="--bf16 --learning_rate 1e-3"
# model FILE: what trains from here on, on one rank in fp32, and in bf16 by steps so small that roundings do not grow
model()
{
    from="--config_name $work/$1 --train_file $work/text --validation_file $work/text --block_size 32 $evaluates"
    rm -rf "${work:?}/one" "$work/half"
    # shellcheck disable=SC2086
    split 1 1 one $saves || fail "one rank"
    split 1 1 half $bits || fail "bf16 on one rank"
}

# all_of RANKS WAY: the split with and without further options; any split resumes from any checkpoint
all_of()
{
    # shellcheck disable=SC2086
    divides "$1.$2" "by$2" $saves
    split "$1" "$2" "again$2" --zero_stage 1 --gradient_checkpointing --ddp_overlap yes || fail "$2, with others"
    alike one "again$2"
    # shellcheck disable=SC2086
    split "$1" "$2" "half$2" $bits || fail "$2, bf16"
    alike half "half$2" 3e-3
    hands_over "by$2:1.1" "one:$1.$2"
}

model experts.json
all_of 4 ep
split 4 ep turns --pipeline_schedule interleaved --gradient_accumulation_steps 6 --per_device_train_batch_size 1 ||
    fail "interleaved"
alike one turns
all_of 4 et
split 8 etp parts || fail "experts, parts and stages"
alike one parts
all_of 4 ec

model layers.json
all_of 4 cp
split 4 cp back --pipeline_schedule gpipe --gradient_checkpointing || fail "gpipe"
alike one back
all_of 4 ct
split 8 ctp three || fail "three kinds"
alike one three
ends
