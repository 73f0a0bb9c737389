#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txgen from the outside: prompts from everywhere, batches, stop strings, seeds, beams, perplexity, errors.
#
#   test_txgen.sh BIN-FOLDER LAUNCHER DEVICE
. "${0%/*}/../device.sh"

# run STATUS TEXT ARGUMENT...: checks txgen's exit status, and that its output contains TEXT
run()
{
    wanted=$1
    text=$2
    shift 2
    outcome "$wanted" "$text" "$bin/txgen" --model "$work/model" --device "$device" --threads 2 "$@"
}

# same WHAT: the output is that kept before
same()
{
    cmp -s "$work/kept" "$work/out" || fail "$1: another text"
}

keep()
{
    cp "$work/out" "$work/kept"
}


# A model that was trained on a little text. The text that it generates matters less than that it is always the same.
write_small_config 2 24 80 0
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    echo "line $i: the cat sat on the mat, and caf$(printf '\303\251') was shut"
done > "$work/text"
"$bin/txtrain" --config_name "$work/config.json" --train_file "$work/text" --output_dir "$work/model" --block_size 40 \
    --max_steps 60 --learning_rate 1e-2 --per_device_train_batch_size 4 --device "$device" --threads 2 \
    > "$work/out" 2> "$work/err" || { fail "the model cannot be made"; exit 1; }

# ---- prompts ---------------------------------------------------------------------------------------
run 0 "" --prompt "the cat" --max_new_tokens 12 --temperature 0
grep -q "^the cat" "$work/out" || fail "the prompt is not shown"
keep
printf 'the cat' > "$work/prompt"
run 0 "" --max_new_tokens 12 --temperature 0 < "$work/prompt"
same "standard input"
printf '\nthe cat\r\n' > "$work/prompts"
run 0 "" --prompts "$work/prompts" --max_new_tokens 12 --temperature 0
same "a file of prompts"
run 0 "" --prompts - --max_new_tokens 12 --temperature 0 < "$work/prompts"
same "lines of standard input"
printf '{"id": 1, "text": "the cat"}\n' > "$work/prompts.jsonl"
run 0 "" --prompts "$work/prompts.jsonl" --max_new_tokens 12 --temperature 0
same "a file of JSON lines"
run 0 "" --prompt "the cat" --max-new-tokens=12 --top_k 1
same "top_k 1"
run 0 "" --prompt "the cat" --max_new_tokens 12 --temperature 0
same "temperature 0"

# Several: as one batch, in two, one by one.
printf 'the cat\nline 7: the cat sat on the m\ncaf\303\251\nsat\n' > "$work/prompts"
run 0 "" --prompts "$work/prompts" --max_new_tokens 15 --temperature 0.8
keep
for size in 1 2 3; do
    run 0 "" --prompts "$work/prompts" --max_new_tokens 15 --temperature 0.8 --batch_size $size
    same "batches of $size"
done
[ "$(grep -c '^the cat\|^line 7: the cat sat on the m\|^caf\|^sat' "$work/out")" -ge 4 ] || fail "a prompt is missing"
run 0 "" --prompts "$work/prompts" --max_new_tokens 15 --temperature 0.8 --seed 3
! cmp -s "$work/kept" "$work/out" || fail "another seed gives the same texts"
run 0 "" --prompts "$work/prompts" --max_new_tokens 15 --temperature 0.8 --seed 3 --do_sample false
keep
run 0 "" --prompts "$work/prompts" --max_new_tokens 15 --temperature 0
same "do_sample false"

# ---- ends of texts -----------------------------------------------------------------------------------
run 0 "" --prompt "the c" --max_new_tokens 20 --temperature 0 --repetition_penalty 1.2
keep
stop=$(head -n 1 "$work/kept" | cut -c 8-9) # of what is new, the third and fourth character
run 0 "" --prompt "the c" --max_new_tokens 20 --temperature 0 --repetition_penalty 1.2 --stop "never seen" --stop "$stop"
[ "$(cat "$work/out")" != "$(cat "$work/kept")" ] || fail "--stop '$stop' changes nothing"
case $(cat "$work/kept") in "$(cat "$work/out")"*) ;; *) fail "not the beginning of the text without --stop" ;; esac
case $(cat "$work/out") in "the c"*"$stop") ;; *) fail "the text does not end with '$stop'" ;; esac
echo '{"max_new_tokens": 3, "no_repeat_ngram_size": 2}' > "$work/model/generation_config.json"
run 0 "no_repeat_ngram_size" --ids "116 104 101"
[ "$(wc -w < "$work/out")" -eq 3 ] || fail "max_new_tokens of generation_config.json"
run 0 "" --ids "116 104 101" --ids "32" --max_new_tokens 5
[ "$(wc -l < "$work/out")" -eq 2 ] && [ "$(wc -w < "$work/out")" -eq 10 ] || fail "ids of two prompts"
# max_length counts each prompt and its new tokens, in whatever batch and with beams; max_new_tokens wins.
echo '{"max_length": 8, "eos_token_id": []}' > "$work/model/generation_config.json"
limited="generation_config.json: max_length 8"
for way in "" "--batch_size 1" "--num_beams 2"; do
    # shellcheck disable=SC2086
    run 0 "$limited" --ids "116 104 101" --ids "32" $way
    [ "$(awk '{ printf "%d ", NF }' "$work/out")" = "5 7 " ] || fail "max_length $way: $(cat "$work/out")"
    # shellcheck disable=SC2086
    run 0 "" --ids "116 104 101" --ids "32" --max_new_tokens 9 $way
    [ "$(awk '{ printf "%d ", NF }' "$work/out")" = "9 9 " ] || fail "max_new_tokens wins over max_length $way"
    ! grep -q max_length "$work/err" || fail "max_length is told of where it limits nothing"
done
run 1 "max_length" --ids "1 2 3 4 5 6 7 8"
echo '{"max_length": 8, "max_new_tokens": 3}' > "$work/model/generation_config.json"
run 0 "" --ids "116 104 101"
[ "$(wc -w < "$work/out")" -eq 3 ] || fail "max_new_tokens beside max_length"
echo '{"max_length": 1000, "eos_token_id": []}' > "$work/model/generation_config.json"
run 0 "" --ids "116 104 101"
[ "$(wc -w < "$work/out")" -eq 77 ] || fail "max_length beyond the model's positions"
echo '{"top_p": 2}' > "$work/model/generation_config.json"
run 0 "top_p: 2 is not in 0..1" --prompt a
rm "$work/model/generation_config.json"
# A list of ids in config.json: each ends a text.
run 0 "" --ids "116 104 101" --max_new_tokens 5 --temperature 0
end=$(awk '{ print $2 }' "$work/out")
cp "$work/model/config.json" "$work/kept_config"
sed -i "s/\"eos_token_id\": [0-9]*/\"eos_token_id\": [256, $end]/" "$work/model/config.json"
run 0 "" --ids "116 104 101" --max_new_tokens 5 --temperature 0
[ "$(awk '{ print $NF }' "$work/out")" = "$end" ] && [ "$(wc -w < "$work/out")" -le 2 ] ||
    fail "an id in a list of eos_token_id does not end a text"
mv "$work/kept_config" "$work/model/config.json"
run 0 "" --prompt "the cat" --num_beams 3 --max_new_tokens 10 --early_stopping never --length_penalty 0.5
keep
run 0 "" --prompt "the cat" --prompt "sat" --num_beams 3 --max_new_tokens 10 --early_stopping never \
    --length_penalty 0.5
head -n "$(wc -l < "$work/kept")" "$work/out" | cmp -s - "$work/kept" || fail "beams in a batch: another text"

# ---- constraints ---------------------------------------------------------------------------------------
run 0 "" --prompt "the cat " --regex '[0-9]{3}-(sat|mat)' --max_new_tokens 30
grep -qE '^the cat [0-9]{3}-[sm]at$' "$work/out" || fail "--regex: $(cat "$work/out")"
schema='{"type": "object", "properties": {"who": {"enum": ["cat", "mat"]}, "line": {"enum": [1, 20]}},
         "required": ["who", "line"], "additionalProperties": false}'
run 0 "" --prompt "x" --json_schema "$schema" --max_new_tokens 70
tr -d ' \n' < "$work/out" | grep -qE '^x\{"who":"[cm]at","line":(1|20)\}$' || fail "--json_schema: $(cat "$work/out")"
keep
printf '%s' "$schema" > "$work/schema.json"
run 0 "" --prompt "x" --json-schema-file "$work/schema.json" --max_new_tokens 70
same "a file with the schema"
printf 'root ::= "shut " word "."\nword ::= "cat" | "mat"\n' > "$work/words.gbnf"
run 0 "" --prompt "x" --prompt "y" --grammar "$work/words.gbnf" --max_new_tokens 30
[ "$(grep -cE '^[xy]shut [cm]at\.$' "$work/out")" -eq 2 ] || fail "--grammar: $(cat "$work/out")"
run 1 "--grammar" --prompt "x" --grammar 'root ::= other'
run 1 "--regex" --prompt "x" --regex '(open'
run 1 "--json_schema" --prompt "x" --json_schema '{"type": 7}'
run 1 "--json_schema" --prompt "x" --json_schema "$work/missing.json"
run 2 "exclude each other" --prompt "x" --regex a --grammar 'root ::= "a"'
run 2 "they exclude --ids" --ids "1" --regex a
run 1 "num_beams" --prompt "x" --regex a --num_beams 2

# ---- a conversation: lines typed at a terminal, where `script` can make one --------------------------------------
if script -qec true /dev/null > /dev/null 2>&1; then
    run 0 "" --prompt "the cat" --max_new_tokens 12 --temperature 0
    first=$(cat "$work/out")
    run 0 "" --prompt "sat" --max_new_tokens 12 --temperature 0
    second=$(cat "$work/out")
    { printf 'the cat\n\n%0100d\nsat\n' 0; printf '\004'; } |
        script -qec "'$bin/txgen' --model '$work/model' --device '$device' --max_new_tokens 12 --temperature 0" \
        /dev/null |
        tr -d '\r' > "$work/out" || fail "a conversation"
    for text in "> $first" "> $second" "80 positions"; do
        grep -qF -- "$text" "$work/out" || fail "a conversation does not say \"$text\""
    done
fi

# ---- weights of 16 bits -------------------------------------------------------------------------------------------
run 0 "" --perplexity "$work/text" --max_length 40 --stride 20
full=$(awk '{ print $2 }' "$work/out")
run 0 "" --ids "116 104 101 32 99" --logits "$work/float32"
for dtype in bfloat16 float16; do
    run 0 "" --perplexity "$work/text" --max_length 40 --stride 20 --dtype $dtype
    awk -v full="$full" '{ d = $2 / full - 1; exit !(d < 0.02 && d > -0.02) }' "$work/out" ||
        fail "perplexity in $dtype: $(cat "$work/out"), in float32 $full"
    run 0 "" --ids "116 104 101 32 99" --logits "$work/$dtype" --dtype $dtype
    ! cmp -s "$work/float32" "$work/$dtype" || fail "--dtype $dtype changes nothing"
    run 0 "" --prompt "the cat" --max_new_tokens 12 --temperature 0 --dtype $dtype
    run 0 "" --prompt "the cat" --prompt "sat" --num_beams 2 --max_new_tokens 12 --dtype $dtype
done
cp "$work/model/config.json" "$work/kept_config"
run 0 "" --prompt "the cat" --max_new_tokens 12 --temperature 0
keep
run 0 "" --prompt "the cat" --max_new_tokens 12 --temperature 0 --dtype auto
same "--dtype auto of a model of float32"
sed -i 's/float32/bfloat16/' "$work/model/config.json"
run 0 "" --ids "116 104 101 32 99" --logits "$work/auto" --dtype auto
cmp -s "$work/auto" "$work/bfloat16" || fail "--dtype auto is not the type of config.json"
run 0 "" --ids "116 104 101 32 99" --logits "$work/default"
cmp -s "$work/default" "$work/bfloat16" || fail "the default is not the type of config.json"
run 0 "" --ids "116 104 101 32 99" --logits "$work/default" --dtype float32
cmp -s "$work/default" "$work/float32" || fail "--dtype float32 of a model of bfloat16"
run 1 "float32, bfloat16, float16 or auto" --prompt "the cat" --dtype int8
mv "$work/kept_config" "$work/model/config.json"

# ---- a folder of a run that is not done -----------------------------------------------------------------
mkdir -p "$work/run/checkpoint-5" "$work/run/checkpoint-20"
outcome 1 "$work/run/checkpoint-20" "$bin/txgen" --model "$work/run" --device "$device" --prompt a
outcome 1 "config.json" "$bin/txgen" --model "$work/run/checkpoint-20" --device "$device" --prompt a
cp "$work/model/config.json" "$work/model/model.safetensors" "$work/run/checkpoint-5"
rm -r "$work/run/checkpoint-20"
outcome 0 "using the newest, $work/run/checkpoint-5" "$bin/txgen" --model "$work/run" --device "$device" --ids 97 -n 1
"$bin/txtrain" --config_name "$work/config.json" --train_file "$work/text" --output_dir "$work/saved" --block_size 40 \
    --max_steps 2 --save_steps 1 --device "$device" --threads 2 > "$work/out" 2> "$work/err" || fail "a run: $(cat "$work/err")"
rm -f "$work/saved"/*.json "$work/saved"/*.safetensors
outcome 0 "using the newest, $work/saved/checkpoint-2" "$bin/txgen" --model "$work/saved" --device "$device" --ids 97 -n 1
printf broken > "$work/saved/checkpoint-2/model.safetensors"
outcome 0 "using the newest, $work/saved/checkpoint-1" "$bin/txgen" --model "$work/saved" --device "$device" --ids 97 -n 1

# ---- a model without settings samples -----------------------------------------------------------------
run 0 "sampled with temperature 0.8, top_p 0.95" --prompt "the cat" --max_new_tokens 12
keep
for arguments in "--temperature 0" "--do_sample false" "--num_beams 2" "--num_beams 2 --temperature 0"; do
    # shellcheck disable=SC2086
    run 0 "" --prompt "the cat" --max_new_tokens 12 $arguments
    ! grep -q "sampling" "$work/err" || fail "txgen $arguments says that it samples"
done
run 0 "" --prompt "the cat" --max_new_tokens 12 --temperature 0.8 --top_p 0.95
same "temperature 0.8 and top_p 0.95"
echo '{}' > "$work/model/generation_config.json"
run 0 "" --prompt "the cat" --max_new_tokens 12
keep
! grep -q "sampling" "$work/err" || fail "a model with settings samples"
rm "$work/model/generation_config.json"
run 0 "" --prompt "the cat" --max_new_tokens 12 --temperature 0
same "an empty generation_config.json"

# ---- perplexity -----------------------------------------------------------------------------------------
run 0 "" --perplexity "$work/text" --max_length 40 --stride 20 --batch_size 1
keep
run 0 "" --perplexity "$work/text" --max_length 40 --stride 20 --batch_size 7
same "windows in batches"
awk '{ exit !($1 == "perplexity" && $2 > 1 && $2 < 30) }' "$work/out" || fail "that is no perplexity"
printf '{"text": "the cat"}\n{"text": "sat"}\n' > "$work/two.jsonl"
printf 'the cat\n\nsat' > "$work/two.txt"
run 0 "" --perplexity "$work/two.jsonl" --max_length 40
keep
run 0 "" --perplexity "$work/two.txt" --max_length 40
same "texts of a .jsonl file"

# ---- blocks divided among devices ----------------------------------------------------------------------
# divided MAP ARGUMENT...: as run, on the devices of the map
divided()
{
    map=$1
    shift
    outcome 0 "" "$bin/txgen" --model "$work/model" --device_map "$map" --threads 2 "$@"
}
for arguments in "--temperature 0" "--num_beams 2" "--temperature 0.8 --seed 3"; do
    # shellcheck disable=SC2086
    run 0 "" --prompt "the cat" --prompt "sat" --max_new_tokens 12 $arguments
    keep
    # shellcheck disable=SC2086
    divided "cpu=1,$device=1" --prompt "the cat" --prompt "sat" --max_new_tokens 12 $arguments
    same "divided, $arguments"
done
run 0 "" --prompt "the cat" --max_new_tokens 12 --temperature 0
keep
for map in "$device" "$device,cpu" "$device=1,$device"; do # as many blocks as there is room for
    divided "$map" --prompt "the cat" --max_new_tokens 12 --temperature 0
    same "divided, $map"
    [ "$map" = "$device" ] || grep -q "^txgen: device_map [a-z:0-9]*=" "$work/err" || fail "$map: the blocks are not told"
done
divided auto --prompt "the cat" --max_new_tokens 2 --temperature 0
for map in "cpu=3" "cpu=1" "cpu=1,nowhere=1" "cpu=3,cpu" "nowhere"; do
    wanted=blocks
    [ "${map%nowhere*}" = "$map" ] || wanted=nowhere
    outcome 1 "$wanted" "$bin/txgen" --model "$work/model" --device_map "$map" --prompt a
done

# ---- errors ------------------------------------------------------------------------------------------------
run 2 "--ids" --prompt a --ids 1
run 2 "--device_map" --prompt a --device_map cpu=2
run 2 "--perplexity" --perplexity "$work/text" --prompt a
run 2 "--perplexity" --prompt a --stride 3
run 2 "--stop" --prompt a --stop_strings b
run 2 "--early_stopping" --prompt a --early_stopping soon
run 2 "num_beams" --prompt a --num_beams 2 --temperature 0.5
"$bin/txgen" --model "$work/nowhere" --ids 1 --prompt a --chat --stride 2 --num_beams 2 --do_sample \
    --device cpu --device_map auto > "$work/out" 2> "$work/err"
[ $? -eq 2 ] && [ "$(grep -c "^txgen: .*\(--ids and --prompt\|--chat\|--stride\|num_beams 2\|--device_map\)" "$work/err")" -eq 5 ] ||
    fail "five options that contradict each other: $(cat "$work/err")"
run 2 "top_p" --prompt a --top_p 1.5
run 1 "80 positions" --prompt "the cat" --max_new_tokens 100
run 1 "$work/gone" --prompts "$work/gone"
printf '{"text": "a"}\n{"text": 3}\n' > "$work/bad.jsonl"
run 1 "bad.jsonl: line 2" --prompts "$work/bad.jsonl"
run 1 "txgen: -: " --prompts - < /dev/null
run 0 "" --max_new_tokens 2 --temperature 0 < /dev/null # an empty text begins after the end of another
"$bin/txgen" --model "$work/nowhere" --prompt a > "$work/out" 2> "$work/err"
[ $? -eq 1 ] && grep -q "^txgen: .*nowhere" "$work/err" || fail "a model that is not there"

verdict " on $device"
