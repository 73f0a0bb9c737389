#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A list of devices gives one to each rank of a host, so that a launcher starts all ranks with the same words. Programs
# without ranks refuse to be started several times.
#   test_ranks_devices.sh BIN LAUNCHER
device=cpu
. "${0%/*}/ranks.sh"

# started N ARGUMENT...: one step of N ranks
started()
{
    n=$1
    shift
    # shellcheck disable=SC2086
    timeout -s KILL 120 "$launcher" -n "$n" "$bin/txtrain" $from --threads 1 --max_steps 1 --save_strategy no \
        --overwrite_output_dir --output_dir "$work/run" "$@" > "$work/out" 2> "$work/err"
}

# devices: those of the ranks
devices()
{
    awk '$3 ~ /^(cpu|opencl:[0-9]+)$/ && $1 ~ /^[0-9]+$/ { printf "%s ", $3 }' "$work/out"
}

started 2 --device cpu,cpu || fail "two devices for two ranks"
[ "$(devices)" = "cpu cpu " ] || fail "the devices are $(devices)"
if "$bin/txtrain" --list_devices | grep -q '^opencl:0'; then
    started 2 --device opencl:0,cpu || fail "a device of each kind"
    [ "$(devices)" = "opencl:0 cpu " ] || fail "the devices are $(devices)"
fi
started 2 --device cpu,cpu,cpu && fail "three devices for two ranks"
grep -q "3 devices for 2 ranks of this host" "$work/err" || fail "three devices: the reason is not given"
started 2 --device cpu,abacus && fail "a device that does not exist"
grep -q "abacus" "$work/err" || fail "a device that does not exist is not named"

for program in "txconvert x --to y.gguf" "txtok count --tokenizer x" "txmem --model x" \
    "txbench ops" "txcheck ops" "txplot x"; do
    # shellcheck disable=SC2086
    timeout -s KILL 60 "$launcher" -n 2 "$bin"/$program > "$work/out" 2> "$work/err" && fail "$program: two processes"
    [ "$(grep -c 'it runs in one process, but the launcher started 2' "$work/err")" -eq 1 ] ||
        fail "$program: the reason is not given once"
done

verdict
