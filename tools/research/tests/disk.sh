#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# GPT-2 124M in a control group of 2 GiB, which its weights, gradients and moments do not fit: without the disk it is
# refused, with --offload_optimizer nvme it trains. Seconds a step beside those of the same run without limit and disk, and
# beside what the disk takes for the bytes that a step moves, by dd and without the page cache. Interleaved rounds; medians
# of all steps but the first two of each run. Killed in the middle, the run goes on to the same weights. Needs root.
#   disk.sh BIN FOLDER [ROUNDS [STEPS]]      FOLDER on the disk; 3 GiB are taken there
# shellcheck disable=SC2034,SC2154
bin=$1
disk=$2
rounds=${3:-3}
steps=${4:-7}
. "${0%/*}/../../../tests/program.sh"
one=$(sed -n 's/^[0-9]*:memory:/\/sys\/fs\/cgroup\/memory/p' /proc/self/cgroup)
two=$(sed -n 's/^0::/\/sys\/fs\/cgroup/p' /proc/self/cgroup)
group=${one:-$two}/tx$$
mkdir "$group" 2> /dev/null || { echo "skipped: no control group can be made"; exit 77; }
trap 'rmdir "$group"; rm -rf "$work" "$disk/tx$$"' EXIT
trap 'exit 1' INT TERM
mkdir "$disk/tx$$" || exit 1
disk=$disk/tx$$
echo 2147483648 > "$group/memory.limit_in_bytes" 2> /dev/null || echo 2147483648 > "$group/memory.max" || exit 1
perl -e 'print pack("v*", map { $_ * 7919 % 50257 } 1 .. 400000)' > "$work/tokens.bin"

# train NAME ARGUMENT...
train()
{
    name=$1
    shift
    "$bin/txtrain" --train_file "$work/tokens.bin" --config_name gpt2 --block_size 256 --per_device_train_batch_size 1 \
        --gradient_accumulation_steps 4 --seed 3 --max_steps "$steps" --save_strategy no --logging_strategy no \
        --output_dir "$work/$name" "$@" > "$work/out" 2> "$work/err"
}

# limited COMMAND...: in the group
limited() { (sh -c "echo \$PPID > $group/cgroup.procs" && "$@"); }

# seconds_of NAME FILE: seconds of the steps but the first two
seconds_of()
{
    sed -n 's/.*"tokens": \([0-9]*\),.*"tokens_per_second": \([-+.0-9e]*\).*/\1 \2/p' "$work/$1/log.jsonl" |
        awk 'NR > 2 { print ($1 - before) / $2 } { before = $1 }' >> "$2"
}

median()
{
    sort -n "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'
}

# moves FLAGS...: seconds that dd takes for the moments of all parameters
moves()
{
    begin=$(date +%s%N)
    dd bs=8M count=119 status=none "$@" || exit 1
    echo "($(date +%s%N) - $begin) / 1000000000" | bc -l
}

limited train refused && fail "trains in 2 GiB without the disk"
cat "$work/err"
i=0
while [ $i -lt "$rounds" ]; do
    train free --overwrite_output_dir || { fail "without a limit"; exit 1; }
    seconds_of free "$work/free_times"
    limited train disk --overwrite_output_dir --offload_optimizer nvme --nvme_path "$disk" || { cat "$work/err"; fail "with the disk"; exit 1; }
    seconds_of disk "$work/disk_times"
    moves if=/dev/zero of="$disk/file" oflag=direct conv=fsync >> "$work/write_times"
    moves if="$disk/file" of=/dev/null iflag=direct >> "$work/read_times"
    rm "$disk/file"
    i=$((i + 1))
done
cmp -s "$work/free/model.safetensors" "$work/disk/model.safetensors" || fail "other weights by the disk"
free=$(median "$work/free_times") with=$(median "$work/disk_times") reads=$(median "$work/read_times") writes=$(median "$work/write_times")
echo "a step of $free s without the disk, $with s with it, which takes $reads s to read all moments and $writes s to write them"
echo "$free $with $reads $writes" | awk '{ slow = $3 + $4 > $1 ? $3 + $4 : $1
    printf "%.2f of what the slower of both allows, %.2f of one after the other\n", slow / $2, ($1 + $3 + $4) / $2 }'

(limited train killed --offload_optimizer nvme --nvme_path "$disk" --save_strategy steps --save_steps 3) &
until grep -q '"step": 5,' "$work/killed/log.jsonl" 2> /dev/null; do sleep 0.1; done
pkill -KILL -f "^$bin/txtrain .*$work/killed" && wait
limited train killed --offload_optimizer nvme --nvme_path "$disk" --save_strategy steps --save_steps 3 \
    --resume_from_checkpoint "$work/killed/checkpoint-3" || { cat "$work/err"; fail "does not go on"; }
cmp -s "$work/free/model.safetensors" "$work/killed/model.safetensors" || fail "other weights after a kill"

verdict
