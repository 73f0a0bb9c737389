#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# advice.sh BIN: a dry run of txtrain with txmem's advice plans no more memory than txmem was given.
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
printf '%s\n' '{"model_type": "gpt2", "n_layer": 6, "n_embd": 256, "n_head": 4,' \
    '"n_positions": 512, "vocab_size": 257}' \
    > "$work/config.json"
seq 9999 > "$work/text"

# advice MEMORY PATTERN OPTION...: the advice for MEMORY bytes and these options of txmem must match
advice()
{
    memory=$1
    wanted=$2
    shift 2
    given=$("$bin/txmem" --model "$work/config.json" --memory "$memory" "$@" | sed -n '$s/^fits with: //p')
    echo "$memory: $given"
    # shellcheck disable=SC2254 # a pattern
    case $given in
    $wanted) ;;
    *) echo "FAILED: $memory: \"$given\" instead of $wanted" && status=1 ;;
    esac
    # shellcheck disable=SC2086 # words
    total=$("$bin/txtrain" --config_name "$work/config.json" --train_file "$work/text" --output_dir "$work/out" \
        --dry_run --threads 1 $given | awk '$1 == "total" { print $2 }')
    [ "${total:-$memory}" -lt "$memory" ] || { echo "FAILED: $memory: $given plans $total bytes" && status=1; }
}

advice 1000000000 "--per_device_train_batch_size 8"
advice 400000000 "--bf16 --per_device_train_batch_size 8"
advice 200000000 "--bf16 --gradient_checkpointing --per_device_train_batch_size 8"
advice 60000000 "--bf16 --dtype bfloat16 --gradient_checkpointing --per_device_train_batch_size [12]"
advice 80000000 "--bf16 --per_device_train_batch_size 8 --block_size 128 --lora_r 4" \
    --block_size 128 --lora_r 4
[ "$("$bin/txmem" --model "$work/config.json" --memory 9000000 | tail -n 1 | cut -d: -f1)" = "nothing fits" ] ||
    { echo "FAILED: something fits in 9 MB" && status=1; }
exit $status
