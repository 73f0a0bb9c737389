#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# N ranks train as one rank that accumulates does, every stage of ZeRO to the bit alike, and every run repeated too.
#   test_ranks.sh BIN LAUNCHER DEVICE     DEVICE mixed: the ranks are cpu and opencl in turns
set -u
bin=$1
launcher=$2
device=$3
. "${0%/*}/ranks.sh"

# 12 rows a step, whoever does them.
ranks 1 one --per_device_train_batch_size 3 --gradient_accumulation_steps 4 || fail "one rank"
for n in 2 3 4; do
    [ "$mixed" = yes ] && [ "$n" -eq 3 ] && continue
    for stage in 0 1 2; do
        ranks "$n" "n$n.$stage" --per_device_train_batch_size $((12 / n)) --zero_stage $stage --ddp_check 5 ||
            fail "$n ranks, stage $stage"
        [ "$stage" -eq 0 ] && near one "n$n.0"
        same "n$n.0" "n$n.$stage"
    done
    rm -rf "$work/again"
    ranks "$n" again --per_device_train_batch_size $((12 / n)) || fail "$n ranks again"
    same "n$n.0" again
done

# Accumulation, sums in the background, small buckets, no shared memory, two groups of two: the same bits in each pair.
ranks 2 plain --per_device_train_batch_size 2 --gradient_accumulation_steps 3 || fail "accumulation"
near one plain
ranks 2 thread --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes --ddp_bucket_cap_mb 1 ||
    fail "sums in the background"
same plain thread
ranks 2 stage1 --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes --zero_stage 1 ||
    fail "stage 1 in the background"
same plain stage1
ranks 2 stage2 --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes --zero_stage 2 ||
    fail "stage 2 in the background"
near one stage2
export TX_COMM_SHM=0
ranks 2 apart --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes || fail "no shared memory"
same plain apart
ranks 2 half --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_comm bf16 --ddp_check 3 || fail "bf16"
cmp -s "$work/plain/model.safetensors" "$work/half/model.safetensors" && fail "bf16 changes nothing between hosts"
export TX_COMM_SHM=2
ranks 4 pairs --per_device_train_batch_size 3 --zero_stage 1 || fail "two groups of two"
same n4.0 pairs
unset TX_COMM_SHM

# Uneven shares, and a global batch that the micro-batches do not fill.
ranks 2 uneven --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --batch_weights 3,1 || fail "uneven shares"
near one uneven
ranks 2 rest --per_device_train_batch_size 5 --global_batch_size 12 || fail "a global batch"
near one rest

[ $failures -eq 0 ] && echo "all good"
exit $((failures != 0))
