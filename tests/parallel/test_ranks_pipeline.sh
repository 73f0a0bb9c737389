#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pipelines: 2 and 4 stages, alone and beside each other, train as one rank does, by both schedules to the bit; checkpoints
# hold whole models, and what one split wrote any other goes on from; what does not go with it is refused; a rank that dies
# or stops ends all. Sends wait for their receivers, so that nothing hangs together by a library's buffers.
#   test_ranks_pipeline.sh BIN LAUNCHER DEVICE
set -u
bin=$1
launcher=$2
device=$3
. "${0%/*}/ranks.sh"
export TX_COMM_SYNCHRONOUS=1
sed 's/"n_layer": 3/"n_layer": 5/; s/"n_head": 2/"n_head": 4/' "$work/config.json" > "$work/layers.json"
from="--config_name $work/layers.json --train_file $work/text --validation_file $work/text --block_size 32 --eval_strategy steps --eval_steps 6"

# alike NAME NAME [LIMIT]: 12 steps of the same losses, relative, of the same norms, within five times as much, and two evaluations
alike()
{
    for key in loss grad_norm eval_loss; do
        numbers $key "$work/$1/log.jsonl" > "$work/expected"
        numbers $key "$work/$2/log.jsonl" > "$work/got"
        [ "$(wc -l < "$work/got")" -eq "$([ $key = eval_loss ] && echo 2 || echo 12)" ] || fail "$2: not all of $key is in the log"
        paste "$work/expected" "$work/got" | awk -v limit="${3:-2e-6}" -v factor="$([ $key = grad_norm ] && echo 5 || echo 1)" \
            '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= factor * limit * $1)) { print "step " NR ": " $1 " and " $2; bad = 1 } } END { exit bad }' \
            > "$work/out" || fail "$2: other values of $key than $1"
    done
}

# stages RANKS STAGES NAME ARGUMENT...: 12 rows a step, in 3 micro-batches
stages()
{
    n=$1 of=$2 name=$3
    shift 3
    ranks "$n" "$name" --pipeline_parallel "$of" --gradient_accumulation_steps 3 \
        --per_device_train_batch_size $((4 * of / n)) "$@"
}

# go_on NAME NAME: a copy of a run of which nothing is left but its checkpoint of step 6
go_on()
{
    rm -rf "${work:?}/$2"
    mkdir "$work/$2"
    cp -r "$work/$1/checkpoint-6" "$work/$2"
}

saves="--save_strategy steps --save_steps 6"
# shellcheck disable=SC2086
stages 1 1 one $saves || fail "one rank"
for way in 2.2 4.4 4.2; do
    # shellcheck disable=SC2086
    stages "${way%.*}" "${way#*.}" "by$way" $saves --ddp_check 4 || fail "$way"
    alike one "by$way"
    [ "$(grep -c '"weights"' "$work/by$way/log.jsonl")" -eq 3 ] || fail "$way: weights were not compared"
    for file in model.safetensors optimizer.safetensors; do
        [ "$(wc -c < "$work/one/checkpoint-6/$file")" -eq "$(wc -c < "$work/by$way/checkpoint-6/$file")" ] || fail "$way: $file is not whole"
    done
done
stages 4 4 gpipe --pipeline_schedule gpipe || fail "GPipe"
same by4.4 gpipe
# With others: ZeRO's stage 1, groups that divide products, and activations that are computed again.
# shellcheck disable=SC2086
stages 4 2 stage1 $saves --zero_stage 1 || fail "ZeRO's stage 1"
same by4.2 stage1
cmp -s "$work/by4.2/checkpoint-6/optimizer.safetensors" "$work/stage1/checkpoint-6/optimizer.safetensors" || fail "stage 1: other moments"
# shellcheck disable=SC2086
stages 4 2 grid $saves --tensor_parallel 2 --per_device_train_batch_size 4 || fail "stages of two ranks each"
alike one grid
stages 2 2 again --gradient_checkpointing || fail "checkpointing"
same by2.2 again

# A last step of an epoch has fewer micro-batches than others.
head -n 20 "$work/text" > "$work/few"
for n in 1 2; do
    stages $n $n "short$n" --max_steps -1 --num_train_epochs 1 --train_file "$work/few" || fail "a short step, $n"
done
same_losses="$(numbers loss "$work/short1/log.jsonl" | tail -n 1) $(numbers loss "$work/short2/log.jsonl" | tail -n 1)"
echo "$same_losses" | awk '{ d = $1 - $2; if (d < 0) d = -d; exit !(NF == 2 && d <= 2e-6 * $1) }' || fail "a short step: losses $same_losses"

# In 16 bits too.
for bits in --bf16 --fp16 "--dtype bfloat16"; do
    # shellcheck disable=SC2086
    { stages 1 1 half1 $bits --overwrite_output_dir && stages 2 2 half2 $bits --overwrite_output_dir --ddp_check 6; } || fail "$bits"
    alike half1 half2 3e-3
done

# Whatever wrote it, whoever goes on: the weights and moments to the bit, and the same steps.
for way in stage1:1.1 grid:1.1 by2.2:1.1 by4.2:1.1 one:2.2 one:4.2 by2.2:4.4 by4.4:2.2; do
    to=${way#*:}
    go_on "${way%:*}" on
    stages "${to%.*}" "${to#*.}" on --resume_from_checkpoint --max_steps 6 || fail "$way: nothing left to train"
    cmp -s "$work/${way%:*}/checkpoint-6/model.safetensors" "$work/on/model.safetensors" || fail "$way: other weights"
    go_on "${way%:*}" on
    stages "${to%.*}" "${to#*.}" on --resume_from_checkpoint || fail "$way"
    alike one on
done

# Other models: a table that is tied, one that is not, experts, and a classifier, whose texts are padded to the length of a row.
cat > "$work/llama.json" << 'EOF'
{"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
 "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 257, "attention_dropout": 0.1, "tie_word_embeddings": true}
EOF
sed 's/true/false/' "$work/llama.json" > "$work/untied.json"
echo '{"model_type": "mixtral", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
 "intermediate_size": 16, "max_position_embeddings": 32, "vocab_size": 257, "num_local_experts": 4}' > "$work/experts.json"
for model in llama untied experts; do
    from="--config_name $work/$model.json --train_file $work/text --validation_file $work/text --block_size 32 --eval_strategy steps --eval_steps 6"
    { stages 1 1 $model && stages 2 2 ${model}2; } || fail "$model"
    alike $model ${model}2
done
write_texts
mkdir "$work/words"
cp "${0%/*}"/../chat/golden/tokenizer*.json "$work/words"
cat > "$work/words/config.json" << 'EOF'
{"model_type": "bert", "vocab_size": 342, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
 "max_position_embeddings": 24}
EOF
from="--config_name $work/words --tokenizer_name $work/words --train_file $work/texts.tsv --validation_file $work/texts.tsv --task_name sst2 --max_seq_length 20 --eval_strategy steps --eval_steps 6"
{ stages 1 1 bert --learning_rate 1e-3 && stages 2 2 bert2 --learning_rate 1e-3; } || fail "BERT"
alike bert bert2
[ "$(numbers eval_accuracy "$work/bert/log.jsonl")" = "$(numbers eval_accuracy "$work/bert2/log.jsonl")" ] || fail "BERT: another accuracy"

# refused WORDS RANKS STAGES ARGUMENT...: ends, and says why in one line
refused()
{
    words=$1
    shift
    n=$1 of=$2
    shift 2
    stages "$n" "$of" refused "$@" && fail "not refused: $words"
    grep -q -e "$words" "$work/err" || fail "another reason than: $words"
    rm -rf "$work/refused"
}
from="--config_name $work/layers.json --train_file $work/text --block_size 32"
refused "ranks cannot be divided into groups of so many" 2 4
refused "without their routers' losses" 2 2 --config_name "$work/experts.json" --router_z_loss_coef 0.01
refused "goes with --zero_stage 0 and 1" 2 2 --zero_stage 2
refused "leave --lora_r and --load_in_4bit out" 2 2 --lora_r 4
refused "take AdamW, SGD or Lion" 2 2 --optim adafactor
sed 's/"n_layer": 5/"n_layer": 1/' "$work/layers.json" > "$work/layer.json"
refused "has as many blocks" 2 2 --config_name "$work/layer.json"

# A rank that dies, and one that stops while its neighbour waits for it: the run ends by itself and names it.
command -v pgrep > /dev/null || { echo "pgrep is missing: no rank dies"; exit $((failures != 0)); }
for signal in KILL STOP; do
    folder=$work/$signal
    timeout -s KILL 60 "$launcher" -n 2 "$bin/txtrain" --train_file "$work/text" --config_name "$work/layers.json" \
        --block_size 32 --threads 1 --max_steps 100000 --logging_strategy no --save_strategy no --device "$device" \
        --comm_timeout 2 --pipeline_parallel 2 --output_dir "$folder" > "$work/out" 2> "$work/err" &
    pid=$!
    tries=0
    until [ "$(grep -c '"step"' "$folder/log.jsonl" 2> /dev/null || true)" -ge 20 ] 2> /dev/null || [ $tries -ge 2000 ]; do
        sleep 0.01
        tries=$((tries + 1))
    done
    kill -$signal "$(pgrep -f "^$bin/txtrain .*--output_dir $folder\$" | tail -n 1)"
    wait $pid
    status=$?
    { [ $status -ne 0 ] && [ $status -ne 137 ]; } || fail "$signal: the launcher ended with $status"
    [ $signal = KILL ] || grep -q "^txtrain: rank [01] on .* does not answer" "$work/err" || fail "$signal: no rank is named"
done

[ $failures -eq 0 ] && echo "all good"
exit $((failures != 0))
