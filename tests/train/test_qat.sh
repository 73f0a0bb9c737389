#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Quantization-aware training: an evaluation with --qat has, to the last bit, the loss of the file that txconvert
# writes of the fp32 weights. Runs that resume, threads and ranks agree.
#
#   test_qat.sh BIN-FOLDER LAUNCHER DEVICE
. "${0%/*}/../device.sh"
write_small_text 60
cat > "$work/llama.json" << 'END'
{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 288, "num_attention_heads": 4,
 "num_key_value_heads": 1, "max_position_embeddings": 32, "vocab_size": 257, "bos_token_id": 256, "eos_token_id": 256}
END
sed 's/"vocab/"tie_word_embeddings": true, "vocab/' "$work/llama.json" > "$work/tied.json"
sed 's/"llama"/"mixtral"/; s/"vocab/"num_local_experts": 4, "vocab/' "$work/llama.json" > "$work/experts.json"
echo '{"model_type": "gpt2", "n_layer": 1, "n_embd": 256, "n_head": 2, "n_positions": 32, "vocab_size": 257,
 "bos_token_id": 256, "eos_token_id": 256}' > "$work/gpt2.json"

# run FOLDER ARGUMENT...
run()
{
    folder=$1
    shift
    rm -rf "${work:?}/$folder"
    "$bin/txtrain" --train_file "$work/text" --validation_file "$work/text" --block_size 24 --device "$device" \
        --threads 1 --learning_rate 1e-2 --per_device_train_batch_size 4 --save_strategy no --do_eval \
        --output_dir "$work/$folder" "$@" > "$work/out" 2> "$work/err" || fail "$folder: $*"
}
# loss FOLDER: of its evaluation, all digits
loss()
{
    numbers eval_loss "$work/$1/eval_results.json"
}
# equal_loss FOLDER FOLDER: of both evaluations, to the last bit
equal_loss()
{
    loss "$1" > "$work/one"
    loss "$2" > "$work/more"
    near "$work/one" "$work/more" 1e-300
}
# check TYPE ARGUMENT...: a run with the type, and the file of its weights
check()
{
    type=$1
    shift
    run qat --do_train --max_steps 4 --gradient_accumulation_steps 2 --qat "$type" "$@"
    "$bin/txconvert" "$work/qat" --to "$work/qat.gguf" --outtype "$type" > "$work/out" 2> "$work/err" ||
        fail "$type: no file"
    precision=
    case "$*" in *--bf16*) precision=--bf16 ;; esac
    run file --model_name_or_path "$work/qat.gguf" $precision
    run plain --model_name_or_path "$work/qat" $precision
    equal_loss qat file || fail "$type $*: loss $(loss qat), of the file $(loss file)"
    equal_loss plain file && fail "$type $*: rounding changes nothing"
}
types="q8_0 q2_k"
[ "$device" = cpu ] && types="q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m q5_k_s q5_k_m q6_k iq4_nl
    iq4_xs mxfp4_moe f16"
for type in $types; do
    check "$type" --config_name "$work/llama.json"
done
check q3_k_m --config_name "$work/llama.json" --bf16
check q4_k_m --config_name "$work/tied.json"
if [ "$device" = cpu ]; then
    check q2_k --config_name "$work/tied.json" --bf16
    check q4_k_m --config_name "$work/gpt2.json"
    check q2_k --config_name "$work/llama.json" --gradient_checkpointing
    check mxfp4_moe --config_name "$work/experts.json"
fi

# Planned memory has the rounded copies.
run qat --do_train --max_steps 2 --config_name "$work/llama.json" --qat q4_0 --profile
as_planned "the copies"

# The step from which weights are rounded.
run first --do_train --max_steps 3 --config_name "$work/llama.json" --qat q2_k --fake_quant_after_n_steps 3
run none --do_train --max_steps 3 --config_name "$work/llama.json"
cmp -s "$work/first/model.safetensors" "$work/none/model.safetensors" || fail "rounded before the first step of it"
run two --do_train --max_steps 3 --config_name "$work/llama.json" --qat q2_k --fake_quant_after_n_steps 2
cmp -s "$work/two/model.safetensors" "$work/none/model.safetensors" && fail "not rounded in the third step"

# Resume, threads, ranks.
set -- --do_train --config_name "$work/llama.json" --qat q3_k_m --fake_quant_after_n_steps 1
run whole "$@" --max_steps 4
run part "$@" --max_steps 4 --save_strategy steps --save_steps 2
rm -rf "$work/part/checkpoint-4"
"$bin/txtrain" --resume_from_checkpoint --output_dir "$work/part" > "$work/out" 2> "$work/err" || fail "resume"
cmp -s "$work/whole/model.safetensors" "$work/part/model.safetensors" || fail "a resumed run has other weights"
run threads "$@" --max_steps 4 --threads 2
cmp -s "$work/whole/model.safetensors" "$work/threads/model.safetensors" || fail "two threads: other weights"
if [ -n "$launcher" ]; then
    for split in "--zero_stage 0" "--zero_stage 3" "--pipeline_parallel 2 --gradient_accumulation_steps 2"; do
        rm -rf "$work/ranks"
        # shellcheck disable=SC2086
        $launcher -n 2 "$bin/txtrain" --train_file "$work/text" --validation_file "$work/text" --block_size 24 \
            --device "$device" --threads 1 --learning_rate 1e-2 --per_device_train_batch_size 2 --save_strategy no \
            --do_eval --output_dir "$work/ranks" "$@" --max_steps 4 $split \
            > "$work/out" 2> "$work/err" || fail "$split"
        loss whole > "$work/one" && loss ranks > "$work/more"
        near "$work/one" "$work/more" 0.002 || fail "$split: loss $(loss ranks), not $(loss whole)"
    done
fi

# Refusals
refuses()
{
    code=$1 why=$2
    shift 2
    outcome "$code" "$why" "$bin/txtrain" --train_file "$work/text" --output_dir "$work/refused" --qat q4_0 "$@"
}
echo '{"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 257,
 "intermediate_size": 32, "max_position_embeddings": 64, "architectures": ["BertForMaskedLM"]}' > "$work/bert.json"
refuses 1 "encoders are not trained for blocks" --config_name "$work/bert.json"
refuses 2 "merge the adapter" --model_name_or_path "$work/whole" --lora_r 4
refuses 2 "use --bf16" --config_name "$work/llama.json" --dtype bfloat16
refuses 2 "blocks of shards" --config_name "$work/llama.json" --tensor_parallel 2

verdict " on $device"
