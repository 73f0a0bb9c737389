#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The cable between two hosts is cut at a moment that nobody chose: the job ends by itself, not 0, with a line that names the
# rank that is out of reach; under txlaunch it goes on when the cable is joined, and ends with the weights of the run that
# nothing happened to.
#   test_ranks_cut.sh BIN LAUNCHER DEVICE [TIMES]
set -u
bin=$1
launcher=$2
device=$3
times=${4:-1}
. "${0%/*}/ranks.sh"
. "${0%/*}/../hosts.sh"
seed=$$

# random N: 0 .. N-1
random()
{
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    echo $((seed / 65536 % $1))
}

# The launcher of txlaunch, and txlaunch on the first host; a host whose cable is cut is not reached.
cat > "$work/reach" << EOF
#!/bin/sh
ip -n $host_a link show $cable | grep -q 'state UP' || exit 255
exec $work/launch "\$@"
EOF
cat > "$work/mpiexec" << EOF
#!/bin/sh
[ "\$1" != --version ] || exec $launcher --version
exec $launcher -launcher ssh -launcher-exec $work/reach -genv UCX_TLS tcp,self -genv UCX_NET_DEVICES $cable "\$@"
EOF
chmod +x "$work/reach" "$work/mpiexec"

set -- --train_file "$work/text" --config_name "$work/config.json" --config_overrides n_layer=6,n_embd=96 --block_size 32 \
    --threads 1 --seed 3 --max_steps 200 --learning_rate 1e-3 --logging_strategy no --ddp_overlap no --device "$device" \
    --per_device_train_batch_size 4 --save_strategy steps --save_steps 20 --save_total_limit 2 --comm_timeout 3

on_hosts 1 "$bin/txtrain" "$@" --output_dir "$work/whole" > "$work/out" 2> "$work/err" || fail "the unbroken run"

# cut FOLDER: at a random moment after the first steps of the run into FOLDER
cut_cable()
{
    tries=0
    until [ -s "$1/log.jsonl" ] || [ $tries -ge 600 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    sleep "$(random 2).$(random 10)"
    ip -n "$host_a" link set $cable down
}

i=0
while [ $i -lt "$times" ]; do
    limit_seconds=60 on_hosts 1 "$bin/txtrain" "$@" --output_dir "$work/alone$i" > "$work/out" 2> "$work/err" &
    pid=$!
    cut_cable "$work/alone$i"
    wait $pid
    status=$?
    [ $status -ne 0 ] && [ $status -ne 137 ] || fail "the launcher ended with $status"
    grep -q "^txtrain: rank 1 on $host_b does not answer: its last step is" "$work/err" || fail "rank 1 is not named"
    for process in $(ip netns pids "$host_b"); do # which nobody can reach
        kill -s KILL "$process" 2> /dev/null
    done
    ip -n "$host_a" link set $cable up

    ip netns exec "$host_a" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$host_a" timeout -s KILL 150 "$bin/txlaunch" \
        --launcher "$work/mpiexec" -n 2 --hosts 10.77.94.1,10.77.94.2 --max_restarts 9 --start_timeout 8 \
        --heartbeat_timeout 4 -- "$bin/txtrain" "$@" --output_dir "$work/again$i" > "$work/out" 2> "$work/err" &
    pid=$!
    cut_cable "$work/again$i"
    tries=0
    until grep -q "restart 1 of" "$work/err" || [ $tries -ge 400 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    ip -n "$host_a" link set $cable up
    wait $pid
    status=$?
    [ $status -eq 0 ] || fail "txlaunch ended with $status"
    grep -q "rank 1 on $host_b" "$work/err" || fail "txlaunch names no rank"
    same whole "again$i"
    rm -rf "$work/alone$i" "$work/again$i"
    i=$((i + 1))
done

[ $failures -eq 0 ] && echo "all good"
exit $((failures != 0))
