#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# N ranks train as one rank that accumulates gradients. All ZeRO stages give the same bits, and so does a repeated run.
#   test_ranks.sh BIN LAUNCHER DEVICE     DEVICE mixed: the ranks are cpu and opencl in turns
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/split.sh"

# Every run has 12 rows a step.
ranks 1 one --per_device_train_batch_size 3 --gradient_accumulation_steps 4 || fail "one rank"
for n in 2 3 4; do
    [ "$mixed" = yes ] && [ "$n" -eq 3 ] && continue
    for stage in 0 1 2 3; do
        ranks "$n" "n$n.$stage" --per_device_train_batch_size $((12 / n)) --zero_stage $stage --ddp_check 5 ||
            fail "$n ranks, stage $stage"
        [ "$stage" -eq 0 ] && near one "n$n.0"
        same "n$n.0" "n$n.$stage"
    done
    rm -rf "$work/again"
    ranks "$n" again --per_device_train_batch_size $((12 / n)) || fail "$n ranks again"
    same "n$n.0" again
done

# Evaluations, whose batches the ranks divide: the same loss except for rounding. Four ranks have shards of the weights.
for n in 1 2 4; do
    ranks "$n" "eval$n" --global_batch_size 12 --per_device_train_batch_size $((12 / n)) \
        --validation_split_percentage 30 \
        --eval_strategy steps --eval_steps 6 --per_device_eval_batch_size 3 --zero_stage $((n == 4 ? 3 : 0)) ||
        fail "$n ranks with evaluations"
    numbers eval_loss "$work/eval$n/log.jsonl" > "$work/evaluated$n"
    [ "$(wc -l < "$work/evaluated$n")" -eq 2 ] || fail "$n ranks: not two evaluations"
    paste "$work/evaluated1" "$work/evaluated$n" | awk -v limit="$limit" \
        '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= limit)) exit 1 }' ||
        fail "$n ranks: another loss of the evaluation"
done

# Accumulation, sums in the background, small buckets, no shared memory, two groups of two: the same bits in each pair.
ranks 2 plain --per_device_train_batch_size 2 --gradient_accumulation_steps 3 || fail "accumulation"
near one plain
ranks 2 thread --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes \
    --ddp_bucket_cap_mb 1 ||
    fail "sums in the background"
same plain thread
ranks 2 stage1 --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes --zero_stage 1 ||
    fail "stage 1 in the background"
same plain stage1
ranks 2 stage2 --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes --zero_stage 2 ||
    fail "stage 2 in the background"
near one stage2
ranks 2 stage3 --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes --ddp_bucket_cap_mb 1 \
    --zero_stage 3 ||
    fail "stage 3 in the background"
same stage2 stage3
# Recomputed activations give the same bits, also with all-reduces in the background and under a memory limit.
for stage in 0 1 2 3; do
    ranks 2 "again$stage" --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes \
        --zero_stage $stage --gradient_checkpointing || fail "checkpointing, stage $stage"
    same "$([ $stage -eq 0 ] && echo plain || echo stage$stage)" "again$stage"
done
if [ "$mixed" = no ]; then # whose plans are alike
    set -- --per_device_train_batch_size 2 --gradient_accumulation_steps 3
    ranks 2 dry "$@" --dry_run || fail "a dry run"
    total=$(awk '/^  total / { print $2 }' "$work/out")
    ranks 2 limit "$@" --gradient_checkpointing auto:$((total - 100000)) || fail "checkpointing to a limit"
    grep -q "^again   .* of 3 segments" "$work/out" || fail "the limit asks for nothing"
    same plain limit
fi
export TX_COMM_SHM=0
ranks 2 apart --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes ||
    fail "no shared memory"
same plain apart
for type in bf16 int8; do
    ranks 2 $type --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_comm $type --ddp_check 3 ||
        fail "$type"
    grep -q "^sums .*, $type between hosts" "$work/out" || fail "$type: not told"
    cmp -s "$work/plain/model.safetensors" "$work/$type/model.safetensors" &&
        fail "$type changes nothing between hosts"
    alike plain $type 1e-2
done
export TX_COMM_SHM=2
ranks 4 pairs --per_device_train_batch_size 3 --zero_stage 1 || fail "two groups of two"
same n4.0 pairs
unset TX_COMM_SHM

# Mixed precision: the 16-bit copies are made of gathered weights; in stage 3 the ranks gather the copies.
for stage in 0 1 2 3; do
    ranks 2 "bf16.$stage" --bf16 --per_device_train_batch_size 6 --zero_stage $stage --ddp_check 5 ||
        fail "bf16, stage $stage"
    same bf16.0 "bf16.$stage"
done
cmp -s "$work/n2.0/model.safetensors" "$work/bf16.0/model.safetensors" && fail "mixed precision changes nothing"
for stage in 0 1; do
    ranks 2 "sum16.$stage" --bf16 --per_device_train_batch_size 3 --gradient_accumulation_steps 2 --zero_stage $stage ||
        fail "bf16, accumulation, stage $stage"
    same sum16.0 "sum16.$stage"
done
ranks 2 again16 --bf16 --per_device_train_batch_size 3 --gradient_accumulation_steps 2 --gradient_checkpointing 2 ||
    fail "bf16, checkpointing"
same sum16.0 again16
for way in "" --gradient_checkpointing; do # stage 2 has whole copies, stage 3 gathers them
    for stage in 2 3; do
        # shellcheck disable=SC2086
        ranks 2 "sum16.$stage$way" --bf16 --per_device_train_batch_size 3 --gradient_accumulation_steps 2 \
            --zero_stage $stage \
            --validation_split_percentage 30 --eval_strategy steps --eval_steps 6 --ddp_overlap yes \
            --ddp_bucket_cap_mb 1 $way ||
            fail "bf16, accumulation, stage $stage $way"
    done
    same "sum16.2$way" "sum16.3$way"
    [ "$(numbers eval_loss "$work/sum16.2$way/log.jsonl")" = "$(numbers eval_loss "$work/sum16.3$way/log.jsonl")" ] ||
        fail "bf16, stages 2 and 3 evaluate differently"
done

# In fp16 all ranks leave out the same steps, and go on with the same scale.
for stage in 0 1 2 3; do
    ranks 2 "fp16.$stage" --fp16 --init_scale 1e9 --growth_interval 4 --per_device_train_batch_size 6 \
        --zero_stage $stage --ddp_check 1 || fail "fp16, stage $stage"
    same fp16.0 "fp16.$stage"
    skipped=$(numbers skipped "$work/fp16.$stage/log.jsonl" | tail -n 1)
    [ "$skipped" -ge 2 ] && [ "$skipped" -le 8 ] || fail "fp16, stage $stage: $skipped steps were skipped"
    [ "$(numbers loss_scale "$work/fp16.$stage/log.jsonl" | head -n 1)" = 500000000 ] ||
        fail "fp16, stage $stage: no overflow"
    ranks 2 "sums.$stage" --fp16 --init_scale 1e9 --growth_interval 4 --per_device_train_batch_size 3 \
        --gradient_accumulation_steps 2 --zero_stage $stage --ddp_check 1 || fail "fp16, accumulation, stage $stage"
done
same sums.0 sums.1
same sums.2 sums.3
numbers loss_scale "$work/sums.0/log.jsonl" > "$work/scales"
numbers loss_scale "$work/sums.2/log.jsonl" | cmp -s - "$work/scales" ||
    fail "fp16, stage 2 with accumulation: other scales"
[ "$mixed" = yes ] || {
    two="--fp16 --init_scale 1e9 --growth_interval 4 --per_device_train_batch_size 6"
    two="$two --save_strategy steps --save_steps 2"
    # shellcheck disable=SC2086
    ranks 2 halves $two || fail "fp16, with checkpoints"
    # shellcheck disable=SC2086
    ranks 2 goes-on $two --resume_from_checkpoint "$work/halves/checkpoint-2" || fail "fp16, resumed"
    same halves goes-on
    same halves fp16.0
}

# A tied embedding, whose bucket is filled by the first gradient and the last. The text as tokens of 16 bits fills a
# bucket's worth of vocabulary.
cp "$work/text" "$work/text.bin"
plain=$from
from="--config_name $work/config.json --train_file $work/text.bin --block_size 32"
tied="--config_overrides vocab_size=32768,n_layer=6,n_embd=64 --per_device_train_batch_size 2
    --ddp_bucket_cap_mb 1"
# shellcheck disable=SC2086
{
    ranks 2 tied $tied --gradient_accumulation_steps 3 --ddp_overlap yes --ddp_check 3 || fail "a tied embedding"
    ranks 2 tied1 $tied --gradient_accumulation_steps 3 --zero_stage 1 || fail "a tied embedding, stage 1"
    same tied tied1
    ranks 2 tied3 $tied --gradient_accumulation_steps 3 --zero_stage 3 || fail "a tied embedding, stage 3"
    ranks 2 tied2 $tied --gradient_accumulation_steps 3 --zero_stage 2 || fail "a tied embedding, stage 2"
    same tied2 tied3
    ranks 4 tied4 $tied --ddp_check 5 || fail "a tied embedding, 4 ranks"
    export TX_COMM_SHM=0
    ranks 4 apart4 $tied --zero_stage 1 || fail "a tied embedding, no shared memory"
    ranks 2 half4 $tied --ddp_comm bf16 --ddp_check 3 || fail "a tied embedding, bf16"
    ranks 2 small4 $tied --ddp_comm int8 --ddp_check 3 || fail "a tied embedding, int8"
    unset TX_COMM_SHM
    same tied4 apart4
    ranks 2 weighed $tied --batch_weights 3,1 || fail "a tied embedding, uneven shares"
    ranks 2 weighed1 $tied --batch_weights 3,1 --zero_stage 1 || fail "a tied embedding, uneven shares, stage 1"
    same weighed weighed1
}
from=$plain

# Uneven shares, and a global batch that the micro-batches do not fill.
ranks 2 uneven --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --batch_weights 3,1 ||
    fail "uneven shares"
near one uneven
# Shares by speed, measured in the first steps: whatever they are, the same rows make a step, and a resumed run keeps
# them.
ranks 2 auto --per_device_train_batch_size 6 --batch_weights auto --save_strategy steps --save_steps 11 ||
    fail "shares by speed"
shares=$(sed -n 's/.*"rows": \[\([0-9]*,[0-9]*\)\].*/\1/p' "$work/auto/log.jsonl")
[ $((${shares%,*} + ${shares#*,})) -eq 12 ] || fail "the shares \"$shares\" are not 12 rows"
near one auto
cp "$work/auto/model.safetensors" "$work/kept"
ranks 2 auto --per_device_train_batch_size 6 --batch_weights auto --resume_from_checkpoint "$work/auto/checkpoint-11" ||
    fail "shares by speed, resumed"
grep -q " $shares " "$work/out" || fail "a resumed run does not begin with the shares $shares"
cmp -s "$work/auto/model.safetensors" "$work/kept" || fail "shares by speed, resumed: other weights"

ranks 2 rest --per_device_train_batch_size 5 --global_batch_size 12 || fail "a global batch"
near one rest

verdict
