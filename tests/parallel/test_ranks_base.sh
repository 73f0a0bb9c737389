#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Adapters with a base that the ranks divide (--zero_stage 3) have the same bits as with a whole base on each rank. The
# base is in fp32, bf16 or 4 bits, and is stored on the device, in host memory or in a file of each rank. Runs have
# micro-batches and recomputed activations. They resume on another number of ranks, and each rank has its part of the
# base's memory. No rank writes to the base.
#   test_ranks_base.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
mkdir "$work/disk"
# The base has several buckets of 1 MB. A matrix that shares scales of scales is not divided.
echo '{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4,
 "intermediate_size": 512,
    "max_position_embeddings": 32, "vocab_size": 257}' > "$work/config.json"
ranks 1 base --max_steps 2 || fail "a base"
cp "$work/base/model.safetensors" "$work/base.before"
from="--model_name_or_path $work/base --train_file $work/text --block_size 32 --lora_r 4
    --lora_target_modules all-linear --ddp_bucket_cap_mb 1 --max_steps 6 --save_strategy steps --save_steps 3
    --per_device_train_batch_size 2 --logging_strategy steps --logging_steps 1"

# train N NAME ARGUMENT...: as ranks, with other data and model in $from
train()
{
    n=$1
    folder=$work/$2
    shift 2
    # shellcheck disable=SC2086
    timeout -s KILL 120 "$launcher" -n "$n" "$bin/txtrain" --threads 1 --seed 3 --learning_rate 1e-2 --ddp_overlap no \
        $from --device "$device" --output_dir "$folder" "$@" > "$work/out" 2> "$work/err"
}

# equal NAME NAME: the same losses, adapters and moments
equal()
{
    for file in adapter_model.safetensors checkpoint-6/optimizer.safetensors; do
        cmp -s "$work/$1/$file" "$work/$2/$file" || fail "$1 and $2: other ${file##*/}"
    done
    losses "$1" > "$work/expected"
    losses "$2" > "$work/got"
    [ "$(wc -l < "$work/got")" -eq 6 ] || fail "$2: not 6 steps in the log"
    cmp -s "$work/expected" "$work/got" || fail "$1 and $2: other losses"
}

# weights: those that the last run, of --dry_run, plans
weights()
{
    awk '$1 == "weights" && $2 ~ /^[0-9]+$/ { print $2; exit }' "$work/out"
}

# divides NAME ARGUMENT...: one kind of base
divides()
{
    kind=$1
    shift
    for n in 2 4; do
        for stage in 0 2 3; do
            [ $n$stage = 42 ] && continue
            train $n "$kind.$n$stage" --zero_stage $stage --ddp_check 3 "$@" || fail "$kind: $n ranks, stage $stage"
            [ $stage = 0 ] || equal "$kind.${n}0" "$kind.$n$stage"
        done
        train $n dry --zero_stage 0 --dry_run "$@" || fail "$kind: a dry run"
        whole=$(weights)
        train $n dry --zero_stage 3 --dry_run "$@" || fail "$kind: a dry run, stage 3"
        awk -v whole="$whole" -v own="$(weights)" -v n=$n \
            'BEGIN { exit !(own > 0 && own * n > 0.9 * whole && own * n < 1.1 * whole) }' ||
            fail "$kind: $n ranks plan $(weights) bytes of weights each, one has $whole"
    done
    for stage in 2 3; do
        train 2 "$kind.more.$stage" --zero_stage $stage --gradient_accumulation_steps 2 --gradient_checkpointing "$@" ||
            fail "$kind: micro-batches, stage $stage"
    done
    equal "$kind.more.2" "$kind.more.3"
    train 2 "$kind.away" --zero_stage 3 --gradient_accumulation_steps 2 --gradient_checkpointing --offload_param cpu \
        "$@" ||
        fail "$kind: in the host's memory"
    equal "$kind.more.2" "$kind.away"
    train 2 "$kind.filed" --zero_stage 3 --gradient_accumulation_steps 2 --gradient_checkpointing --offload_param nvme \
        --nvme_path "$work/disk" "$@" || fail "$kind: in a file"
    grep -q "^offload .*weights.* are kept in a file" "$work/out" || fail "$kind: not told of the file"
    equal "$kind.more.2" "$kind.filed"
    # Four ranks resume from the checkpoint of two ranks, with a divided base and with a whole one.
    for stage in 0 3; do
        mkdir "$work/$kind.on$stage"
        cp -r "$work/$kind.23/checkpoint-3" "$work/$kind.on$stage"
        train 4 "$kind.on$stage" --zero_stage $stage --per_device_train_batch_size 1 --resume_from_checkpoint "$@" ||
            fail "$kind: two ranks, then four, stage $stage"
        cmp -s "$work/$kind.on$stage/adapter_model.safetensors" "$work/$kind.on0/adapter_model.safetensors" ||
            fail "$kind: another adapter of four ranks that go on"
    done
}

divides fp32
divides bf16 --bf16
divides nf4 --bf16 --load_in_4bit
divides eight --bf16 --load_in_8bit
divides twice --bf16 --load_in_4bit --bnb_4bit_use_double_quant
# A teacher's weights are frozen, too.
from="--config_name $work/config.json --train_file $work/text --block_size 32 --max_steps 6"
for stage in 0 3; do
    train 2 "teacher.$stage" --zero_stage $stage --bf16 --teacher_model_name_or_path "$work/base" --save_strategy no ||
        fail "a teacher, stage $stage"
done
same teacher.0 teacher.3
[ -z "$(ls -A "$work/disk")" ] || fail "something is left on the disk"
cmp -s "$work/base/model.safetensors" "$work/base.before" || fail "the base has changed"

verdict " on $device"
