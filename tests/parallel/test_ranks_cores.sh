#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The cores of ranks: they share out what all of them alike may use, which is a container's or a job's; a launcher's
# binding stays.
#   test_ranks_cores.sh BIN LAUNCHER SHIM
shim=${3:-}
device=cpu
. "${0%/*}/ranks.sh"
"$launcher" --version | grep -q HYDRA || { echo "skipped: $launcher binds otherwise than MPICH's"; exit 77; }

# Two processors of different cores, which is all that the runs below may use.
siblings()
{
    cat "/sys/devices/system/cpu/cpu$1/topology/thread_siblings_list" 2> /dev/null || echo "$1"
}
one=
two=
for number in $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr ',' '\n' |
    while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done); do
    if [ -z "$one" ]; then
        one=$number
    elif [ -z "$two" ] && [ "$(siblings "$number")" != "$(siblings "$one")" ]; then
        two=$number
    fi
done
[ -n "$two" ] || { echo "skipped: there are no two cores"; exit 77; }

# cores WANTED ARGUMENT...: those of two ranks started with these arguments of the launcher
cores()
{
    wanted=$1
    shift
    rm -rf "$work/pair"
    timeout -s KILL 60 taskset -c "$one,$two" "$launcher" -n 2 "$@" "$bin/txtrain" --train_file "$work/text" \
        --config_name "$work/config.json" \
        --block_size 32 --max_steps 1 --save_strategy no --output_dir "$work/pair" > "$work/out" 2> "$work/err" ||
        fail "$*: it does not train"
    found=$(awk '$3 == "cpu" { printf "%s ", $4 }' "$work/out")
    [ "$found" = "$wanted " ] || fail "$*: the ranks have $found cores, not $wanted"
}
cores "1 1"
cores "1 2" -bind-to "user:$one,$one+$two"
cores "1 1" -bind-to "user:$two,$one"
cores "1 1" -bind-to "user:$two,$two"
[ -z "$shim" ] || cores "1 1" env LD_PRELOAD="$shim" TX_SHIM=online:8

verdict
