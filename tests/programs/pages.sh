#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every page that a program writes, opened in headless Chromium: the texts and elements that it shows, and no error in
# the browser's console.
#
#   pages.sh BIN-FOLDER
bin=$1
. "${0%/*}/../program.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
[ -n "$browser" ] || { echo "skipped: no Chromium"; exit 77; }
export OMP_WAIT_POLICY=passive
write_small_text 40
write_small_config 1 16 32
cd "$work" || exit 1

# page NAME TEXT COUNT ELEMENT: the page NAME.html shows the text, has at least so many of the element, and no error
page()
{
    timeout 100 "$browser" --headless --no-sandbox --disable-gpu --enable-logging=stderr --window-size=1200,900 \
        --dump-dom "file://$work/$1.html" > dom 2> console
    grep -E 'CONSOLE|Uncaught' console > err && fail "$1: an error in the console"
    # Scripts and styles are not shown.
    tr '\n' ' ' < dom | sed 's/<\(script\|style\)/\n&/g; s/<\/\(script\|style\)>/&\n/g' | grep -v '^<s[ct]' > out
    grep -oE '[a-z0-9-]+="[^"]*NaN[^"]*"' out > err && fail "$1: a coordinate that is no number"
    grep -qF -- "$2" out || fail "$1: does not show \"$2\""
    count=$(grep -oE "<$4[ >]" out | wc -l)
    [ "$count" -ge "$3" ] || fail "$1: $count elements $4, expected at least $3"
    rm out
}

# made COMMAND...
made()
{
    "$@" > out 2> err || fail "$*"
}

train="--train_file text --config_name config.json --per_device_train_batch_size 2 --threads 1 --save_strategy no"
# shellcheck disable=SC2086
made "$bin/txtrain" $train --max_steps 1 --output_dir one
# shellcheck disable=SC2086
made "$bin/txtrain" $train --max_steps 8 --logging_steps 1 --output_dir eight

made "$bin/txplot" one -o one.html
page one "Training run one" 4 svg
[ "$(grep -o '<circle[^>]*class="point"' dom | wc -l)" -ge 3 ] || fail "a run of one step has no points"
made "$bin/txplot" one eight -o both.html
page both "2 training runs" 8 path

made "$bin/txsearch" --output_dir search --search learning_rate=choice:1e-3,1e-2 --method grid -- --train_file text \
    --config_name config.json --max_steps 2 --threads 1
mv search/search.html search.html
page search "learning_rate" 2 path
page search "Importance" 5 tr

write_small_config 1 16 128
made "$bin/txbench" report --device cpu --config config.json --output report --block 16 --budget 300 \
    --only "step fp32,generation"
page report "Device report" 1 details
page report "tokens/s" 10 td

# A page that fails is seen.
printf '<!doctype html><main></main><script>const top = 1; document.querySelector("main").append("here");</script>' \
    > wrong.html
failures_before=$failures
page wrong here 0 p > seen
failures=$failures_before
for text in "does not show" "in the console"; do
    grep -q "$text" seen || fail "a page with an error is not seen"
done
verdict
