#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Windows and /dev/shm: one that is too small is an error on all ranks that says what to do, and nothing stays behind,
# whatever ends the ranks. Root mounts a /dev/shm of its own for it.
#
#   test_shm.sh LAUNCHER TEST_COMM
set -u
. "${0%/*}/../program.sh"
mpirun=${0%/*}/mpirun.sh
launcher=$1
test_comm=$2

skip()
{
    echo "skipped: $*"
    exit 77
}

# small COMMAND...: with 32 MB of /dev/shm, of which the libraries take some
small()
{
    unshare --mount sh -c 'mount -t tmpfs -o size=32m tmpfs /dev/shm && "$@"; status=$?
        ls /dev/shm | sed "s/^/left: /"; exit $status' small "$@" > "$work/out" 2> "$work/err"
}

command -v "$launcher" > /dev/null || skip "$launcher is missing: apt-get install mpich"
[ "$(id -u)" -eq 0 ] || skip "mounting needs root"
unshare --mount true 2> /dev/null || skip "no mount namespaces here"

small sh "$mpirun" "$launcher" 2 "$test_comm" window 4 || fail "a window of 4 MB: status $?"
[ "$(grep -c "window of 4 MB" "$work/out")" -eq 2 ] || fail "not two windows"
grep -q "left: tx-" "$work/out" && fail "segments stay behind"

small sh "$mpirun" "$launcher" 2 "$test_comm" window 64 && fail "a window of 64 MB in 32"
for text in "rank 0 on " "cannot make a window of 2 x 67.1 MB in shared memory: No space left on device" "MB free of 33.6" \
    "set TX_COMM_SHM=0"; do
    [ "$(grep -cF -- "$text" "$work/err")" -eq 2 ] || fail "not on both ranks: $text"
done
grep -q "left: tx-" "$work/out" && fail "segments stay behind after a failure"

TX_COMM_SHM=0 small sh "$mpirun" "$launcher" 2 "$test_comm" window 64 || fail "a window of 64 MB without shared memory"
TX_COMM_SHM=x small sh "$mpirun" "$launcher" 2 "$test_comm" window 1 && fail "TX_COMM_SHM=x is accepted"
grep -q "TX_COMM_SHM=x: expected" "$work/err" || fail "no word of TX_COMM_SHM=x"

small sh "$mpirun" "$launcher" 2 "$test_comm" window 4 kill && fail "killed ranks are no failure"
grep -q "window of 4 MB" "$work/out" || fail "killed too early"
grep -q "left: tx-" "$work/out" && fail "segments of killed ranks stay behind"

[ $failures -eq 0 ]
