#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The communicator on two hosts of one rank and of two: network namespaces with names of their own, joined by a virtual
# cable. Without root, or without what that needs, it is skipped.
#
#   test_hosts.sh LAUNCHER TEST_COMM
set -u
. "${0%/*}/../program.sh"
launcher=$1
test_comm=$2
a=txca$$
b=txcb$$

clean()
{
    ip netns del "$a" 2> /dev/null
    ip netns del "$b" 2> /dev/null
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

skip()
{
    echo "skipped: $*"
    exit 77
}

"$launcher" --version 2> /dev/null | grep -q HYDRA || skip "$launcher is not MPICH's, whose way to another host is known"
[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
command -v ip > /dev/null || skip "ip is missing: apt-get install iproute2"
command -v unshare > /dev/null || skip "unshare is missing: apt-get install util-linux"
ip netns add "$a" 2> "$work/err" && ip netns add "$b" 2>> "$work/err" ||
    skip "no network namespaces here: $(cat "$work/err")"
ip link add txcable netns "$a" type veth peer name txcable netns "$b" 2> "$work/err" ||
    skip "no virtual cables here: $(cat "$work/err")"
ip -n "$a" addr add 10.77.93.1/24 dev txcable
ip -n "$b" addr add 10.77.93.2/24 dev txcable
for name in "$a" "$b"; do
    ip -n "$name" link set lo up
    ip -n "$name" link set txcable up
done
for wait in 1 2 3 4 5 6 7 8 9 10; do
    ip netns exec "$a" ping -c 1 -W 1 10.77.93.2 > /dev/null 2>&1 && break
    sleep 0.5
done

# Called as ssh would be: [OPTION...] HOST COMMAND...
cat > "$work/launch" << EOF
#!/bin/sh
while :; do case \$1 in -*) shift ;; *) break ;; esac; done
shift
exec ip netns exec $b unshare --uts sh -c 'hostname $b; eval "exec \$*"' $b "\$@"
EOF
chmod +x "$work/launch"

# hosts RANKS_A_HOST PROGRAM...: messages between the namespaces must not go through shared memory
hosts()
{
    each=$1
    shift
    timeout 200 ip netns exec "$a" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$a" "$launcher" -launcher ssh \
        -launcher-exec "$work/launch" -hosts 10.77.93.1,10.77.93.2 -n $((2 * each)) -ppn "$each" \
        -genv UCX_TLS tcp,self -genv UCX_NET_DEVICES txcable -genv TX_TEST_HOSTS 2 "$@" > "$work/out" 2> "$work/err"
}

hosts 1 "$test_comm" open || skip "MPI does not get from one network namespace to another: $(head -n 1 "$work/err")"
for each in 1 2; do
    hosts "$each" "$test_comm" || fail "two hosts of $each: status $?"
    [ "$(cat "$work/out" "$work/err" | grep -c "\[  PASSED  \] 1")" -eq $((2 * each)) ] || fail "two hosts of $each: not all passed"
done
# Ends meet: no rank stays in MPI when the others have gone.
for try in 1 2 3 4 5 6 7 8 9 10; do
    hosts 1 "$test_comm" open || fail "open and close, time $try: status $?"
done

[ $failures -eq 0 ]
