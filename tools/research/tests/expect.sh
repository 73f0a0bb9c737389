# SPDX-License-Identifier: Apache-2.0
# Common code of the tests of txresearch's predictions. A test sets $subcommand, sources this, and has TXRESEARCH as its
# argument.
# shellcheck shell=sh disable=SC2154
txresearch=$1
. "${0%/*}/../../../tests/program.sh"

# expect STATUS TEXT ARGUMENT...: checks the exit status, that TEXT is in the output, and that errors are one line
expect()
{
    wanted=$1
    text=$2
    shift 2
    outcome "$wanted" "$text" "$txresearch" "$subcommand" "$@"
    if [ "$wanted" -eq 0 ]; then
        [ ! -s "$work/err" ] || fail "$*: complains"
    else
        [ "$(wc -l < "$work/err")" -eq 1 ] && [ ! -s "$work/out" ] || fail "$*: more than one line of error"
    fi
}
