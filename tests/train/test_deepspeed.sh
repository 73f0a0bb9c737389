#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run with a configuration of DeepSpeed ends with the bytes of the same run in TX's own options; what TX cannot do, and
# what the command line says otherwise, is refused, all of it in one line.
#
#   test_deepspeed.sh BIN-FOLDER
set -u
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
 "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_type": "linear", "warmup_num_steps": 2, "total_num_steps": 5}},
 "bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 128, "hysteresis": 2},
 "zero_optimization": {"stage": 2, "overlap_comm": true, "offload_param": {"device": "none", "pin_memory": true},
 "offload_optimizer": {"device": "nvme", "nvme_path": "WORK", "pin_memory": true, "buffer_count": 4}}}
END
sed "s|WORK|$work|" "$work/all.json" > "$work/copy" && mv "$work/copy" "$work/all.json"
outcome 0 "" run theirs --deepspeed "$work/all.json"
outcome 0 "" run ours --global_batch_size 8 --per_device_train_batch_size 4 --max_grad_norm 0.5 --optim adamw_torch --learning_rate 0.01 \
    --adam_beta1 0.8 --adam_beta2 0.95 --adam_epsilon 1e-7 --weight_decay 0.1 --lr_scheduler_type linear --warmup_steps 2 \
    --max_steps 5 --bf16 --zero_stage 2
cmp -s "$work/theirs/model.safetensors" "$work/ours/model.safetensors" || fail "the weights differ"
for option in '"zero_stage": 2' '"bf16": true' '"max_grad_norm": 0.5' '"adam_beta2": 0.95' '"adam_epsilon": 1e-7' \
    '"offload_optimizer": "nvme"' "\"nvme_path\": \"$work\""; do
    grep -qF "$option" "$work/theirs/training_args.json" || fail "not taken over: $option"
done

# As transformers' documentation has it: the command line fills in what is "auto".
cat > "$work/auto.json" << 'END'
{"fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 500, "initial_scale_power": 8, "hysteresis": 2},
 "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
 "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
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
 "pipeline": {"stages": 2}, "gradient_clipping": "much", "zero": {}, "train_batch_size": 8, "gradient_accumulation_steps": 3}
END
outcome 2 "optimizer.type: OneBitAdam is none of Adam, AdamW, Lion" run bad --max_steps 2 --deepspeed "$work/bad.json"
for text in "optimizer.params.cuda_aware: no key" "zero_optimization.stage3_new: no key" "pipeline: there are no pipelines" \
    "gradient_clipping: max_grad_norm much" "zero: no key"; do
    grep -qF "$text" "$work/err" || fail "bad: does not say $text"
done
[ "$(wc -l < "$work/err")" -eq 1 ] || fail "bad: not one line"
outcome 2 "optimizer.params.lr: 0.01, but --learning_rate has given 0.02" run bad --learning_rate 0.02 --deepspeed "$work/all.json"
echo '{"train_batch_size": 12, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}' > "$work/bad.json"
outcome 1 "train_batch_size 12 is not train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps 2 x 1 ranks" \
    run bad --max_steps 2 --deepspeed "$work/bad.json"
echo '[]' > "$work/bad.json"
outcome 2 "must hold one object" run bad --max_steps 2 --deepspeed "$work/bad.json"
exit $((failures > 0))
