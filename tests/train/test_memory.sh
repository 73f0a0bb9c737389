#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs that cannot fit are refused before they allocate memory. The message names the planned memory, the available
# memory, and options that would fit. Tested on the cpu, on an OpenCL device of the host, and with two ranks, in a
# control group of 2 GiB: training, evaluation and generation.
#
#   test_memory.sh BIN-FOLDER OPENCL LAUNCHER    "": this build has none
bin=$1
opencl=$2
launcher=$3
. "${0%/*}/../program.sh"
write_small_text 200
refused=0

# ---- a control group of 2 GiB, version 1 or 2 ---------------------------------------------------------------------
group=
limit_file=
make_group()
{
    one=$(sed -n 's/^[0-9]*:memory:/\/sys\/fs\/cgroup\/memory/p' /proc/self/cgroup)
    two=$(sed -n 's/^0::/\/sys\/fs\/cgroup/p' /proc/self/cgroup)
    for parent in "$one" "$two"; do
        [ -n "$parent" ] && mkdir "$parent/tx-test-$$" 2> /dev/null || continue
        for limit in memory.limit_in_bytes memory.max; do
            [ -e "$parent/tx-test-$$/$limit" ] && echo $((2 << 30)) > "$parent/tx-test-$$/$limit" &&
                group=$parent/tx-test-$$ && limit_file=$group/$limit && return
        done
        rmdir "$parent/tx-test-$$"
    done 2> /dev/null
}
make_group
trap 'rm -rf "$work"; [ -z "$group" ] || rmdir "$group"' EXIT
in_group() { timeout -s KILL 600 sh -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$group" "$@"; }

# ---- runs -------------------------------------------------------------------------------------------
# refuse TEXT COMMAND...: it ends by itself with both numbers and this advice
refuse()
{
    outcome 1 "$@"
    grep -qE '[0-9]+\.[0-9]+ GiB are planned.* has [0-9]+\.[0-9]+ GiB|[0-9]+ bytes exceeds .* \([0-9]+\)' "$work/err" ||
        fail "$*: not both numbers"
    refused=$((refused + 1))
}
# ranks COMMAND...: mpiexec ends with 9 if it killed a rank because another one had ended with 1 before it
ranks()
{
    "$@"
    ended=$?
    [ $ended -ne 9 ] || return 1
    return $ended
}
# train SHAPE ARGUMENT...
train()
{
    shape=$1
    shift
    set -- "$bin/txtrain" --train_file "$work/text" --output_dir "$work/out dir" --config_overrides "$shape" \
        --block_size 16 --threads 1 --max_steps 2 --save_strategy no "$@"
    timeout -s KILL 600 "$@"
}
small=n_layer=2,n_embd=64,n_head=2,n_positions=64
wide=n_layer=12,n_embd=1024,n_head=16,n_positions=64
huge=n_layer=100,n_embd=8192,n_head=64,n_positions=16
batch="--per_device_train_batch_size 1048576"

refuse "use a smaller model" train $huge
# shellcheck disable=SC2086
refuse "it would with --per_device_train_batch_size " train $small $batch
refuse "--per_device_eval_batch_size " train $small --do_eval --per_device_eval_batch_size 1048576
# shellcheck disable=SC2086
outcome 1 "does not fit" train $small $batch --dry_run
[ ! -e "$work/out dir/model.safetensors" ] || fail "a run that does not fit has left a model"
outcome 0 "memory  fits: " train $small --dry_run

if [ -n "$opencl" ] && "$bin/txtrain" --list-devices | grep -q "^opencl"; then
    # shellcheck disable=SC2086
    refuse "it would with --per_device_train_batch_size " env TX_OCL_LIMITS=allocation=1/4,align=4096 "$bin/txtrain" \
        --train_file "$work/text" --output_dir "$work/o" --config_overrides $small --block_size 16 --device opencl \
        --per_device_train_batch_size 1048576
    refuse "use a smaller model" train n_layer=48,n_embd=4096,n_head=64,n_positions=16 --device opencl
else
    opencl=
fi
if [ -n "$launcher" ]; then
    for device in cpu $opencl; do
        # shellcheck disable=SC2086
        refuse "use a smaller model" ranks timeout -s KILL 600 "$launcher" -n 2 "$bin/txtrain" --train_file "$work/text" --output_dir "$work/o" \
            --config_overrides n_layer=48,n_embd=4096,n_head=64,n_positions=16 --block_size 16 --device $device
    done
fi

# A model whose weights are small and whose caches and activations are not
train n_layer=1,n_embd=64,n_head=2,n_positions=16384 --overwrite_output_dir > "$work/out" 2> "$work/err" ||
    fail "a model with many positions"
cp -r "$work/out dir" "$work/model"
i=0
while [ $i -lt 4096 ]; do
    echo "prompt $i"
    i=$((i + 1))
done > "$work/prompts"
for device in cpu $opencl; do
    refuse "a smaller batch_size" "$bin/txgen" --model "$work/model" --device "$device" --prompts "$work/prompts" \
        --batch_size 4096 --max_new_tokens 16000
done
refuse "batch_size or max_length" "$bin/txgen" --model "$work/model" --perplexity "$work/prompts" --stride 1 \
    --max_length 8192 --batch_size 4096

# shaped LAYERS: a Llama of 0.8 GiB a layer in fp32
shaped()
{
    mkdir -p "$work/base"
    echo "{\"model_type\": \"llama\", \"num_hidden_layers\": $1, \"hidden_size\": 4096, \"intermediate_size\": 11008," \
        "\"num_attention_heads\": 32, \"vocab_size\": 257, \"max_position_embeddings\": 64}" > "$work/base/config.json"
}
# of OPTION ARGUMENT...: a dry run of it in the group
of()
{
    option=$1
    shift
    in_group "$bin/txtrain" --train_file "$work/text" --output_dir "$work/o" --block_size 16 --threads 1 --dry_run \
        --per_device_train_batch_size 1 "--$option" "$work/base" "$@"
}
if [ -n "$group" ]; then
    # An existing model, in 4 GiB, since the host's free memory varies. The model and its states exceed the memory. An
    # adapter fits if the frozen weights take half of the memory. If they exceed it as well, weights of 4 bits fit.
    # Neither is advised for new weights.
    echo $((4 << 30)) > "$limit_file"
    shaped 3
    refuse "it would with --lora_r 8 (" of model_name_or_path
    grep -q "or --lora_r 8 --load_in_4bit (" "$work/err" || fail "no advice to take 4 bits"
    refuse "use a smaller model" of config_name
    grep -q "lora_r" "$work/err" && fail "an adapter of new weights is advised"
    shaped 8
    refuse "it would with --lora_r 8 --load_in_4bit (" of model_name_or_path
    refuse "or --load_in_4bit (" of model_name_or_path --lora_r 4
    echo $((2 << 30)) > "$limit_file"
    for device in cpu $opencl; do
        refuse "it would with --per_device_train_batch_size " in_group "$bin/txtrain" \
            --train_file "$work/text" --output_dir "$work/o" \
            --config_overrides n_layer=12,n_embd=1024,n_head=16,n_positions=1024 --block_size 128 \
            --threads 1 --device "$device" --per_device_train_batch_size 64 --optim sgd
        grep -q "the control group .*/tx-test-$$ has" "$work/err" || fail "the control group is not named"
    done
    refuse "--optim adamw_8bit (" in_group "$bin/txtrain" --train_file "$work/text" --output_dir "$work/o" \
        --config_overrides $wide --block_size 16 --per_device_train_batch_size 1 --threads 1
    refuse "a smaller batch_size" in_group "$bin/txgen" --model "$work/model" --prompts "$work/prompts" --batch_size 512 \
        --max_new_tokens 16000
    [ -z "$launcher" ] || refuse "planned by 2 ranks" ranks in_group "$launcher" -n 2 "$bin/txtrain" --train_file "$work/text" \
        --output_dir "$work/o" --config_overrides $wide --block_size 16 --optim sgd --threads 1
    # A run that fits is accepted and not killed.
    for device in cpu $opencl; do
        outcome 0 "trained 2 steps" in_group "$bin/txtrain" --train_file "$work/text" --output_dir "$work/fits-$device" \
            --config_overrides $wide --block_size 16 --optim sgd --threads 1 --max_steps 2 --save_strategy no \
            --per_device_train_batch_size 2 --device "$device"
    done
else
    echo "no control group can be made here: those runs are left out"
fi
[ -z "$opencl$launcher$group" ] || [ $refused -ge 6 ] || fail "only $refused runs were tried"
echo "$refused runs refused"

verdict
