#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txtune fills the table of a device, shows it, and later runs go by it: test_tune.sh BIN
set -u
bin=$1
device=opencl
. "${0%/*}/../program.sh"
need_device
export TX_CACHE_DIR="$work/cache"
unset TX_GEMM TX_GEMM_TUNE
cat > "$work/config.json" << 'END'
{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 64, "n_positions": 64, "vocab_size": 257,
 "attn_pdrop": 0, "resid_pdrop": 0, "embd_pdrop": 0}
END

"$bin/txtune" --device opencl --show > "$work/before" 2> "$work/err" || fail "--show of a new device"
grep -q "no results are stored" "$work/before" || fail "a new device has a table"
# Far more time than it takes: most of it compiles kernels, where the driver has none of them yet.
"$bin/txtune" --device opencl --model "$work/config.json" --batch 4 --eval_batch 4 --block 64 --seconds 300 \
    > "$work/table" 2> "$work/err" || fail "tuning"
grep -q "^product .*GFLOP/s at " "$work/table" || fail "no product in the table"
for kernel in forward dq dkv; do
    grep -q "^attention $kernel d32 .* ms .* tokens" "$work/table" || fail "no attention $kernel in the table"
done
grep -q "product" "$work/err" || fail "no progress"
[ "$(grep -c "^product 01 " "$work/table")" -ge 1 ] || fail "no product of the backward pass"
"$bin/txtune" --device opencl --show > "$work/after" 2> "$work/err" || fail "--show"
cmp -s "$work/table" "$work/after" || fail "the table is not kept"

# A run uses the table and measures nothing.
"$bin/txtrain" --device opencl --config_name "$work/config.json" --train_file "${0%/*}/../program.sh" --block_size 64 \
    --per_device_train_batch_size 4 --max_steps 2 --save_strategy no --output_dir "$work/out" > "$work/run" \
    2> "$work/err" ||
    fail "a run after tuning"
"$bin/txtune" --device opencl --show > "$work/later" 2> "$work/err" || fail "--show"
cmp -s "$work/after" "$work/later" || fail "a run after tuning measures again"

"$bin/txtune" --device cpu --show > "$work/out.cpu" 2> "$work/err" || fail "--show of the cpu"
grep -q "no results are stored" "$work/out.cpu" || fail "the cpu has a table"
"$bin/txtune" --device opencl --seconds 0 > "$work/bad" 2>&1 && fail "--seconds 0 is accepted"

[ $failures -eq 0 ] && echo "all good"
exit $((failures != 0))
