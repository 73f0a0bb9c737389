#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Windows of shared memory: they need no room in /dev/shm and leave nothing there, whenever the ranks are killed; what
# cannot be made is an error on all ranks that says what to do. Root mounts a /dev/shm of its own for it.
#
#   test_shm.sh LAUNCHER TEST_COMM
. "${0%/*}/../program.sh"
mpirun=${0%/*}/mpirun.sh
launcher=$1
test_comm=$2

skip()
{
    echo "skipped: $*"
    exit 77
}

# small COMMAND...: with 32 MB of /dev/shm, of which the libraries take some, or $room
room=32m
small()
{
    unshare --mount sh -c 'mount -t tmpfs -o size='$room' tmpfs /dev/shm && "$@"; status=$?
        ls /dev/shm | sed "s/^/left: /"; exit $status' small "$@" > "$work/out" 2> "$work/err"
}

command -v "$launcher" > /dev/null || skip "$launcher is missing: apt-get install mpich"
[ "$(id -u)" -eq 0 ] || skip "mounting needs root"
unshare --mount true 2> /dev/null || skip "no mount namespaces here"

small sh "$mpirun" "$launcher" 2 "$test_comm" window 64 || fail "a window of 64 MB: status $?"
[ "$(grep -c "window of 64 MB" "$work/out")" -eq 2 ] || fail "not two windows"
grep -q "left: tx-" "$work/out" && fail "segments stay behind"

small sh "$mpirun" "$launcher" 2 "$test_comm" window 1000000000 && fail "a window of 10^9 MB"
for text in "rank 0 on " "cannot make a window of 2 x 1048576000.0 MB in shared memory: the " " MB of memory left; " \
    "fewer ranks on a host"; do
    [ "$(grep -cF -- "$text" "$work/err")" -eq 2 ] || fail "not on both ranks: $text"
done

# A rank that the others do not reach, here in a network of its own, which MPICH's own start does without.
if "$launcher" --version | grep -q HYDRA && unshare --net true 2> /dev/null; then
    cat > "$work/apart" << EOF
#!/bin/sh
[ "\$PMI_RANK" != 1 ] || exec unshare --net "$test_comm" window 4
exec "$test_comm" window 4
EOF
    chmod +x "$work/apart"
    small timeout -s KILL 60 sh "$mpirun" "$launcher" 2 "$work/apart" && fail "a window over two networks"
    grep -q "on $(uname -n) cannot send its segment of a window of 2 x .*; set TX_COMM_SHM=0" "$work/err" ||
        fail "no word of the rank that is not reached"
fi

TX_COMM_SHM=x small sh "$mpirun" "$launcher" 2 "$test_comm" window 1 && fail "TX_COMM_SHM=x is accepted"
grep -q "TX_COMM_SHM=x: expected" "$work/err" || fail "no word of TX_COMM_SHM=x"

small sh "$mpirun" "$launcher" 2 "$test_comm" window 4 kill && fail "killed ranks are no failure"
grep -q "window of 4 MB" "$work/out" || fail "killed too early"
grep -q "left: tx-" "$work/out" && fail "segments of killed ranks stay behind"

# Killed at any moment: before, while and after the windows are made, also with room for them in /dev/shm.
room=1g
seed=$$
for try in $(seq 12); do
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    moment=$(printf 0.%02d $((5 + seed / 65536 % 45)))
    # With the first process of a process namespace all others end.
    small timeout -s KILL "$moment" unshare --pid --fork --kill-child --mount-proc sh "$mpirun" "$launcher" 2 \
        "$test_comm" window 256
    grep -q "left: tx-" "$work/out" && fail "try $try, killed after $moment s: segments stay behind"
done

[ $failures -eq 0 ]
