#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# man.sh BIN SOURCE PROGRAM...: help2man makes a manual page of each program, and of each command with its own options.
# The pages have a title, a description and the options, and man and mandoc read them without complaints.
bin=$1
source=$2
shift 2
command -v help2man > /dev/null || { echo "skipped: no help2man"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

fail()
{
    echo "FAILED: $*"
    status=1
}

sh "$source/tools/man.sh" "$bin" "$work/man" "$@" || fail "man.sh ends with an error"
for program in "$@" txbench-train; do
    page=$work/man/$program.1
    grep -q "^\.TH $(echo "$program" | tr '[:lower:]' '[:upper:]') \"1\"" "$page" || fail "$program: no title"
    grep -q "^$program \\\\- [a-z]" "$page" || fail "$program: no description"
    grep -q '^\.SH SYNOPSIS' "$page" || fail "$program: no synopsis"
    grep -q '^\\fB\\-\\-help\\fR' "$page" || fail "$program: does not show --help"
done
for page in "$work"/man/*.1; do
    if command -v mandoc > /dev/null; then
        mandoc -T lint -W error "$page" || fail "$page: mandoc"
    fi
    if command -v man > /dev/null; then
        LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -l "$page" 2>&1 > /dev/null | grep . && fail "$page: man"
    fi
done
exit $status
