#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints a digest of the trained weights, the optimizer states and the losses for each way of training, one line each.
# Run it with the build before a change and the build after it, and compare: a change of structure keeps every line.
# Digests depend on the machine, so none are kept here.
#   tests/training_bytes.sh BUILD [core|quick|all] > before.txt
#       quick: without the GPT-2 of 124 million parameters; core: GPT-2 on one device, which needs no extension
set -u
bin=$1/bin
rows=${2:-all}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# The autotuner's choices depend on the load of the machine. Ranks share the cores of a small machine.
export TX_PROGRESS=0 TX_GEMM_TUNE=0 OMP_WAIT_POLICY=passive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

awk 'BEGIN { for (i = 0; i < 150; i++)
    printf "Line %d says what line %d says: %d is the square of %d.\n", i, i * 7 % 120, i * i, i }' \
    > "$work/text"
gpt2='"model_type": "gpt2", "n_layer": 4, "n_head": 4, "n_embd": 64, "n_positions": 64, "vocab_size": 257'
echo "{$gpt2, \"attn_pdrop\": 0.1, \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.1}" > "$work/gpt2.json"
llama='"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 64, "vocab_size": 257'
echo "{\"model_type\": \"llama\", $llama}" > "$work/llama.json"
echo "{\"model_type\": \"mixtral\", $llama, \"num_local_experts\": 4}" > "$work/mixtral.json"
cp "$work/text" "$work/text.bin" # pairs of letters are 16-bit tokens
mkdir "$work/file"
failures=0

# digest FOLDER: of all that a run leaves, except times
digest()
{
    {
        find "$1" -name '*.safetensors' | LC_ALL=C sort | xargs cat
        grep -o '"\(loss\|grad_norm\)": *[^,}]*' "$1/log.jsonl"
    } | sha256sum | cut -c 1-32
}

# run NAME RANKS MODEL TEXT STEPS ARGUMENT...
run()
{
    name=$1 ranks=$2 model=$3 text=$4 steps=$5
    shift 5
    set -- "$bin/txtrain" --config_name "$model" --train_file "$work/$text" --output_dir "$work/out" \
        --overwrite_output_dir \
        --threads 1 --seed 3 --max_steps "$steps" --save_strategy steps --save_steps "$steps" --logging_steps 5 \
        --ddp_overlap no "$@"
    [ "$ranks" -eq 1 ] || set -- mpiexec -n "$ranks" "$@"
    rm -rf "$work/out"
    if timeout 600 "$@" > "$work/log" 2>&1; then
        printf '%-28s %s\n' "$name" "$(digest "$work/out")"
    else
        printf '%-28s failed: %s\n' "$name" "$(tail -n 1 "$work/log")"
        failures=$((failures + 1))
    fi
}

# tiny NAME RANKS ARGUMENT...: the small GPT-2 for 50 steps
tiny()
{
    tiny_name=$1 tiny_ranks=$2
    shift 2
    run "$tiny_name" "$tiny_ranks" "$work/gpt2.json" text 50 --block_size 64 --per_device_train_batch_size 2 \
        --learning_rate 1e-3 "$@"
}

# other NAME RANKS MODEL ARGUMENT...: another small model for 10 steps
other()
{
    other_name=$1 other_ranks=$2 model=$3
    shift 3
    run "$other_name" "$other_ranks" "$work/$model.json" text 10 --block_size 32 --per_device_train_batch_size 2 "$@"
}

set -- --gradient_accumulation_steps 2
for device in cpu opencl; do
    tiny "$device" 1 --device $device
    [ "$rows" != core ] || continue
    tiny "$device-accumulation" 1 --device $device "$@"
    tiny "$device-bf16-checkpointing" 1 --device $device --bf16 --gradient_checkpointing
    tiny "$device-offload" 1 --device $device --offload_optimizer cpu --offload_param cpu
    tiny "$device-offload-file" 1 --device $device --offload_optimizer nvme --offload_param nvme \
        --nvme_path "$work/file"
    tiny "$device-offload-activations" 1 --device $device --activation_offloading
    for stage in 0 1 2 3; do
        tiny "$device-zero-$stage" 2 --device $device --zero_stage $stage
    done
    tiny "$device-zero-3-bf16-offload" 2 --device $device --zero_stage 3 --bf16 --offload_param cpu \
        --offload_optimizer cpu
    tiny "$device-pipeline" 2 --device $device --pipeline_parallel 2 "$@"
    tiny "$device-tensor" 2 --device $device --tensor_parallel 2
    tiny "$device-tensor-sequence" 2 --device $device --tensor_parallel 2 --sequence_parallel
    tiny "$device-context" 2 --device $device --context_parallel 2
    other "$device-llama-adafactor" 1 llama --device $device --optim adafactor
    other "$device-llama-muon" 1 llama --device $device --optim muon
    other "$device-llama-8bit-zero-1" 2 llama --device $device --optim adamw_8bit --zero_stage 1
    other "$device-experts" 2 mixtral --device $device --expert_parallel 2
done
[ "$rows" != all ] || for device in cpu opencl; do
    run "$device-gpt2-124M" 1 gpt2 text.bin 3 --device $device --block_size 64 --per_device_train_batch_size 1
done
exit $((failures != 0))
