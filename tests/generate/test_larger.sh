#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model that is larger than a device's memory generates the same text as on a device with enough memory. A second
# device has some of its blocks, or its weights are in host memory or in a file. PoCL's memory is limited to 1 GiB.
#   test_larger.sh BIN
set -u
bin=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$bin/txtopo" --json 2> /dev/null | grep -q '"opencl:0"' || { echo "skipped: no OpenCL device"; exit 77; }

cat > "$work/config.json" << 'EOF'
{"model_type": "gpt2", "vocab_size": 257, "n_layer": 24, "n_head": 16, "n_embd": 1024, "n_positions": 64}
EOF
head -c 4000 "$0" > "$work/text"
"$bin/txtrain" --config_name "$work/config.json" --train_file "$work/text" --block_size 32 \
    --per_device_train_batch_size 1 \
    --max_steps 1 --save_strategy no --output_dir "$work/model" > /dev/null 2> "$work/err" ||
    { cat "$work/err"; exit 1; }

# generated NAME ARGUMENT...
generated()
{
    name=$1
    shift
    POCL_MEMORY_LIMIT=1 "$bin/txgen" --model "$work/model" --ids "5 6 7 8" --max_new_tokens 8 --temperature 0 "$@" > "$work/$name" \
        2> "$work/err"
}

generated one --device cpu || { echo "FAIL: cpu"; exit 1; }
generated none --device opencl:0 && { echo "FAIL: 1 GiB has room for it"; exit 1; }
grep -q "does not fit: .* opencl:0 has 1.00 GiB; .*device_map.*offload_param" "$work/err" || { echo "FAIL: the reason is not given"; cat "$work/err"; exit 1; }
generated two --device_map opencl:0=10,cpu=14 || { echo "FAIL: two devices"; cat "$work/err"; exit 1; }
cmp "$work/one" "$work/two" || { echo "FAIL: two devices generate something else"; exit 1; }
generated two --device_map opencl:0,cpu ||
    { echo "FAIL: as many blocks as there is room for"; cat "$work/err"; exit 1; }
cmp "$work/one" "$work/two" || { echo "FAIL: two devices, filled, generate something else"; exit 1; }
grep -qE "device_map opencl:0=(1[0-9]|2[0-2]),cpu=" "$work/err" || { echo "FAIL: 0.9 GiB has room for 17 blocks or so"; cat "$work/err"; exit 1; }
generated away --device opencl:0 --offload_param cpu ||
    { echo "FAIL: weights in the host's memory"; cat "$work/err"; exit 1; }
cmp "$work/one" "$work/away" || { echo "FAIL: weights in the host's memory generate something else"; exit 1; }
mkdir "$work/disk"
for device in opencl:0 cpu; do
    generated filed --device $device --offload_param nvme --nvme_path "$work/disk" ||
        { echo "FAIL: weights in a file, $device"; cat "$work/err"; exit 1; }
    cmp "$work/one" "$work/filed" || { echo "FAIL: weights in a file generate something else, $device"; exit 1; }
done
generated none --offload_param nvme && { echo "FAIL: a file in no folder"; exit 1; }
grep -q "needs --nvme_path" "$work/err" || { echo "FAIL: not told that it needs a folder"; exit 1; }
echo "all good"
