#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How attempts end, and what txlaunch makes of it. test_ends.sh TXLAUNCH RANK LAUNCHER(empty: built without MPI)
set -u
. "${0%/*}/common.sh"

run 0 whole -n 2 --
says "complete after 0 restarts"
lines 1
whole=$(final)
[ -n "$whole" ] || fail "no result"

# again NAME FAULT TEXT: fails once, says the text, and ends with the result of the unbroken run
again()
{
    run 0 "$1" -n 2 -- --fault "$2"
    says "$3"
    says "restart 1 of 3 in 1 s from checkpoint-10"
    says "complete after 1 restarts"
    lines 2
    [ "$(final)" = "$whole" ] || fail "$1: the result differs: $(final), not $whole"
    grep -q "^resumed after step 10 with 2 ranks" "$work/out" || fail "$1: it did not resume"
}
again killed kill:1:13 "rank 1 on $(uname -n) (pid "
again first kill:0:13 "rank 0 on $(uname -n) (pid "
again left exit0:1:13 "rank 1 on "
again gone exit1:0:13 " died; its last known step is "
again failed failed:1:13 "failed with status 1; its last known step is 12: the device is lost"

# A rank that hangs is told by the watch; heartbeats go on.
start hangs -n 2 -- --fault hang:1:13 --timeout 2
finish 0
grep -q "^rank: rank 1 on .* its last step is 12, .*; the run ends; start again with --resume_from_checkpoint" \
    "$work/err" || fail "the watch does not name rank 1"
says "its last known step is 12"
[ "$(final)" = "$whole" ] || fail "hang: the result differs"

# Without a checkpoint the command begins anew, also in a folder that it began to fill.
run 0 early -n 2 -- --fault kill:1:4
says "from the beginning"
[ "$(final)" = "$whole" ] || fail "early: the result differs"
run 0 overwrites -n 2 -- --overwrite_output_dir --fault kill:1:13
[ "$(final)" = "$whole" ] || fail "overwrite: the result differs"

# What starting again would not help.
run 1 poisoned -n 2 --max_restarts 9 -- --fault kill:1:13 --always
# Two restarts; more where the machine is so busy that one of them looks otherwise.
says "restarts: the same failure 3 times after the same step"
run 1 refused -n 2 -- --fault refuse:1:0
says "failed with status 1; it made no step: config.json differs from rank 0's"
says "given up after 0 restarts: it refuses to start"
run 1 usage -n 2 -- --unknown
says "given up after 0 restarts: the command line is wrong"
run 1 none -n 2 --max_restarts 0 -- --fault kill:1:13
says "given up after 0 restarts: 0 restarts were allowed"
lines 1

# Everything is written, and MPI hangs at its end.
run 0 finalize -n 2 -- --fault finalize:0:0
says "complete after 0 restarts; the ranks did not end by themselves"

# A program that knows nothing of heartbeats may end with 0: nobody said that the run is complete.
timeout 60 "$txlaunch" --launcher "$mpi" -n 1 -- true > "$work/out" 2> "$work/err" && fail "true counts as complete"
says "no rank reported"

timeout 60 "$txlaunch" --launcher /nowhere/mpiexec -n 2 -- true 2> "$work/err"
[ $? -eq 1 ] || fail "a launcher that is missing"
says "/nowhere/mpiexec: cannot start: No such file or directory"
timeout 60 "$txlaunch" --launcher "$mpi" -n 2 -- /nowhere/program > "$work/out" 2> "$work/err" &&
    fail "a missing program"
says "given up after 0 restarts"

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
refuses "--min_ranks 3 is more than -n 2" -n 2 --min_ranks 3 -- true
refuses "slots for 2 ranks" -n 2 --hosts localhost:1 -- true
refuses "no number of slots" -n 2 --hosts localhost:x -- true
refuses "no such host" -n 1 --hosts nohost.invalid -- true
refuses "is no list of words" --launcher_args '-a "b' -- true
refuses "/nowhere/hosts" --hostfile /nowhere/hosts -- true

[ $failures -eq 0 ]
