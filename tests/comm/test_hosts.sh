#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The communicator on two hosts of one rank and of two (tests/hosts.sh).
#
#   test_hosts.sh LAUNCHER TEST_COMM
. "${0%/*}/../program.sh"
launcher=$1
test_comm=$2
. "${0%/*}/../hosts.sh"

hosts()
{
    on_hosts "$1" -genv TX_TEST_HOSTS 2 "$test_comm" ${2:+"$2"} > "$work/out" 2> "$work/err"
}

hosts 1 open || skip "MPI does not get from one network namespace to another: $(head -n 1 "$work/err")"
for each in 1 2; do
    hosts "$each" || fail "two hosts of $each: status $?"
    [ "$(cat "$work/out" "$work/err" | grep -c "\[  PASSED  \] 1")" -eq $((2 * each)) ] || fail "two hosts of $each: not all passed"
done
# Ends meet: no rank stays in MPI when the others have gone.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    hosts 1 open || fail "open and close: status $?"
done

[ $failures -eq 0 ]
