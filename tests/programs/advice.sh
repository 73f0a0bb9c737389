#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# advice.sh BIN: a dry run of txtrain with txmem's advice plans no more memory than txmem was given. With
# evaluations that write texts it plans exactly what txmem predicts, except for scratch memory of the kernels, which only
# the run knows.
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
    # The scratch of kernels is in the bound, unless this device converts 16-bit operands there.
    # shellcheck disable=SC2086 # words
    total=$("$bin/txtrain" --config_name "$work/config.json" --train_file "$work/text" --output_dir "$work/out" \
        --dry_run --threads 1 $given | awk '/operands are converted/ { converts = 1 }
            $1 == "scratch" { scratch = $2 } $1 == "total" { print $2 - converts * scratch }')
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

printf '%s\n' '{"model_type": "t5", "d_model": 32, "d_kv": 12, "d_ff": 64, "num_layers": 2, "num_heads": 4,' \
    '"vocab_size": 300, "decoder_start_token_id": 0}' > "$work/config.json"
# written CACHES OPTION...: the same memory in both programs, and so many bytes of caches.
written()
{
    caches=$1
    shift
    set -- --predict_with_generate "$@"
    "$bin/txmem" --model "$work" --memory 8GiB --optim adamw --json "$@" > "$work/json"
    given=$(sed 's/.*"advice": "//; s/".*//' "$work/json")
    wanted=$(grep -o '"fp32", "gradient_checkpointing": "none", "optim": "adamw", "batch": 8,[^}]*' "$work/json" |
        sed 's/.*"caches": \([0-9]*\),.*"total": \([0-9]*\),.*/\1 \2/')
    echo "$given: caches and total $wanted"
    # shellcheck disable=SC2086 # words
    got=$("$bin/txtrain" --model_name_or_path "$work" --output_dir "$work/out" --dry_run --threads 1 $given |
        awk '$1 ~ /^(caches|total|scratch)$/ { bytes[$1] = $2 }
            END { print bytes["caches"], bytes["total"] - bytes["scratch"] }')
    [ "$got" = "$wanted" ] || { echo "FAILED: $given: txtrain plans $got" && status=1; }
    [ "${wanted%% *}" = "$caches" ] || { echo "FAILED: $given: not $caches bytes of caches" && status=1; }
}
# By hand: rows x beams x tokens (a multiple of 32) x 48 numbers of 4 bytes, of 4 caches in each of 2 layers, and the
# marks of finite weights.
written $((8 * 1152 * 48 * 4 * 8 + 512))
written $((4 * 8 * 1152 * 48 * 4 * 8 + 512)) --generation_num_beams 4
written $((3 * 96 * 48 * 4 * 8 + 512)) --block_size 64 --generation_max_length 20 --per_device_eval_batch_size 3
printf '{"num_beams": 2}' > "$work/generation_config.json"
written $((2 * 8 * 192 * 48 * 4 * 8 + 512)) --block_size 64
exit $status
