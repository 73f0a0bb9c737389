#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What txtrain does with files that are no files, or change while it trains: pipes, links, devices, data that become
# shorter, odd names.
#
#   test_files.sh BIN-FOLDER
bin=$1
. "${0%/*}/../program.sh"

# expect STATUS TEXT PROGRAM ARGUMENT...: also that it ends at all, and says one line
expect()
{
    wanted=$1
    text=$2
    program=$3
    shift 3
    outcome "$wanted" "$text" timeout 120 "$bin/$program" "$@" < /dev/null
    [ "$wanted" -eq 0 ] || [ "$(grep -vc "^$program: warning: " "$work/err")" -eq 1 ] || fail "$program $*: not one line of error"
}

write_small_config 1 16 16
write_small_text 300
tr '\n' ' ' < "$work/text" | sed 's/./&\n/g' | tr '\n' '\000' > "$work/tokens.bin"
common="--config_name $work/config.json --block_size 16 --device cpu --threads 1 --per_device_train_batch_size 2
    --lr_scheduler_type constant"
mkfifo "$work/pipe"

# train STATUS TEXT FOLDER ARGUMENT...
train()
{
    wanted=$1
    text=$2
    folder=$3
    shift 3
    # shellcheck disable=SC2086
    expect "$wanted" "$text" txtrain $common --output_dir "$work/$folder" "$@"
}

# ---- Files that are not regular ------------------------------------------------------------------
train 1 "pipe: a pipe" a --train_file "$work/pipe"
train 1 "pipe: a pipe" a --train_file "$work/text" --config_name "$work/pipe"
train 1 "pipe: a pipe" a --train_file "$work/text" --validation_file "$work/pipe" \
    --eval_strategy epoch
train 1 "/dev/zero: a device" a --train_file /dev/zero
mkdir -p "$work/none" "$work/texts/deeper"
train 1 "none: the folder has no file that TX can read" a --train_file "$work/none"
cp "$work/text" "$work/texts/deeper/notes.md"
cp "$work/text" "$work/texts/a.txt"
train 0 "texts/a.txt and 1 more file" folder --train_file "$work/texts" --max_steps 1
expect 1 "pipe: a pipe" txplot "$work/pipe" -o "$work/page.html"
expect 1 "pipe: a pipe" txtopo --input "$work/pipe"
expect 1 "pipe: a pipe" txtok encode --tokenizer "$work/pipe"
# shellcheck disable=SC2086
echo text | outcome 1 "/dev/stdin: a pipe" timeout 120 "$bin/txtrain" $common \
    --train_file /dev/stdin --output_dir "$work/a"

# Links are followed for reading, as in the cache of Hugging Face.
ln -s text "$work/link"
train 0 "" b --train_file "$work/link" --max_steps 2
ended "$work/b" 2
expect 1 "pipe: a pipe" txgen --model "$work/b" --prompts "$work/pipe" --device cpu

# The log: neither a link's end nor a pipe is written to.
echo precious > "$work/target"
for kind in link pipe; do
    mkdir "$work/$kind-log"
    [ $kind = pipe ] && mkfifo "$work/pipe-log/log.jsonl" || ln -s ../target "$work/link-log/log.jsonl"
    train 0 "warning: $work/$kind-log/log.jsonl: a $kind" \
        $kind-log --train_file "$work/text" --max_steps 2 --overwrite_output_dir
    [ "$(grep -c warning "$work/err")" -eq 1 ] || fail "a log that is a $kind is not told once"
done
[ "$(cat "$work/target")" = precious ] || fail "a log that is a link has been written through"
cmp -s "$work/b/model.safetensors" "$work/link-log/model.safetensors" || fail "the log makes a difference"
mkdir "$work/locked"
mkfifo "$work/locked/.lock"
train 1 "locked/.lock: a pipe" locked --train_file "$work/text" --max_steps 2 --overwrite_output_dir

# Programs write to an output that is a pipe or a link; the pipe and the link stay.
#
# written NAME COMMAND...: runs it twice, with @ for a pipe and a link; both bring the text that cat reads
written()
{
    name=$1
    shift
    mkfifo "$work/out-pipe"
    echo old > "$work/out-target"
    ln -s out-target "$work/out-link"
    cat "$work/out-pipe" > "$work/piped" &
    reader=$!
    for to in out-pipe out-link; do
        # shellcheck disable=SC2046,SC2001
        "$@" $(echo "$name" | sed "s|@|$work/$to|") > "$work/out" 2> "$work/err" || fail "$* $name to $to"
    done
    kill $reader 2> /dev/null
    wait $reader 2> /dev/null
    [ -p "$work/out-pipe" ] && [ -L "$work/out-link" ] || fail "$* $name: the pipe or the link is replaced"
    [ -s "$work/out-target" ] && cmp -s "$work/piped" "$work/out-target" || fail "$* $name: pipe and link differ"
    rm -f "$work"/out-*
}
written "-o @" "$bin/txplot" "$work/b"
# shellcheck disable=SC2086
written "--dump_order @" "$bin/txtrain" $common --train_file "$work/text" --max_steps 1 --output_dir "$work/orders" \
    --overwrite_output_dir
mkfifo "$work/logits"
expect 1 "logits: a pipe" txgen --model "$work/b" --ids "1 2" --device cpu --logits "$work/logits"

# ---- data that become shorter while they are in use -------------------------------------------------
# shrink FOLDER FILE DATA ARGUMENT...: trains on DATA until FILE is truncated, then resumes
shrink()
{
    folder=$1
    file=$2
    data=$3
    shift 3
    # shellcheck disable=SC2086
    "$bin/txtrain" $common --output_dir "$work/$folder" --train_file "$data" --max_steps 10000000 --save_strategy no \
        "$@" --overwrite_output_dir > "$work/out" 2> "$work/err" &
    run=$!
    while kill -0 $run 2> /dev/null && ! grep -q '"step": 3,' "$work/$folder/log.jsonl" 2> /dev/null; do
        sleep 0.1
    done
    cp "$file" "$work/kept"
    : > "$file"
    wait $run
    status=$?
    [ $status -eq 1 ] || fail "$folder: status $status where the data become shorter"
    [ "$(wc -l < "$work/err")" -eq 1 ] || fail "$folder: not one line of error"
    grep -q "^txtrain: $file: .*truncated" "$work/err" || fail "$folder: the message"
    step=$(ls "$work/$folder" | sed -n 's/^checkpoint-//p')
    outcome 0 "ok" "$bin/txcheck" file "$work/$folder/checkpoint-$step"
    cat "$work/kept" > "$file"
    train 0 "" "$folder" --train_file "$data" --max_steps $((step + 2)) --resume_from_checkpoint "$@"
    numbers step "$work/$folder/log.jsonl" | sort -nc && ended "$work/$folder" $((step + 2)) ||
        fail "$folder: it did not go on from step $step"
}

for workers in 0 2; do
    shrink "tokens$workers" "$work/tokens.bin" "$work/tokens.bin" --dataloader_num_workers $workers
done
# The first run keeps the tokens of a text, the second reads them.
train 0 "" cached --train_file "$work/text" --max_steps 2
shrink cached "$(ls "$work"/cached/cache/tokens-*)" "$work/text"
cp "$work/tokens.bin" "$work/validation.bin"
shrink evaluated "$work/validation.bin" "$work/tokens.bin" --validation_file "$work/validation.bin" \
    --eval_strategy steps --eval_steps 1 --max_eval_samples 4

# ---- the rest ----------------------------------------------------------------------------------------
odd=$(printf '%s/a\033[31m\nb' "$work")
train 1 'a\x1b[31m\nb: ' a --train_file "$odd"
expect 2 'a\x1b[31m\nb' txtrain "$odd"
cp "$work/text" "$odd"
train 0 'a\x1b[31m\nb' odd --train_file "$odd" --max_steps 1
! grep -q "$(printf '\033')" "$work/out" "$work/err" || fail "a name reaches the terminal as it is"
outcome 1 'a\x1b[31m\nb: ' "$bin/txcheck" file "$odd"

# A name that is not UTF-8 would fit into none of the files that a run writes.
latin=$(printf 'caf\351')
cp "$work/text" "$work/$latin"
train 2 "--train_file: byte $((${#work} + 5)) of its value is not UTF-8" a --train_file "$work/$latin"
train 2 "--validation_file: byte" a --train_file "$work/text" --validation_file "$work/$latin" --do_eval
train 2 "--output_dir: byte" "$latin" --train_file "$work/text"
[ ! -e "$work/$latin/checkpoint-1" ] || fail "a run with an output folder that is not UTF-8 has begun"
expect 2 "--config_name: byte" txtrain --config_name "$work/$latin" --train_file "$work/text" --output_dir "$work/a"

# ---- files that are no text, and a byte order mark ------------------------------------------------------------
{ printf '%%PDF-1.7\n'; cat "$work/text"; } > "$work/book.txt"
train 1 "book.txt: not text, but a PDF" a --train_file "$work/book.txt"
train 0 "" small --train_file "$work/text" --max_steps 1
expect 1 "book.txt: not text, but a PDF" txgen --model "$work/small" --perplexity "$work/book.txt"
expect 1 "book.txt: not text, but a PDF" txgen --model "$work/small" --prompts "$work/book.txt"
expect 1 "book.txt: not text, but a PDF" txgen --model "$work/small" --chat --chat_template chatml --prompts "$work/book.txt"
expect 1 "book.txt: not text, but a PDF" txtok train --tokenizer "$work/learned" "$work/book.txt"
"$bin/txgen" --model "$work/small" --device cpu --perplexity "$work/text" > "$work/plain" 2> "$work/err"
{ printf '\357\273\277'; cat "$work/text"; } > "$work/marked"
mkdir "$work/$latin.d"
cp -r "$work/small" "$work/$latin.d/small"
cd "$work/$latin.d" || exit 1
expect 1 "--model_name_or_path: the path of small is not UTF-8" txtrain --model_name_or_path small --lora_r 2 \
    --train_file "$work/text" --block_size 16 --device cpu --threads 1 --max_steps 1 --output_dir "$work/lora"
cd - > /dev/null || exit 1
outcome 0 "$(cat "$work/plain")" "$bin/txgen" --model "$work/small" --device cpu --perplexity "$work/marked"

# Messages name the user's table, not the file in the cache that is made of it.
printf 'title,stars\nfirst text,4\n' > "$work/titles.csv"
train 1 "$work/titles.csv: row 1: text is missing from the keys title, stars" titles --train_file "$work/titles.csv"

OMP_NUM_THREADS=100000
export OMP_NUM_THREADS
expect 1 "OMP_NUM_THREADS" txtrain --train_file "$work/text" --config_name \
    "$work/config.json" --block_size 16 --device cpu --max_steps 1 --output_dir "$work/omp"
train 0 "" omp --train_file "$work/text" --max_steps 1

verdict
