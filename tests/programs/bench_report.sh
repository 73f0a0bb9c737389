#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txbench report and device, and train by a method, end to end. The files follow docs/report.schema.json. Parts that
# fail or have no time say so, and no output identifies the machine. The test does not judge the figures.
#
#   bench_report.sh TXBENCH SOURCE-FOLDER DEVICE
txbench=$1
source=$2
device=$3
bin=${txbench%/*}
. "${0%/*}/../program.sh"
need_device
export OMP_WAIT_POLICY=passive
mkdir "$work/secret"
echo '{"model_type": "gpt2", "vocab_size": 300, "n_positions": 128, "n_embd": 32, "n_layer": 3, "n_head": 4}' \
    > "$work/secret/config.json"
cd "$work" || exit 1

report()
{
    wanted=$1
    text=$2
    name=$3
    shift 3
    outcome "$wanted" "$text" "$txbench" report --device "$device" --config "$work/secret/config.json" \
        --output "$name" "$@"
}

# state PART FILE: how the part ended; python is not needed for that
state()
{
    grep -A1 "\"part\": \"$1\"" "$2" | sed -n 's/.*"state": "\(.*\)".*/\1/p'
}

# ---- a report --------------------------------------------------------------------------------------------------------
few="step fp32,copy,generation"
outcome 0 "few.json, few.html" "$txbench" report --device "$device" --config secret/config.json --output few --block 32 --budget 600 \
    --only "$few" --kernels
for part in device "step fp32" copy generation; do
    [ "$(state "$part" few.json)" = ok ] || fail "$part is not ok"
done
[ "$(grep -c '"part":' few.json)" -eq 4 ] || fail "not the parts that were asked for"
grep -q '"complete": true' few.json || fail "the report is not complete"
grep -q '"model": "(own)"' few.json || fail "the model is not told"
for word in secret "$work" "$(uname -n)" "${HOME:-/nowhere}/"; do
    grep -qF -- "$word" few.json few.html && fail "the report tells \"$word\""
done
[ "$(tail -n 1 few.html)" = "</html>" ] || fail "the page has no end"
# The counted memory equals the planned memory.
totals=$(grep -E '"(planned|counted)": \{' -A12 few.json | numbers total /dev/stdin | sort -u | wc -l)
[ "$totals" -eq 1 ] || fail "planned and counted memory differ"

# A report that goes on keeps the parts that succeeded, to the digit.
"$txbench" report --device "$device" --config secret/config.json --output few --block 32 --budget 600 --only "$few,curve" \
    --resume > out 2> err || fail "the report does not go on"
grep -qE '\] (copy|step fp32|generation)$' err && fail "a part runs again"
[ "$(state curve few.json)" = ok ] || fail "the curve is not ok"
[ "$(grep -c '"part":' few.json)" -eq 5 ] || fail "not the earlier parts and the curve"
outcome 1 "choose another --output" "$txbench" report --device "$device" --output few --only copy --resume
outcome 1 "nothing.json" "$txbench" report --device "$device" --output nothing --resume

# ---- parts that fail, or have no time --------------------------------------------------------------------------------
report 1 "more than the model's 128 positions" broken --block 129 --budget 600 --only "step fp32,generation"
[ "$(state "step fp32" broken.json)" = failed ] || fail "the step did not fail"
[ "$(state generation broken.json)" = ok ] || fail "what follows a failure is not run"
grep -q '"complete": true' broken.json || fail "a report with a failed part is complete"
outcome 1 "1 of 1 parts failed" "$txbench" report --device abacus --output none
grep -q '"message": ".*abacus' none.json || fail "why there is no device is not told"
report 0 "left out" short --block 32 --budget 1 --only "generation,attention fp32"
[ "$(state "attention fp32" short.json)" = "left out" ] || fail "a part without time is not left out"
budget=$(sed -n '$s/.*: generation, attention fp32; try --budget \([0-9]*\)$/\1/p' out)
[ "${budget:-0}" -gt 1 ] || fail "no larger budget is named"
report 1 'is not a part of a report' not --only "stepp"

# A report that is killed can be read: the first part is there at once, the second takes longer.
"$txbench" report --device "$device" --output killed --budget 600 --only conformance 2> /dev/null > /dev/null &
victim=$!
await test -s killed.html
kill -9 $victim
wait $victim 2> /dev/null
if [ "$(grep -c '"part":' killed.json)" -eq 1 ]; then # the second part had not ended
    grep -q '"complete": false' killed.json || fail "a killed report is complete"
fi
[ "$(tail -n 1 killed.html)" = "</html>" ] || fail "the page of a killed report has no end"

# ---- several on one page ---------------------------------------------------------------------------------------------
outcome 0 "both.html: 2 reports" "$txbench" report few.json broken.json --output both
[ "$(grep -o '"what": "report"' both.html | wc -l)" -eq 2 ] || fail "the page has not both reports"
outcome 1 "not a report of txbench" "$txbench" report few.json secret/config.json --output both
outcome 1 "nothing.json" "$txbench" report nothing.json --output both

# ---- train by a method -----------------------------------------------------------------------------------------------
train()
{
    outcome 0 "" "$txbench" train --device "$device" --config secret/config.json --block 64 --steps 1 --pairs 1 \
        --json "$@"
}
total()
{
    grep -oE '"counted": \{[^}]*' out | numbers total /dev/stdin
}
train
plain=$(total)
train --gradient_checkpointing --optim sgd
[ "$(total)" -lt "$plain" ] || fail "checkpointing and sgd save nothing"
train --bf16 --profile --gradient_accumulation_steps 2
grep -q '"16-bit copies"' out || fail "bf16 has no copies of the weights"
grep -q '"direction": "update"' out || fail "no update in the profile"
train --fp16 --optim adafactor --tf32
outcome 2 "must be one of adamw_torch_fused" "$txbench" train --optim nothing
outcome 1 "exclude each other" "$txbench" train --bf16 --fp16
outcome 1 "not a setting of this optimizer" "$txbench" train --optim_args momentum=0.9
outcome 1 "auto:BYTES is not supported here" "$txbench" train --gradient_checkpointing=auto:1GiB
outcome 1 "can only recompute whole blocks" "$txbench" train --gradient_checkpointing=auto --peer torch

# ---- with Python -----------------------------------------------------------------------------------------------------
python=${TX_PYTHON:-python3}
if command -v "$python" > /dev/null; then
    sed 's/"state": "ok"/"state": "fine"/' few.json > bad-state.json
    sed 's/"total":/"sum":/' few.json > bad-key.json
    sed 's/"budget": [0-9.]*/"budget": -1/' few.json > bad-number.json
    "$txbench" report --device "$device" --config secret/config.json --block 32 --budget 30 --output whole > out 2> err
    outcome 0 "" "$python" "$source/tests/topology/check_schema.py" "$source/docs/report.schema.json" few.json \
        broken.json none.json short.json killed.json whole.json bad-state.json bad-key.json bad-number.json
    if "$python" -c "import torch, transformers" 2> /dev/null; then
        for method in "--bf16 --optim adafactor" "--gradient_checkpointing --gradient_accumulation_steps 2" \
            "--optim sgd --optim_args momentum=0.9" "--fp16"; do
            # Words on purpose.
            # shellcheck disable=SC2086
            train --peer torch $method
            grep -q '"ratio":' out || fail "no ratio beside PyTorch: $method"
        done
        outcome 1 "transformers has no optimizer muon" "$txbench" train --config secret/config.json --block 32 --peer torch --optim muon
        # A GPU is not compared with PyTorch on the CPU.
        if ! "$python" -c "import sys, torch; sys.exit(not torch.accelerator.is_available())"; then
            outcome 1 "TX runs on a GPU, but PyTorch" "$python" "$source/tools/bench/peer_torch.py" train \
                '{"gpu": true, "threads": 1, "compile": false}'
        fi
    fi
fi

verdict
