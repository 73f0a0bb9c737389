#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two hosts of two ranks each train as four ranks of one host do: the same weights, to the bit, in every stage.
#   test_ranks_hosts.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/../hosts.sh"

ranks 4 here --per_device_train_batch_size 3 || fail "four ranks of one host"
for stage in 0 1 2 3; do
    on_hosts 2 "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --block_size 32 --threads 1 \
        --seed 3 --max_steps 12 --learning_rate 1e-2 --save_strategy no --logging_strategy no --ddp_overlap yes \
        --device "$device" --per_device_train_batch_size 3 --zero_stage $stage --ddp_check 6 \
        --output_dir "$work/there$stage" > "$work/out" 2> "$work/err" || fail "two hosts, stage $stage"
    grep -q "^2  *$host_b " "$work/out" || fail "stage $stage: rank 2 is not told as of another host"
    same here there$stage
done
# Hybrid sharding: the hosts are the groups.
ranks 4 pairs --per_device_train_batch_size 3 --zero_stage 3 --zero_hpz_partition_size 2 || fail "groups of two"
on_hosts 2 "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --block_size 32 --threads 1 \
    --seed 3 --max_steps 12 --learning_rate 1e-2 --save_strategy no --logging_strategy no --ddp_overlap yes \
    --device "$device" --per_device_train_batch_size 3 --fsdp hybrid_shard --output_dir "$work/hybrid" > "$work/out" \
    2> "$work/err" || fail "two hosts, hybrid sharding"
grep -q "^hybrid  2 ranks shard, 2 groups" "$work/out" || fail "hybrid sharding: other groups than the hosts"
same pairs hybrid
on_hosts 2 "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --block_size 32 --threads 1 \
    --seed 3 --max_steps 12 --learning_rate 1e-2 --save_strategy no --logging_strategy no --device "$device" \
    --per_device_train_batch_size 3 --ddp_comm bf16 --ddp_check 3 --output_dir "$work/half" > "$work/out" \
    2> "$work/err" ||
    fail "two hosts, bf16"
cmp -s "$work/here/model.safetensors" "$work/half/model.safetensors" && fail "bf16 changes nothing between hosts"

verdict
