#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --parallel auto: the chosen split trains as one rank does. It keeps given options, a resumed run keeps it, and it fits
# into a memory that is too small for data parallelism.
#   test_ranks_auto.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/split.sh"
sed 's/"n_head": 2/"n_head": 4/' "$work/config.json" > "$work/heads.json"
from="--config_name $work/heads.json --train_file $work/text --block_size 32"

# divided NAME ARGUMENT...: 4 ranks with 12 rows a step; sets $chosen to the chosen split
divided()
{
    name=$1
    shift
    # shellcheck disable=SC2086
    ranks 4 "$name" --parallel auto --per_device_train_batch_size 3 $saves "$@" || fail "$name"
    chosen=$(sed -n 's/^split   \(data [^,]*\), ZeRO.*/\1/p' "$work/out")
    [ -n "$chosen" ] || fail "$name: nothing is said of the choice"
}

# shellcheck disable=SC2086
ranks 1 one --per_device_train_batch_size 12 $saves || fail "one rank"
divided any
grep -q "^split .*: predicted [0-9.]* ms a step (compute [0-9.]*.*GiB are planned by 4 ranks" "$work/out" || fail "it is not said why"
alike one any

# A resumed run has the same split, on the same number of ranks, and the same bits.
go_on any on
divided on --resume_from_checkpoint
grep -q "^split .*, as in the run of the checkpoint" "$work/out" || fail "another choice when it goes on"
same any on
go_on any on
ranks 2 on --parallel auto --per_device_train_batch_size 3 --resume_from_checkpoint || fail "4 ranks to 2"
alike one on

# Given options are kept.
sed -i 's/"n_layer": 3/"n_layer": 4/' "$work/heads.json"
# shellcheck disable=SC2086
ranks 1 one --per_device_train_batch_size 12 $saves --overwrite_output_dir || fail "one rank, 4 layers"
divided given --tensor_parallel 2 --pipeline_parallel 2 --zero_stage 1
case $chosen in "data 1 x tensor 2 x pipeline 2"*) ;; *) fail "chosen: $chosen" ;; esac # whatever the schedule
alike one given
for way in 2:tensor 4:pipeline; do
    divided half "--${way#*:}_parallel" "${way%:*}" --overwrite_output_dir
    case $chosen in *"${way#*:} ${way%:*}"*) ;; *) fail "$way: $chosen" ;; esac
done

for why in "--parallel and --context_parallel exclude each other:--context_parallel 2" "no split:--pipeline_parallel 4 --config_overrides n_layer=3"; do
    # shellcheck disable=SC2086
    ranks 4 refused --parallel auto --per_device_train_batch_size 3 ${why#*:} && fail "not refused: $why"
    grep -q -e "${why%%:*}" "$work/err" || fail "another reason than: $why"
done

# A device of 1 GiB that ranks share: 38 million parameters on each of 4 do not fit.
if "$bin/txtrain" --list_devices | grep -q "^opencl"; then
    device=opencl
    export POCL_MEMORY_LIMIT=1
    echo '{"model_type": "gpt2", "n_layer": 12, "n_head": 8, "n_embd": 512, "n_positions": 64, "vocab_size": 257}' \
        > "$work/wide.json"
    from="--config_name $work/wide.json --train_file $work/text --block_size 64 --dry_run"
    ranks 4 data --per_device_train_batch_size 1 && fail "data parallelism fits"
    grep -q "does not fit" "$work/err" || fail "another reason than memory"
    ranks 4 fits --per_device_train_batch_size 1 --parallel auto || fail "no split fits"
fi

ends
