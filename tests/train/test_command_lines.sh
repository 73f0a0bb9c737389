#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Whole command lines of txtrain: a file of options that it wrote, the line of the guides, runs that only evaluate or plan.
#
#   test_command_lines.sh BIN-FOLDER
bin=$1
. "${0%/*}/../program.sh"

cat > "$work/config.json" << 'END'
{"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 24, "vocab_size": 257,
 "bos_token_id": 256, "eos_token_id": 256, "embd_pdrop": 0.1, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
END
write_small_text 30
sed 's/cat/dog/' "$work/text" > "$work/other"
export TX_HOME="$work/home"
"$bin/txtrain" --config_name "$work/config.json" --train_file "$work/text" --output_dir "$work/base" --block_size 16 \
    --max_steps 2 --save_strategy no > "$work/out" 2> "$work/err" || fail "the base run"

# A file that TX wrote is read back completely.
"$bin/txtrain" "$work/base/training_args.json" --output_dir "$work/again" --device cpu --dry_run > "$work/out" \
    2> "$work/err" && [ ! -s "$work/err" ] ||
    fail "training_args.json is not read back"

# The command line of the guides; the names are looked up in TX_HOME.
mkdir -p "$work/home/models/gpt2" "$work/home/datasets/wikitext/wikitext-2-raw-v1"
cp "$work"/base/config.json "$work"/base/model.safetensors "$work"/base/tokenizer*.json "$work/home/models/gpt2"
cp "$work/text" "$work/home/datasets/wikitext/wikitext-2-raw-v1/wiki.train.raw"
cp "$work/other" "$work/home/datasets/wikitext/wikitext-2-raw-v1/wiki.valid.raw"
"$bin/txtrain" --model_name_or_path gpt2 --dataset_name wikitext --dataset_config_name wikitext-2-raw-v1 --do_train \
    --output_dir "$work/test-clm" --per_device_train_batch_size 2 --gradient_accumulation_steps 2 \
    --gradient_checkpointing --bf16 --optim adafactor --max_steps 200 > "$work/out" 2> "$work/err" ||
    fail "the line of the guide"
[ -s "$work/test-clm/checkpoint-200/model.safetensors" ] && [ -s "$work/test-clm/train_results.json" ] ||
    fail "the line of the guide left no checkpoint or no results"
# A run that only evaluates needs no training split, and memory is planned without data.
rm "$work/home/datasets/wikitext/wikitext-2-raw-v1/wiki.train.raw"
"$bin/txtrain" --model_name_or_path gpt2 --dataset_name wikitext --dataset_config_name wikitext-2-raw-v1 --do_eval \
    --output_dir "$work/evaluated" > "$work/out" 2> "$work/err" && [ -s "$work/evaluated/eval_results.json" ] ||
    fail "an evaluation of a dataset without a training split"
for what in "--do_train --do_eval" --do_eval "--do_train --eval_strategy epoch"; do
    # shellcheck disable=SC2086
    outcome 0 "memory  fits: " "$bin/txtrain" --config_name "$work/config.json" --output_dir "$work/planned" $what --dry_run
done
"$bin/txtrain" --model_name_or_path nobody/nothing --train_file "$work/text" --output_dir "$work/n" > "$work/out" \
    2> "$work/err" && fail "a model that is nowhere"
grep -q "nobody/nothing" "$work/err" || fail "no command that would fetch the model"

verdict
