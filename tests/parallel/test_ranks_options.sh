#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each option of txtrain in turn has another value on rank 1. The run is refused at once and both values are named,
# except for options that each rank may set.
#   test_ranks_options.sh BIN LAUNCHER
device=cpu
. "${0%/*}/ranks.sh"

# Every option with its default value, from training_args.json: NAME VALUE a line.
ranks 1 defaults || fail "one rank"
sed -n 's/^ *"\([a-z0-9_]*\)": \(.*[^,]\),\{0,1\}$/\1 \2/p' "$work/defaults/training_args.json" > "$work/options"
[ "$(wc -l < "$work/options")" -gt 70 ] || fail "training_args.json has few options"
COLUMNS=999 "$bin/txtrain" --help all > "$work/help"

# another NAME VALUE: sets $value to one that the option takes and that is not VALUE
another()
{
    choices=$(sed -n "s/^ *--$1[ =]\([a-z_0-9|]*|[a-z_0-9|]*\).*/\1/p" "$work/help" | head -n 1)
    case $2 in
    true) value=false ;;
    false) value=true ;;
    null) value=x ;;
    \"*\")
        value=x
        for word in $(echo "$choices" | tr '|' ' '); do
            [ "\"$word\"" = "$2" ] || value=$word
        done
        ;;
    *.* | *e-*) value=0.125 ;;
    -1) value=7 ;;
    *) value=$(($2 + 1)) ;;
    esac
}

# These arguments permit every other value.
set -- --train_file "$work/text" --config_name "$work/config.json" --block_size 32 --threads 1 --max_steps 2 \
    --logging_strategy no --output_dir "$work/pair" --comm_timeout 5
while read -r name old; do
    another "$name" "$old"
    case $name in
    list_devices) continue ;; # ends the rank: see below
    device) value=cpu ;;
    threads) value=2 ;;
    zero_stage) value=1 ;;
    start_timeout | comm_timeout) value=60 ;; # none that a busy machine can miss
    output_dir | train_file | config_name | validation_file | logging_dir) value=$work/other ;;
    deepspeed) value=$work/deepspeed.json && echo '{}' > "$value" ;;
    fsdp) value=no_shard ;; # which any run has
    fsdp_config) value='{}' ;;
    resume_from_checkpoint) value=$work/nowhere ;;
    esac
    rm -rf "$work/pair"
    began=$(date +%s)
    timeout -s KILL 60 "$launcher" -n 1 "$bin/txtrain" "$@" : -n 1 "$bin/txtrain" "$@" --"$name" "$value" \
        > "$work/out" 2> "$work/err" < /dev/null
    status=$?
    took=$(($(date +%s) - began))
    case $name in
    device | threads | preprocessing_num_workers | dataloader_num_workers | dataloader_pin_memory | disable_tqdm)
        [ $status -eq 0 ] || fail "$name $value on rank 1: refused"
        continue
        ;;
    esac
    [ $status -ne 0 ] || fail "$name $value on rank 1: trained together"
    [ $took -le 10 ] || fail "$name $value on rank 1: refused after $took s"
    [ "$name" != group_by_length ] || name=train_sampling_strategy # whose other name it is
    # Conflicts between values are reported as by a single rank.
    grep -q "^txtrain: rank 1 on .* $name .*rank 0 \|^txtrain: rank 1 on .* status [12]" "$work/err" ||
        fail "$name $value on rank 1: not told"
done < "$work/options"

# A rank that waits for another one says so.
TX_PROGRESS=1 timeout -s KILL 60 "$launcher" -n 1 "$bin/txtrain" "$@" : -n 1 sh -c 'sleep 2.5; exec "$@"' later \
    "$bin/txtrain" "$@" > "$work/out" 2> "$work/err"
grep -q "^txtrain: still .*, 2 s$" "$work/out" || fail "rank 0 is silent while it waits"

# Another build of the same version.
if command -v objcopy > /dev/null; then
    objcopy -R .note.gnu.build-id "$bin/txtrain" "$work/other-build"
    timeout -s KILL 60 "$launcher" -n 1 "$bin/txtrain" "$@" : -n 1 "$work/other-build" "$@" > "$work/out" 2> "$work/err"
    status=$?
    { [ $status -ne 0 ] && [ $status -ne 137 ]; } || fail "another build on rank 1: status $status"
    grep -q "^txtrain: rank 1 on .* has TX build unknown, rank 0 has TX build [0-9a-f]\{16\}" "$work/err" || fail "another build: not told"
fi

# If a rank ends before it trains, the others report it.
for last in --bogus --list_devices --help "--learning_rate nonsense"; do
    # shellcheck disable=SC2086
    timeout -s KILL 60 "$launcher" -n 1 "$bin/txtrain" "$@" : -n 1 "$bin/txtrain" "$@" $last > "$work/out" \
        2> "$work/err"
    status=$?
    { [ $status -ne 0 ] && [ $status -ne 137 ]; } || fail "$last on rank 1: status $status"
    grep -q "^txtrain: rank 1 on .* status [02]" "$work/err" || fail "$last: not told"
done

verdict
