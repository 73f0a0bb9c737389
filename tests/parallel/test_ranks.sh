#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# N ranks train as one rank that accumulates does, every stage of ZeRO to the bit alike, and every run repeated too.
#   test_ranks.sh BIN LAUNCHER DEVICE     DEVICE mixed: the ranks are cpu and opencl in turns
set -u
bin=$1
launcher=$2
device=$3
. "${0%/*}/../program.sh"
[ "$device" = mixed ] && device=opencl && mixed=yes || mixed=no
need_device
command -v "$launcher" > /dev/null || { echo "skipped: no $launcher"; exit 77; }
# Open MPI refuses root and more ranks than cores unless told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMP_WAIT_POLICY=passive

i=0
while [ $i -lt 120 ]; do
    echo "Line $i says what line $((i * 7 % 120)) says: $((i * i)) is the square of $i."
    i=$((i + 1))
done > "$work/text"
cat > "$work/config.json" << 'EOF'
{"model_type": "gpt2", "n_layer": 3, "n_head": 2, "n_embd": 32, "n_positions": 32, "vocab_size": 257}
EOF

# ranks N NAME ARGUMENT...: a run of N ranks into $work/NAME, whose weights differ from step to step
ranks()
{
    n=$1
    folder=$work/$2
    shift 2
    rm -rf "$folder"
    set -- --train_file "$work/text" --config_name "$work/config.json" --block_size 32 --threads 1 --seed 3 --max_steps 12 \
        --learning_rate 1e-2 --save_strategy no --logging_strategy no --ddp_overlap no --output_dir "$folder" "$@"
    if [ "$mixed" = yes ] && [ "$n" -gt 1 ]; then
        timeout -s KILL 120 "$launcher" -n $((n / 2)) "$bin/txtrain" "$@" --device cpu : -n $((n - n / 2)) \
            "$bin/txtrain" "$@" --device opencl > "$work/out" 2> "$work/err"
    else
        timeout -s KILL 120 "$launcher" -n "$n" "$bin/txtrain" "$@" --device "$device" > "$work/out" 2> "$work/err"
    fi
}

same()
{
    cmp -s "$work/$1/model.safetensors" "$work/$2/model.safetensors" || fail "$1 and $2 have other weights"
}

# near NAME: its losses are those of one rank, but for rounding
near()
{
    sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$work/one/log.jsonl" > "$work/expected"
    sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$work/$1/log.jsonl" > "$work/got"
    [ "$(wc -l < "$work/got")" -eq 12 ] || fail "$1: not 12 steps in the log"
    paste "$work/expected" "$work/got" | awk -v limit="$limit" \
        '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= limit)) { print "step " NR ": " $1 " and " $2; bad = 1 } } END { exit bad }' \
        > "$work/out" || fail "$1: other losses than one rank"
}

limit=2e-6
[ "$mixed" = yes ] && limit=1e-5

# 12 rows a step, whoever does them.
ranks 1 one --per_device_train_batch_size 3 --gradient_accumulation_steps 4 || fail "one rank"
for n in 2 3 4; do
    [ "$mixed" = yes ] && [ "$n" -eq 3 ] && continue
    for stage in 0 1 2; do
        ranks "$n" "n$n.$stage" --per_device_train_batch_size $((12 / n)) --zero_stage $stage --ddp_check 5 ||
            fail "$n ranks, stage $stage"
        [ "$stage" -eq 0 ] && near "n$n.0"
        same "n$n.0" "n$n.$stage"
    done
    ranks "$n" again --per_device_train_batch_size $((12 / n)) || fail "$n ranks again"
    same "n$n.0" again
done

# Accumulation, sums in the background, small buckets, no shared memory, two groups of two: the same bits in each pair.
ranks 2 plain --per_device_train_batch_size 2 --gradient_accumulation_steps 3 || fail "accumulation"
near plain
ranks 2 thread --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes --ddp_bucket_cap_mb 1 ||
    fail "sums in the background"
same plain thread
ranks 2 stage1 --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes --zero_stage 1 ||
    fail "stage 1 in the background"
same plain stage1
ranks 2 stage2 --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes --zero_stage 2 ||
    fail "stage 2 in the background"
near stage2
export TX_COMM_SHM=0
ranks 2 apart --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_overlap yes || fail "no shared memory"
same plain apart
ranks 2 half --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --ddp_comm bf16 --ddp_check 3 || fail "bf16"
cmp -s "$work/plain/model.safetensors" "$work/half/model.safetensors" && fail "bf16 changes nothing between hosts"
export TX_COMM_SHM=2
ranks 4 pairs --per_device_train_batch_size 3 --zero_stage 1 || fail "two groups of two"
same n4.0 pairs
unset TX_COMM_SHM

# Uneven shares, and a global batch that the micro-batches do not fill.
ranks 2 uneven --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --batch_weights 3,1 || fail "uneven shares"
near uneven
ranks 2 rest --per_device_train_batch_size 5 --global_batch_size 12 || fail "a global batch"
near rest

[ $failures -eq 0 ] && echo "all good"
exit $((failures != 0))
