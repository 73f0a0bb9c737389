# SPDX-License-Identifier: Apache-2.0
# Start of the tests of programs: a temporary folder $work, and the number of $failures. Sourced.
# shellcheck shell=sh
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0
export TX_PROGRESS=0 # its lines depend on the machine's speed
# Open MPI refuses root and more ranks than cores unless told; versions 4 and 5 read different names.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# write_small_text [LINES]: a text of so many lines, or twelve, in $work/text
write_small_text()
{
    i=0
    while [ $i -lt "${1:-12}" ]; do
        echo "line $i: the cat sat on the mat and looked at the $((i * i)) birds"
        i=$((i + 1))
    done > "$work/text"
}

# write_small_config LAYERS WIDTH POSITIONS [DROPOUT]: a GPT-2 over bytes, in $work/config.json
write_small_config()
{
    echo "{\"model_type\": \"gpt2\", \"n_layer\": $1, \"n_embd\": $2, \"n_head\": 2, \"n_positions\": $3," \
        "\"vocab_size\": 257, \"bos_token_id\": 256, \"eos_token_id\": 256" \
        "${4:+, \"embd_pdrop\": $4, \"attn_pdrop\": $4, \"resid_pdrop\": $4}}" > "$work/config.json"
}

# fail TEXT: counts a failure, and shows the last output of the program in $work/out and $work/err
fail()
{
    echo "FAIL: $*"
    sed 's/^/    /' "$work/out" "$work/err" 2> /dev/null
    failures=$((failures + 1))
}

# verdict [TEXT]: the end of a test, which fails where anything did
verdict()
{
    [ $failures -eq 0 ] && echo "all good${1:-}"
    exit $((failures != 0))
}

# outcome STATUS TEXT COMMAND...: checks the exit status, which is kept in $status, and that the output contains TEXT
# ("" for any). The output is kept in $work/out and $work/err. With STATUS "fails" any failure is right, since launchers
# report the status of the failed rank or of another one that they have killed for it.
outcome()
{
    wanted=$1
    text=$2
    shift 2
    "$@" > "$work/out" 2> "$work/err"
    status=$?
    if [ "$wanted" = fails ]; then
        [ $status -ne 0 ] || fail "$* ($text): does not fail"
    else
        [ $status -eq "$wanted" ] || fail "$* ($text): status $status, expected $wanted"
    fi
    [ -z "$text" ] || grep -qF -- "$text" "$work/out" "$work/err" || fail "$*: does not say \"$text\""
}

# numbers KEY FILE: those that the key has in a file of JSON or of JSON lines, one a line
numbers()
{
    grep -oE "\"$1\": *(-?[0-9][-+.0-9e]*|NaN|-?Infinity)" "$2" 2> /dev/null | sed 's/.*: *//'
}

# ended FOLDER STEP: a run into it ended there and left its model
ended()
{
    [ -s "$1/model.safetensors" ] && [ "$(numbers global_step "$1/trainer_state.json")" = "$2" ] ||
        fail "${1##*/}: no model, or not after step $2"
}

# last FOLDER: the loss of a run's last step
last()
{
    numbers loss "$work/$1/log.jsonl" | tail -n 1
}

# same FOLDER FOLDER [FILE...]: both runs wrote the same files; by default the model
same()
{
    first_run=$1 second_run=$2
    shift 2
    for compared in "${@:-model.safetensors}"; do
        cmp -s "$work/$first_run/$compared" "$work/$second_run/$compared" ||
            fail "$first_run and $second_run: other $compared"
    done
}

# near FILE FILE TOLERANCE: numbers, line by line
near()
{
    paste "$1" "$2" |
        awk -v most="$3" '{ d = $1 - $2; if (!(NF == 2 && d < most && d > -most)) bad = 1 } END { exit bad || !NR }'
}

# as_planned NAME: the last run, which had --profile, counted the memory that it had planned
as_planned()
{
    awk '$1 == "total" && $2 == $NF && $2 > 0 { same = 1 } END { exit !same }' "$work/out" ||
        fail "$1: memory counted is not what was planned"
}

# await COMMAND...: until it succeeds, for a minute at most
await()
{
    tries=0
    until "$@" || [ $tries -ge 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}

# has_logged FOLDER LINES: so many lines are in a run's log
has_logged()
{
    [ "$(cat "$1/log.jsonl" 2> /dev/null | wc -l)" -ge "$2" ]
}

# Skips the test if this build or machine lacks $device.
need_device()
{
    # $bin and $device are the test's arguments.
    # shellcheck disable=SC2154
    "$bin/txtrain" --list-devices | grep -q "^${device%%:*}" || { echo "skipped: no device $device"; exit 77; }
}
