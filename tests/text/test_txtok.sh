#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txtok from the outside.
#
#   test_txtok.sh TXTOK
txtok=$1
. "${0%/*}/../program.sh"

# expect STATUS TEXT ARGUMENT...: the exit status, and exactly that text (failures: a part of the one line of error)
expect()
{
    wanted=$1
    text=$2
    shift 2
    "$txtok" "$@" < "$work/in" > "$work/out" 2> "$work/err"
    status=$?
    [ $status -eq "$wanted" ] || fail "$*: status $status, expected $wanted"
    if [ "$wanted" -eq 0 ]; then
        printf -- "$text" | cmp -s - "$work/out" || fail "$*: expected \"$text\""
        [ -s "$work/err" ] && fail "$*: wrote to standard error"
    else
        grep -qF -- "$text" "$work/err" || fail "$*: does not say \"$text\""
        [ "$(wc -l < "$work/err")" -eq 1 ] || fail "$*: not one line of error"
    fi
}

input()
{
    printf -- "$1" > "$work/in"
}

# ---- train -------------------------------------------------------------------------------------
dir=$work/trained
input 'abc abc\nabc abc\n'
expect 0 "$dir: 260 tokens\n" train --tokenizer "$dir" --vocab-size 1000 --min_frequency 2
[ -f "$dir/tokenizer.json" ] && [ -f "$dir/tokenizer_config.json" ] || fail "train: a file is missing"
expect 1 "has a tokenizer.json already" train --tokenizer "$dir"
expect 2 "vocab_size" train --tokenizer "$work/other" --vocab_size 10
input '{"text": "abc abc\\nabc abc\\n"}\n\n'
expect 0 "$work/lines: 260 tokens\n" train --jsonl --tokenizer "$work/lines" --min_frequency 2
cmp -s "$dir/tokenizer.json" "$work/lines/tokenizer.json" || fail "train: not the same from JSON Lines"
input '{"text": 1}\n'
expect 1 "standard input: line 1: text: expected a string" train --jsonl --tokenizer "$work/other"
[ -e "$work/other" ] && fail "train: left something behind"
printf 'abc abc\n' > "$work/file"
expect 0 "$work/files: 260 tokens\n" train --tokenizer "$work/files" "$work/file" "$work/file"

# ---- encode, count, decode -----------------------------------------------------------------------
input 'abc abc!'
expect 0 '258 259 1\n' encode --tokenizer "$dir"
expect 0 '3\n' count --tokenizer "$dir"
input ''
expect 0 '\n' encode --tokenizer "$dir"
expect 0 '0\n' count --tokenizer "$dir"
expect 0 '' decode --tokenizer "$dir"
input '<|endoftext|>!'
expect 0 '0 1\n' encode --tokenizer "$dir"
expect 0 '14\n' count --split-special-tokens --tokenizer "$dir"
input '\000\377\n abc<|endoftext|>\r\n'
"$txtok" encode --tokenizer "$dir" < "$work/in" | "$txtok" decode --tokenizer "$dir" > "$work/back"
cmp -s "$work/in" "$work/back" || fail "encode and decode do not give the bytes back"
printf '0 258\n 0\t1 ' > "$work/ids"
input ''
expect 0 '<|endoftext|>abc<|endoftext|>!' decode --tokenizer "$dir" "$work/ids"
expect 0 'abc!' decode --skip_special_tokens --tokenizer "$dir" "$work/ids"

# ---- JSON Lines ------------------------------------------------------------------------------------
input '{"text": "abc\\u0000!"}\n  \n{"other": 1, "text": ""}\n{"text": "\\ud83d\\ude00"}'
expect 0 '[258, 189, 1]\n[]\n[173, 254, 247, 223]\n' encode --jsonl --tokenizer "$dir"
expect 0 '7\n' count --jsonl --tokenizer "$dir"
input '[258, 189, 1]\n[]\n[173, 254]\n'
expect 0 '{"text": "abc\\u0000!"}\n{"text": ""}\n{"text": "\357\277\275"}\n' decode --jsonl --tokenizer "$dir"
input '{"text": "a"}\n{"text": 1}\n'
expect 1 "standard input: line 2: text: expected a string, found 1" encode --jsonl --tokenizer "$dir"
input '{"text": "a"}\n{"text": "a"\n'
expect 1 "standard input: line 2: JSON: not valid JSON" count --jsonl --tokenizer "$dir"
input '[1.5]\n'
expect 1 "standard input: line 1: an id: expected an integer" decode --jsonl --tokenizer "$dir"
input '7\n'
expect 1 "standard input: line 1: expected an array" decode --jsonl --tokenizer "$dir"

# ---- errors ------------------------------------------------------------------------------------------
input '1 2 x'
expect 1 'standard input: id number 3: "x" does not begin with a token id' decode --tokenizer "$dir"
input '1 99999999999999999999'
expect 1 'standard input: id number 2' decode --tokenizer "$dir"
input '1 260'
expect 1 'standard input: id number 2: id 260 is not in the vocabulary (0 to 259)' decode --tokenizer "$dir"
input '-1'
expect 1 'standard input: -1 is not a token id' decode --tokenizer "$dir"
input '1\0002'
expect 1 'found a NUL' decode --tokenizer "$dir"
expect 1 "$work/none: no tokenizer: neither" encode --tokenizer "$work/none"
expect 1 "$work/none" encode --tokenizer "$dir" "$work/none"
expect 2 "--tokenizer is missing" encode
expect 2 "did you mean encode?" enocde --tokenizer "$dir"
expect 2 "a command is missing" --tokenizer "$dir"
expect 2 "unknown option" encode --tokenizer "$dir" --vocab_size 3
"$txtok" encode --tokenizer "$dir" "$work/file" > /dev/full 2> "$work/err"
[ $? -eq 1 ] && grep -q "standard output: cannot write" "$work/err" || fail "a full disk is not told"

echo "$failures failures"
[ $failures -eq 0 ]
