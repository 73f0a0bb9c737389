#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two hosts: network namespaces with names of their own, joined by a virtual cable, which is then cut. Without root, or
# without what that needs, skipped. test_hosts.sh TXLAUNCH RANK LAUNCHER(empty: built without MPI)
set -u
. "${0%/*}/common.sh"
a=txl$$a
b=txl$$b
near=10.77.92.1
far=10.77.92.2

clean()
{
    for name in "$a" "$b"; do
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

"$mpi" --version 2> /dev/null | grep -q HYDRA || skip "$mpi is not MPICH's, whose way to another host is known"
[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
command -v ip > /dev/null || skip "ip is missing: apt-get install iproute2"
command -v unshare > /dev/null || skip "unshare is missing: apt-get install util-linux"
ip netns add "$a" 2> "$work/err" && ip netns add "$b" 2>> "$work/err" ||
    skip "no network namespaces here: $(cat "$work/err")"
ip link add txcable netns "$a" type veth peer name txcable netns "$b" 2> "$work/err" ||
    skip "no virtual cables here: $(cat "$work/err")"
ip -n "$a" addr add $near/24 dev txcable
ip -n "$b" addr add $far/24 dev txcable
for name in "$a" "$b"; do
    ip -n "$name" link set lo up
    ip -n "$name" link set txcable up
done
for _ in 1 2 3 4 5 6 7 8 9 10; do
    ip -n "$a" link show txcable | grep -q 'state UP' && break
    sleep 0.5
done
sleep 1 # until then MPI finds no address there

# Called as ssh would be: [OPTION...] HOST COMMAND...; a host whose cable is cut is not reached.
cat > "$work/launch" << EOF
#!/bin/sh
while :; do case \$1 in -*) shift ;; *) break ;; esac; done
shift
ip -n $a link show txcable | grep -q 'state UP' || exit 255
exec ip netns exec $b unshare --uts sh -c 'hostname $b; eval "exec \$*"' $b "\$@"
EOF
# The launcher with what messages between namespaces need: they must not go through shared memory.
cat > "$work/mpiexec" << EOF
#!/bin/sh
[ "\$1" != --version ] || exec $mpi --version
exec $mpi -launcher ssh -launcher-exec $work/launch -genv UCX_TLS tcp,self -genv UCX_NET_DEVICES txcable "\$@"
EOF
# txlaunch on the first host.
cat > "$work/near" << EOF
#!/bin/sh
exec ip netns exec $a unshare --uts sh -c 'hostname $a; exec "\$0" "\$@"' $txlaunch "\$@"
EOF
chmod +x "$work/launch" "$work/mpiexec" "$work/near"
txlaunch=$work/near
mpi=$work/mpiexec

start whole -n 2 --hosts $near,$far --start_timeout 20 -- --steps 40
wait "$waiting"
status=$?
whole=$(final)
[ -n "$whole" ] || skip "MPI does not get from one network namespace to another: $(head -n 1 "$work/err")"
[ $status -eq 0 ] || fail "status $status"
says "complete after 0 restarts"

# A rank of the other host dies.
run 0 killed -n 2 --hosts $near,$far --start_timeout 20 -- --steps 40 --fault kill:1:13
says "rank 1 on $b (pid "
says "died; its last known step is "
[ "$(final)" = "$whole" ] || fail "killed: the result differs"

# The cable is cut and joined again: the same number of ranks.
start cut -n 2 --hosts $near,$far --start_timeout 8 --max_restarts 9 -- --steps 40 --step_ms 50
wait_for_step 5
ip -n "$a" link set txcable down
for _ in $(seq 200); do
    grep -q "restart 1 of" "$work/err" && break
    sleep 0.1
done
ip -n "$a" link set txcable up
finish 0
says "rank 1 on $b (pid "
says "gave no sign of life for 3 s"
[ "$(final)" = "$whole" ] || fail "cut: the result differs"

# It stays cut: with one rank on the host that is left.
start alone -n 2 --min_ranks 1 --hosts $near,$far --start_timeout 8 -- --steps 40 --step_ms 50
wait_for_step 5
ip -n "$a" link set txcable down
finish 0
says "$far does not answer: going on with 1 ranks on the other hosts"
grep -q "^resumed after step .* with 1 ranks" "$work/out" || fail "it does not go on with one rank"
[ -n "$(final)" ] || fail "alone: no result"

# A host that was never there, and all are needed.
ip -n "$a" link set txcable up
ip -n "$b" link set txcable down
run 1 never -n 2 --max_restarts 1 --hosts $near,$far --start_timeout 3 -- --steps 40
says "did not report within 3 s"
says "(--min_ranks): trying it again"
says "given up after 1 restarts"

[ $failures -eq 0 ]
