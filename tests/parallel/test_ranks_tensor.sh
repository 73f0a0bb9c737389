#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tensor parallelism: groups of 2 and 4 ranks, one or several, train as one rank does. Checkpoints hold whole tensors,
# and any other split resumes from them. Unsupported combinations are refused, and a rank that dies or stops ends the
# run.
#   test_ranks_tensor.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/split.sh"
sed 's/"n_head": 2/"n_head": 4/' "$work/config.json" > "$work/heads.json"
from="--config_name $work/heads.json --train_file $work/text --block_size 32"

# split RANKS PARTS NAME ARGUMENT...
split()
{
    n=$1 parts=$2 name=$3
    shift 3
    ranks "$n" "$name" --tensor_parallel "$parts" --per_device_train_batch_size $((12 * parts / n)) "$@"
}

trains_alike 2
split 4 2 spread --zero_stage 3 --gradient_accumulation_steps 3 --per_device_train_batch_size 2 \
    --gradient_checkpointing || fail "stage 3, accumulation and checkpointing"
alike one spread

# In 16 bits the parts are rounded before they are summed.
for bits in --bf16 --fp16 "--dtype bfloat16"; do
    # shellcheck disable=SC2086
    { split 1 1 half1 $bits --overwrite_output_dir && split 4 2 half2 $bits --overwrite_output_dir --ddp_check 6; } ||
        fail "$bits"
    alike half1 half2 3e-3
    # shellcheck disable=SC2086
    split 4 2 half3 $bits --overwrite_output_dir --zero_stage 3 || fail "$bits, stage 3"
    same half2 half3
done

# Any split resumes from any checkpoint, with weights and moments to the bit and the same steps.
hands_over by2.2:1.1 by4.2:1.1 one:2.2 one:4.2 by2.2:4.4

llama_alike

# One key-value head, with a bias, which is replicated on all ranks; two heads with norms, each replicated on a pair.
# Any number of ranks resumes from checkpoints of any other, also with ZeRO, accumulation, 16 bits and pipelines. At a
# rate of 1e-2 AdamW amplifies rounding: norms differed by 1.3e-5, and those of one rank in 16 bits by up to 12 % from
# fp32.
cat > "$work/heads1.json" << 'EOF'
{"model_type": "qwen2", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1,
 "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 257, "attention_dropout": 0.1}
EOF
sed 's/qwen2/qwen3/; s/"num_key_value_heads": 1/"num_key_value_heads": 2, "head_dim": 8/' "$work/heads1.json" \
    > "$work/heads2.json"
rate=1e-3
for heads in 2 1; do
    rm -rf "${work:?}/one" "${work:?}"/by?.?
    from="--config_name $work/heads$heads.json --train_file $work/text --block_size 32"
    # shellcheck disable=SC2086
    { split 1 1 one $saves && divides 4.4 by4.4 $saves && divides 2.2 by2.2 $saves; } || fail "$heads heads of keys"
    hands_over by4.4:1.1 one:4.4 by2.2:4.4
    bits="--bf16 --learning_rate 1e-5 --overwrite_output_dir"
    # shellcheck disable=SC2086
    { split 1 1 half1 $bits && split 4 4 half2 $bits; } || fail "$heads heads, 16 bits"
    alike half1 half2 3e-4
done
accumulates="--gradient_accumulation_steps 3 --overwrite_output_dir"
# shellcheck disable=SC2086
for way in "--zero_stage 3 --gradient_checkpointing --per_device_train_batch_size 2" \
    "--zero_stage 1 --per_device_train_batch_size 2" "--pipeline_parallel 2 --per_device_train_batch_size 4"; do
    split 4 2 way $accumulates $way --ddp_check 4 || fail "one head of keys, $way"
    alike one way
done
rate=1e-2

# Experts, each of which ranks divide; routers' losses, choices that are dropped, and a checkpoint that others go on
# from.
cat > "$work/experts.json" << 'EOF'
{"model_type": "mixtral", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 257, "num_local_experts": 4,
 "output_router_logits": true}
EOF
from="--config_name $work/experts.json --train_file $work/text --block_size 32 --router_z_loss_coef 0.01"
# shellcheck disable=SC2086
{ split 1 1 experts $saves && split 2 2 experts22 $saves; } || fail "experts"
alike experts experts22
go_on experts22 on
split 1 1 on --resume_from_checkpoint || fail "one rank goes on with experts"
alike experts on
# With this seed no token has two experts that are so alike that sums in another order choose the other one.
capacity="--expert_capacity_factor 0.7 --seed 1"
# shellcheck disable=SC2086
{ split 1 1 full $capacity && split 2 2 full22 $capacity; } || fail "a capacity"
alike full full22
numbers dropped "$work/full/log.jsonl" > "$work/expected"
numbers dropped "$work/full22/log.jsonl" > "$work/got"
{ [ "$(sort -n "$work/got" | tail -n 1)" -gt 0 ] && cmp -s "$work/expected" "$work/got"; } ||
    fail "other numbers of choices are dropped"

# Heads that differ, keys and values that layers share, a cap of the logits, and sparse gates.
write_layers
for model in shared streams; do
    from="--config_name $work/$model.json --train_file $work/text --block_size 32"
    { split 1 1 $model && split 2 2 ${model}22 && split 4 4 ${model}44; } || fail "$model"
    alike $model ${model}22 1e-5
    alike $model ${model}44 1e-5
done

# A classifier, which reads only the first positions of its last block, with batches of several lengths.
write_words
from="--config_name $work/words --tokenizer_name $work/words --train_file $work/texts.tsv --task_name sst2
    --max_seq_length 20 --pad_to_max_length false"
split 1 1 bert --learning_rate 1e-3 || fail "BERT on one rank"
split 4 2 bert42 --learning_rate 1e-3 || fail "BERT on 4 ranks"
alike bert bert42

# Samples side by side in a row, each with positions of its own.
write_talk
mkdir "$work/talks"
cp "${0%/*}"/../chat/golden/tokenizer*.json "$work/talks"
cat > "$work/talks/config.json" << 'EOF'
{"model_type": "gpt2", "vocab_size": 342, "n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 64}
EOF
from="--config_name $work/talks --tokenizer_name $work/talks --train_file $work/talk.jsonl --chat_template chatml
    --max_seq_length 64 --packing true --label_smoothing_factor 0.1"
split 1 1 talk --learning_rate 1e-3 || fail "conversations on one rank"
split 4 2 talk42 --learning_rate 1e-3 || fail "conversations on 4 ranks"
alike talk talk42

sed 's/"hidden_size": 32/"hidden_size": 48/; s/"num_attention_heads": 4/"num_attention_heads": 12/
    s/"num_key_value_heads": 1/"num_key_value_heads": 3, "head_dim": 4/' \
    "$work/heads1.json" > "$work/heads3.json"
from="--config_name $work/heads3.json --train_file $work/text --block_size 32"
refused "num_key_value_heads: 3 cannot be divided among 4 ranks" 4 4
sed 's/"num_attention_heads": 4/"num_attention_heads": 2/' "$work/heads1.json" > "$work/queries2.json"
from="--config_name $work/queries2.json --train_file $work/text --block_size 32"
refused "num_attention_heads: 2 cannot be divided among 4 ranks" 4 4
from="--model_name_or_path $work/base --train_file $work/text --block_size 32"
refused "must be a multiple of the group size" 2 4
refused "take AdamW, SGD or Lion" 2 2 --optim adafactor

# A rank that dies, and one that stops while its group waits for it: the run ends by itself and names it.
command -v pgrep > /dev/null || { echo "pgrep is missing: no rank dies"; exit $((failures != 0)); }
ends_alone "$work/heads.json" --tensor_parallel 2
ends
