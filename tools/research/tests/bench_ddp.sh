#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the command txresearch ddp: its three rows, their losses and traffic, and errors. A build without MPI has no
# launcher.
#
#   bench_ddp.sh TXRESEARCH [LAUNCHER]
txresearch=$1
launcher=${2-}
. "${0%/*}/../../../tests/program.sh"
[ -z "$launcher" ] || command -v "$launcher" > /dev/null || { echo "skipped: no $launcher"; exit 77; }
rows=${launcher:+3}
rows=${rows:-1}
echo '{"model_type": "gpt2", "vocab_size": 300, "n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 4}' \
    > "$work/config.json"

# expect STATUS TEXT ARGUMENT...: checks the exit status and that TEXT is in the output
expect()
{
    wanted=$1
    text=$2
    shift 2
    outcome "$wanted" "$text" "$txresearch" ddp --config "$work/config.json" --block 32 --steps 3 --rounds 1 "$@"
    [ "$wanted" -eq 0 ] || [ ! -s "$work/out" ] || fail "$*: prints figures"
}

# values KEY: prints its numbers in the JSON output, one per line
values()
{
    grep -oE "\"$1\": [-+.0-9e]+" "$work/out" | sed 's/.*: //'
}

# ---- the comparison ---------------------------------------------------------------------------------------
expect 0 '"loss_difference": ' --rounds 3 --json
[ "$(wc -l < "$work/out")" -eq 1 ] || fail "not one line of JSON"
[ "$(grep -c '^round ' "$work/err")" -eq $((3 * rows)) ] || fail "not three rounds"
for key in train_runtime train_samples_per_second step_ms bytes_per_step ratio loss; do
    [ "$(values $key | awk '$1 > 0' | wc -l)" -eq "$rows" ] || fail "not $rows values of $key"
done
[ "$(values ratio | head -n 1)" = 1.0 ] || fail "the ratio of DP to itself is $(values ratio | head -n 1)"
# 49824 weights to the other replica and the same number of gradients back; 128 tokens and labels to it; 128 x 384
# logits and a loss back; a gradient to it.
[ "$(values bytes_per_step | head -n 1)" = 596232 ] || fail "DP moves $(values bytes_per_step | head -n 1) bytes"
# Each of two ranks sums and writes half of a bucket. Parameters are padded to blocks.
values bytes_per_step | awk 'NR > 1 && !($1 > 2 * 4 * 49824 && $1 < 2 * 4 * 60000) { exit 1 }' ||
    fail "DDP moves $(values bytes_per_step | tail -n +2) bytes"
# Samples per second, milliseconds per step and seconds agree: 2 devices, 4 rows, 3 steps.
values train_runtime > "$work/seconds"
values train_samples_per_second | paste "$work/seconds" - | awk '!($1 * $2 > 23.99 && $1 * $2 < 24.01) { exit 1 }' ||
    fail "samples a second do not fit the seconds"
values step_ms | paste "$work/seconds" - | awk '!($2 > 333.3 * $1 && $2 < 333.4 * $1) { exit 1 }' ||
    fail "milliseconds a step do not fit the seconds"

expect 0 "loss_difference " --ranks 3
[ "$(grep -cE '^DDP|^DP' "$work/out")" -eq "$rows" ] || fail "not $rows rows"
[ "$(grep -c 'this build has no MPI' "$work/out")" -eq $((rows == 1)) ] || fail "says the wrong thing about MPI"

# ---- DataParallel by itself: repeatable. The loss of DDP above shows that it trains --------------------------------
# loss: prints the loss of the row
loss()
{
    expect 0 "ranks 2 seconds " --row dp
    sed 's/.* loss //' "$work/out"
}
trained=$(loss)
[ "$(loss)" = "$trained" ] || fail "losses of two runs are $trained and $(loss)"

# ---- errors -------------------------------------------------------------------------------------------------
expect 2 "must be between" --ranks 1
expect 2 "must be" --row none
expect 1 "more than the model's 64 positions" --block 65
expect 1 "no published model" --config nothing

# ---- launchers that go wrong ----------------------------------------------------------------------------------
# stand_in BODY: writes a fake launcher
stand_in()
{
    mkdir -p "$work/bin"
    printf '#!/bin/sh\n%s\n' "$1" > "$work/bin/${launcher##*/}"
    chmod +x "$work/bin/${launcher##*/}"
}
if [ -n "$launcher" ]; then
    before=$PATH
    PATH=$work/bin:$PATH
    stand_in 'echo "ranks 2 seconds 1 bytes_per_step 1 loss 5.6"'
    expect 1 "they train differently"
    stand_in 'echo started; shift 2; exec "$@"'
    expect 1 "DDP: 1 ranks instead of 2"
    stand_in 'exit 3'
    expect 1 "failed with status 3"
    stand_in 'kill -9 $$'
    expect 1 "was ended by signal 9"
    stand_in 'echo nothing'
    expect 1 "printed no figures"
    rm "$work/bin/${launcher##*/}"
    PATH=$work/bin
    "$txresearch" ddp --config "$work/config.json" --block 32 --steps 1 --rounds 1 > "$work/out" 2> "$work/err"
    status=$?
    PATH=$before
    [ $status -eq 1 ] && grep -q "cannot be started" "$work/err" || fail "does not say that there is no launcher"
fi

verdict
