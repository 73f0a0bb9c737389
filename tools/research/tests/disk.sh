#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains GPT-2 124M in a control group of 2 GiB, which is less than its weights, gradients and moments. Without the disk
# it is refused, and with --offload_optimizer nvme it trains. Compares the seconds of a step with those of the same run
# without a limit and disk. Also compares them with the time of the disk for the bytes of a step, by dd without the
# page cache.
# Rounds are interleaved, and figures are medians of all steps except the first two of each run. A run that is killed
# resumes to the same weights. Needs root.
#
#   disk.sh BIN FOLDER [ROUNDS [STEPS]]      FOLDER is on the disk and needs 3 GiB
#
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

# limited COMMAND...: runs it in the control group
limited() { (sh -c "echo \$PPID > $group/cgroup.procs" && "$@"); }

# seconds_of NAME FILE: appends the seconds of all steps except the first two
seconds_of()
{
    sed -n 's/.*"tokens": \([0-9]*\),.*"tokens_per_second": \([-+.0-9e]*\).*/\1 \2/p' "$work/$1/log.jsonl" |
        awk 'NR > 2 { print ($1 - before) / $2 } { before = $1 }' >> "$2"
}

median()
{
    sort -n "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'
}

# moves FLAGS...: prints the seconds of dd for the moments of all parameters
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
    limited train disk --overwrite_output_dir --offload_optimizer nvme --nvme_path "$disk" ||
        { cat "$work/err"; fail "with the disk"; exit 1; }
    seconds_of disk "$work/disk_times"
    moves if=/dev/zero of="$disk/file" oflag=direct conv=fsync >> "$work/write_times"
    moves if="$disk/file" of=/dev/null iflag=direct >> "$work/read_times"
    rm "$disk/file"
    i=$((i + 1))
done
cmp -s "$work/free/model.safetensors" "$work/disk/model.safetensors" || fail "other weights by the disk"
free=$(median "$work/free_times") with=$(median "$work/disk_times")
reads=$(median "$work/read_times") writes=$(median "$work/write_times")
echo "a step takes $free s without the disk and $with s with it; the disk reads all moments in $reads s" \
    "and writes them in $writes s"
echo "$free $with $reads $writes" | awk '{ slow = $3 + $4 > $1 ? $3 + $4 : $1
    printf "%.2f of the speed of perfect overlap, %.2f of that without overlap\n", slow / $2, ($1 + $3 + $4) / $2 }'

(limited train killed --offload_optimizer nvme --nvme_path "$disk" --save_strategy steps --save_steps 3) &
until grep -q '"step": 5,' "$work/killed/log.jsonl" 2> /dev/null; do sleep 0.1; done
pkill -KILL -f "^$bin/txtrain .*$work/killed" && wait
limited train killed --offload_optimizer nvme --nvme_path "$disk" --save_strategy steps --save_steps 3 \
    --resume_from_checkpoint "$work/killed/checkpoint-3" || { cat "$work/err"; fail "does not resume"; }
cmp -s "$work/free/model.safetensors" "$work/killed/model.safetensors" || fail "other weights after a kill"

verdict
