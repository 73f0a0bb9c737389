#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Processes that build kernels (backends/opencl/runtime/worker.c), with PoCL: the first start of a device shows its
# progress, two starts share the work, a crash of a worker is remembered, and no worker outlives its program.
#
#   workers.sh BIN STAND_IN    STAND_IN: the library stand_in_card
bin=$1
stand_in=$2
device=opencl
. "${0%/*}/../program.sh"
need_device
[ "$(nproc)" -gt 1 ] || { echo "skipped: one core"; exit 77; }
export TX_PROGRESS=1 OMP_WAIT_POLICY=passive

# begin NAME: an empty cache, an empty log and no kernels that PoCL has kept
begin()
{
    export TX_CACHE_DIR="$work/$1" POCL_CACHE_DIR="$work/$1.pocl" TX_OCL_LOG="$work/$1.log"
    mkdir "$TX_CACHE_DIR" "$POCL_CACHE_DIR"
    : > "$TX_OCL_LOG"
}

# opens STATUS TEXT [VARIABLE=VALUE...]: a start of the device
opens()
{
    wanted_status=$1 wanted_text=$2
    shift 2
    outcome "$wanted_status" "$wanted_text" env LD_PRELOAD="$stand_in" "$@" "$bin/txbench" device --device opencl
}

# built HOW: the number of programs that were built so
built()
{
    cut -f 2 "$TX_OCL_LOG" | grep -cx "$1"
}

# A first start: a line after the first seconds, of at most 80 columns. The next start builds nothing and is silent.
begin first
opens 0 "" TX_TEST_DELAY=1
grep -qE '^txbench: kernels [0-9]+ of [0-9]+(, [0-9]+ s left)?$' "$work/err" || fail "no progress of kernels"
grep -vE '^txbench: ((measuring )?kernels [0-9]+ of [0-9]+(, [0-9]+ s left)?|still measuring, [0-9]+ s)$' "$work/err" &&
    fail "other lines"
[ "$(built "built by a worker")" -gt 5 ] || fail "no workers: $(cat "$TX_OCL_LOG")"
programs=$(wc -l < "$TX_OCL_LOG")
ls "$TX_CACHE_DIR" | grep -v '^cl-' && fail "files are left"
opens 0 ""
[ ! -s "$work/err" ] || fail "a second start is not silent"
[ "$(wc -l < "$TX_OCL_LOG")" -eq "$programs" ] || fail "a second start builds"

# Threads build the same programs.
begin threads
opens 0 "" TX_OCL_COMPILERS=1
[ "$(built built)" -eq "$programs" ] || fail "threads: $(cat "$TX_OCL_LOG")"

# Two starts at a time build each program once.
begin both
LD_PRELOAD="$stand_in" TX_TEST_DELAY=1 "$bin/txbench" device --device opencl > /dev/null 2> "$work/other" &
opens 0 "" TX_TEST_DELAY=1
wait $! || fail "the other start: $(cat "$work/other")"
[ "$(wc -l < "$TX_OCL_LOG")" -eq "$programs" ] || fail "two starts: $(cat "$TX_OCL_LOG")"

# A crash is an error of that program, now and at the next start.
begin crash
opens 1 "crashed or hung before: building softmax.cl" TX_TEST_CRASH="softmax(const"
[ "$(built "crashed a worker")" -gt 0 ] || fail "a crash is not logged"
opens 1 "crashed or hung before: building softmax.cl"

# children PID: the workers of a process, which has PoCL's linkers as children, too
children()
{
    for status in /proc/[0-9]*/status; do
        grep -qx "Name:.tx-kernels" "$status" 2> /dev/null && grep -qx "PPid:.$1" "$status" 2> /dev/null &&
            basename "${status%/status}"
    done
}
has_workers()
{
    [ -n "$(children "$1")" ]
}
have_ended()
{
    for one in $workers; do
        [ ! -d "/proc/$one" ] || return 1
    done
}
begin killed
LD_PRELOAD="$stand_in" TX_TEST_DELAY=5 "$bin/txbench" device --device opencl > /dev/null 2>&1 &
await has_workers $!
workers=$(children $!)
kill -9 $!
wait $! 2> /dev/null
[ -n "$workers" ] || fail "there were no workers to end"
await have_ended
have_ended || fail "workers outlive their program"
verdict
