#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pipelines of 2 and 4 stages, one or several, train as one rank does; 1F1B and GPipe give the same bits. Checkpoints
# hold whole models, and any other split resumes from them. Unsupported combinations are refused, and a rank that dies
# or stops ends the run. Sends are synchronous, so that no run depends on a library's buffers.
#   test_ranks_pipeline.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/split.sh"
export TX_COMM_SYNCHRONOUS=1
sed 's/"n_layer": 3/"n_layer": 5/; s/"n_head": 2/"n_head": 4/' "$work/config.json" > "$work/layers.json"
from="--config_name $work/layers.json --train_file $work/text --validation_file $work/text --block_size 32 $evaluates"

# split RANKS STAGES NAME ARGUMENT...: 12 rows a step, in 3 micro-batches
split()
{
    n=$1 of=$2 name=$3
    shift 3
    ranks "$n" "$name" --pipeline_parallel "$of" --gradient_accumulation_steps 3 \
        --per_device_train_batch_size $((4 * of / n)) "$@"
}

# shellcheck disable=SC2086
split 1 1 one $saves || fail "one rank"
for way in 2.2 4.4 4.2; do
    # shellcheck disable=SC2086
    divides $way "by$way" $saves
done
split 4 4 gpipe --pipeline_schedule gpipe --pipeline_partition 1,1,2,1 || fail "GPipe"
same by4.4 gpipe
# Several stages a rank: the same gradients, whose norm is rounded otherwise, since ranks add up those of other blocks.
# shellcheck disable=SC2086
split 2 2 turns $saves --gradient_accumulation_steps 6 --per_device_train_batch_size 2 --pipeline_schedule interleaved \
    --ddp_check 4 || fail "interleaved"
alike one turns
split 4 2 turns4 --gradient_accumulation_steps 6 --per_device_train_batch_size 1 --pipeline_schedule interleaved \
    --gradient_checkpointing --zero_stage 1 || fail "interleaved, with others"
alike one turns4
# Stages that have as many blocks as is said.
for way in auto even 3,2 1,4; do
    # shellcheck disable=SC2086
    split 2 2 "cut$way" $saves --pipeline_partition $way || fail "--pipeline_partition $way"
    cat "$work/out" "$work/err" > "$work/said$way"
    alike one "cut$way"
done
same by2.2 cutauto
for way in even:2,3 3,2:3,2 1,4:1,4; do
    grep -q "stages  ${way#*:} of 5 blocks" "$work/said${way%:*}" || fail "$way: $(grep stages "$work/said${way%:*}")"
done
split 2 2 cuts --gradient_accumulation_steps 6 --per_device_train_batch_size 2 --pipeline_schedule interleaved \
    --pipeline_partition 1,1,1,2 || fail "--pipeline_partition 1,1,1,2"
alike one cuts
# With others: ZeRO's stage 1, groups that divide products, and activations that are computed again.
# shellcheck disable=SC2086
split 4 2 stage1 $saves --zero_stage 1 || fail "ZeRO's stage 1"
same by4.2 stage1
cmp -s "$work/by4.2/checkpoint-6/optimizer.safetensors" "$work/stage1/checkpoint-6/optimizer.safetensors" ||
    fail "stage 1: other moments"
# shellcheck disable=SC2086
split 4 2 grid $saves --tensor_parallel 2 --per_device_train_batch_size 4 || fail "stages of two ranks each"
alike one grid
split 2 2 again --gradient_checkpointing || fail "checkpointing"
same by2.2 again

# A last step of an epoch has fewer micro-batches than others.
head -n 20 "$work/text" > "$work/few"
whole=$from
from=$(echo "$from" | sed "s|--train_file $work/text|--train_file $work/few|")
for n in 1 2; do
    split $n $n "short$n" --max_steps -1 --num_train_epochs 1 || fail "a short step, $n"
done
from=$whole
same_losses="$(numbers loss "$work/short1/log.jsonl" | tail -n 1) $(numbers loss "$work/short2/log.jsonl" | tail -n 1)"
echo "$same_losses" | awk '{ d = $1 - $2; if (d < 0) d = -d; exit !(NF == 2 && d <= 2e-6 * $1) }' ||
    fail "a short step: losses $same_losses"

# In 16 bits too.
for bits in --bf16 --fp16 "--dtype bfloat16"; do
    # shellcheck disable=SC2086
    { split 1 1 half1 $bits --overwrite_output_dir && split 2 2 half2 $bits --overwrite_output_dir --ddp_check 6; } ||
        fail "$bits"
    alike half1 half2 3e-3
done

# Any split resumes from any checkpoint, with weights and moments to the bit and the same steps.
hands_over turns:1.1 stage1:1.1 grid:1.1 by2.2:1.1 by4.2:1.1 one:2.2 one:4.2 by2.2:4.4 by4.4:2.2 cut1,4:2.2

# Other models: a tied embedding, one that is not tied, experts, keys and values that later stages share, several
# residual streams, and a classifier, whose texts are padded to a row.
cat > "$work/llama.json" << 'EOF'
{"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
 "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 257, "attention_dropout": 0.1,
 "tie_word_embeddings": true}
EOF
sed 's/true/false/' "$work/llama.json" > "$work/untied.json"
echo '{"model_type": "mixtral", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
 "num_key_value_heads": 1,
 "intermediate_size": 16, "max_position_embeddings": 32, "vocab_size": 257, "num_local_experts": 4}' \
    > "$work/experts.json"
sed 's/}$/, "output_router_logits": true}/' "$work/experts.json" > "$work/routers.json"
write_layers
for model in llama untied experts routers shared streams; do
    from="--config_name $work/$model.json --train_file $work/text --validation_file $work/text --block_size 32"
    from="$from $evaluates"
    { split 1 1 $model && split 2 2 ${model}2; } || fail "$model"
    alike $model ${model}2
done
write_words
from="--config_name $work/words --tokenizer_name $work/words --train_file $work/texts.tsv
    --validation_file $work/texts.tsv --task_name sst2 --max_seq_length 20 $evaluates"
{ split 1 1 bert --learning_rate 1e-3 && split 2 2 bert2 --learning_rate 1e-3; } || fail "BERT"
alike bert bert2
[ "$(numbers eval_accuracy "$work/bert/log.jsonl")" = "$(numbers eval_accuracy "$work/bert2/log.jsonl")" ] ||
    fail "BERT: another accuracy"

from="--config_name $work/layers.json --train_file $work/text --block_size 32"
refused "must be a multiple of the group size" 2 4
refused "needs --zero_stage 0 or 1" 2 2 --zero_stage 2
refused "take AdamW, SGD or Lion" 2 2 --optim adafactor
sed 's/"n_layer": 5/"n_layer": 1/' "$work/layers.json" > "$work/layer.json"
refused "need at least as many blocks" 2 2 --config_name "$work/layer.json"
refused "multiple of as many micro-batches, not 3" 2 2 --pipeline_schedule interleaved
refused "8 pipeline stages need at least as many blocks, but the model has 5" 2 2 --pipeline_schedule interleaved --pipeline_chunks 4 --gradient_accumulation_steps 2
for list in 5 2,2 3,3 2,2,1 5,0 6,-1 2,3x odd; do
    refused "2 positive numbers of blocks, separated by commas, with the sum 5" 2 2 --pipeline_partition $list
done
refused "needs --pipeline_parallel 2 or more" 2 1 --pipeline_partition even
refused "--pipeline_partition and --parallel exclude each other" 2 2 --pipeline_partition even --parallel auto
refused "needs --pipeline_schedule interleaved" 2 2 --pipeline_chunks 3

# A rank that dies, and one that stops while its neighbour waits for it: the run ends by itself and names it.
command -v pgrep > /dev/null || { echo "pgrep is missing: no rank dies"; exit $((failures != 0)); }
ends_alone "$work/layers.json" --pipeline_parallel 2
ends
