#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run with a configuration of DeepSpeed or FSDP ends with the bytes of the same run with TX's options. Unsupported
# settings, and settings that contradict the command line, are refused, all of them in one line.
#
#   test_configuration.sh BIN-FOLDER
bin=$1
. "${0%/*}/../program.sh"
write_small_config 1 16 32
write_small_text 40

# run FOLDER ARGUMENT...: a small model
run()
{
    folder=$1
    shift
    "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --block_size 16 --threads 1 \
        --output_dir "$work/$folder" --overwrite_output_dir "$@"
}

cat > "$work/all.json" << 'END'
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 0.5,
 "optimizer": {"type": "Adam", "params": {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-7, "weight_decay": 0.1}},
 "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_type": "linear", "warmup_num_steps": 2,
 "total_num_steps": 5}},
 "bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 128, "hysteresis": 2},
 "zero_optimization": {"stage": 2, "overlap_comm": true, "offload_param": {"device": "nvme", "nvme_path": "WORK",
 "pin_memory": true},
 "offload_optimizer": {"device": "nvme", "nvme_path": "WORK", "pin_memory": true, "buffer_count": 4}}}
END
sed "s|WORK|$work|" "$work/all.json" > "$work/copy" && mv "$work/copy" "$work/all.json"
outcome 0 "" run theirs --deepspeed "$work/all.json"
outcome 0 "" run ours --global_batch_size 8 --per_device_train_batch_size 4 --max_grad_norm 0.5 --optim adamw_torch \
    --learning_rate 0.01 \
    --adam_beta1 0.8 --adam_beta2 0.95 --adam_epsilon 1e-7 --weight_decay 0.1 --lr_scheduler_type linear \
    --warmup_steps 2 --max_steps 5 --bf16 --zero_stage 2
cmp -s "$work/theirs/model.safetensors" "$work/ours/model.safetensors" || fail "the weights differ"
for option in '"zero_stage": 2' '"bf16": true' '"max_grad_norm": 0.5' '"adam_beta2": 0.95' '"adam_epsilon": 1e-7' \
    '"offload_optimizer": "nvme"' '"offload_param": "nvme"' "\"nvme_path\": \"$work\""; do
    grep -qF "$option" "$work/theirs/training_args.json" || fail "not taken over: $option"
done

# The options that a run writes make the same run.
outcome 0 "" "$bin/txtrain" "$work/theirs/training_args.json" --output_dir "$work/again"
cmp -s "$work/theirs/model.safetensors" "$work/again/model.safetensors" || fail "training_args.json makes another run"

# The command line supplies the values "auto", as in transformers' documentation.
cat > "$work/auto.json" << 'END'
{"fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 500, "initial_scale_power": 8, "hysteresis": 2},
 "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
 "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
 "warmup_num_steps": "auto"}},
 "zero_optimization": {"stage": 3, "sub_group_size": 1e9, "stage3_prefetch_bucket_size": "auto"},
 "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "steps_per_print": 2000}
END
outcome 0 "the rate rises linearly" run auto --max_steps 2 --learning_rate 0.02 --deepspeed "$work/auto.json"
grep -qF '"learning_rate": 0.02' "$work/auto/training_args.json" || fail "auto: the rate is not the command line's"
! grep -qF "hysteresis" "$work/out" || fail "auto: speaks of loss scales without fp16"
outcome 0 "fp16.hysteresis: the loss scale halves" run auto --max_steps 2 --fp16 --deepspeed "$work/auto.json"
grep -qF '"init_scale": 256' "$work/auto/training_args.json" || fail "auto: the first loss scale is not 2 to the 8th"

cat > "$work/bad.json" << 'END'
{"optimizer": {"type": "OneBitAdam", "params": {"cuda_aware": false}}, "zero_optimization": {"stage3_new": 1},
 "pipeline": {"partition": "type:layer"}, "gradient_clipping": "much", "zero": {}, "train_batch_size": 8,
 "gradient_accumulation_steps": 3}
END
outcome 2 "optimizer.type: OneBitAdam is not one of Adam, AdamW, Lion" run bad --max_steps 2 --deepspeed "$work/bad.json"
for text in "optimizer.params.cuda_aware: unknown key" "zero_optimization.stage3_new: unknown key" "pipeline.partition: type:layer is not one of best, parameters, uniform" \
    "gradient_clipping: max_grad_norm much" "zero: unknown key"; do
    grep -qF "$text" "$work/err" || fail "bad: does not say $text"
done
[ "$(wc -l < "$work/err")" -eq 1 ] || fail "bad: not one line"
outcome 2 "optimizer.params.lr: 0.01, but --learning_rate is 0.02" run bad --learning_rate 0.02 --deepspeed "$work/all.json"
echo '{"train_batch_size": 12, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}' > "$work/bad.json"
outcome 1 "train_batch_size 12 is not train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps 2 x 1 ranks" \
    run bad --max_steps 2 --deepspeed "$work/bad.json"
echo '[]' > "$work/bad.json"
outcome 2 "must hold one object" run bad --max_steps 2 --deepspeed "$work/bad.json"
# Keys of newer versions.
echo '{"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, "tensor_parallel": {"autotp_size": 0},
    "optimizer": {"type": "sgd", "params": {"lr": 0.1}}, "scheduler": {"type": "WarmupCosineLR",
    "params": {"warmup_type": "linear"}}}' \
    > "$work/new.json"
outcome 2 "--dtype bfloat16: only AdamW updates 16-bit weights" run new --max_steps 2 --deepspeed "$work/new.json"
sed 's/"bf16_master_weights_and_grads": true/"bf16_master_weights_and_grads": false/' "$work/new.json" > "$work/copy"
outcome 0 "" run new --max_steps 2 --deepspeed "$work/copy"
for option in '"optim": "sgd"' '"dtype": "float32"' '"tensor_parallel": 1' '"lr_scheduler_type": "cosine"'; do
    grep -qF "$option" "$work/new/training_args.json" || fail "new: not taken over: $option"
done
echo '{"tensor_parallel": {"autotp_size": 2, "preset_model": "llama"}}' > "$work/new.json"
outcome 1 "--tensor_parallel 2: the number of ranks, 1, must be a multiple" run new --max_steps 2 --deepspeed "$work/new.json"

# transformers' guide has aio within zero_optimization. TensorBoard's folder is that of the file.
echo '{"zero_optimization": {"stage": 1, "aio": {"block_size": 262144}}, "tensorboard": {"enabled": true,
    "output_path": "'"$work/events"'", "job_name": "named"}}' > "$work/new.json"
outcome 0 "" run new --max_steps 2 --deepspeed "$work/new.json"
ls "$work/events"/*tfevents* > "$work/got" 2>&1 || fail "tensorboard: no events in output_path"
sed 's/"enabled": true/"enabled": false/' "$work/new.json" > "$work/copy"
outcome 0 "" run new --max_steps 2 --deepspeed "$work/copy" --report_to none

# ---- FSDP ------------------------------------------------------------------------------------------------

# stage STAGE OFFLOAD ARGUMENT...: the options that a run has with these
stage()
{
    wanted_stage=$1
    wanted_offload=$2
    shift 2
    outcome 0 "" run fsdp --max_steps 1 "$@"
    grep -qF "\"zero_stage\": $wanted_stage" "$work/fsdp/training_args.json" || fail "$*: not stage $wanted_stage"
    grep -qF "\"offload_optimizer\": \"$wanted_offload\"" "$work/fsdp/training_args.json" || fail "$*: offload is not $wanted_offload"
}

cat > "$work/fsdp.json" << 'END'
{"fsdp_version": 2, "fsdp_reshard_after_forward": false, "fsdp_offload_params": true,
 "fsdp_state_dict_type": "SHARDED_STATE_DICT",
 "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_transformer_layer_cls_to_wrap": ["GPT2Block"], "xla": false,
 "fsdp_activation_checkpointing": true, "fsdp_cpu_ram_efficient_loading": true, "mixed_precision_policy": null}
END
outcome 0 "state_dict_type: checkpoints hold whole tensors" run theirs --max_steps 3 --fsdp --fsdp_config "$work/fsdp.json"
grep -qF "offload_params: moments" "$work/out" || fail "fsdp: does not tell what lies in the host's memory"
outcome 0 "" run ours --max_steps 3 --zero_stage 2 --offload_optimizer cpu --gradient_checkpointing
cmp -s "$work/theirs/model.safetensors" "$work/ours/model.safetensors" || fail "fsdp: the weights differ"
for option in '"zero_stage": 2' '"offload_optimizer": "cpu"' '"gradient_checkpointing": ""'; do
    grep -qF "$option" "$work/theirs/training_args.json" || fail "fsdp: not taken over: $option"
done
stage 3 none --fsdp
stage 3 none --fsdp true --fsdp_config '{"reshard_after_forward": "FULL_SHARD", "version": 1}'
stage 2 none --fsdp "shard_grad_op auto_wrap"
stage 3 cpu --fsdp "full_shard offload"
stage 0 none --fsdp no_shard
stage 1 none --fsdp --zero_stage 1
stage 3 none --distributed_type FSDP --mixed_precision no
outcome 2 "mixed_precision: true, but --bf16 is false" run fsdp --mixed_precision bf16 --bf16 false
outcome 2 "give DeepSpeed's file as --deepspeed" run fsdp --distributed_type DEEPSPEED
stage 0 none --fsdp false --fsdp_config "$work/fsdp.json"
grep -qF "has no effect without --fsdp" "$work/out" || fail "fsdp: a configuration for nothing is not told"
# In a file of options, as a Trainer writes them.
for pair in '"fsdp": [], "fsdp_config": {"xla": false} 0' '"fsdp": ["full_shard", "auto_wrap"] 3' \
    '"fsdp": true, "fsdp_config": {"reshard_after_forward": false} 2' \
    '"fsdp": true, "fsdp_config": {"sharding_strategy": "HYBRID_SHARD"} 3' '"fsdp": "hybrid_shard_zero2" 2'; do
    echo "{${pair% *}, \"max_steps\": 1, \"train_file\": \"$work/text\", \"config_name\": \"$work/config.json\"," \
        "\"block_size\": 16," \
        "\"output_dir\": \"$work/file\", \"overwrite_output_dir\": true}" > "$work/args.json"
    outcome 0 "" "$bin/txtrain" "$work/args.json"
    grep -qF "\"zero_stage\": ${pair##* }" "$work/file/training_args.json" || fail "$pair: another stage"
done

echo '{"fsdp_shards": 1, "ignored_modules": ["wte"], "sharding_strategy": "HALF", "xla": true,
    "reshard_after_forward": "some"}' \
    > "$work/bad.json"
outcome 2 "fsdp.half: unknown key" run bad --max_steps 1 --fsdp half --fsdp_config "$work/bad.json"
for text in "shards: unknown key" "ignored_modules: all trained parameters" \
    "sharding_strategy: HALF is not one of true, false, full_shard," \
    "xla: TX does not run on TPUs" "reshard_after_forward: some is not one of true, false, full_shard,"; do
    grep -qF "$text" "$work/err" || fail "bad: does not say $text"
done
[ "$(wc -l < "$work/err")" -eq 1 ] || fail "bad: not one line"
outcome 2 "fsdp.full_shard: 3, but --zero_stage is 2" run bad --max_steps 1 --fsdp full_shard --zero_stage 2
echo '[]' > "$work/bad.json"
outcome 2 "must hold one object" run bad --max_steps 1 --fsdp --fsdp_config "$work/bad.json"
exit $((failures > 0))
