#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# completion.sh BIN PROGRAM...: the completion script of each program loads in bash, and in zsh and fish if they are
# installed, and answers. --help is short and wrapped, and has topics.
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
    "$bin/$program" --completion csh 2> /dev/null && fail "$program: a shell that is not known"
    for shell in zsh fish; do
        "$bin/$program" --completion $shell > "$scratch/$program.$shell" || fail "$program --completion $shell"
        ! command -v $shell > /dev/null || $shell -n "$scratch/$program.$shell" || fail "$program: $shell cannot read its script"
    done
    # --help fits 80 columns, or COLUMNS, and its reader may end early.
    for topic in "" all; do
        "$bin/$program" --help $topic > "$scratch/help"
        awk 'length > 80 { print; found = 1 } END { exit found }' "$scratch/help" || fail "$program --help $topic is too wide"
        [ "$(grep -c "^[A-Z]" "$scratch/help")" -ge 4 ] || fail "$program --help $topic: $(cat "$scratch/help")"
        (trap - PIPE; "$bin/$program" --help $topic) 2> "$scratch/complaints" | head -1 > /dev/null
        [ ! -s "$scratch/complaints" ] || fail "$program --help $topic | head: $(cat "$scratch/complaints")"
    done
    grep -q "^Example:" "$scratch/help" || fail "$program --help has no example"
    [ "$("$bin/$program" --help | grep -c "^  -")" -le 24 ] || fail "$program --help is long"
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
answers "folder " txtrain --output_dir = f
answers "true false " txtrain --dry_run =
answers "ops onnx " txcheck o
answers "report device *" txbench ""
answers "none torch torch-compile " txbench train --peer ""
answers "--repeats " txbench ops --r

# Topics: a heading, a name, a word, a command, and an unknown one.
topic()
{
    wanted=$1
    shift
    "$@" > "$scratch/help" 2>&1
    grep -q -e "$wanted" "$scratch/help" || fail "$*: $(cat "$scratch/help")"
}
[ "$(txtrain --help | grep -c "^  -")" -eq 19 ] || fail "txtrain --help: an option is missing"
[ "$(txgen --help | grep -c "^  -")" -eq 19 ] || fail "txgen --help: an option is missing"
topic "^  --mlm_probability X" txtrain --help data
! grep -q learning_rate "$scratch/help" || fail "txtrain --help data: shows all"
topic "^  --lr, --learning_rate X" txtrain --help learning_rate
[ "$(grep -c "^  -" "$scratch/help")" -eq 1 ] || fail "txtrain --help learning_rate shows others"
topic "^  .*--use_dora" txtrain --help dora
topic "^Usage: txbench train" txbench --help train
topic "--help zzz: no option has this word; topics: all, model" txtrain --help zzz
! txtrain --help zzz 2> /dev/null || fail "txtrain --help zzz succeeds"
[ "$(COLUMNS=400 txtrain --help all | grep -c "^  --auto_find_batch_size .*number of rows")" -eq 1 ] || fail "COLUMNS is not obeyed"

# fish answers without a terminal; zsh needs a pseudo-terminal.
fish_answers()
{
    got=$(fish --no-config -c "source $scratch/$2.fish; complete -C '${*:2}'" | cut -f1 | tr '\n' ' ')
    # shellcheck disable=SC2053 # a pattern
    [[ $got == $1 ]] || fail "fish: ${*:2}: \"$got\" where \"$1\" was expected"
}
zsh_answers()
{
    got=$(zsh -f -c '
        zmodload zsh/zpty
        zpty z zsh -f -i
        send() { zpty -w z "$1"; }
        send "PS1=; unsetopt zle_bracketed_paste; stty cols 200 rows 60; autoload -U compinit; compinit -u -D; LISTMAX=0; source $1; print re""ady"
        zpty -r -m z line "*ready*"
        zpty -n -w z "$2"$'"'"'\t'"'"'
        sleep 1
        while zpty -r -t z part; do print -rn -- "$part"; done' zsh "$scratch/$2.zsh" "${*:2}" | tr '\r\n' '  ')
    # shellcheck disable=SC2053 # a pattern
    [[ $got == $1 ]] || fail "zsh: ${*:2}: \"$got\" where \"$1\" was expected"
}
if command -v fish > /dev/null; then
    fish_answers "*--lr_scheduler_type *" txtrain --lr_sch
    fish_answers "constant *cosine *" txtrain --lr_scheduler_type ""
    fish_answers "folder/ " txtrain --output_dir fo
    fish_answers "--output_dir=folder/ " txtrain --output_dir=fo
    fish_answers "*--lr_scheduler_type=cosine *" txtrain --lr_scheduler_type=cos
    fish_answers "device " txbench dev
    fish_answers "--pairs " txbench train --pai
fi
if command -v zsh > /dev/null; then
    zsh_answers "*--lr_scheduler_type*" txtrain --lr_scheduler_t
    zsh_answers "*constant_with_warmup*cosine*" txtrain --lr_scheduler_type ""
    zsh_answers "*--lr_scheduler_type=cosine_with_r*" txtrain --lr_scheduler_type=cosine_with_r
    zsh_answers "*folder*" txtrain --output_dir=fo
    zsh_answers "*device*" txbench dev
    zsh_answers "*--pairs*" txbench train --pai
fi

# A program that is silent for two seconds prints its present action in a line of its own.
(sleep 2 && echo text) | TX_PROGRESS=1 txtok train --tokenizer "$scratch/tokenizer" > "$scratch/said" \
    2> "$scratch/complaints" || fail "txtok train"
[ "$(grep -c "^txtok: still working on texts, [12] s$" "$scratch/complaints")" -eq 1 ] || fail "txtok is silent: $(cat -v "$scratch/complaints")"

[ $failures -eq 0 ] && echo "all good"
exit $((failures != 0))
