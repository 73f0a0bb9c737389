#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# plot.sh TXPLOT: the files that txplot reads, the contents of its page, and, if Chromium is installed, the drawn page.
txplot=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail()
{
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# expect STATUS TEXT ARGUMENT...: runs txplot; its output must hold the text
expect()
{
    wanted=$1
    text=$2
    shift 2
    "$txplot" "$@" > out 2>&1
    status=$?
    [ $status -eq "$wanted" ] || fail "txplot $*: status $status, expected $wanted: $(cat out)"
    grep -qF -- "$text" out || fail "txplot $*: no \"$text\" in: $(cat out)"
}

# holds FILE TEXT: the text without the blanks and decimals that JSON may or may not have
holds()
{
    sed 's/\([:,]\) /\1/g; s/\.0\([],}]\)/\1/g' "$1" | grep -qF -- "$2" || fail "$1 does not hold $2"
}

mkdir run other 'odd <b>'
cat > run/log.jsonl << 'END'
{"step": 1, "epoch": 0.1, "loss": 4, "grad_norm": 1.5, "learning_rate": 0, "tokens": 10, "tokens_per_second": 100}
{"step": 2, "epoch": 0.2, "loss": NaN, "grad_norm": Infinity, "learning_rate": 5e-05, "tokens": 20, "tokens_per_second": 300}
{"step": 2, "eval_loss": 3.5, "perplexity": 33.1}

{"step": 3, "loss": 3, "grad_norm": -Infinity, "note": "NaN \" Infinity", "more": {"a": [1, NaN]}, "tokens": 30}
{"step": 4, "loss": 2.5, "tokens": 40}
{"step": 4, "eval_loss": 2.75}
END
printf '{"step": 5, "loss":' >> run/log.jsonl
expect 0 "" run
holds txplot.html '"loss":{"step":[1,2,3,4],"value":[4,"NaN",3,2.5]}'
holds txplot.html '"eval_loss":{"step":[2,4],"value":[3.5,2.75]}'
holds txplot.html '"grad_norm":{"step":[1,2,3],"value":[1.5,"Infinity","-Infinity"]}'
holds txplot.html '"median_speed":200,"steps":4,"tokens":40,"bad_steps":2,"last_loss":2.5,"best_eval_loss":2.75,"best_eval_step":4'
[ "$(grep -c 'https\{0,1\}://' txplot.html)" -eq "$(grep -c 'http://www.w3.org/2000/svg' txplot.html)" ] || fail "the page names another"

# A log that goes back to an earlier step.
cat > other/log.jsonl << 'END'
{"step": 1, "loss": 4}
{"step": 2, "loss": 3}
{"step": 2, "eval_loss": 9}
{"step": 3, "loss": 2}
{"step": 2, "loss": 7}
{"step": 3, "loss": 6}
{"step": 3, "eval_loss": 8}
END
cp other/log.jsonl 'odd <b>/log.jsonl'
expect 0 "" run/ other/log.jsonl 'odd <b>' -o page.html
holds page.html '"name":"run"'
holds page.html '"name":"other"'
holds page.html '"name":"odd \u003cb>"'
holds page.html '"loss":{"step":[1,2,3],"value":[4,7,6]},"eval_loss":{"step":[3],"value":[8]}'
expect 0 '"name": "../'"$(basename "$work")"'/run"' "../$(basename "$work")/run" run -o -
[ "$(grep -c '<script type="application/json"' out)" -eq 1 ] || fail "not one set of data on standard output"

# A long run is thinned to its least and largest values, and no step that was not finite is lost.
mkdir long
awk 'BEGIN { for (s = 1; s <= 100000; s++) {
         value = s == 777 ? "NaN" : s == 50000 ? 99 : s == 60001 ? -99 : 2 + s % 7 / 10
         printf "{\"step\": %d, \"loss\": %s}\n", s, value } }' > long/log.jsonl
expect 0 "" long -o long.html
[ "$(wc -c < long.html)" -lt 150000 ] || fail "a long run was not thinned"
tr -s '],[ ' '\n' < long.html > values
for value in 777 50000 60001 '"NaN"' 99.0 -99.0; do
    grep -qx -- "$value" values || fail "$value is lost in a long run"
done

# Compared with a run of transformers' Trainer: its folder, or one that has only checkpoints.
mkdir -p trainer/checkpoint-2 trainer/checkpoint-10
echo '{"global_step": 2, "log_history": [{"loss": 9, "step": 2}]}' > trainer/checkpoint-2/trainer_state.json
cat > trainer/checkpoint-10/trainer_state.json << 'END'
{"best_metric": null, "global_step": 10, "num_input_tokens_seen": 640, "log_history": [
  {"epoch": 0.5, "grad_norm": NaN, "learning_rate": 5e-05, "loss": 4.5, "step": 5},
  {"eval_loss": 4.25, "eval_runtime": 1, "step": 5},
  {"loss": 4.0, "step": 10}, {"train_loss": 4.25, "train_runtime": 9, "total_flos": 1e9, "step": 10}]}
END
expect 0 "2 runs" run trainer -o both.html
holds both.html '"loss":{"step":[5,10],"value":[4.5,4]}'
holds both.html '"eval_loss":{"step":[5],"value":[4.25]}'
holds both.html '"grad_norm":{"step":[5],"value":["NaN"]}'
holds both.html '"tokens":640'
holds both.html '"name":"trainer"'
expect 0 '"smoothing": 0.5' trainer/checkpoint-10/trainer_state.json --smoothing 0.5 --clip_spikes -o -
holds out '"clip":true'
echo '{"global_step": 2}' > trainer/trainer_state.json
expect 1 "trainer/trainer_state.json: " trainer
expect 2 "smoothing" run --smoothing 1

# Mistakes.
mkdir empty
: > empty/log.jsonl
printf 'x\n{"step": 1, "loss": 1}\n' > bad.jsonl
printf '{"loss": 1}\n' > stepless.jsonl
printf '[1]\n' > array.jsonl
expect 1 "gone: " gone
expect 1 "empty/log.jsonl: " empty
expect 1 "bad.jsonl: line 1: " bad.jsonl
expect 1 "stepless.jsonl: line 1: step" stepless.jsonl
expect 1 "array.jsonl: line 1: " array.jsonl
expect 1 "there/is/no/folder" run -o there/is/no/folder/page.html
expect 2 "usage" -o none.html
[ ! -e none.html ] || fail "a page of nothing was written"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -n "$browser" ]; then
    timeout 100 "$browser" --headless --no-sandbox --disable-gpu --dump-dom "file://$work/page.html" > dom 2> complaints
    [ "$(grep -o 'class="title"' dom | wc -l)" -eq 4 ] ||
        fail "the page does not draw its four charts: $(head -c 300 complaints)"
    [ "$(grep -o '<td[^>]*><svg[^>]*class="swatch"' dom | wc -l)" -eq 3 ] ||
        fail "the page's table does not have three runs"
fi
[ $failures -eq 0 ] && echo "all good${browser:+, drawn by $browser}"
exit $((failures != 0))
