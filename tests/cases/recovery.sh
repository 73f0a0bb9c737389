#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Damaged checkpoints, killed processes, folders that vanish, crashes of drivers, adapters that cannot be combined,
# figures near the end of double: BIN-FOLDER TEST-DATA.
# shellcheck source=tests/cases/cases.sh
. "${0%/*}/cases.sh"
cd "$work" || exit 1
tiny="--block_size 32 --config_overrides n_layer=1,n_embd=32,n_head=2 --threads 1"
write_small_text 400

# train FOLDER OPTION...: a run of a tiny model
train()
{
    folder=$1
    shift
    # shellcheck disable=SC2086 # several words
    "$bin/txtrain" --train_file "$work/text" $tiny --output_dir "$folder" "$@"
}

# damage KIND FILE
damage()
{
    case $1 in
    cut) truncate -s 100 "$2" ;;
    missing) rm "$2" ;;
    zero) s=$(wc -c < "$2") && head -c "$s" /dev/zero > "$2" ;;
    bit) # the lowest bit of the byte in the middle
        s=$(wc -c < "$2")
        old=$(dd if="$2" bs=1 skip=$((s / 2)) count=1 2> /dev/null | od -An -tu1)
        printf '%b' "\\0$(printf %o $((old ^ 1)))" | dd of="$2" bs=1 seek=$((s / 2)) conv=notrunc 2> /dev/null
        ;;
    esac
}

# ---- A resume takes the newest intact checkpoint, whichever file of a newer one is damaged.
if [ -d "$data/cases/resume_damaged_training_args" ]; then
    case_name=resume_damaged_training_args
    outcome 0 "" train "$work/o" --max_steps 8 --save_steps 4
    cp -R o wanted && rm -r wanted/checkpoint-8
    outcome 0 "" "$bin/txtrain" --output_dir wanted --resume --max_steps 9
    for file in o/checkpoint-8/*; do
        for kind in cut missing zero bit; do
            [ "${file##*/}" = training_args.json ] || [ $kind = bit ] || continue # elsewhere one kind is enough
            rm -rf r && cp -R o r
            damage $kind "r/checkpoint-8/${file##*/}"
            outcome 0 "trying an older checkpoint" "$bin/txtrain" --output_dir r --resume --max_steps 9
            same r wanted
        done
    done
    rm -rf r && cp -R o r && damage cut r/checkpoint-8/training_args.json
    outcome 1 "this checkpoint is damaged; resume from checkpoint-4" \
        "$bin/txtrain" --output_dir r --resume_from_checkpoint r/checkpoint-8 --max_steps 9
    damage zero r/checkpoint-4/training_args.json
    outcome 1 "none of 2 checkpoints is intact" "$bin/txtrain" --output_dir r --resume --max_steps 9
    if [ -x "$bin/txlaunch" ] && command -v mpiexec > /dev/null; then
        outcome 1 "failed with status 1; no step was reported: resume_from_checkpoint: r: none of 2 checkpoints" \
            "$bin/txlaunch" -n 1 -- "$bin/txtrain" --output_dir r --resume --max_steps 9
    fi
fi

# ---- Temporary files: those of killed processes are removed, those of living ones and of other programs are not.
case_name=temporaries
mkdir -p t/out && echo 1 > t/out/.lock
for file in t/out/model.safetensors t/out/trainer_state.json t/m.gguf; do
    : > "$file.99999-0.tmp"
done
: > t/m.gguf.notes.tmp
: > t/other.gguf.99999-0.tmp
outcome 0 "" train "$work/t/out" --max_steps 1
exec 9> t/m.gguf.88888-0.tmp
flock 9
outcome 0 "" "$bin/txconvert" t/out --to t/m.gguf
[ "$(cd t && echo out/*.tmp ./*.tmp)" = "out/*.tmp ./m.gguf.88888-0.tmp ./m.gguf.notes.tmp ./other.gguf.99999-0.tmp" ] ||
    fail "temporary files: $(cd t && echo out/*.tmp ./*.tmp)"
exec 9>&-

# ---- A folder that vanishes is made again, locked, with a log.
train "$work/v" --max_steps 4000 --save_steps 1000 --logging_steps 10 > out 2> err &
await has_logged "$work/v" 1
rm -rf v
wait $! || fail "a folder that vanishes: status $?"
says "the output folder was removed during the run"
{ [ -s v/checkpoint-4000/manifest.json ] && [ -e v/.lock ] && has_logged "$work/v" 1; } || fail "not made again"

# ---- A path that leaves no room for the names of checkpoints.
long=$(printf '%0200d' 0)
long=$long/$long/$long/$long/$long/$long/$long/$long/$long/$long
outcome 1 "the path of the output folder has" train "$long/$long" --max_steps 1
! grep -q "^step" out || fail "a step was done"

# ---- Crashes end with a line.
case_name=crash
# shellcheck disable=SC2086 # several words
"$bin/txtrain" --train_file text $tiny --output_dir c --max_steps 50000 --logging_steps 10 --save_strategy no \
    > out 2> err &
await has_logged c 1
kill -SEGV $!
wait $! 2> /dev/null && fail "a crash: status 0"
says "txtrain: crashed with SIGSEGV"

# ---- A driver that aborts when its devices are listed.
if "$bin/txtrain" --list_devices | grep -q '^opencl.*Portable Computing Language, driver 3\.1' &&
    unshare -m mount -t tmpfs tmpfs /sys 2> /dev/null; then
    case_name=opencl_enumeration_aborts
    # without_sys COMMAND...
    without_sys() { unshare -m sh -c 'mount -t tmpfs tmpfs /sys && exec "$@"' sh "$@"; }
    outcome 0 "an OpenCL driver fails when its devices are listed" without_sys "$bin/txtopo"
    grep -q "there is no /sys here" out && [ ! -s err ] || fail "txtopo does not name the missing /sys"
    outcome 0 "an OpenCL driver fails when its devices are listed" without_sys "$bin/txtrain" --list_devices
    grep -q '^cpu' out || fail "the cpu is not listed"
    outcome 0 "device  cpu" without_sys "$bin/txtrain" --train_file text --block_size 32 --max_steps 1 --device auto \
        --config_overrides n_layer=1,n_embd=32,n_head=2 --output_dir a
    outcome 1 "(its process ended with signal 6" without_sys "$bin/txtrain" --train_file text --device opencl \
        --output_dir b
fi

# ---- Adapters. The adapters of the two bases share no module.
case_name=combine_adapters_of_other_bases
llama=$data/models/stories260K
# adapt NAME MODEL RANK TARGETS
adapt()
{
    "$bin/txtrain" --model_name_or_path "$2" --train_file text --block_size 32 --max_steps 1 --threads 1 \
        --lora_r "$3" --lora_target_modules "$4" --save_strategy no --output_dir "$1" > out 2> err ||
        fail "no adapter $1"
}
adapt l1 "$llama" 4 q_proj,v_proj
adapt l2 "$llama" 40 q_proj,v_proj
adapt l3 "$llama" 4 o_proj
adapt g1 "$data/models/tiny_gpt2_bytes" 4 c_attn
rm -rf "$work/out" && : > "$work/out" # that of adapt
outcome 1 "only adapters of one base model can be combined" "$bin/txconvert" l1 g1 --combination_type cat --to mix
[ ! -e mix ] || fail "a folder of adapters that cannot be combined"
outcome 0 "" "$bin/txconvert" l1 l3 --combination_type cat --to mix # other modules of one base
# Other names of the base: those whose last parts are the same may be copies of it.
cp -R l2 l4 && sed -i 's|"base_model_name_or_path": *"[^"]*"|"base_model_name_or_path": "hub/stories260K"|' \
    l4/adapter_config.json
outcome 0 "" "$bin/txconvert" l1 l4 --combination_type cat --to mix4
sed -i 's|hub/stories260K|hub/other|' l4/adapter_config.json
outcome 1 "adapts the model" "$bin/txconvert" l1 l4 --combination_type cat --to mix5

# v_proj of this model has 32 outputs.
case_name=svd_rank_names_pissa
outcome 1 "svd_rank 64: at most 32 for" "$bin/txconvert" l1 l2 --combination_type svd --svd_rank 64 --to svd
outcome 0 "" "$bin/txconvert" l1 l2 --combination_type svd --to svd2 # the greatest rank, or that of the module
outcome 0 "" "$bin/txgen" --model "$llama" --adapter svd2 --prompt Once -n 2 --threads 1
for weights in 1e38,1e38 nan,1 1,-inf; do
    outcome 2 "is not a number from -1e+06 to 1e+06" \
        "$bin/txconvert" l1 l2 --combination_type linear --weights $weights --to w
done
outcome 2 "give 2 numbers with commas" "$bin/txconvert" l1 l2 --combination_type linear --weights 1 --to w

# ---- Figures near the end of double: the page gets none that its differences and ratios cannot hold.
mkdir -p ends
for value in 1e308 -1e308 5e-324 1.5; do
    step=$((${step:-0} + 1))
    echo "{\"step\": $step, \"loss\": $value, \"learning_rate\": $value, \"tokens_per_second\": $value}"
done > ends/log.jsonl
outcome 0 "" "$bin/txplot" ends -o ends.html
grep -q '"value": *\["Infinity", *"-Infinity", *0\(\.0\)\?, *1\.5\]' ends.html || fail "ends of double in a plot"

# ---- Older cases.
if [ -d "$data/cases/adapter-other-base" ]; then
    open_case adapter-other-base
    outcome 1 "" "$bin/txgen" --model "$data/models/tiny_gpt2_bytes" --adapter adapter --prompt x -n 2 --threads 1
fi
# The last logits of PeftModel.from_pretrained(base, adapter) for these ids, with peft and transformers 5.23.
if [ -d "$data/cases/pissa-adapter" ]; then
    open_case pissa-adapter
    printf '%s\n' -2.01116 0.4043 -0.86684 0.49795 > "$work/adapter"
    printf '%s\n' -1.24988 -1.23199 -0.06856 -0.37263 > "$work/adapter-olora"
    for adapter in adapter adapter-olora; do
        outcome 0 "" "$bin/txgen" --model base --adapter $adapter --ids "5 17 300 44 9 120" --logits l --threads 1
        tail -c 2400 l | od -An -v -tf4 -w4 | head -n 4 > got
        near got "$work/$adapter" 1e-4 || fail "$adapter: other logits"
    done
fi
cd "$work" || exit 1
if mknod null c 1 3 2> /dev/null; then
    case_name=device-replaced
    outcome 0 "" "$bin/txplot" ends -o null
    outcome 1 "null: a device, not a regular file" \
        "$bin/txgen" --model "$llama" --ids "1 2" -n 2 --threads 1 --logits null
    [ -c null ] || fail "a device was replaced"
fi
case_name=non-utf8-path
name=$(printf 'ep_\377')
train "$work/$name" --max_steps 4 --save_steps 2 > out 2> err
status=$?
if [ $status = 0 ]; then
    [ -s "$work/$name/checkpoint-4/manifest.json" ] || fail "no checkpoint in a folder whose name is not UTF-8"
else
    ! grep -q "^step" out || fail "refused after a step"
fi
verdict
