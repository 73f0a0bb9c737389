#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Distillation from a larger model. Memory is as planned, and no part of the teacher is saved. A resumed run ends with
# the same bytes, and so do two ranks with every ZeRO stage. Also classifiers, and unsuitable teachers, which are
# refused.
#
#   test_distillation.sh BIN-FOLDER LAUNCHER DEVICE    LAUNCHER "": this build has none
. "${0%/*}/../device.sh"

write_small_text 40

# run FOLDER ARGUMENT...: a small model from the large one
run()
{
    folder=$1
    shift
    # shellcheck disable=SC2086
    $start "$bin/txtrain" --train_file "$work/text" --model_name_or_path "$work/small" --teacher_model_name_or_path \
        "$work/large" --block_size 16 --device "$device" --threads 1 --max_steps 6 --learning_rate 1e-2 \
        --save_total_limit 0 --output_dir "$work/$folder" "$@" > "$work/out" 2> "$work/err"
}
# make FOLDER LAYERS WIDTH: a model of new weights
make()
{
    write_small_config "$2" "$3" 24 0.1
    "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --output_dir "$work/$1" --block_size 16 \
        --max_steps 1 --threads 1 > "$work/out" 2> "$work/err" || fail "making $1"
}
start=
make small 2 24
make large 3 32

for way in "" "--bf16 --gradient_checkpointing" "--dtype bfloat16"; do
    # shellcheck disable=SC2086
    run "way" --overwrite_output_dir --profile $way || fail "$way: the run"
    grep -qE "^teacher .*large: [0-9]+ parameters, temperature 2, 0.5 of the loss" "$work/out" || fail "$way: not told"
    as_planned "$way"
    grep -aq teacher "$work/way/model.safetensors" && fail "$way: the teacher was saved"
done

run whole --save_steps 3 || fail "the unbroken run"
run part --save_steps 3 --resume_from_checkpoint "$work/whole/checkpoint-3" || fail "the resumed run"
same whole part model.safetensors checkpoint-6/optimizer.safetensors
run other --distill_alpha 1 || fail "alpha 1"
cmp -s "$work/whole/model.safetensors" "$work/other/model.safetensors" && fail "the teacher changed nothing"

if [ -n "$launcher" ]; then
    start="timeout -s KILL 120 $launcher -n 2"
    for stage in 0 1 2 3; do
        run "rank-$stage" --zero_stage $stage || fail "two ranks, stage $stage"
        same rank-0 "rank-$stage"
    done
    start=
fi

# Another teacher under the same name is another run.
mv "$work/large" "$work/first"
"$bin/txtrain" --train_file "$work/text" --model_name_or_path "$work/first" --output_dir "$work/large" --block_size 16 \
    --max_steps 1 --threads 1 > "$work/out" 2> "$work/err" || fail "making another teacher"
outcome 1 "teacher_model was" run part --resume_from_checkpoint "$work/whole/checkpoint-3" --overwrite_output_dir false

outcome 2 label_smoothing_factor run refused --label_smoothing_factor 0.1
sed 's/"vocab_size": 257/"vocab_size": 300/' "$work/large/config.json" > "$work/config.json"
"$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" --tokenizer_name "$work/large" --output_dir \
    "$work/wide" --block_size 16 --max_steps 1 --threads 1 > "$work/out" 2> "$work/err" ||
    fail "making another vocabulary"
rm -rf "$work/large"
mv "$work/wide" "$work/large"
outcome 1 "both must have one vocabulary" run refused
verdict " on $device"
