#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The recipes for Slurm and Kubernetes, with stand-ins for srun, scontrol, ssh and sshd that run everything on this
# machine. One node of two is killed: the other continues without it from the last complete step, and ends the run. On
# SIGTERM the run saves and ends; started again, it resumes.
#   test_ranks_recipes.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/lost.sh"
"$launcher" --version 2> /dev/null | grep -q HYDRA ||
    { echo "skipped: $launcher is not MPICH's, whose way to another host is known"; exit 77; }
recipes=$(cd "${0%/*}/../../docs/recipes" && pwd)

mkdir "$work/commands"
# on NODE COMMAND: runs it as on another node, unless that is down
cat > "$work/commands/on" << END
#!/bin/sh
[ ! -e $work/down-\$1 ] || exit 255
echo \$\$ >> $work/processes-\$1
export TX_TEST_HOST=$work
exec sh -c "\$2"
END
cat > "$work/commands/srun" << 'END'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do
    case $1 in --nodelist=*) node=${1#*=} ;; esac
    shift
done
[ "$1 $2" = "sh -c" ] || exec echo "srun: unexpected command: $*"
SLURM_PROCID=0 SLURM_NTASKS=1 exec on "$node" "$3"
END
cat > "$work/commands/ssh" << 'END'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
node=$1
shift
exec on "$node" "$*"
END
cat > "$work/commands/scontrol" << 'END'
#!/bin/sh
[ "$*" = "show hostnames node[1-2]" ] && printf 'node1\nnode2\n'
END
cat > "$work/commands/sshd" << 'END'
#!/bin/sh
echo "sshd $*"
END
chmod +x "$work/commands/"*
PATH=$work/commands:$bin:$PATH
export PATH

slurm()
{
    SLURM_JOB_ID=7 SLURM_JOB_NODELIST='node[1-2]' SLURM_JOB_NUM_NODES=2 SLURM_NTASKS_PER_NODE=2 \
        exec $apart sh "$recipes/slurm.sh" "$@"
}

kubernetes()
{
    JOB_COMPLETION_INDEX=0 JOB_NAME=tx SERVICE=tx PODS=2 RANKS_PER_POD=2 exec $apart sh "$recipes/kubernetes/start.sh" "$@"
}

# job KIND: starts it in the background, into $work/KIND
job()
{
    # shellcheck disable=SC2086
    (cd "$work" && export OUTPUT_DIR="$work/$1" TX_LAUNCH_OPTIONS="--launcher $launcher --restart_delay 0.1" &&
        "$1" $from --config_overrides n_layer=6,n_embd=96 --threads 1 --seed 3 --max_steps 80 --learning_rate 1e-3 \
            --logging_strategy no --device "$device" --save_strategy no --per_device_train_batch_size 4 \
            --comm_timeout 3) > "$work/out" 2> "$work/err" &
    pid=$!
}

for kind in slurm kubernetes; do
    job $kind
    await_line $kind 8
    kill -s TERM $pid
    wait $pid
    status=$?
    [ $status -eq 143 ] || fail "$kind: status $status after SIGTERM"
    job $kind
    await_line $kind 20
    case $kind in slurm) node=node2 ;; *) node=tx-1.tx ;; esac
    : > "$work/down-$node"
    kill_host "$work/processes-$node"
    wait $pid
    status=$?
    # On a busy machine a rank may be killed while it exits.
    [ $status -eq 0 ] || grep -q "^txlaunch: the run is complete" "$work/err" || fail "$kind: status $status"
    grep -q "^txlaunch: $node does not answer: continuing with 2 ranks" "$work/err" || fail "$kind: not without $node"
    grep -q ", the last complete step, which the remaining ranks saved" "$work/err" || fail "$kind: no last step"
    ended "$work/$kind" 80
    sed -n 's/^{"step": \([0-9]*\), "epoch".*/\1/p' "$work/$kind/log.jsonl" > "$work/got"
    seq 1 80 | cmp -s - "$work/got" || fail "$kind: steps were lost or made twice"
done

# The other pods run the ssh server.
[ "$(JOB_COMPLETION_INDEX=1 sh "$recipes/kubernetes/start.sh" --max_steps 80)" = "sshd -D -e" ] ||
    fail "a pod without a server"
verdict
