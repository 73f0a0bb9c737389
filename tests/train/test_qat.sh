#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Quantization-aware training: an evaluation with --qat has, to the last bit, the loss of the file that txconvert
# writes of the fp32 weights, or of the merged weights of an adapter. Runs that resume, threads and ranks agree.
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

# run FOLDER ARGUMENT...: on the ranks of $ranked, divided as $split says
ranked='' split=''
run()
{
    folder=$1
    shift
    rm -rf "${work:?}/$folder"
    # shellcheck disable=SC2086
    $ranked "$bin/txtrain" --train_file "$work/text" --validation_file "$work/text" --block_size 24 --device "$device" \
        --threads 1 --learning_rate 1e-2 --per_device_train_batch_size 4 --save_strategy no --do_eval \
        --output_dir "$work/$folder" "$@" $split > "$work/out" 2> "$work/err" || fail "$folder: $* $split"
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
# compare_file TYPE FOLDER ARGUMENT...: the run `qat` with these arguments, whose weights the folder has, and the file
compare_file()
{
    type=$1 weights=$2
    shift 2
    "$bin/txconvert" "$work/$weights" --to "$work/qat.gguf" --outtype "$type" > "$work/out" 2> "$work/err" ||
        fail "$type: no file"
    precision=
    case "$*" in *--bf16*) precision=--bf16 ;; esac
    run file --model_name_or_path "$work/qat.gguf" $precision
    run plain --model_name_or_path "$work/$weights" $precision
    equal_loss qat file || fail "$type $* $split: loss $(loss qat), of the file $(loss file)"
    equal_loss plain file && fail "$type $* $split: rounding changes nothing"
}
# check TYPE ARGUMENT...: a run with the type
check()
{
    type=$1
    shift
    run qat --do_train --max_steps 4 --gradient_accumulation_steps 2 --qat "$type" "$@"
    compare_file "$type" qat "$@"
}
# check_adapter TYPE MODEL ARGUMENT...: an adapter, which is merged in fp32 before the file is written
check_adapter()
{
    type=$1 model=$2
    shift 2
    run qat --do_train --max_steps 4 --gradient_accumulation_steps 2 --qat "$type" --model_name_or_path "$work/$model" \
        "$@"
    rm -rf "$work/merged"
    "$bin/txgen" --adapter "$work/qat" --save_merged "$work/merged" > "$work/out" 2> "$work/err" ||
        fail "$type $model $*: not merged"
    compare_file "$type" merged "$@"
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

# Adapters. Both programs compute the same bits of W + B A.
for model in llama gpt2 experts; do
    run "base_$model" --do_train --max_steps 2 --config_name "$work/$model.json"
done
all="--lora_r 4 --lora_target_modules all-linear"
# shellcheck disable=SC2086
{
    check_adapter q4_k_m base_llama $all
    check_adapter q2_k base_llama --lora_r 3 --lora_alpha 5 --lora_target_modules q_proj,v_proj,down_proj --bf16
    check_adapter q8_0 base_gpt2 $all
    if [ "$device" = cpu ]; then
        check_adapter q3_k_m base_llama $all --lora_modules_to_save norm,lm_head --gradient_checkpointing
        "$bin/txgen" --model "$work/base_gpt2" --dtype bfloat16 --save_merged "$work/narrow" > "$work/out" 2>&1 ||
            fail "a base in bf16"
        check_adapter q4_0 narrow --lora_r 2
        check_adapter mxfp4_moe base_experts --lora_r 2 \
            --lora_target_parameters mlp.experts.gate_up_proj,mlp.experts.down_proj
    fi
}
# Before weights are rounded, gradients are those of an adapter beside its weight.
models=llama
[ "$device" = cpu ] && models="llama gpt2"
for model in $models; do
    set -- --do_train --max_steps 6 --model_name_or_path "$work/base_$model" --lora_r 3 --lora_target_modules all-linear
    run beside "$@"
    run merged_only "$@" --qat q2_k --fake_quant_after_n_steps 99
    numbers loss "$work/beside/log.jsonl" > "$work/one"
    numbers loss "$work/merged_only/log.jsonl" > "$work/more"
    [ "$(wc -l < "$work/one")" -ge 6 ] || fail "$model: no losses"
    near "$work/one" "$work/more" 1e-5 || fail "$model: losses of merged weights: $(tr '\n' ' ' < "$work/more")"
done
# Adapters of other ranks and scales in one parameter, made of two
run first --do_train --max_steps 1 --model_name_or_path "$work/base_llama" --lora_r 2 --lora_target_modules q_proj,v_proj
run second --do_train --max_steps 1 --model_name_or_path "$work/base_llama" --lora_r 3 --lora_target_modules q_proj,k_proj
"$bin/txconvert" "$work/first" "$work/second" --to "$work/both" --combination_type cat > "$work/out" 2> "$work/err" ||
    fail "two adapters"
check_adapter q4_k_m both
# shellcheck disable=SC2086
run memory --do_train --max_steps 2 --model_name_or_path "$work/base_llama" $all --qat q4_0 --profile
as_planned "the merged copies"

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
# ranks ROWS SPLIT ARGUMENT...: two ranks with so many rows each have the loss of the run `whole` with these arguments,
# within $limit: other sums round some weights to another value
limit=0.002
ranks()
{
    rows=$1 split=$2 ranked="$launcher -n 2"
    shift 2
    run ranks "$@" --per_device_train_batch_size "$rows"
    loss whole > "$work/one" && loss ranks > "$work/more"
    near "$work/one" "$work/more" $limit || fail "$split: loss $(loss ranks), not $(loss whole)"
    ranked='' split=''
}
if [ -n "$launcher" ]; then
    ranks 2 "--zero_stage 0" "$@" --max_steps 4
    ranks 2 "--zero_stage 3" "$@" --max_steps 4
    ranks 2 "--pipeline_parallel 2 --gradient_accumulation_steps 2" "$@" --max_steps 4
    set -- --do_train --model_name_or_path "$work/base_llama" --lora_r 4 --qat q4_0 --max_steps 4
    run whole "$@"
    ranks 2 "--zero_stage 3" "$@"

    # Ranks that divide matrices, by rows or by whole blocks, or experts
    limit=2e-4 slow="--learning_rate 1e-5"
    sed 's/"hidden_size": 256, "intermediate_size": 288/"hidden_size": 512, "intermediate_size": 512/' \
        "$work/llama.json" > "$work/wide.json"
    run base_wide --do_train --max_steps 2 --config_name "$work/wide.json"
    for kind in "tensor_parallel 2" "tensor_parallel 2 --sequence_parallel" "expert_parallel 2"; do
        base=base_wide targets='' rows=4
        [ "$kind" = "expert_parallel 2" ] && base=base_experts rows=2 \
            targets="--lora_target_parameters mlp.experts.gate_up_proj,mlp.experts.down_proj"
        # shellcheck disable=SC2086
        set -- --do_train --model_name_or_path "$work/$base" --qat q3_k_m --max_steps 4 $slow
        run whole "$@"
        ranks $rows "--$kind" "$@"
        ranked="$launcher -n 2" split="--$kind"
        check q3_k_m --model_name_or_path "$work/$base"
        # shellcheck disable=SC2086
        check_adapter q4_k_m $base --lora_r 4 --lora_target_modules all-linear $targets
        ranked='' split=''
    done
    if [ "$device" = cpu ]; then
        ranked="$launcher -n 2" split="--tensor_parallel 2"
        check q8_0 --config_name "$work/gpt2.json"
        check q4_k_s --config_name "$work/wide.json" --config_overrides tie_word_embeddings=true --bf16
        # shellcheck disable=SC2086
        check_adapter q8_0 base_gpt2 $all
        # Another split resumes from a checkpoint.
        # shellcheck disable=SC2086
        set -- --do_train --model_name_or_path "$work/base_wide" --qat q3_k_m --max_steps 4 $slow
        run part "$@" --save_strategy steps --save_steps 2
        rm -rf "$work/part/checkpoint-4"
        ranked='' split=''
        run whole "$@"
        "$bin/txtrain" --resume_from_checkpoint --output_dir "$work/part" --tensor_parallel 1 \
            --do_eval > "$work/out" 2> "$work/err" || fail "one rank does not resume from two"
        loss whole > "$work/one" && loss part > "$work/more"
        near "$work/one" "$work/more" $limit || fail "resume: loss $(loss part), not $(loss whole)"
    fi
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
adapter="--model_name_or_path $work/base_llama --lora_r 4"
for option in use_dora load_in_4bit load_in_8bit "lora_dropout 0.1" "init_lora_weights pissa" \
    "trainable_token_indices 5"; do
    # shellcheck disable=SC2086
    refuses 2 "--qat and --${option%% *} exclude each other" $adapter --$option
done
# shellcheck disable=SC2086
refuses 1 "does not support an adapter of an embedding" $adapter --lora_target_modules q_proj,embed_tokens
refuses 2 "use --bf16" --config_name "$work/llama.json" --dtype bfloat16
if [ -n "$launcher" ]; then
    outcome fails "o_proj.weight: 2 ranks cannot divide its 256 inputs into blocks of 256" $launcher -n 2 "$bin/txtrain" \
        --train_file "$work/text" --output_dir "$work/refused" --qat q4_k_m --config_name "$work/llama.json" \
        --tensor_parallel 2
fi

verdict " on $device"
