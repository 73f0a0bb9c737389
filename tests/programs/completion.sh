#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# completion.sh BIN PROGRAM...: the completion script of each program loads in bash and answers.
bin=$1
shift
failures=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/here/folder"
touch "$scratch/here/file" "$scratch/here/a file"
cd "$scratch/here" || exit 1
PATH=$bin:$PATH # the scripts ask the programs

fail()
{
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# complete PROGRAM WORD...: the answers for the last word, one a line
complete_words()
{
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    "_$1_complete" 2> "$scratch/complaints" # compopt complains outside of a completion
    printf '%s\n' "${COMPREPLY[@]}"
}

# answers WANTED PROGRAM WORD...: the answers, joined by blanks, must match the pattern
answers()
{
    wanted=$1
    shift
    got=$(complete_words "$@" | tr '\n' ' ')
    # shellcheck disable=SC2053 # a pattern
    [[ $got == $wanted ]] || fail "$*: \"$got\" where \"$wanted\" was expected"
}

# unwritable PROGRAM OPTION...: ends with 1 and a line about its standard output
unwritable()
{
    "$bin/$1" "${@:2}" > /dev/full 2> "$scratch/complaints"
    status=$?
    [ $status -eq 1 ] || fail "$*: status $status on a full standard output"
    grep -q "^$1: standard output: cannot write" "$scratch/complaints" || fail "$*: $(cat "$scratch/complaints")"
}

for program in "$@"; do
    "$bin/$program" --completion bash > "$scratch/script" || fail "$program --completion bash"
    # shellcheck disable=SC1090,SC1091
    . "$scratch/script" || fail "$program: the script does not load"
    answers "*--help --version *" "$program" --
    answers "--help " "$program" --hel
    "$bin/$program" --completion zsh 2> /dev/null && fail "$program: a shell that is not known"
    for option in --help --version "--completion bash"; do
        # shellcheck disable=SC2086
        unwritable "$program" $option
    done
done

# Tables, too.
printf '%s\n' '{"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 32, "vocab_size": 257}' \
    > "$scratch/config.json"
printf '%s\n' '{"step": 1, "loss": 1}' > "$scratch/log.jsonl"
unwritable txtrain --list-devices
unwritable txcheck file "$scratch/config.json"
unwritable txcheck ops --op gelu --every 4 --small
unwritable txmem --model gpt2
unwritable txplot "$scratch/log.jsonl" -o "$scratch/page.html"
unwritable txplot "$scratch/log.jsonl" -o -
unwritable txtopo
! "$bin/txtrain" --list-devices | grep -q "^opencl" || unwritable txtune --show
unwritable txbench train --help
unwritable txlaunch --help

answers "--lr_scheduler_type " txtrain --lr-scheduler-t
answers "linear cosine *" txtrain --lr_scheduler_type ""
answers "cosine_with_restarts " txtrain --lr-scheduler-type = cosine_with_r
answers "linear *" txtrain --lr_scheduler_type =
answers "* a file *" txtrain --train_file ""
answers "folder " txtrain --output_dir f
answers "true false " txtrain --dry_run =
answers "ops onnx " txcheck o
answers "report device *" txbench ""
answers "none torch " txbench train --peer ""
answers "--repeats " txbench ops --r

# A program that is silent for two seconds prints its present action in a line of its own.
(sleep 2 && echo text) | TX_PROGRESS=1 txtok train --tokenizer "$scratch/tokenizer" > "$scratch/said" \
    2> "$scratch/complaints" || fail "txtok train"
[ "$(grep -c "^txtok: still working on texts, [12] s$" "$scratch/complaints")" -eq 1 ] || fail "txtok is silent: $(cat -v "$scratch/complaints")"

[ $failures -eq 0 ] && echo "all good"
exit $((failures != 0))
