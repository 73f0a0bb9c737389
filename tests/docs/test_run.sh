#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.py finds documents whose commands fail or print something else, and corrects their output.
#
#   test_run.sh BIN-FOLDER
. "${0%/*}/../program.sh"
runner=${0%/*}/run.py
command -v python3 > /dev/null || { echo "skipped: no python3"; exit 77; }

# document LINE...: writes $work/a.md
document()
{
    printf '%s\n' "$@" > "$work/a.md"
}

run()
{
    outcome "$1" "$2" python3 "$runner" --bin "$bin" --launcher "" "$work/a.md"
}

bin=$1
# shellcheck disable=SC1003 # a backslash at the end of a line
document 'Text.' '```sh' 'false' '```' '<!-- run: echo seen > hidden -->' '```console' '$ cat hidden' 'seen' \
    '$ echo 12.5 GiB; \' '> echo last' '0.3 MiB' '...' '```' '```console fails' '$ false' '```'
run 0 "4 commands, 0 faults"
document '```console' '$ echo other' 'shown' '```'
run 1 "a.md:2: other output"
outcome 0 "0 faults" python3 "$runner" --bin "$bin" --update "$work/a.md"
grep -qx other "$work/a.md" || fail "--update does not write the output"
run 0 "0 faults"
document '```console' '$ false' '```'
run 1 "exit status 1"
document '```console fails' '$ true' '```'
run 1 "exit status 0"
document '```sh run' 'true && true' 'echo "[ ! -e / ]; true" > a' '. ./a' '```'
run 0 "1 commands, 0 faults"
document '```sh run' 'false && true' 'true' '```'
run 1 "exit status 1"
document '```console' '$ mpirun -n 2 true' '```'
run 77 "needs an MPI launcher"
verdict
