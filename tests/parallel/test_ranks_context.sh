#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Context parallelism: 2 and 4 ranks have chunks of the positions of the same rows, in one group or several. They train
# as one rank does. Checkpoints hold whole models, from which any other split resumes. Unsupported combinations are
# refused, and a rank that dies or stops ends the run.
#   test_ranks_context.sh BIN LAUNCHER DEVICE
device=$3
. "${0%/*}/ranks.sh"
. "${0%/*}/split.sh"
from="--config_name $work/config.json --train_file $work/text --block_size 32"

# split RANKS CHUNKS NAME ARGUMENT...
split()
{
    n=$1 chunks=$2 name=$3
    shift 3
    ranks "$n" "$name" --context_parallel "$chunks" --per_device_train_batch_size $((12 * chunks / n)) "$@"
}

trains_alike 2

# In 16 bits each pair of chunks is rounded before it is merged; other optimizers, and weights that are cut off.
for way in --bf16 --fp16 "--sparsity 0.5" "--optim muon"; do
    # shellcheck disable=SC2086
    { split 1 1 this1 $way --overwrite_output_dir && split 4 2 this2 $way --overwrite_output_dir --ddp_check 6; } ||
        fail "$way"
    alike this1 this2 3e-3
done

# Any split resumes from any checkpoint, with weights and moments to the bit and the same steps.
hands_over by2.2:1.1 by4.2:1.1 one:4.2 by2.2:4.4

llama_alike
split 4 2 again42 --gradient_checkpointing || fail "Llama, activations computed again"
alike llama again42

# Messages take the place of activations that are still on their way from the host's memory.
for try in 1 2 3; do
    split 4 2 away42 --activation_offloading --overwrite_output_dir || fail "Llama, activations in host memory"
    alike llama away42
done

# Rotary positions that depend on the length of a row are those of the whole one.
sed 's/"max_position_embeddings": 32/"max_position_embeddings": 16, "rope_scaling": {"type": "dynamic", "factor": 2}/' \
    "$work/llama.json" > "$work/longer.json"
from="--config_name $work/longer.json --train_file $work/text --block_size 32"
{ split 1 1 longer && split 4 2 longer42; } || fail "rows beyond the original positions"
alike longer longer42

# Experts, whose tokens are those of a chunk.
sed 's/llama/mixtral/; s/"vocab_size": 257/"vocab_size": 257, "num_local_experts": 4/' "$work/llama.json" \
    > "$work/experts.json"
from="--config_name $work/experts.json --train_file $work/text --block_size 32"
{ split 1 1 experts && split 4 2 experts42; } || fail "experts"
alike experts experts42

# Windows, packed rows and padding: ranks exchange their positions for heads.
sed 's/llama/mistral/; s/"vocab_size": 257/"vocab_size": 257, "sliding_window": 9/' "$work/llama.json" > "$work/window.json"
from="--config_name $work/window.json --train_file $work/text --block_size 32"
{ split 1 1 window && split 4 2 window42; } || fail "a sliding window"
alike window window42
write_talk
mkdir "$work/talks"
cp "${0%/*}"/../chat/golden/tokenizer*.json "$work/talks"
sed 's/"vocab_size": 257/"vocab_size": 342/; s/32, "vocab/64, "vocab/' "$work/llama.json" > "$work/talks/config.json"
for way in "--packing true" "--packing false" "--packing true --bf16" "--packing true --gradient_checkpointing"; do
    from="--config_name $work/talks --tokenizer_name $work/talks --train_file $work/talk.jsonl --chat_template chatml --max_seq_length 64 $way"
    { split 1 1 talk && split 4 2 talk42; } || fail "conversations, $way"
    case $way in *bf16) alike talk talk42 3e-3 ;; *) alike talk talk42 ;; esac
    rm -r "$work/talk" "$work/talk42"
done
refused "2 of keys are not multiples of its 4 ranks" 4 4

# A bidirectional model, with padding and without.
write_masks
echo '{"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 342, "hidden_size": 32,
 "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 32}' \
    > "$work/masked/config.json"
for way in "" --line_by_line; do
    from="--config_name $work/masked --train_file $work/text --max_seq_length 32 $way"
    { split 1 1 masked1 --overwrite_output_dir && split 4 2 masked42 --overwrite_output_dir; } || fail "masked words $way"
    alike masked1 masked42
done

from="--model_name_or_path $work/base --train_file $work/text --block_size 32"
refused "must be a multiple of the group size" 2 4
refused "--context_parallel and --sequence_parallel exclude each other" 4 2 --tensor_parallel 2 --sequence_parallel
refused "cannot be divided into 4 chunks of a multiple of 4" 2 2 --block_size 24

# A rank that dies, and one that stops while its neighbour waits for it: the run ends by itself and names it.
command -v pgrep > /dev/null || { echo "pgrep is missing: no rank dies"; exit $((failures != 0)); }
ends_alone "$work/config.json" --context_parallel 2
ends
