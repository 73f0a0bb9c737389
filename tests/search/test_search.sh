#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txsearch on a tiny model: killed and resumed, stopped by a signal, stopped trials, failed trials, many ranks, and the
# page.
#
#   test_search.sh BIN-FOLDER LAUNCHER(empty: built without MPI)
bin=$1
mpi=$2
. "${0%/*}/../program.sh"
write_small_text 40
write_small_config 1 16 32

# search STATUS FOLDER OPTION... [-- OPTION...]: its output goes to $work/out and $work/err
search()
{
    wanted=$1
    out=$work/$2
    shift 2
    "$bin/txsearch" --output_dir "$out" "$@" > "$work/out" 2> "$work/err"
    status=$?
    [ $status -eq "$wanted" ] || fail "txsearch $*: status $status, expected $wanted"
}

# begin FOLDER OPTION...: in the background; its id: $searching
begin()
{
    out=$work/$1
    shift
    "$bin/txsearch" --output_dir "$out" "$@" > "$work/out" 2> "$work/err" &
    searching=$!
}

# wait_for COUNT PATTERN: until so many results in $out match
wait_for()
{
    for _ in $(seq 600); do
        [ "$(cat "$out"/trial-*.result.json 2> /dev/null | grep -c "$2")" -lt "$1" ] || return 0
        sleep 0.05
    done
    fail "$out: never came to $1 times $2"
}

# no_process: nothing that works in $out is left
no_process()
{
    for _ in $(seq 60); do
        left=$(pgrep -fa -- "$out/trial-")
        [ -n "$left" ] || return 0
        sleep 0.1
    done
    fail "left behind: $left"
}

says()
{
    grep -qF -- "$1" "$work/out" "$work/err" || fail "does not say \"$1\""
}

# results FOLDER: the number and the result of each trial, in the order of trials
results()
{
    for result in "$1"/trial-*.result.json; do
        [ ! -e "$result" ] || echo "$(basename "$result" | tr -dc 0-9) $(cat "$result")"
    done | sort -n
}

# ends FOLDER: state, value and steps of each trial that ended
ends()
{
    results "$1" | awk '!/"state": "running"/ {
        match($0, /"state": "[a-z]+/); state = substr($0, RSTART + 10, RLENGTH - 10)
        value = match($0, /"value": [-+.0-9e]+/) ? substr($0, RSTART + 9, RLENGTH - 9) + 0 : "none"
        match($0, /"steps": [0-9]+/); print $1, state, value, substr($0, RSTART + 9, RLENGTH - 9)
    }' OFMT=%.12g
}

# points FOLDER: the settings of each trial
points()
{
    results "$1" | sed 's/ .*"point": \(\[[^]]*\]\).*/ \1/'
}

# edit N FROM TO: replaces text in the result of trial N in $out
edit()
{
    sed -i "s/$2/$3/" "$out/trial-$1.result.json"
}

ended='"state": "[cfs]'
range='learning_rate=loguniform:1e-4:1e-1, warmup_ratio=uniform:0:0.5, seed=int:1:40'
range="$range, per_device_train_batch_size=choice:2,4"
set -- --train_file "$work/text" --config_name "$work/config.json" --max_steps 24 --save_steps 4

# Killed in the middle; then all are there once, and the best is that of the trials' own files.
begin killed --search "$range" --trials 16 --parallel 2 --keep all --n_startup_trials 5 -- "$@"
wait_for 5 "$ended"
kill -KILL "$searching"
wait "$searching" 2> /dev/null
no_process
before=$(ends "$out" | wc -l)
[ "$before" -lt 16 ] || fail "it was killed too late to tell"
search 0 killed --search "$range" --trials 16 --parallel 2 --keep all --n_startup_trials 5 -- "$@"
no_process
says "resuming with"
[ "$(ends "$out" | cut -d' ' -f1 | tr '\n' ' ')" = "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 " ] || fail "not all 16 trials once: $(ends "$out")"
[ "$(points "$out" | wc -l)" -eq 16 ] || fail "not 16 settings, or a trial had two: $(points "$out")"
for i in $(seq 0 15); do
    echo "$(numbers eval_loss "$out/trial-$i/all_results.json") trial-$i"
done | sort -g > "$work/ranking"
best=$(head -n 1 "$work/ranking" | cut -d' ' -f2)
[ "$(wc -l < "$work/ranking") $(readlink "$out/best")" = "16 $best" ] ||
    fail "the best is $(readlink "$out/best"), not $best"
says "best: trial ${best#trial-},"
# Its options make the same model.
outcome 0 "" "$bin/txtrain" "$out/best.json" --output_dir "$work/again"
cmp "$out/best/model.safetensors" "$work/again/model.safetensors" || fail "best.json makes another model"
search 0 killed --search "$range" --trials 16 --parallel 2 --keep all --n_startup_trials 5 -- "$@"
says "txtrain $out/best.json --output_dir $out-best"
[ "$(ends "$out" | wc -l)" -eq 16 ] || fail "a search that was done made more trials"

# The page.
[ "$(grep -c 'https\{0,1\}://' "$out/search.html")" -eq "$(grep -c 'http://www.w3.org/2000/svg' "$out/search.html")" ] || fail "the page names another"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -n "$browser" ]; then
    for width in 400 1200 2000; do
        timeout 100 "$browser" --headless --no-sandbox --disable-gpu --window-size=$width,900 \
            --dump-dom "file://$out/search.html" \
            > "$work/dom" 2> /dev/null
        [ "$(grep -o 'class="trial complete' "$work/dom" | wc -l)" -eq 16 ] ||
            fail "the page does not draw 16 trials at $width"
        for name in learning_rate warmup_ratio seed per_device_ train_batch_ size eval_loss; do
            grep -q "<tspan class=\"name\"[^>]*>$name<" "$work/dom" || fail "the page has no axis $name"
        done
        tr '\n' ' ' < "$work/dom" | sed 's/<svg/\n<svg/g; s/<\/svg>/\n/g' | grep '^<svg' > "$work/pictures"
        for picture in 1 2; do
            sed -n ${picture}p "$work/pictures" | sed 's/<t\(ext\|span\)/\n&/g' |
                awk -f "${0%/*}/../programs/labels.awk" > "$work/out" ||
                fail "picture $picture at $width"
        done
    done
fi

# Trials that run one after the other have the same settings with the same seed, also if a signal stopped the search.
# Then the trial resumes from its checkpoint. Only the best model is kept.
search 0 whole --search "$range" --trials 6 --n_startup_trials 3 --seed 5 -- "$@"
[ "$(find "$out" -maxdepth 1 -type d -name 'trial-*' | wc -l)" -eq 1 ] || fail "more than the best model is kept"
begin told --search "$range" --trials 6 --n_startup_trials 3 --seed 5 -- "$@"
wait_for 4 state
kill -TERM "$searching"
wait "$searching"
[ $? -eq 143 ] || fail "SIGTERM: another status than 143"
no_process
says "ended by signal 15"
search 0 told --search "$range" --trials 6 --n_startup_trials 3 --seed 5 -- "$@"
[ "$(points "$work/told")" = "$(points "$work/whole")" ] || fail "other settings after it was told to end"
[ "$(ends "$work/told")" = "$(ends "$work/whole")" ] || fail "other results after it was told to end"

# A search with other settings is not resumed, and a folder of other files is not used; the same search may be extended.
search 2 told --search "$range" --trials 6 --n_startup_trials 3 --seed 6 -- "$@"
says '"seed" was 5 and is 6 now'
mkdir "$work/other"
: > "$work/other/thesis.txt"
search 2 other --search "$range" -- "$@"
says ": not empty"
out=$work/told
edit 1 "^" x
search 1 told --search "$range" --trials 7 --n_startup_trials 3 --seed 5 -- "$@"
says "trial-1.result.json: "
edit 1 "^x" ""
edit 1 "running\|complete" tired
search 1 told --search "$range" --trials 7 --n_startup_trials 3 --seed 5 -- "$@"
says "\"tired\" is unknown"
edit 1 tired complete
search 0 told --search "$range" --trials 7 --n_startup_trials 3 --seed 5 -- "$@"
[ "$(points "$out" | wc -l)" -eq 7 ] || fail "the search was not made longer"

# Halving: the values at the rungs determine which trials stop, and a stopped model has no more steps than its rung.
search 0 halved --search "$range" --method random --trials 8 --halving 4 --reduction_factor 2 -- "$@"
results "$out" | awk '{
        match($0, /"rungs": \[[^]]*/); count_here = split(substr($0, RSTART + 10, RLENGTH - 10), values, ", ")
        for (rung = 1; rung <= count_here; rung++) {
            value = values[rung] + 0
            better = 0
            for (i = 0; i < count[rung]; i++) better += seen[rung, i] < value
            seen[rung, count[rung]++] = value
            places = int(count[rung] / 2); places = places > 1 ? places : 1
            if ((better < places) != !(rung == count_here && /"stops": true/)) wrong++
        }
    } END { exit wrong > 0 || count[1] != 8 }' || fail "halving: other trials than the best went on"
stopped=$(ends "$out" | grep -c ' stopped ')
case $stopped in [2-7]) ;; *) fail "halving stopped $stopped of 8" ;; esac
search 0 halved2 --search "$range" --method random --trials 8 --halving 4 --reduction_factor 2 -- "$@"
[ "$(ends "$work/halved")" = "$(ends "$work/halved2")" ] ||
    fail "halving: $(ends "$work/halved"), and the second time $(ends "$work/halved2")"

# A trial that fails is told, and is not the end; all that fail are.
search 0 failing --search block_size=choice:16,4096 --method grid --parallel 2 --devices cpu,cpu --metric perplexity \
    -- "$@"
[ "$(ends "$out" | grep -c ' failed ')" -eq 1 ] || fail "not one trial failed"
says "4096"
says "perplexity $(awk 'BEGIN { printf "%.6g", '"$(numbers perplexity "$out/best/all_results.json")"' }')"
search 1 hopeless --search block_size=choice:4096,8192 seed=int:1:40 --method random -- "$@"
[ "$(ends "$out" | grep -c ' failed ')" -eq 5 ] || fail "it did not give up after five trials"
says "none of 5 trials"

# A full disk ends the search; with room the same command continues it. No link and no pipe gets a trial's output.
mkdir "$work/disk"
# shellcheck disable=SC2016
if [ "$(id -u)" -eq 0 ] && unshare --mount true 2> /dev/null; then
    unshare --mount sh -c 'disk=$1; bin=$2; shift 2; mount -t tmpfs -o size=200k tmpfs "$disk"
        "$bin/txsearch" --output_dir "$disk/out" "$@" > "$disk.first" 2>&1; echo status $? >> "$disk.first"
        mount -o remount,size=10m "$disk"; "$bin/txsearch" --output_dir "$disk/out" "$@" > "$disk.second" 2>&1
        echo status $? >> "$disk.second"' \
        full "$work/disk" "$bin" --search learning_rate=choice:1e-3,1e-2 --method grid -- "$@"
    for text in "run the same command to continue" "status 1"; do
        grep -q "$text" "$work/disk.first" || fail "a full disk: $(cat "$work/disk.first")"
    done
    grep -q "status 0" "$work/disk.second" ||
        fail "a search does not resume after a full disk: $(cat "$work/disk.second")"
fi
search 0 room --search learning_rate=choice:1e-3,1e-2 --method grid --keep all -- "$@"
echo precious > "$work/target"
for kind in link pipe; do
    rm -f "$out/trial-0.log"
    rm -f "$out"/trial-*.result.json
    [ $kind = pipe ] && mkfifo "$out/trial-0.log" || ln -s ../target "$out/trial-0.log"
    search 1 room --search learning_rate=choice:1e-3,1e-2 --method grid --keep all -- "$@"
    says "trial-0.log: a $kind"
done
[ "$(cat "$work/target")" = precious ] || fail "a trial's log has been written through a link"

# Another metric and direction: the highest loss of training.
search 0 highest --search learning_rate=choice:1e-2,1e-6 --method grid --metric train_loss --direction maximize -- "$@"
[ "$(readlink "$out/best")" = trial-1 ] || fail "the highest train_loss is not that of the lowest rate"

# Ranks.
if [ -n "$mpi" ] && command -v "$mpi" > /dev/null; then
    search 0 ranks --search "learning_rate=choice:1e-3,1e-2" --method grid --ranks 2 -- "$@" --global_batch_size 4 \
        --per_device_train_batch_size 2
    [ "$(ends "$out" | grep -c ' complete ')" -eq 2 ] || fail "trials of two ranks did not come to their end"
    says "txlaunch -n 2 -- txtrain $out/best.json --output_dir $out-best"
    (PATH=$bin:$PATH && txlaunch -n 2 -- txtrain "$out/best.json" --output_dir "$work/ranks-again") > /dev/null 2>&1
    cmp "$out/best/model.safetensors" "$work/ranks-again/model.safetensors" ||
        fail "best.json of two ranks makes another model"
    no_process
fi

# Mistakes, before anything is made.
search 2 none --search learning_rat=uniform:0:1 -- "$@"
says "learning_rate"
search 2 none --search "$range" -- "$@" --learning_rate 1e-3
says "remove it from the options after --"
search 2 none --search "$range" -- "$@" --output_dir x
says "each trial has its own"
search 2 none --search "$range" -- --max_steps 2
says "train_file"
search 2 none --search "$range" --halving 2 --metric train_loss -- "$@"
says "--halving"
search 2 none --search "$range" --devices cpu,cpu -- "$@" --device cpu
says "--devices"
[ ! -e "$work/none" ] || fail "a refused search left a folder"

verdict "${browser:+, drawn by $browser}"
