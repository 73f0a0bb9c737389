#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hybrid sharding: two groups of two ranks shard and replicate between them. They train as one rank does, except for
# rounding, and as full sharding does, to the bit if no norm clips gradients: the norm is summed in another order. ZeRO
# stages give the same bits. Checkpoints resume with the same bytes, and in other splits.
#   test_ranks_hsdp.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
hybrid="--zero_hpz_partition_size 2"
limit=1e-6
[ "$device" = opencl ] && limit=2e-6

# norms NAME NAME: the norms of the runs are near
norms()
{
    numbers grad_norm "$work/$1/log.jsonl" > "$work/expected"
    numbers grad_norm "$work/$2/log.jsonl" | paste "$work/expected" - |
        awk '{ d = $1 - $2; if (d < 0) d = -d } !(NF == 2 && d <= 1e-5 * $1) { bad = 1 } END { exit bad || NR != 12 }' ||
        fail "$2: other norms than $1"
}

# Every run has 12 rows a step; gradients are clipped.
ranks 1 one --per_device_train_batch_size 3 --gradient_accumulation_steps 4 || fail "one rank"
[ "$(numbers grad_norm "$work/one/log.jsonl" | awk '$1 > 1' | wc -l)" -ge 3 ] || fail "nothing is clipped"
for stage in 1 2 3; do
    # shellcheck disable=SC2086
    ranks 4 "s$stage" --per_device_train_batch_size 3 --zero_stage $stage $hybrid --ddp_check 4 \
        --save_strategy steps --save_steps 6 || fail "stage $stage"
    grep -q "^hybrid  2 ranks shard, 2 groups have the same shards" "$work/out" || fail "stage $stage: not told"
    near one "s$stage"
    norms one "s$stage"
    same s1 "s$stage"
    for file in model.safetensors optimizer.safetensors; do
        cmp -s "$work/s1/checkpoint-6/$file" "$work/s$stage/checkpoint-6/$file" || fail "stage $stage: other $file"
    done
done

# A checkpoint resumes with the same bytes, and near them without hybrid sharding, and on one rank.
for to in "4 --zero_stage 3 $hybrid" "4 --zero_stage 3 --zero_hpz_partition_size 1" "1 --zero_stage 0 --zero_hpz_partition_size 1"; do
    rm -rf "$work/on"
    mkdir "$work/on"
    cp -r "$work/s3/checkpoint-6" "$work/on"
    # shellcheck disable=SC2086
    ranks ${to%% *} on --per_device_train_batch_size 3 ${to#* } --resume_from_checkpoint || fail "resumed as $to"
    case $to in
    *"$hybrid") same s3 on ;;
    *) near s3 on ;;
    esac
done

# Accumulation, in the background and in small buckets; checkpointing; 16 bits; no shared memory.
for more in "" "--ddp_overlap yes --ddp_bucket_cap_mb 1" "--gradient_checkpointing"; do
    for stage in 2 3; do
        rm -rf "$work/a$stage"
        # shellcheck disable=SC2086
        ranks 4 a$stage --per_device_train_batch_size 1 --gradient_accumulation_steps 3 --zero_stage $stage $hybrid $more ||
            fail "accumulation, stage $stage $more"
        near one a$stage
    done
    same a2 a3
done
for stage in 1 3; do
    # shellcheck disable=SC2086
    ranks 4 b$stage --bf16 --per_device_train_batch_size 3 --zero_stage $stage $hybrid --ddp_check 4 ||
        fail "bf16, stage $stage"
done
same b1 b3
for type in "" --bf16; do
    for split in "full --zero_hpz_partition_size 1" "hybrid $hybrid"; do
        # shellcheck disable=SC2086
        ranks 4 ${split%% *}$type $type --per_device_train_batch_size 3 --zero_stage 3 --max_grad_norm 0 \
            ${split#* } || fail "$split $type without clipping"
    done
    same full$type hybrid$type
done
cmp -s "$work/s3/model.safetensors" "$work/b3/model.safetensors" && fail "mixed precision changes nothing"
rm -rf "$work/a3"
# shellcheck disable=SC2086
TX_COMM_SHM=0 ranks 4 a3 --per_device_train_batch_size 1 --gradient_accumulation_steps 3 --zero_stage 3 $hybrid ||
    fail "no shared memory"
same a2 a3

# An optimizer on whole matrices; evaluations; a frozen base.
ranks 1 muon1 --optim muon --per_device_train_batch_size 12 || fail "muon on one rank"
# shellcheck disable=SC2086
ranks 4 muon --optim muon --per_device_train_batch_size 3 --zero_stage 2 $hybrid || fail "muon"
near muon1 muon
from="--model_name_or_path $work/one --train_file $work/text --block_size 32 --lora_r 4 --validation_split_percentage 30
    --eval_strategy steps --eval_steps 6"
ranks 1 lora1 --per_device_train_batch_size 12 || fail "an adapter on one rank"
# shellcheck disable=SC2086
ranks 4 lora --per_device_train_batch_size 3 --zero_stage 3 $hybrid || fail "an adapter"
near lora1 lora
numbers eval_loss "$work/lora1/log.jsonl" > "$work/expected"
numbers eval_loss "$work/lora/log.jsonl" | paste "$work/expected" - |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(NF == 2 && d <= 1e-6)) exit 1 }' || fail "other evaluations"

# One host: --fsdp hybrid_shard is full sharding. Groups that cannot be.
from="--config_name $work/config.json --train_file $work/text --block_size 32"
ranks 2 full2 --per_device_train_batch_size 6 --zero_stage 3 || fail "full sharding"
ranks 2 host --per_device_train_batch_size 6 --fsdp hybrid_shard || fail "--fsdp hybrid_shard on one host"
same full2 host
ranks 4 no --zero_stage 3 --zero_hpz_partition_size 3 && fail "groups of 3 of 4 ranks"
grep -q "must be a multiple" "$work/err" || fail "groups of 3: no reason"
# shellcheck disable=SC2086
ranks 4 no $hybrid && fail "stage 0"
grep -q "needs --zero_stage" "$work/err" || fail "stage 0: no reason"

verdict
