#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks with weights in host memory, or in a file of each rank, train to the same bits as with weights on the device,
# for every split. Weights that ranks exchange whole stay on the device.
#   test_ranks_offload.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/split.sh"
echo '{"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
 "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 257, "num_local_experts": 4}' \
    > "$work/experts.json"
gpt2=$from
mkdir "$work/disk"
experts="--config_name $work/experts.json --train_file $work/text --block_size 32"

# filed NAME ARGUMENT...: and in a file of each rank
filed()
{
    name=$1
    shift
    ranks 2 "$name.filed" --gradient_accumulation_steps 2 --offload_param nvme --nvme_path "$work/disk" "$@" ||
        fail "$name: in a file"
    grep -q "^offload .*weights.* are kept in a file" "$work/out" || fail "$name: not told of the file"
    same "$name" "$name.filed"
}

# away NAME ARGUMENT...: the same weights with theirs there
away()
{
    name=$1
    shift
    ranks 2 "$name" --gradient_accumulation_steps 2 "$@" || fail "$name: on the device"
    ranks 2 "$name.away" --gradient_accumulation_steps 2 --offload_param cpu "$@" || fail "$name: in the host's memory"
    grep -q "^offload .*weights.* in host memory" "$work/out" || fail "$name: not told where weights are"
    same "$name" "$name.away"
    filed "$name" "$@"
}

away data --bf16 --ddp_check 4
away shards --zero_stage 3
away half_shards --zero_stage 3 --bf16 --offload_optimizer cpu
away tensor --tensor_parallel 2 --bf16
away stages --pipeline_parallel 2 --bf16
away chunks --context_parallel 2
from=$experts
away experts --expert_parallel 2 --bf16
from=$gpt2
[ -z "$(ls -A "$work/disk")" ] || fail "something is left on the disk"
for stage in 1 2; do
    ranks 2 refused --zero_stage $stage --offload_param cpu && fail "stage $stage: not refused"
    grep -q "use zero_stage 0 or 3" "$work/err" || fail "stage $stage: not told why"
done
from="--model_name_or_path $work/data --train_file $work/text --block_size 32 --lora_r 4"
ranks 2 adapter --zero_stage 1 --dtype bfloat16 || fail "an adapter: on the device"
ranks 2 adapter.away --zero_stage 1 --dtype bfloat16 --offload_param cpu ||
    fail "an adapter: its base in the host's memory"
cmp -s "$work/adapter/adapter_model.safetensors" "$work/adapter.away/adapter_model.safetensors" ||
    fail "adapters differ"

ends
