#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training: skipped steps, batches that are not full, padding and packed matrices. Right numbers are those of
# transformers 5.23 and TRL for the same files.
#
#   training.sh BIN-FOLDER TEST-DATA
. "${0%/*}/cases.sh"

# train ARGUMENT...: a run in order, with its log in o/log.jsonl
train()
{
    "$bin/txtrain" --threads 1 --train_sampling_strategy sequential --save_strategy no --output_dir o \
        --overwrite_output_dir "$@" > "$work/out" 2> "$work/err" || fail "$case_name: $*"
}

# logs KEY NUMBER...: the values of a key in the log, one for each step
logs()
{
    key=$1
    shift
    numbers "$key" o/log.jsonl > "$work/got"
    printf '%s\n' "$@" > "$work/right"
    near "$work/got" "$work/right" 2e-5 || {
        paste "$work/got" "$work/right" > "$work/out"
        fail "$case_name: other $key"
    }
}

# ---- fp16 with offload: a skipped step keeps the copies of the weights ----
open_case fp16-skipped-step-offload-param
mkdir nvme
small="--train_file text.txt --config_overrides n_layer=2,n_embd=32,n_head=2 --block_size 64 --learning_rate 1e-3
    --lr_scheduler_type constant"
scale="--max_steps 6 --fp16 --init_scale 1e8"
for device in cpu opencl; do
    "$bin/txtrain" --list-devices | grep -q "^$device" || continue
    # shellcheck disable=SC2086
    train --device $device $small $scale
    numbers loss o/log.jsonl > losses
    [ "$(grep -c NaN losses)" -eq 0 ] && [ "$(wc -l < losses)" -eq 6 ] || fail "$device: no six losses"
    for offload in "--offload_param cpu" "--offload_param nvme --nvme_path nvme" \
        "--offload_param nvme --offload_optimizer nvme --nvme_path nvme"; do
        # shellcheck disable=SC2086
        train --device $device $small $scale $offload
        numbers loss o/log.jsonl | cmp -s - losses || fail "$device $offload: other losses"
    done
done

# ---- The schedule waits for the scaler ----
open_case fp16-skipped-steps-schedule
train --model_name_or_path model --train_file a.txt --block_size 64 --max_train_samples 32 \
    --per_device_train_batch_size 4 --learning_rate 1e-3 --max_steps 12 --fp16 --init_scale 67108864
logs learning_rate 1e-3 1e-3 1e-3 1e-3 1e-3 0.000916667 0.000833333 0.00075 0.000666667 0.000583333 0.0005 0.000416667

# ---- ORPO with three pairs: in a batch of eight, of three, in micro-batches of two, and in evaluations ----
open_case orpo-partial-batch-nan
for rows in 3 8; do
    train --task_name orpo --model_name_or_path model --train_file pairs.jsonl --max_length 96 --max_steps 2 \
        --per_device_train_batch_size $rows --validation_file pairs.jsonl --eval_strategy steps --eval_steps 2 \
        --per_device_eval_batch_size $rows
    logs loss 5.966188 5.966074
    logs grad_norm 1.876155 1.876156
    numbers eval_loss o/log.jsonl > eval.$rows
    grep -q NaN o/log.jsonl && fail "$case_name: NaN in batches of $rows"
done
near eval.3 eval.8 2e-5 || fail "$case_name: other evaluations"
train --task_name orpo --model_name_or_path model --train_file pairs.jsonl --max_length 96 --max_steps 6 \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --max_bad_steps 1
grep -q NaN o/log.jsonl && fail "$case_name: NaN in micro-batches"

# KTO: a batch without undesirable completions has no figures of them.
printf '{"prompt": "%s", "completion": " b c", "label": %s}\n' a true d true f false g false > kto.jsonl
train --task_name kto --model_name_or_path model --train_file kto.jsonl --max_length 64 --max_steps 2 \
    --per_device_train_batch_size 2 --logging_steps 1
head -n 1 o/log.jsonl | grep -qE 'NaN|rejected|margins' && fail "KTO: figures of rows that the batch lacks"
head -n 1 o/log.jsonl | grep -q '"rewards/chosen"' || fail "KTO: no reward of desirable completions"
tail -n 1 o/log.jsonl | grep -qE 'NaN|chosen|margins' && fail "KTO: figures of desirable rows that the batch lacks"
tail -n 1 o/log.jsonl | grep -q '"rewards/rejected"' || fail "KTO: no reward of undesirable completions"
grep -q NaN o/trainer_state.json && fail "KTO: NaN in the history"

# KTO and in-batch negatives compare rows: one row is refused, and a single one at the end has a warning.
outcome 1 "compares the rows of a micro-batch" "$bin/txtrain" --task_name kto --model_name_or_path model \
    --train_file kto.jsonl --max_steps 1 --per_device_train_batch_size 1 --output_dir one
train --task_name kto --model_name_or_path model --train_file kto.jsonl --loss_type apo_zero_unpaired --max_steps 1 \
    --per_device_train_batch_size 1
train --task_name kto --model_name_or_path model --train_file kto.jsonl --max_steps 1 --per_device_train_batch_size 3
says "a micro-batch of one row"
printf '{"anchor": "%s", "positive": "is %s"}\n' a b c d e f > embed.jsonl
outcome 1 "--gather_across_devices" "$bin/txtrain" --task_name embedding --train_file embed.jsonl --max_steps 1 \
    --model_name_or_path "$data/cases/adafactor-packed-qkv/model_bert" --per_device_train_batch_size 1 --output_dir one

# ---- Router losses and capacities do not count padding ----
open_case moe-aux-counts-padding
for padding in "" --pad_to_max_length "--pad_to_max_length --max_seq_length 120"; do
    # shellcheck disable=SC2086
    train --model_name_or_path model --train_file pc.jsonl --max_seq_length 100 --max_steps 1 \
        --per_device_train_batch_size 8 $padding
    logs loss 5.635508
    # shellcheck disable=SC2086
    train --model_name_or_path model_noaux --train_file pc.jsonl --max_seq_length 100 --max_steps 1 \
        --per_device_train_batch_size 8 --router_z_loss_coef 1 $padding
    numbers loss o/log.jsonl >> z
    # shellcheck disable=SC2086
    train --model_name_or_path model_noaux --train_file pc.jsonl --max_seq_length 100 --max_steps 1 \
        --per_device_train_batch_size 8 --expert_capacity_factor 1 $padding
    numbers dropped o/log.jsonl >> counts
done
[ "$(wc -l < z)" -eq 3 ] && awk 'NR > 1 && !(($1 - first) ^ 2 < 1e-9) { bad = 1 } { first = $1 } END { exit bad }' z ||
    fail "$case_name: padding changes the z-loss"
[ "$(sort -u counts | wc -l)" -eq 1 ] || fail "$case_name: padding takes the experts' room"

# ---- Adafactor updates q, k and v apart: the loss after one step ----
open_case adafactor-packed-qkv
constant="--optim adafactor --learning_rate 1e-2 --max_steps 2 --lr_scheduler_type constant"
# shellcheck disable=SC2086
train --model_name_or_path model --train_file a.txt --block_size 64 --max_train_samples 16 \
    --per_device_train_batch_size 2 $constant
logs loss 5.569402 5.327037
# shellcheck disable=SC2086
train --model_name_or_path model_bert --task_name classification --train_file p.tsv --per_device_train_batch_size 4 \
    $constant
logs loss 0.693171 0.701260
logs grad_norm 0.006996 0.194385

verdict
