#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How attempts end, and what txlaunch makes of it. test_ends.sh TXLAUNCH RANK LAUNCHER(empty: built without MPI)
. "${0%/*}/common.sh"

run 0 whole -n 2 --
restarts 0
lines 1
whole=$(final)
[ -n "$whole" ] || fail "no result"

# again NAME FAULT TEXT: fails once, says the text, and ends with the result of the unbroken run
again()
{
    run 0 "$1" -n 2 -- --fault "$2"
    says "$3"
    says "from checkpoint-10"
    restarts 1
    lines 2
    [ "$(final)" = "$whole" ] || fail "$1: the result differs: $(final), not $whole"
    grep -q "^resumed after step 10 with 2 ranks" "$work/out" || fail "$1: it did not resume"
}
again killed kill:1:13 "rank 1 on $(uname -n) (pid "
again first kill:0:13 "rank 0 on $(uname -n) (pid "
again left exit0:1:13 "rank 1 on $(uname -n) (pid "
again gone exit1:0:13 "ended with status 1 and reported no error to txlaunch"
again failed failed:1:13 "the device is lost"

# A log a rank, over all attempts; lines of the ranks are marked.
run 0 logged -n 2 --log_dir "$work/logs" -- --fault kill:1:13
grep -q "^\[0\] resumed after step 10 with 2 ranks" "$work/out" || fail "rank 0's lines are not marked"
grep -q "^resumed after step 10 with 2 ranks" "$work/logs/rank-0.log" || fail "rank 0's log has not what it printed"
[ "$(sed -n 's/^\[0\] //p' "$work/out" | cksum)" = "$(cksum < "$work/logs/rank-0.log")" ] ||
    fail "rank 0's log is not all that it printed"

[ -f "$work/logs/rank-1.log" ] || fail "rank 1 has no log"
run 1 unlogged -n 2 --log_dir "$work/none/logs" --
says "cannot create it"
# Neither the target of a link nor a pipe becomes a log.
mkdir "$work/linked"
echo precious > "$work/target"
ln -s ../target "$work/linked/rank-1.log"
run 1 linked -n 2 --log_dir "$work/linked" --
[ "$(cat "$work/target")" = precious ] || fail "a log has been written through a link"
says "rank-1.log: a link"

# The watch reports a rank that hangs.
start hangs -n 2 -- --fault hang:1:13 --timeout 2
finish 0
grep -q "^rank: rank 1 on .* last step 12" "$work/err" || fail "the watch does not name rank 1"
says "step is 12"
[ "$(final)" = "$whole" ] || fail "hang: the result differs"

# Without a checkpoint the command begins anew, also in a folder that it began to fill.
run 0 early -n 2 -- --fault kill:1:4
says "from the beginning"
[ "$(final)" = "$whole" ] || fail "early: the result differs"
run 0 overwrites -n 2 -- --overwrite_output_dir --fault kill:1:13
[ "$(final)" = "$whole" ] || fail "overwrite: the result differs"

# Deaths before the first step: with the log open, and before a rank has reported.
run 0 born -n 2 -- --fault kill:0:0
says "rank 0 on $(uname -n) (pid "
says "no step"
says "from the beginning"
restarts 1
[ "$(final)" = "$whole" ] || fail "born: the result differs"
run 0 unborn -n 2 -- --fault unborn:0:-1
says "from the beginning"
restarts 1
[ "$(final)" = "$whole" ] || fail "unborn: the result differs"
run 1 never -n 2 --max_restarts 9 -- --fault kill:0:0 --always
restarts 2
says "same failure"

# Earlier contents of the folder are not changed, and the run does not resume from them unless the command says so.
for name in theirs over; do
    mkdir -p "$work/$name/checkpoint-15"
    echo "15 0x1p0" > "$work/$name/checkpoint-15/manifest.json"
    echo old > "$work/$name/log.jsonl"
done
run 1 theirs -n 2 -- --fault unborn:0:-1
says "from the beginning"
restarts 1
says "failed before the first step"
[ "$(cat "$work/theirs/log.jsonl")" = old ] || fail "theirs: the log is overwritten"
run 0 over -n 2 -- --overwrite_output_dir --fault unborn:0:-1
[ "$(final)" = "$whole" ] || fail "over: it went on from a checkpoint of before"
# The same if the command could not remove them, before and after its own first checkpoint.
for step in 4 13; do
    rm -f "$work/over/fault"
    rm -rf "$work/over/checkpoint-5" "$work/over/checkpoint-10" "$work/over/checkpoint-20"
    echo "15 0x1p0" > "$work/over/checkpoint-15/manifest.json"
    run 0 over -n 2 -- --overwrite_output_dir --fault kill:1:$step
    [ "$(final)" = "$whole" ] || fail "over: after step $step it went on from a checkpoint of before"
done
says "from checkpoint-10"

# A checkpoint that the command names holds until there is one of its own, whatever else lies there.
mkdir "$work/named"
cp -r "$work/whole/checkpoint-5" "$work/named/"
mkdir "$work/named/checkpoint-15"
for step in 8 13; do
    rm -rf "$work/named/fault" "$work/named/checkpoint-10" "$work/named/checkpoint-20"
    echo "15 0x1p0" > "$work/named/checkpoint-15/manifest.json"
    run 0 named -n 2 -- --resume_from_checkpoint="$work/named/checkpoint-5" --fault kill:1:$step
    [ "$(final)" = "$whole" ] || fail "named: after step $step it went on from another checkpoint"
done
says "from checkpoint-10"

# The launcher is killed, or a stranger's connection ends it, which is not taken for the death of a rank.
start bereft -n 2 -- --fault hang:1:13
wait_for_step 7 # the first checkpoint is told by then
kill -s KILL "$(pgrep -o -P "$launched")"
: > "$out/fault" # it does not hang again
finish 0
says "${mpi##*/} ended"
says "from checkpoint-"
restarts 1
if "$mpi" --version | grep -q HYDRA && command -v python3 > /dev/null && command -v ss > /dev/null; then
    start knocked -n 2 -- --fault hang:1:13
    wait_for_step 7
    port=$(ss -Hltnp | sed -n "s/^.*:\([0-9]*\) .*pid=$(pgrep -o -P "$launched"),.*/\1/p")
    python3 -c "import socket; socket.create_connection(('127.0.0.1', $port)).close()"
    : > "$out/fault"
    finish 0
    says "${mpi##*/} ended"
    restarts 1
fi

# What starting again would not help.
run 1 poisoned -n 2 --max_restarts 9 -- --fault kill:1:13 --always
# Two restarts, or more if the machine is so busy that a failure looks different.
says "same failure"
run 1 refused -n 2 -- --fault refuse:1:0
says "config.json differs from rank 0's"
restarts 0
run 1 usage -n 2 -- --unknown
restarts 0
lines 0
run 1 none -n 2 --max_restarts 0 -- --fault kill:1:13
lines 1

# Everything is written, and MPI hangs at its end.
run 0 finalize -n 2 -- --fault finalize:0:0
restarts 0
says "did not end"

# A program that does not report may end with status zero, since the run is not known to be complete.
timeout 60 "$txlaunch" --launcher "$mpi" -n 1 -- true > "$work/out" 2> "$work/err" && fail "true counts as complete"
says "does not report"
restarts 0

timeout 60 "$txlaunch" --launcher /nowhere/mpiexec -n 2 -- true 2> "$work/err"
[ $? -eq 1 ] || fail "a launcher that is missing"
says "/nowhere/mpiexec: "
timeout 60 "$txlaunch" --launcher "$mpi" -n 2 -- /nowhere/program > "$work/out" 2> "$work/err" &&
    fail "a missing program"
restarts 0
says "/nowhere/program: cannot be started"
lines 1

# The program's first word ends the options of txlaunch, and a program in its folder needs no path. A mistake in the
# program's options is one line, without the launcher's report.
(cd "$work" && PATH=/usr/bin:/bin timeout 60 "$txlaunch" --launcher "$mpi" -n 2 txtrain --trian_file x) > "$work/out" 2> "$work/err"
[ "$(cat "$work/err")" = "txtrain: --trian_file: unknown option; did you mean --train_file?" ] || fail "a wrong option: more than a line"
[ ! -s "$work/out" ] || fail "a wrong option: the launcher's report"

# The words of torchrun and accelerate.
for words in "--nproc_per_node 2 --nnodes 1 --master_addr localhost --master_port 29500" "--num_processes=2" "-np 2"; do
    # shellcheck disable=SC2086
    timeout 60 "$txlaunch" --launcher "$mpi" --max_restarts 0 $words sh -c 'echo a rank' > "$work/out" 2> "$work/err"
    [ "$(grep -c '^a rank$' "$work/out")" -eq 2 ] || fail "$words: not two ranks"
done

# refuses TEXT ARGUMENT...: wrong options
refuses()
{
    text=$1
    shift
    timeout 60 "$txlaunch" --launcher "$mpi" "$@" > "$work/out" 2> "$work/err"
    status=$?
    [ $status -eq 1 ] || [ $status -eq 2 ] || fail "$*: status $status"
    says "$text"
    lines 1
}
refuses "COMMAND is missing" -n 2
refuses "exclude each other" --hosts a --hostfile b -- true
refuses "-n and --nproc_per_node exclude each other" -n 2 --nproc_per_node 2 true
refuses "list the hosts with --hosts" --nproc_per_node 2 --nnodes 2 true
refuses "list the hosts with --hosts" -n 2 --master_addr 10.0.0.1 true
refuses "--min_ranks 3 is more than the 2 ranks" -n 2 --min_ranks 3 -- true
refuses "slots for 2 ranks" -n 2 --hosts localhost:1 -- true
refuses "not a number of slots" -n 2 --hosts localhost:x -- true
refuses "invalid shell quoting" --launcher_args '-a "b' -- true
refuses "/nowhere/hosts" --hostfile /nowhere/hosts -- true

[ $failures -eq 0 ]
