#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of many ranks: all have the best weights at the end or none has, and a rank that lacks memory is not
# waited for by those that save with it.
#   test_ranks_saves.sh BIN LAUNCHER SHIM
shim=${3:-}
device=cpu
. "${0%/*}/ranks.sh"

# pair STATUS NAME SHIM0 SHIM1 ARGUMENT...: a run of two ranks into $work/NAME, with a fault on each rank, "" for none
pair()
{
    wanted=$1
    folder=$work/$2
    first=${3:+env LD_PRELOAD=$shim TX_SHIM_READS=3 TX_SHIM=$3}
    second=${4:+env LD_PRELOAD=$shim TX_SHIM_READS=3 TX_SHIM=$4}
    shift 4
    set -- "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --block_size 32 --threads 1 \
        --seed 3 --logging_strategy no --ddp_overlap no --lr_scheduler_type constant --save_strategy steps \
        --save_steps 4 --comm_timeout 5 --output_dir "$folder" "$@"
    # shellcheck disable=SC2086
    timeout -s KILL 60 "$launcher" -n 1 $first "$@" : -n 1 $second "$@" > "$work/out" 2> "$work/err"
    status=$?
    # The launcher may kill a rank that is about to exit, which then counts as killed.
    [ $status -eq "$wanted" ] || [ "$wanted $status" = "1 9" ] || fail "${folder##*/}: status $status, not $wanted"
}

# says TEXT: standard error has it
says()
{
    grep -qF -- "$1" "$work/err" || fail "${folder##*/}: not said: $1"
}

# weights CHECKPOINT: those that the last run ended with
weights()
{
    cmp -s "$folder/$1/model.safetensors" "$folder/model.safetensors" || fail "${folder##*/}: not the weights of $1"
}

# The best checkpoint is not the last one: with such a rate nothing gets better.
best="--validation_file $work/text --eval_strategy steps --eval_steps 4 --load_best_model_at_end"
best="$best --per_device_eval_batch_size 4"
# shellcheck disable=SC2086
pair 0 best "" "" $best --max_steps 4 --learning_rate 1e-2
weights checkpoint-4
cp -r "$work/best" "$work/fault"
# shellcheck disable=SC2086
pair 0 best "" "" $best --max_steps 8 --learning_rate 3 --resume_from_checkpoint
weights checkpoint-4
whole=$(numbers eval_loss "$folder/all_results.json")

[ -n "$shim" ] || { echo "skipped the rest: nothing can be preloaded here"; exit $((failures != 0)); }
# Rank 1 has verified and loaded it at the start, and verifies it at the end, but cannot load it then.
# shellcheck disable=SC2086
pair 1 fault "" eio:checkpoint-4/model.safetensors $best --max_steps 8 --learning_rate 3 --resume_from_checkpoint
says "rank 1 could not load it"
weights checkpoint-8
[ "$(numbers eval_loss "$folder/all_results.json")" != "$whole" ] ||
    fail "the last weights have the loss of the best ones"

# No memory to gather the optimizer's states.
for stage in 0 1 3; do
    pair 0 whole$stage "" "" --max_steps 6 --learning_rate 1e-2 --zero_stage $stage
done
# A rank without memory for the answers to rank 0 reports it before the run.
pair 1 other "" memory:1048576 --max_steps 6 --learning_rate 1e-2 --zero_stage 1
says "rank 1"

verdict
