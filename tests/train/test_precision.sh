#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# 300 steps of a small GPT-2 on tinyshakespeare in bf16 (also with the residual stream), in fp16, and with weights and
# moments in bf16 (stochastic rounding or Kahan summation). The losses end close to fp32's, and memory is as planned.
#
#   test_precision.sh BIN-FOLDER LAUNCHER DEVICE
. "${0%/*}/../device.sh"
text=${TX_TEST_DATA:-${0%/*}/../../../shared/data}/text/tinyshakespeare.txt
[ -r "$text" ] || { echo "skipped: no $text"; exit 77; }
cat > "$work/config.json" << 'END'
{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "n_positions": 64, "vocab_size": 257,
 "bos_token_id": 256, "eos_token_id": 256, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
END

# run FOLDER ARGUMENT...: sets $loss to the mean loss of the last 30 steps
run()
{
    folder=$1
    shift
    "$bin/txtrain" --train_file "$text" --config_name "$work/config.json" --block_size 64 --device "$device" \
        --threads 2 \
        --learning_rate 2e-3 --warmup_steps 20 --per_device_train_batch_size 8 --max_steps 300 --save_strategy no \
        --profile --output_dir "$work/$folder" "$@" > "$work/out" 2> "$work/err" || fail "$folder"
    loss=$(numbers loss "$work/$folder/log.jsonl" | tail -n 30 | awk '{ sum += $1 } END { print sum / NR }')
    as_planned "$folder"
}

run fp32
full=$loss
awk -v loss="$full" 'BEGIN { exit !(loss > 1 && loss < 2.6) }' || fail "fp32 ends with a loss of $full"
for precision in bf16 residual fp16 pure kahan; do
    case $precision in
        residual) options="--bf16 --residual_dtype bfloat16" ;;
        pure) options="--dtype bfloat16" ;;
        kahan) options="--dtype bfloat16 --optim adamw_anyprecision --optim_args use_kahan_summation=True" ;;
        *) options=--$precision ;;
    esac
    # shellcheck disable=SC2086
    run $precision $options
    echo "$device: fp32 $full, $precision $loss"
    awk -v a="$loss" -v b="$full" 'BEGIN { d = a / b - 1; exit !(d < 0.01 && d > -0.01) }' ||
        fail "$precision ends with a loss of $loss, fp32 with $full"
done


# The saved model is in bf16 and takes half the bytes.
grep -q '"torch_dtype": "bfloat16"' "$work/pure/config.json" || fail "config.json does not say bfloat16"
[ $(($(wc -c < "$work/pure/model.safetensors") * 2 - 8000)) -lt "$(wc -c < "$work/fp32/model.safetensors")" ] ||
    fail "the saved weights are not of 16 bits"

verdict " on $device"
