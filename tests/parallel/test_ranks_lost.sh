#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A host is lost at a random step. The others continue without it from their last complete step, in which a rank has
# saved its replica; then the host returns. No step is lost or made twice, and the losses are those of undisturbed runs
# with as many ranks from the same steps.
#   test_ranks_lost.sh BIN LAUNCHER DEVICE [HOSTS [TIMES [SECONDS [STAGE]]]]
# HOSTS: "": two hosts are processes with two ranks each. 4: four network namespaces, of which one is killed, or its
# cable is cut. SECONDS: --comm_timeout; 0 for the default. STAGE: of ZeRO within hosts.
device=$3
hosts=${4:-2}
times=${5:-1}
patience=${6:-$((hosts > 2 ? 6 : 3))} # more ranks than cores come late
shards=${7:+--zero_stage $7 --zero_hpz_partition_size 2}
. "${0%/*}/ranks.sh"
. "${0%/*}/lost.sh"

"$launcher" --version 2> /dev/null | grep -q HYDRA ||
    { echo "skipped: $launcher is not MPICH's, whose way to another host is known"; exit 77; }
steps=200
[ "$hosts" -gt 2 ] && steps=100
rate=1e-3

# train FOLDER ARGUMENT...: the arguments of txtrain
train()
{
    folder=$1
    shift
    echo "$bin/txtrain $from --config_overrides n_layer=6,n_embd=96 --threads 1 --seed 3 --max_steps $steps" \
        "--learning_rate $rate --logging_strategy no --ddp_overlap $overlap --device $device --save_strategy no" \
        "--per_device_train_batch_size 4 --comm_timeout $patience $shards --output_dir $folder $*"
}

# losses_of FOLDER FIRST LAST: steps and losses in its log
losses_of()
{
    sed -n 's/^{"step": \([0-9]*\), "epoch": [^,]*, "loss": \([^,]*\), .*/\1 \2/p' "$work/$1/log.jsonl" |
        awk -v first="$2" -v last="$3" '$1 >= first && $1 <= last'
}

# reference NAME RANKS STEP: an undisturbed run of so many ranks from the checkpoint of that step
reference()
{
    mkdir "$work/$1"
    cp -r "$work/run/checkpoint-$3" "$work/$1/"
    # shellcheck disable=SC2046
    timeout -s KILL 200 "$launcher" -n "$2" $(train "$work/$1" --resume_from_checkpoint) > "$work/out" \
        2> "$work/err" || fail "$1: the reference of $2 ranks from step $3"
}

# equal NAME FIRST LAST: the run has the losses of NAME in these steps
equal()
{
    losses_of "$1" "$2" "$3" > "$work/expected"
    losses_of run "$2" "$3" > "$work/got"
    [ -s "$work/got" ] && cmp -s "$work/expected" "$work/got" || fail "steps $2 to $3: other losses than $1"
}

all=$((2 * hosts))
few=$((all - 2))
done=0
while [ $done -lt "$times" ]; do
    [ $((done % 2)) -eq 0 ] && overlap=yes || overlap=no
    random "$hosts"
    lost=$((drawn + 1))
    rm -rf "$work/run" "$work/small" "$work/full"
    # shellcheck disable=SC2046
    start_launch --min_ranks $few --rejoin_interval 1 --restart_delay 0.1 -- $(train "$work/run") \
        > "$work/out" 2> "$work/err" &
    pid=$!
    random $((steps / 3))
    moment=$((drawn + 5))
    await_line run $moment
    random 2
    way=$drawn
    began=$(date +%s.%N)
    lose_host $lost $way
    await grep -q "^txlaunch: .* does not answer: continuing with $few ranks" "$work/err"
    first=$(sed -n 's/^txlaunch: .* from checkpoint-\([0-9]*\), the last complete step, .*/\1/p' "$work/err")
    [ -n "$first" ] || fail "host $lost, way $way, after step $moment: no last step was saved"
    await_line run $((${first:-$moment} + 1))
    took=$(echo "$(date +%s.%N) $began" | awk '{ printf "%.1f", $1 - $2 }')
    await_line run $((${first:-$moment} + 5))
    return_host $lost
    wait $pid
    status=$?
    [ $status -eq 0 ] || fail "txlaunch ended with $status"
    grep -q "^txlaunch: .* answers again: continuing with $all ranks" "$work/err" || fail "host $lost did not return"
    grep "^txlaunch: " "$work/err" | sed 's/^/    /'
    ended "$work/run" $steps
    seq 1 $steps > "$work/expected"
    losses_of run 1 $steps | cut -d ' ' -f 1 > "$work/got"
    cmp -s "$work/expected" "$work/got" ||
        fail "steps were lost or made twice: $(diff "$work/expected" "$work/got" | grep "^[<>]" | tr "\n" " ")"
    second=$(ls "$work/run" | sed -n 's/^checkpoint-//p' | sort -n | tail -n 1)
    if [ -n "$first" ] && [ "$second" -gt "$first" ]; then
        reference small $few "$first"
        equal small $((first + 1)) "$second"
        reference full $all "$second"
        equal full $((second + 1)) $steps
        same full run
    else
        fail "no checkpoint of the return"
    fi
    done=$((done + 1))
    echo "$done: host $lost lost (way $way) after step $moment: continued from $first after $took s, returned at $second"
done

verdict
