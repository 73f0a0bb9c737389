#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every model, by full training, by an adapter, and by an adapter on a base of 4 bits, in fp32 and bf16, on one rank and
# two. The allocated memory is the dry run's. ZeRO stage 2 and a resumed run end with the bytes of stage 0 (weights,
# moments, log, history).
#   test_ranks_models.sh BIN LAUNCHER DEVICE each|all    each: one way for each model, such that each way is there
device=$3
ways=$4
. "${0%/*}/ranks.sh"

write_texts
write_talk

# describe NAME KEYS DATA: the model's folder, $work/NAME, and its data in $data. Widths are multiples of 64, which 4
# bits need.
describe()
{
    mkdir "$work/$1"
    vocabulary=257 positions=32 data="--train_file $work/text --block_size 32"
    case $3 in
    texts)
        vocabulary=342 positions=24
        data="--train_file $work/texts.tsv --task_name sst2 --max_seq_length 20 --pad_to_max_length false"
        ;;
    talk)
        vocabulary=342 positions=64
        data="--train_file $work/talk.jsonl --chat_template chatml --max_seq_length 64 --packing true"
        ;;
    esac
    [ $vocabulary = 257 ] || cp "${0%/*}"/../chat/golden/tokenizer*.json "$work/$1"
    cat > "$work/$1/config.json" << EOF
{"vocab_size": $vocabulary, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
 "num_attention_heads": 4,
 "num_key_value_heads": 2, "max_position_embeddings": $positions, $2}
EOF
}

# run N NAME ARGUMENT...: with two checkpoints
run()
{
    count=$1
    into=$2
    shift 2
    ranks "$count" "$into" --per_device_train_batch_size $((4 / count)) --save_strategy steps --save_steps 6 "$@"
}
# total PLACE: the memory of the last run, planned (PLACE 2) or counted (PLACE 6); only rank 0 prints it
total()
{
    awk -v place="$1" '$1 == "total" && NF >= place { print $place }' "$work/out"
}
# facts NAME: the part of log and history that must be equal. Times and the call's own numbers are removed, and numbers
# are rounded: a restored number has other digits.
facts()
{
    sed 's/, "tokens_per_second": .*//' "$work/$1/log.jsonl"
    awk '/_runtime"|_per_second"|"train_loss"/ { next } $2 + 0 != 0 { $2 = sprintf("%.14g", $2) } 1' \
        "$work/$1/trainer_state.json"
}
# equal NAME NAME
equal()
{
    for path in "$work/$1"/*model.safetensors "$work/$1/checkpoint-12/optimizer.safetensors"; do
        cmp -s "$path" "$work/$2/${path#"$work/$1/"}" || fail "$1 and $2: other ${path##*/}"
    done
    [ "$(losses "$1" | wc -l)" -eq 12 ] || fail "$1: not 12 steps in the log"
    facts "$1" > "$work/expected"
    facts "$2" > "$work/got"
    cmp -s "$work/expected" "$work/got" || fail "$1 and $2: $(diff "$work/expected" "$work/got" | head -n 4)"
}

# check NAME ARGUMENT...: a model one way
check()
{
    kind=$1
    shift
    for size in 1 2; do
        for stage in 0 2; do
            [ $size$stage = 12 ] && continue
            run $size "$kind.$size$stage" "$@" --zero_stage $stage --profile || fail "$kind: $size ranks, stage $stage"
            counted=$(total 6)
            [ -n "$counted" ] && [ "$(total 2)" = "$counted" ] ||
                fail "$kind: $size ranks, stage $stage: $(total 2) planned, $counted counted"
            run $size dry "$@" --zero_stage $stage --dry_run || fail "$kind: $size ranks, stage $stage, a dry run"
            [ "$(total 2)" = "$counted" ] ||
                fail "$kind: $size ranks, stage $stage: a dry run plans $(total 2), not $counted"
        done
        [ $size = 1 ] || equal "$kind.20" "$kind.22"
        mkdir "$work/$kind.on"
        cp -r "$work/$kind.${size}0/checkpoint-6" "$work/$kind.on"
        run $size "$kind.on" "$@" --zero_stage $((size * 2 - 2)) --resume_from_checkpoint ||
            fail "$kind: $size ranks go on"
        equal "$kind.${size}0" "$kind.on"
        rm -r "$work/$kind.on"
    done
    losses "$kind.10" > "$work/expected"
    losses "$kind.20" | paste "$work/expected" - |
        awk '{ d = $1 - $2; if (!(NF == 2 && d < 1e-2 && d > -1e-2)) bad = 1 } END { exit bad }' ||
        fail "$kind: two ranks have other losses"
    rm -r "$work/$kind".*
}

number=0
while read -r name data keys <&3; do
    describe "$name" "$keys" "$data"
    from="--config_name $work/$name $data"
    ranks 1 base --per_device_train_batch_size 4 --max_steps 2 --overwrite_output_dir || fail "$name: a base"
    way=0
    for precision in fp32 bf16; do
        for part in whole adapter packed; do
            way=$((way + 1))
            [ "$ways" = each ] && [ $((number % 6 + 1)) -ne $way ] && continue
            [ $part = whole ] && from="--config_name $work/$name $data" || from="--model_name_or_path $work/base $data"
            set --
            [ $part = whole ] || set -- --lora_r 4 --lora_dropout 0.1 --lora_target_modules all-linear
            [ $part = packed ] && set -- "$@" --load_in_4bit
            [ $precision = bf16 ] && set -- "$@" --bf16
            check "$name.$part.$precision" "$@"
        done
    done
    number=$((number + 1))
done 3<< 'END'
gpt2 blocks "model_type": "gpt2"
bert texts "model_type": "bert"
llama blocks "model_type": "llama"
tied blocks "model_type": "llama", "tie_word_embeddings": true
mistral blocks "model_type": "mistral", "sliding_window": 9
qwen2 blocks "model_type": "qwen2"
qwen3 blocks "model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": true
talk talk "model_type": "llama", "eos_token_id": 2
END

verdict " on $device"
