#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txtopo --mpi: alone, several ranks of one host, and two hosts: network namespaces with names of their own, joined by a
# virtual cable. Without root, or without what that needs, the last part is skipped.
#
#   test_mpi.sh TXTOPO LAUNCHER(empty: built without MPI) one|two
set -u
txtopo=$1
launcher=$2
part=$3
. "${0%/*}/../program.sh"
a=txa$$
b=txb$$

clean()
{
    ip netns del "$a" 2> /dev/null
    ip netns del "$b" 2> /dev/null
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

# says TEXT COUNT: so many lines of the output hold the text
says()
{
    [ "$(grep -cF -- "$1" "$work/out")" -eq "$2" ] || fail "\"$1\" is not there $2 times"
}

# matrices COUNT: so many hosts are shown, with devices or without
matrices()
{
    [ "$(grep -cE 'CPU Affinity|^No GPU, no NIC' "$work/out")" -eq "$1" ] || fail "not $1 hosts are shown"
}

skip()
{
    echo "skipped: $*"
    exit 77
}

[ -z "$launcher" ] || command -v "$launcher" > /dev/null || skip "$launcher is missing: apt-get install mpich"

if [ "$part" = one ]; then
    "$txtopo" --mpi --measure > "$work/out" 2> "$work/err" || fail "alone: status $?"
    says "1 host: $(uname -n)." 1
    says "there is nothing to measure between hosts" 1
    matrices 1
    "$txtopo" --mpi --json > "$work/out" 2> "$work/err" && fail "--mpi --json is accepted"
    [ -n "$launcher" ] || exit $((failures > 0))
    "$launcher" -n 3 "$txtopo" --mpi > "$work/out" 2> "$work/err" || fail "three ranks: status $?"
    says "1 host: $(uname -n)." 1
    matrices 1
    OCL_ICD_VENDORS=/nowhere "$launcher" -n 2 "$txtopo" --mpi > "$work/out" 2> "$work/err" || fail "no OpenCL: status $?"
    says "1 host: $(uname -n)." 1
    exit $((failures > 0))
fi

# ---- two hosts --------------------------------------------------------------------------------------
[ -n "$launcher" ] || skip "built without MPI"
"$launcher" --version 2> /dev/null | grep -q HYDRA || skip "$launcher is not MPICH's, whose way to another host is known"
[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
command -v ip > /dev/null || skip "ip is missing: apt-get install iproute2"
command -v unshare > /dev/null || skip "unshare is missing: apt-get install util-linux"
ip netns add "$a" 2> "$work/err" && ip netns add "$b" 2>> "$work/err" ||
    skip "no network namespaces here: $(cat "$work/err")"
ip link add txcable netns "$a" type veth peer name txcable netns "$b" 2> "$work/err" ||
    skip "no virtual cables here: $(cat "$work/err")"
ip -n "$a" addr add 10.77.91.1/24 dev txcable
ip -n "$b" addr add 10.77.91.2/24 dev txcable
for name in "$a" "$b"; do
    ip -n "$name" link set lo up
    ip -n "$name" link set txcable up
done
for wait in 1 2 3 4 5 6 7 8 9 10; do
    ip netns exec "$a" ping -c 1 -W 1 10.77.91.2 > /dev/null 2>&1 && break
    sleep 0.5
done

# Called as ssh would be: [OPTION...] HOST COMMAND... The second host has its own name, and the vendors in $second.
cat > "$work/launch" << EOF
#!/bin/sh
while :; do case \$1 in -*) shift ;; *) break ;; esac; done
shift
exec ip netns exec $b unshare --uts sh -c 'hostname $b; . $work/second; eval "exec \$*"' $b "\$@"
EOF
chmod +x "$work/launch"

# Messages between the namespaces must not go through shared memory. MPICH 4.0 over UCX 1.13's TCP sometimes waits for
# ever in MPI_Finalize, or dies there, when all is said: what counts is what was said, and that txtopo complained of
# nothing. A run that was cut before its end is tried again.
hosts()
{
    for try in 1 2 3; do
        timeout 30 ip netns exec "$a" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$a" "$launcher" -launcher ssh \
            -launcher-exec "$work/launch" -hosts 10.77.91.1,10.77.91.2 -n 2 -ppn 1 -genv UCX_TLS tcp,self \
            -genv UCX_NET_DEVICES txcable "$txtopo" --mpi "$@" > "$work/out" 2> "$work/err"
        grep -q "^txtopo: " "$work/err" && return 1
        grep -q "^2 hosts" "$work/out" && { [ $# -eq 0 ] || grep -q "^$b  *$a " "$work/out"; } && return 0
    done
    [ -s "$work/out" ] || skip "MPI does not get from one network namespace to another: $(head -n 1 "$work/err")"
    return 1
}

: > "$work/second"
hosts --measure || fail "two hosts"
says "2 hosts, all of one kind." 1
says "Kind 1, 2 hosts: $a, $b" 1
matrices 1
says "Measured between hosts" 1
for way in "$a $b" "$b $a"; do
    awk -v way="$way" '$1 " " $2 == way && $3 > 0 && $4 > 0 { found++ } END { exit found != 1 }' "$work/out" ||
        fail "no rate from host to host: $way"
done

# The second host has another machine's tree.
echo 'export HWLOC_SYNTHETIC="pack:2 [numa(memory=1073741824)] core:2 pu:2" HWLOC_THISSYSTEM=0' > "$work/second"
hosts || fail "unlike hosts"
says "2 hosts, 2 kinds." 1
says "Kind 2, 1 host: " 1
says "Not as in kind 1:" 1
says "  NUMA nodes: 2, not" 1
matrices 2

[ $failures -eq 0 ]
