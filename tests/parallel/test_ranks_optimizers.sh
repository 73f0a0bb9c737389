#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two ranks train as one does with every optimizer, every stage of ZeRO to the bit alike, also where a run goes on in another stage,
# with states that lay in a file and then, of a device, in the host's memory.
#   test_ranks_optimizers.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"

# Of 64 columns, so that adamw_8bit has 8 bits to keep. What rounds or takes signs goes other ways after other sums.
limit=1e-3
rate=3e-3
while read -r name optim arguments <&3; do
    set -- --config_overrides n_embd=64,n_layer=2 --ddp_bucket_cap_mb 1 --learning_rate $rate --optim "$optim"
    [ -n "$arguments" ] && set -- "$@" --optim_args "$arguments"
    ranks 1 "$name.one" "$@" --per_device_train_batch_size 6 || fail "$name: one rank"
    for stage in 0 1 2 3; do
        ranks 2 "$name.$stage" "$@" --per_device_train_batch_size 3 --zero_stage $stage --ddp_check 4 || fail "$name: stage $stage"
        same "$name.0" "$name.$stage"
    done
    near "$name.one" "$name.0"
    ranks 2 "$name.1" "$@" --per_device_train_batch_size 3 --zero_stage 1 --save_strategy steps --save_steps 5 \
        --overwrite_output_dir --offload_optimizer nvme --nvme_path "$work" || fail "$name: saves"
    ranks 2 "$name.on" "$@" --per_device_train_batch_size 3 --zero_stage 2 \
        --offload_optimizer cpu --resume_from_checkpoint "$work/$name.1/checkpoint-5" || fail "$name: goes on in stage 2"
    same "$name.0" "$name.on"
done 3<< 'END'
nesterov sgd momentum=0.9,nesterov=True
adafactor adafactor
relative adafactor relative_step=True,scale_parameter=True
adamw_8bit adamw_8bit
anyprecision adamw_anyprecision momentum_dtype=bfloat16,use_kahan_summation=True
muon muon
END

verdict
