#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two hosts (tests/hosts.sh), whose cable is then cut. test_hosts.sh TXLAUNCH RANK LAUNCHER(empty: built without MPI)
. "${0%/*}/common.sh"
launcher=$mpi
. "${0%/*}/../hosts.sh"
a=$host_a
b=$host_b
near=10.77.94.1
far=10.77.94.2

# txlaunch on the first host.
cat > "$work/txlaunch" << EOF
#!/bin/sh
exec $work/near $txlaunch "\$@"
EOF
chmod +x "$work/txlaunch"
txlaunch=$work/txlaunch
mpi=$work/mpiexec

start whole -n 2 --hosts $near,$far --start_timeout 20 -- --steps 40
wait "$waiting"
status=$?
whole=$(final)
[ -n "$whole" ] || skip "MPI does not get from one network namespace to another: $(head -n 1 "$work/err")"
[ $status -eq 0 ] || fail "status $status"
restarts 0

# A rank of the other host dies.
run 0 killed -n 2 --hosts $near,$far --start_timeout 20 -- --steps 40 --fault kill:1:13
says "rank 1 on $b (pid "
says "was killed by signal 9"
[ "$(final)" = "$whole" ] || fail "killed: the result differs"

# The cable is cut and joined again: the same number of ranks.
start cut -n 2 --hosts $near,$far --start_timeout 8 --max_restarts 9 -- --steps 40 --timeout 3 --fault hang:1:40
wait_for_step 5
ip -n "$a" link set txcable down
: > "$out/fault" # it does not hang again
for _ in $(seq 200); do
    grep -q "restart 1 of" "$work/err" && break
    sleep 0.1
done
ip -n "$a" link set txcable up
finish 0
says "rank 1 on $b (pid "
[ "$(final)" = "$whole" ] || fail "cut: the result differs"

# It stays cut: with one rank on the host that is left.
start alone -n 2 --min_ranks 1 --hosts $near,$far --start_timeout 8 -- --steps 40 --timeout 3 --fault hang:1:40
wait_for_step 5
ip -n "$a" link set txcable down
finish 0
says "$far "
grep -q "^resumed after step .* with 1 ranks" "$work/out" || fail "it does not go on with one rank"
[ -n "$(final)" ] || fail "alone: no result"

# A host that was never there, and all are needed.
ip -n "$a" link set txcable up
ip -n "$b" link set txcable down
run 1 never -n 2 --max_restarts 1 --hosts $near,$far --start_timeout 3 -- --steps 40
says "--min_ranks"
restarts 1

[ $failures -eq 0 ]
