# SPDX-License-Identifier: Apache-2.0
# Two hosts on one machine: network namespaces $host_a and $host_b with host names of their own, joined by a virtual
# cable. Sourced after program.sh, with $launcher. Skips the test without root rights or the required commands.
# shellcheck shell=sh disable=SC2154
host_a=txa$$
host_b=txb$$
cable=txcable

clean()
{
    for name in "$host_a" "$host_b"; do
        for process in $(ip netns pids "$name" 2> /dev/null); do
            kill -s KILL "$process" 2> /dev/null
        done
        ip netns del "$name" 2> /dev/null
    done
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

skip()
{
    echo "skipped: $*"
    exit 77
}

"$launcher" --version 2> /dev/null | grep -q HYDRA ||
    skip "$launcher is not MPICH's, whose way to another host is known"
[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
command -v ip > /dev/null || skip "ip is missing: apt-get install iproute2"
command -v unshare > /dev/null || skip "unshare is missing: apt-get install util-linux"
ip netns add "$host_a" 2> "$work/err" && ip netns add "$host_b" 2>> "$work/err" ||
    skip "no network namespaces here: $(cat "$work/err")"
ip link add $cable netns "$host_a" type veth peer name $cable netns "$host_b" 2> "$work/err" ||
    skip "no virtual cables here: $(cat "$work/err")"
ip -n "$host_a" addr add 10.77.94.1/24 dev $cable
ip -n "$host_b" addr add 10.77.94.2/24 dev $cable
for name in "$host_a" "$host_b"; do
    ip -n "$name" link set lo up
    ip -n "$name" link set $cable up
done
for _ in 1 2 3 4 5 6 7 8 9 10; do
    ip netns exec "$host_a" ping -c 1 -W 1 10.77.94.2 > /dev/null 2>&1 && break
    sleep 0.5
done

# Called as ssh would be: [OPTION...] HOST COMMAND... It cannot reach a host whose cable is cut. It runs the commands in
# $work/second before COMMAND.
: > "$work/second"
cat > "$work/launch" << EOF
#!/bin/sh
while :; do case \$1 in -*) shift ;; *) break ;; esac; done
shift
ip -n $host_a link show $cable | grep -q 'state UP' || exit 255
exec ip netns exec $host_b unshare --uts sh -c 'hostname $host_b; . $work/second; eval "exec \$*"' $host_b "\$@"
EOF
# The launcher, with messages between namespaces by TCP: they must not use shared memory.
cat > "$work/mpiexec" << EOF
#!/bin/sh
[ "\$1" != --version ] || exec $launcher --version
exec $launcher -launcher ssh -launcher-exec $work/launch -genv UCX_TLS tcp,self -genv UCX_NET_DEVICES $cable "\$@"
EOF
# A command on the first host.
cat > "$work/near" << EOF
#!/bin/sh
exec ip netns exec $host_a unshare --uts sh -c 'hostname $host_a; exec "\$0" "\$@"' "\$@"
EOF
chmod +x "$work/launch" "$work/mpiexec" "$work/near"

# on_hosts RANKS_A_HOST ARGUMENT...: the launcher on both
on_hosts()
{
    each=$1
    shift
    timeout -s KILL "${limit_seconds:-200}" "$work/near" "$work/mpiexec" -hosts 10.77.94.1,10.77.94.2 -n $((2 * each)) \
        -ppn "$each" "$@"
}

# shape RATE: limits the cable's rate in each direction
shape()
{
    for name in "$host_a" "$host_b"; do
        ip netns exec "$name" tc qdisc add dev $cable root tbf rate "$1" burst 256kb latency 50ms || return 1
    done
}

unshape()
{
    for name in "$host_a" "$host_b"; do
        ip netns exec "$name" tc qdisc del dev $cable root
    done
}
