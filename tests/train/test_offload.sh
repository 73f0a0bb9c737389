#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Optimizer states, and fp32 weights of mixed precision, outside the device's memory. The results have the same bytes as
# without offloading, checkpoints are interchangeable, and runs fit that would not fit otherwise.
#
#   test_offload.sh BIN-FOLDER SHIM DEVICE
#     SHIM  the library of tests/checkpoint/fault_shim.c, or none if it cannot be preloaded
bin=$1
shim=$2
device=$3
. "${0%/*}/../program.sh"

need_device
export TX_GEMM_TUNE=0
write_small_text 42
write_small_config 2 24 24 0.1

# run FOLDER ARGUMENT...
run()
{
    folder=$1
    shift
    "$bin/txtrain" --train_file "$work/text" --validation_file "$work/text" --eval_strategy steps --eval_steps 3 \
        --fp16_full_eval --config_name "$work/config.json" --block_size 20 --device "$device" \
        --threads 1 --learning_rate 1e-2 --per_device_train_batch_size 3 --gradient_accumulation_steps 2 --max_steps 6 \
        --bf16 --save_strategy steps --save_steps 3 --output_dir "$work/$folder" "$@" > "$work/out" 2> "$work/err"
}

# same FOLDER: weights and moments of the run that kept its states on the device
same()
{
    for file in model.safetensors checkpoint-6/optimizer.safetensors; do
        cmp -s "$work/kept/$file" "$work/$1/$file" || fail "$1: $file differs"
    done
}

run kept || fail "the run with its states on the device"
run away --offload_optimizer cpu --profile || fail "the run with its states in the host's memory"
same away
for name in kept away; do
    numbers eval_loss "$work/$name/log.jsonl" > "$work/$name.losses"
done
[ -s "$work/kept.losses" ] && cmp -s "$work/kept.losses" "$work/away.losses" || fail "evaluations differ"
if [ "$device" = cpu ]; then
    grep -q "^offload .*changes nothing" "$work/out" || fail "not told that nothing changes"
else
    grep -q "^offload .* are kept in host memory" "$work/out" || fail "not told where the states are"
    awk '/^  offloaded / { away = $2 > 0 && $2 == $NF } / optimizer states/ { left = $3 } END { exit !(away && left == 0) }' \
        "$work/out" || fail "the states are not where they were planned"
fi
run back --offload_optimizer none --resume_from_checkpoint "$work/away/checkpoint-3" || fail "goes on without offload"
grep -q "^offload" "$work/out" && fail "offloads all the same"
same back
run gone --offload_optimizer cpu --resume_from_checkpoint "$work/kept/checkpoint-3" || fail "goes on with offload"
same gone

# Activations wait for the backward pass in the host's memory.
run waits --activation_offloading --profile || fail "the run with activations in the host's memory"
same waits
if [ "$device" = cpu ]; then
    grep -q "^offload .*--activation_offloading changes nothing" "$work/out" || fail "not told that nothing changes"
else
    grep -q "^offload .* of activations are kept in host memory" "$work/out" || fail "not told where activations are"
    awk '/^  offloaded / { away = $2 > 0 && $2 == $NF } END { exit !away }' "$work/out" || fail "activations are not where they were planned"
fi
run both --activation_offloading --offload_optimizer cpu --gradient_checkpointing ||
    fail "the run with states and activations there"
same both

# The same for weights, alone and with all other offloads.
run params --offload_param cpu --profile || fail "the run with weights in the host's memory"
same params
if [ "$device" = cpu ]; then
    grep -q "^offload .*--offload_param cpu changes nothing" "$work/out" || fail "not told that nothing changes"
else
    grep -q "^offload .* of weights are kept in host memory" "$work/out" || fail "not told where weights are"
    awk '/^  offloaded / { away = $2 > 0 && $2 == $NF } /^  16-bit copies / { left = $NF } END { exit !(away && left == 0) }' "$work/out" || fail "weights are not where they were planned"
fi
run all --offload_param cpu --activation_offloading --offload_optimizer cpu --gradient_checkpointing \
    --save_total_limit 2 ||
    fail "the run with all of it there"
same all
run onto --offload_param cpu --resume_from_checkpoint "$work/kept/checkpoint-3" || fail "goes on with weights there"
same onto

# In a file, which has no name and leaves nothing.
disk=$work/disk
mkdir "$disk"
run filed --offload_optimizer nvme --nvme_path "$disk" || fail "the run with its states in a file"
same filed
grep -q "^offload .* are kept in a file in $disk" "$work/out" || fail "not told of the file"
run unfiled --offload_optimizer none --resume_from_checkpoint "$work/filed/checkpoint-3" ||
    fail "goes on from the run with a file"
same unfiled
outcome 1 "$work/nowhere: cannot create the offload file" run none --offload_optimizer nvme --nvme_path "$work/nowhere"
outcome 2 "needs --nvme_path" run none --offload_optimizer nvme

# The same for weights, with their 16-bit copies or without any, alone and with the states.
run weights --offload_param nvme --nvme_path "$disk" --profile || fail "the run with its weights in a file"
same weights
grep -q "^offload .* of weights are kept in a file in $disk" "$work/out" || fail "not told of the weights' file"
awk '/^  offloaded / { away = $2 > 0 && $2 == $NF } /^  (weights|16-bit copies) / { left += $NF }
    END { exit !(away && left == 0) }' \
    "$work/out" || fail "weights are not where they were planned"
run whole --offload_param nvme --offload_optimizer nvme --nvme_path "$disk" --gradient_checkpointing \
    --save_total_limit 2 ||
    fail "the run with all in a file"
same whole
run taken --offload_param nvme --nvme_path "$disk" --resume_from_checkpoint "$work/kept/checkpoint-3" ||
    fail "goes on with weights in a file"
same taken
run wide --bf16 0 || fail "the run in fp32"
run wide_filed --bf16 0 --offload_param nvme --nvme_path "$disk" || fail "the run in fp32 with weights in a file"
cmp -s "$work/wide/model.safetensors" "$work/wide_filed/model.safetensors" || fail "fp32: weights differ"
outcome 1 "$work/nowhere: cannot create the offload file" run none --offload_param nvme --nvme_path "$work/nowhere"
outcome 2 "--offload_param nvme needs --nvme_path" run none --offload_param nvme

# faulty FOLDER MODE AT ARGUMENT...: a run whose calls on the disk go wrong; a step writes moments of two kinds, 92 KiB
# each
faulty()
{
    mode=$2
    at=$3
    into=$1
    shift 3
    TX_FAULT_FOLDER=$disk TX_FAULT_MODE=$mode TX_FAULT_AT=$at LD_PRELOAD=$shim run "$into" --offload_optimizer nvme \
        --nvme_path "$disk" "$@"
}

# The disk is full, or the process killed, in step 5: the last complete checkpoint is good. Without a kill that is the
# one of step 3. A kill can find the last one on its way to the disk, which the next save would have awaited.
if [ "$shim" != none ]; then
    faulty full full 800000 && fail "goes on with a full disk"
    [ "$(wc -l < "$work/err")" -eq 1 ] && grep -q "$disk: cannot write bytes .* of the offload file" "$work/err" ||
        fail "a full disk is not told in a line"
    faulty killed kill 10 --save_steps 2
    for folder in full killed; do
        [ $folder = full ] && step=3 || step=2
        [ -d "$work/$folder/checkpoint-$step" ] && [ ! -d "$work/$folder/checkpoint-6" ] ||
            fail "$folder: not after step $step"
        run $folder --offload_optimizer nvme --nvme_path "$disk" --resume_from_checkpoint || fail "$folder: goes on"
        same $folder
    done
fi
# The same if a weight cannot be read in step 5.
if [ "$shim" != none ]; then
    faulty unread unreadable 600 --offload_param nvme && fail "goes on with a weight that it cannot read"
    [ "$(wc -l < "$work/err")" -eq 1 ] && grep -q "$disk: cannot read bytes .* of the offload file: Input/output error" "$work/err" ||
        fail "a weight that cannot be read is not told in a line"
    [ -d "$work/unread/checkpoint-3" ] && [ ! -d "$work/unread/checkpoint-6" ] || fail "unread: not after step 3"
    run unread --offload_param nvme --nvme_path "$disk" --resume_from_checkpoint || fail "unread: goes on"
    same unread
fi
[ -z "$(ls -A "$disk")" ] || fail "something is left on the disk"

# The run needs 1.1 GiB, and the device has 1 GiB. The states are half of the run's memory.
if [ "$device" = opencl ] && "$bin/txtrain" --list_devices | grep -qi pocl; then
    export POCL_MEMORY_LIMIT=1
    large="--config_overrides vocab_size=60000,n_embd=1024 --tokenizer_name $work/kept --dry_run"
    # shellcheck disable=SC2086
    run large $large && fail "what is too large for the device is not refused"
    grep -q -- "--offload_optimizer cpu" "$work/err" || fail "no advice to offload"
    # shellcheck disable=SC2086
    run large $large --offload_optimizer cpu || fail "what fits with offload is refused"
fi

verdict
