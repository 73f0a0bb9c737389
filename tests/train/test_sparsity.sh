#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run with pruned weights: every model and checkpoint has the same number of zeros, and memory is as without pruning.
# A resumed run ends with the same bytes, and so do two ranks with every ZeRO stage. Unsupported cases are refused.
#
#   test_sparsity.sh BIN-FOLDER LAUNCHER DEVICE    LAUNCHER "": this build has none
. "${0%/*}/../device.sh"

write_small_text 40
write_small_config 2 32 24 0.1
start=

# run FOLDER ARGUMENT...
run()
{
    folder=$1
    shift
    # shellcheck disable=SC2086
    $start "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --block_size 16 \
        --device "$device" \
        --threads 1 --max_steps 6 --learning_rate 1e-2 --weight_decay 0.1 --output_dir "$work/$folder" "$@" \
        > "$work/out" 2> "$work/err"
}
# count FOLDER: the number of zeros in the folder's matrices; a run of one step that prunes no more counts them
count()
{
    "$bin/txtrain" --model_name_or_path "$1" --train_file "$work/text" --block_size 16 --max_steps 1 --threads 1 \
        --sparsity 1e-9 --output_dir "$work/count" --overwrite_output_dir > "$work/counted" 2>&1
    sed -n 's/^sparse .*: \([0-9]*\) of \([0-9]*\) weights are 0.*/\1 of \2/p' "$work/counted"
}
bytes() { awk '$1 == "total" { print $2 }' "$work/out"; }

run dense --profile || fail "the dense run"
dense=$(bytes)
for way in "--sparsity 0.5" "--mask_structure 2:4 --bf16" "--mask_structure 2:4 --dtype bfloat16" \
    "--sparsity 0.5 --optim muon" "--sparsity 0.5 --optim adafactor" "--sparsity 0.5 --gradient_accumulation_steps 2"; \
    do
    # shellcheck disable=SC2086
    run way --overwrite_output_dir --save_steps 3 --profile $way || fail "$way: the run"
    grep -qF "8 matrices of the blocks: 12288 of 24576 weights are 0, 50.00 %" "$work/out" || fail "$way: not told"
    as_planned "$way"
    [ "$way" != "--sparsity 0.5" ] || [ "$(bytes)" = "$dense" ] || fail "$way: takes other memory than without"
    for folder in way/checkpoint-3 way; do
        [ "$(count "$work/$folder")" = "12288 of 24576" ] || fail "$way: $folder has $(count "$work/$folder") zeros"
    done
done
[ "$(count "$work/dense")" = "0 of 24576" ] || fail "the dense model has $(count "$work/dense") zeros"

run whole --save_steps 3 --mask_structure 2:4 || fail "the unbroken run"
run part --save_steps 3 --resume_from_checkpoint "$work/whole/checkpoint-3" || fail "the resumed run"
same whole part model.safetensors checkpoint-6/optimizer.safetensors
for other in "--mask_structure 1:4" "--sparsity 0.5"; do
    # shellcheck disable=SC2086
    outcome 1 "is from a run with --sparsity 0 --mask_structure 2:4" run refused --resume_from_checkpoint "$work/whole/checkpoint-3" $other
done

if [ -n "$launcher" ]; then
    start="timeout -s KILL 120 $launcher -n 2"
    for optim in adamw_torch muon; do
        for stage in 0 1 2 3; do
            run "$optim-$stage" --sparsity 0.5 --optim $optim --zero_stage $stage ||
                fail "two ranks, $optim, stage $stage"
            same $optim-0 "$optim-$stage"
        done
        [ "$(count "$work/$optim-3")" = "12288 of 24576" ] || fail "two ranks, $optim: $(count "$work/$optim-3") zeros"
    done
    start=
fi

run evaluated --sparsity 0.5 --do_eval --validation_file "$work/text" || fail "an evaluation alone"
grep -q "12288 of 24576" "$work/out" && [ ! -e "$work/evaluated/model.safetensors" ] || fail "an evaluation alone: is not of the pruned weights"
outcome 2 "frozen weights are not trained" run refused --sparsity 0.5 --lora_r 2
outcome 2 "neither unstructured nor N:M" run refused --mask_structure 2x4
outcome 2 "needs a sparsity above 0" run refused --mask_structure unstructured
outcome 1 "has 32 inputs, which is not a multiple of 5" run refused --mask_structure 2:5 --dry_run
outcome 2 "needs an epsilon" run refused --sparsity 0.5 --adam_epsilon 0
verdict " on $device"
