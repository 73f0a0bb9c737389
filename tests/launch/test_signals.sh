#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks that are killed or stopped from outside, and signals to txlaunch. No processes may remain.
# test_signals.sh TXLAUNCH RANK LAUNCHER(empty: built without MPI)
. "${0%/*}/common.sh"

run 0 whole -n 2 -- --steps 60
whole=$(final)

# strike SIGNAL RANK SECONDS: this long after a checkpoint, or when the rank hangs; it does not hang again
strike()
{
    wait_for_step 5
    sleep "$3"
    kill -s "$1" "$(cat "$out/pid-$2")" || fail "rank $2 is gone"
    : > "$out/fault"
}

moments=$(awk -v seed=$$ 'BEGIN { srand(seed); for (i = 0; i < 3; i++) printf "%.2f ", 0.9 * rand() }')
echo "moments: $moments"
which=0
for moment in $moments; do
    start "kill$which" -n 2 -- --steps 60 --fault "hang:$((which % 2)):60"
    strike KILL $((which % 2)) "$moment"
    finish 0
    says "rank $((which % 2)) on $(uname -n) (pid "
    restarts 1
    lines 2
    [ "$(final)" = "$whole" ] || fail "killed after $moment s: the result differs"
    which=$((which + 1))
done

# A rank that is stopped is reported by the others, and rank 0 found by its silence as well.
for r in 0 1; do
    start "stop$r" -n 2 -- --steps 60 --fault "hang:$r:60" --timeout $((r == 1 ? 2 : 600))
    strike STOP $r 0.3
    finish 0
    says "rank $r on $(uname -n) (pid "
    [ $r -eq 1 ] || says "sent no heartbeat"
    restarts 1
    [ "$(final)" = "$whole" ] || fail "rank $r stopped: the result differs"
done

# A launcher that hangs
start mute -n 2 -- --steps 60 --fault hang:1:60
wait_for_step 5
kill -s STOP "$(pgrep -o -P "$launched")"
: > "$out/fault"
finish 0
says "sent no heartbeat"
restarts 1
[ "$(final)" = "$whole" ] || fail "the launcher stopped: the result differs"

# Without txlaunch: the watch of a rank that waits ends the job, and one line names the rank that does not answer.
for r in 1 0; do
    out=$work/watch$r
    timeout -k 5 60 "$mpi" -n 3 "$rank" --output_dir "$out" --steps 6000 --timeout 2 > "$work/out" 2> "$work/err" &
    waiting=$!
    strike STOP $r 0.2
    finish 17 9 25 1 # MPICH makes one status of those of all ranks, which it killed, or takes 1
    [ "$(grep -c '^rank: ' "$work/err")" -eq 1 ] || fail "not one line of the ranks"
    grep -q "^rank: rank $r on $(uname -n) .* last step [0-9]*" "$work/err" || fail "rank $r is not named"
done

# SIGTERM and SIGINT: the ranks save and end; the next run resumes from their checkpoint.
for signal in TERM INT; do
    start "ask$signal" -n 2 -- --steps 6000
    wait_for_step 5
    kill -s $signal "$launched"
    [ $signal = TERM ] && finish 143 || finish 130
    restarts 0
    lines 1
    grep -q "^rank: .*signal" "$work/err" || fail "$signal: the ranks did not end by themselves"
done
last=0
for folder in "$out"/checkpoint-*; do
    [ "${folder##*-}" -le "$last" ] || last=${folder##*-}
done
run 0 askINT -n 2 -- --steps $((last + 20)) --resume_from_checkpoint
grep -q "^resumed after step $last" "$work/out" || fail "it does not go on from step $last"

# A second signal ends everything at once, here ranks that hang.
start twice -n 2 -- --fault hang:1:8
wait_for_step 5
while kill -s TERM "$launched" 2> /dev/null; do
    sleep 0.5
done
finish 143

# txlaunch itself is killed: the launcher is told to end.
start orphan -n 2 -- --steps 6000
wait_for_step 5
kill -s KILL "$launched"
for _ in $(seq 100); do
    pgrep -f -- "--output_dir $out " > /dev/null || break
    sleep 0.1
done
finish 137

# txlaunch is stopped for longer than the limit and continues: no rank is blamed.
start slow -n 2 --heartbeat_timeout 2 -- --steps 50 --step_ms 100
wait_for_step 5
kill -s STOP "$launched"
sleep 3
kill -s CONT "$launched"
finish 0
restarts 0

[ $failures -eq 0 ]
