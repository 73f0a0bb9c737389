#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run starts only if the disk has space for all its checkpoints at their peak, and then writes all of them. The test
# mounts its own disks in a namespace.
#
#   test_room.sh BIN-FOLDER
if [ "${2:-}" != inside ]; then
    unshare -rm sh -c 'mount -t tmpfs -o size=64k none /mnt' 2> /dev/null ||
        { echo "skipped: no small disk can be mounted here"; exit 77; }
    exec unshare -rm sh "$0" "$1" inside
fi
bin=$1
. "${0%/*}/../program.sh"

write_small_text
write_small_config 2 96 16
mkdir "$work/disk"

# disk KIB: an empty one of that size
disk()
{
    umount "$work/disk" 2> /dev/null
    mount -t tmpfs -o size="$1"k none "$work/disk" || fail "a disk of $1 KiB"
}

# run STATUS TEXT ARGUMENT...: a checkpoint after every second step
run()
{
    wanted=$1
    text=$2
    shift 2
    outcome "$wanted" "$text" "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" \
        --block_size 16 \
        --threads 1 --per_device_train_batch_size 2 --save_steps 2 --save_total_limit 2 --output_dir "$work/disk/run" \
        "$@"
}

# needed: KIB that the last run asked for, with some for the cache of tokens
needed()
{
    bytes=$(sed -n 's/.*: needs \([0-9]*\) bytes.*/\1/p' "$work/err")
    echo $(((${bytes:-0} + 65535) / 1024))
}

disk 1024
run 1 "not enough disk space" --max_steps 10
three=$(needed)
run 1 "not enough disk space" --max_steps 10 --save_total_limit 1
two=$(needed)
[ "$two" -gt 1024 ] && [ $((2 * three)) -gt $((3 * two - 64)) ] || fail "asks $two KiB for two and $three for three"

# With less it is refused before the first step; with that room everything is written.
disk $((three - 128))
run 1 "not enough disk space" --max_steps 10
[ ! -e "$work/disk/run/log.jsonl" ] || fail "trained without room"
disk "$three"
run 0 "" --max_steps 10
ended "$work/disk/run" 10
grep -q "warning" "$work/err" && fail "no room after all"
[ -d "$work/disk/run/checkpoint-8" ] && [ -d "$work/disk/run/checkpoint-10" ] || fail "not both checkpoints"

# An interrupted run left two checkpoints: only the third, in progress, needs space.
rm "$work/disk/run/model.safetensors"
run 0 "" --max_steps 14 --resume_from_checkpoint
ended "$work/disk/run" 14
[ -d "$work/disk/run/checkpoint-14" ] || fail "the run that went on has no checkpoint"

# One checkpoint and the model need less.
disk "$two"
run 0 "" --max_steps 10 --save_total_limit 1
ended "$work/disk/run" 10
grep -q "was not written" "$work/err" && fail "no room for one checkpoint after the other"

umount "$work/disk"
verdict
