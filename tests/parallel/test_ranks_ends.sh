#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The start and the end of a run of many ranks: all start from the same files, a rank that stops is named in every
# phase, and no rank exits before rank 0 has written everything.
#
#   test_ranks_ends.sh BIN LAUNCHER SHIM
shim=${3:-}
device=cpu
. "${0%/*}/ranks.sh"
limit=3

# two A B [ARGUMENT...]: a run of two ranks in the folders $work/A and $work/B, each with its own files.
# $first and $second precede the program. Sets $outcome to the exit status and the time.
first=
second=
two()
{
    a=$work/$1
    b=$work/$2
    shift 2
    set -- "$bin/txtrain" --train_file text --config_name config.json --block_size 32 --threads 1 --seed 3 \
        --max_steps 12 --learning_rate 1e-2 --save_strategy no --logging_strategy no --ddp_overlap no --output_dir out \
        --comm_timeout $limit --start_timeout $limit "$@"
    began=$(date +%s)
    # shellcheck disable=SC2086
    timeout -s KILL 120 "$launcher" -n 1 -wdir "$a" $first "$@" : -n 1 -wdir "$b" $second "$@" > "$work/out" \
        2> "$work/err"
    status=$?
    took=$(($(date +%s) - began))
}

# folder NAME: with a text and a configuration
folder()
{
    rm -rf "${work:?}/$1"
    mkdir "$work/$1"
    cp "$work/text" "$work/config.json" "$work/$1/"
}

# refused LINE: the last run was, with one line
refused()
{
    [ $status -ne 0 ] || fail "trained together: $1"
    [ $took -le $((limit + 5)) ] || fail "$1: took $took s"
    [ "$(grep "^txtrain: " "$work/err" | grep -cv "given twice")" -eq 1 ] || fail "not one line: $1"
    grep -q "$1" "$work/err" || fail "not told: $1"
}

folder one
two one one || true
[ $status -eq 0 ] || fail "the undisturbed run"
mv "$work/one/out" "$work/whole"

# ---- Files at the start ----------------------------------------------------------------------------------------------

folder other
sed 's/square/root/' "$work/text" > "$work/other/text"
two one other
refused "rank 1 on .* data .*rank 0 .* data"
folder other
sed 's/"n_layer": 3/"n_layer": 2/' "$work/config.json" > "$work/other/config.json"
two one other
refused "rank 1 on .* n_layer 2.* n_layer 3"

# One bit of a weight differs; without a manifest nothing else detects it.
cp -r "$work/whole" "$work/one/model"
folder other
cp -r "$work/whole" "$work/other/model"
size=$(wc -c < "$work/other/model/model.safetensors")
printf '\001' | dd of="$work/other/model/model.safetensors" bs=1 seek=$((size - 4000)) conv=notrunc 2> /dev/null
two_models()
{
    a=$1
    shift
    began=$(date +%s)
    set -- "$bin/txtrain" --train_file text --model_name_or_path model --block_size 32 --threads 1 --max_steps 3 \
        --save_strategy no --output_dir out --comm_timeout $limit
    timeout -s KILL 120 "$launcher" -n 1 -wdir "$work/one" "$@" : -n 1 -wdir "$work/$a" "$@" > "$work/out" \
        2> "$work/err"
    status=$?
    took=$(($(date +%s) - began))
}
two_models other
refused "rank 1 on .* weights"
two_models one
[ $status -eq 0 ] || fail "the same model on both"
rm -rf "$work/one/out" "$work/other"

# Checkpoints: the newest is another one there, or is damaged there.
two one one --save_strategy steps --save_steps 4 || true
[ $status -eq 0 ] || fail "the run with checkpoints"
rm -rf "$work/one/out/checkpoint-12" "$work/one/out/model.safetensors"
cp -r "$work/one" "$work/other"
rm -rf "$work/other/out/checkpoint-8"
two one other --save_strategy steps --save_steps 4 --resume_from_checkpoint
refused "rank 1 on .* checkpoint-4.* checkpoint-8"
rm -rf "$work/other"
cp -r "$work/one" "$work/other"
printf x >> "$work/other/out/checkpoint-8/optimizer.safetensors"
two one other --save_strategy steps --save_steps 4 --resume_from_checkpoint
[ $status -ne 0 ] || fail "went on from two checkpoints"
grep -q "rank 1 on .* checkpoint-4.* checkpoint-8" "$work/err" || fail "the difference is not told"
grep -q "^txtrain: warning: rank 1 on .*optimizer.safetensors" "$work/err" || fail "the damage is not told"
if [ -n "$shim" ]; then
    second="env LD_PRELOAD=$shim TX_SHIM=eio:checkpoint-8/manifest"
    two one one --save_strategy steps --save_steps 4 --resume_from_checkpoint
    second=
    [ $status -ne 0 ] || fail "went on though one rank cannot read the checkpoint"
    grep -q "rank 1 on .*/checkpoint-8/.*: Input/output error" "$work/err" ||
        fail "the rank that cannot read the checkpoint is not told"
fi
two one one --save_strategy steps --save_steps 4 --resume_from_checkpoint
[ $status -eq 0 ] || fail "both from the same checkpoint"
cmp -s "$work/whole/model.safetensors" "$work/one/out/model.safetensors" || fail "other weights after the resumption"
rm -rf "$work/one/out"

[ -n "$shim" ] || { echo "skipped the rest: nothing can be preloaded here"; [ $failures -eq 0 ]; exit; }

# ---- A rank that stops is named, in every phase ----------------------------------------------------------------------

# stops WHERE RANK ARGUMENT...: this rank stops there, and the run ends within the limit and a little
stops()
{
    where=$1
    victim=$2
    shift 2
    rm -rf "$work/one/out"
    first=
    second="env LD_PRELOAD=$shim TX_SHIM=stop:$where"
    [ "$victim" -eq 1 ] || { first=$second; second=; }
    two one one "$@"
    first=
    second=
    [ $status -ne 0 ] || fail "rank $victim stopped at $where: status 0"
    [ $took -le $((limit + 5)) ] || fail "rank $victim stopped at $where: took $took s"
}
for victim in 0 1; do
    stops init $victim
    grep -q "all ranks to start" "$work/err" || fail "stopped before MPI: not told"
    for where in open:text open:config.json; do
        stops $where $victim
        grep -q "^txtrain: rank $victim on .* last step unknown, phase reading" "$work/err" ||
            fail "stopped at $where: rank $victim is not named"
    done
done
stops open:checkpoint-4.tmp 0 --save_strategy steps --save_steps 4
grep -q "^txtrain: rank 0 on .* last step 4, phase writing" "$work/err" ||
    fail "stopped while it saves: not named"
stops open:out/model.safetensors 0
grep -q "^txtrain: rank 0 on .* last step 12, phase writing" "$work/err" ||
    fail "stopped while it writes the model: not named"

# Behind the end of the run: everything is written by then.
rm -rf "$work/one/out"
second="env LD_PRELOAD=$shim TX_SHIM=stop:finalize"
two one one
second=
[ $took -le $((limit + 5)) ] || fail "stopped at MPI's end: took $took s"
cmp -s "$work/whole/model.safetensors" "$work/one/out/model.safetensors" ||
    fail "stopped at MPI's end: no model, or another"

# ---- A slow disk is waited for ---------------------------------------------------------------------------------------

rm -rf "$work/one/out"
first="env LD_PRELOAD=$shim TX_SHIM=slow:0.7 TX_SHIM_FOLDER=$work/one/out"
two one one
first=
[ $status -eq 0 ] || fail "a slow disk: status $status"
[ $took -gt $((2 * limit)) ] || fail "the disk was not slow"
cmp -s "$work/whole/model.safetensors" "$work/one/out/model.safetensors" || fail "a slow disk: no model, or another"
grep -q "^txtrain: rank 0 on .* files" "$work/err" || fail "a slow disk is not told of"

verdict
