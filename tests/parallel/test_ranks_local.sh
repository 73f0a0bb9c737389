#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Local steps: the ranks' weights are equal after synchronizations only, when evaluations and checkpoints are made. A
# run resumes with the same bytes, also between ranks whose optimizer states differ. The loss follows that of ranks that
# sum gradients.
#   test_ranks_local.sh BIN LAUNCHER
device=cpu
. "${0%/*}/ranks.sh"
local="--sync_every 4 --validation_split_percentage 30 --eval_strategy steps --eval_steps 3 --max_steps 14
    --save_strategy steps --save_steps 6 --ddp_check 1"

# steps_of NAME KEY: the steps of the log's lines with this key
steps_of()
{
    sed -n "s/^{\"step\": \([0-9]*\),.*\"$2\".*/\1/p" "$work/$1/log.jsonl" | tr '\n' ' '
}

for n in 2 4; do
    # shellcheck disable=SC2086
    ranks $n "l$n" $local --per_device_train_batch_size $((12 / n)) || fail "$n ranks"
    grep -q "^local   4 steps" "$work/out" || fail "$n ranks: not told"
    [ "$(steps_of "l$n" weights)" = "4 8 12 14 " ] || fail "$n ranks: equal weights after $(steps_of "l$n" weights)"
    [ "$(steps_of "l$n" eval_loss)" = "4 8 12 14 " ] || fail "$n ranks: evaluations after $(steps_of "l$n" eval_loss)"
    [ -d "$work/l$n/checkpoint-8" ] && [ -d "$work/l$n/checkpoint-12" ] && [ ! -d "$work/l$n/checkpoint-6" ] ||
        fail "$n ranks: other checkpoints"
    # Each rank has made steps of its own.
    for r in $(seq 1 $((n - 1))); do
        other=$work/l$n/checkpoint-8/optimizer-$r.safetensors
        [ "$(wc -c < "$other")" -eq "$(wc -c < "$work/l$n/checkpoint-8/optimizer.safetensors")" ] ||
            fail "rank $r: no states"
        cmp -s "$other" "$work/l$n/checkpoint-8/optimizer.safetensors" && fail "rank $r: the states of rank 0"
    done
    # With the same bytes from a checkpoint on.
    rm -rf "$work/on"
    mkdir "$work/on"
    cp -r "$work/l$n/checkpoint-8" "$work/on"
    # shellcheck disable=SC2086
    ranks $n on $local --per_device_train_batch_size $((12 / n)) --resume_from_checkpoint || fail "$n ranks resumed"
    for file in model.safetensors checkpoint-12/optimizer.safetensors checkpoint-12/optimizer-1.safetensors \
        checkpoint-12/outer.safetensors; do
        cmp -s "$work/l$n/$file" "$work/on/$file" || fail "$n ranks resumed: other $file"
    done
done
# Without the momentum, or with rank 0's states on rank 1, the run would be another one.
for file in outer.safetensors optimizer-1.safetensors; do
    rm -rf "$work/on"
    mkdir "$work/on"
    cp -r "$work/l2/checkpoint-8" "$work/on"
    rm "$work/on/checkpoint-8/$file"
    sed -i "/\"$file\": {/,/}/d" "$work/on/checkpoint-8/manifest.json"
    # shellcheck disable=SC2086
    ranks 2 on $local --per_device_train_batch_size 6 --resume_from_checkpoint ||
        fail "resumed without $file"
    cmp -s "$work/l2/model.safetensors" "$work/on/model.safetensors" && fail "$file has no effect"
done
# More ranks than the checkpoint has.
rm -rf "$work/on"
mkdir "$work/on"
cp -r "$work/l2/checkpoint-8" "$work/on"
# shellcheck disable=SC2086
ranks 4 on $local --per_device_train_batch_size 3 --resume_from_checkpoint || fail "resumed on 4 ranks"
[ "$(steps_of on weights)" != "" ] || fail "4 ranks: weights were not compared"

# The settings have an effect, and 16 bits between ranks too.
for more in "--outer_learning_rate 0.3" "--outer_momentum 0.2" "--ddp_comm bf16" "--ddp_comm int8"; do
    rm -rf "$work/other"
    # shellcheck disable=SC2086
    TX_COMM_SHM=0 ranks 2 other $local --per_device_train_batch_size 6 $more || fail "$more"
    cmp -s "$work/l2/model.safetensors" "$work/other/model.safetensors" && fail "$more changes nothing"
done
rm -rf "$work/other"
# shellcheck disable=SC2086
TX_COMM_SHM=0 ranks 2 other $local --per_device_train_batch_size 6 || fail "no shared memory"
same l2 other

# The loss of 96 steps is near that of summed gradients.
for every in 1 8; do
    ranks 2 long$every --sync_every $every --max_steps 96 --learning_rate 3e-3 --validation_split_percentage 30 \
        --eval_strategy steps --eval_steps 96 --per_device_train_batch_size 6 || fail "$every steps"
done
numbers eval_loss "$work/long1/log.jsonl" > "$work/expected"
numbers eval_loss "$work/long8/log.jsonl" | paste "$work/expected" - |
    awk '!(NF == 2 && $2 < 1.1 * $1 && $1 < 4) { print; bad = 1 } END { exit bad || NR != 1 }' ||
    fail "another loss than summed gradients: $(cat "$work/expected") and $(numbers eval_loss "$work/long8/log.jsonl")"

# What it cannot do.
while read -r more; do
    # shellcheck disable=SC2086
    ranks 2 no --sync_every 4 $more && fail "$more: not refused"
    grep -q "sync_every" "$work/err" || fail "$more: no reason"
done << 'END'
--zero_stage 1
--tensor_parallel 2
--pipeline_parallel 2
--context_parallel 2
--fp16
--batch_weights 1,2
--optim schedule_free_adamw --lr_scheduler_type constant
END
ranks 2 no --outer_momentum 0.5 && fail "an outer momentum without local steps: not refused"

verdict
