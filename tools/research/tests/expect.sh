# SPDX-License-Identifier: Apache-2.0
# What the tests of txresearch's predictions share. Sourced, with $subcommand, the word behind txresearch, by tests that are given TXRESEARCH.
# shellcheck shell=sh disable=SC2154
txresearch=$1
. "${0%/*}/../../../tests/program.sh"

# expect STATUS TEXT ARGUMENT...: the exit status, and a text in what was printed; errors are one line.
expect()
{
    wanted=$1
    text=$2
    shift 2
    outcome "$wanted" "$text" "$txresearch" "$subcommand" "$@"
    if [ "$wanted" -eq 0 ]; then
        [ ! -s "$work/err" ] || fail "$*: complains"
    else
        [ "$(wc -l < "$work/err")" -eq 1 ] && [ ! -s "$work/out" ] || fail "$*: not one line of error alone"
    fi
}
