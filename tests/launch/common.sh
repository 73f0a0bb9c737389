# SPDX-License-Identifier: Apache-2.0
# Helpers of the tests of txlaunch, with the arguments TXLAUNCH RANK LAUNCHER: runs with a time limit. Sourced.
# shellcheck shell=sh
txlaunch=$1
rank=$2
mpi=$3
. "${0%/*}/../program.sh"
[ -n "$mpi" ] || { echo "skipped: built without MPI"; exit 77; }
command -v "$mpi" > /dev/null || { echo "skipped: $mpi is missing: apt-get install mpich"; exit 77; }

# start NAME OPTION... -- ARGUMENT...: txlaunch on ranks in the background, output folder $work/NAME; its id: $launched
start()
{
    out=$work/$1
    shift
    options=
    while [ "$1" != -- ]; do
        options="$options $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # options are words
    timeout -k 5 100 "$txlaunch" --launcher "$mpi" --heartbeat_timeout 3 --grace 0.5 --restart_delay 0.1 $options \
        -- "$rank" --output_dir "$out" "$@" > "$work/out" 2> "$work/err" &
    waiting=$!
    launched=
    while [ -z "$launched" ] && kill -0 "$waiting" 2> /dev/null; do
        launched=$(ps -o pid= --ppid "$waiting" | head -n 1 | tr -d ' ')
        sleep 0.1
    done
}

# finish STATUS...: waits for its end, with one of these
finish()
{
    wait "$waiting"
    status=$?
    case " $* " in *" $status "*) ;; *) fail "status $status, not $*" ;; esac
    left=$(pgrep -fa -- "--output_dir $out ")
    [ -z "$left" ] || fail "left behind: $left"
}

# run STATUS NAME ...: both
run()
{
    wanted=$1
    shift
    start "$@"
    finish "$wanted"
}

# says TEXT: a line of txlaunch holds it
says()
{
    grep -F "txlaunch: " "$work/err" | grep -qF -- "$1" || fail "txlaunch does not say \"$1\""
}

# restarts COUNT: it started again so often
restarts()
{
    [ "$(grep -c "^txlaunch: .*restart [0-9]* of " "$work/err")" -eq "$1" ] || fail "not $1 restarts"
}

# lines COUNT: so many lines come from txlaunch
lines()
{
    [ "$(grep -c "^txlaunch: " "$work/err")" -eq "$1" ] || fail "not $1 lines of txlaunch"
}

# final: the result of the run
final()
{
    sed -n 's/^final //p' "$work/out"
}

# wait_for_step STEP: waits until a checkpoint of that step or a later one exists. A run that must not end before,
# however slow the machine, hangs at a later step
wait_for_step()
{
    while kill -0 "$waiting" 2> /dev/null; do
        for folder in "$out"/checkpoint-*; do
            [ "${folder##*-}" != '*' ] && [ "${folder##*-}" -ge "$1" ] && return 0
        done
        sleep 0.05
    done
    fail "no checkpoint of step $1 came"
}
