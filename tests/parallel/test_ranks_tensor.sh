#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tensor parallelism: groups of 2 and 4 ranks, alone and beside each other, train as one rank does; checkpoints hold whole
# tensors, and what one split wrote any other goes on from; what does not go with it is refused; a rank that dies or stops
# ends all.
#   test_ranks_tensor.sh BIN LAUNCHER DEVICE
set -u
bin=$1
launcher=$2
device=$3
. "${0%/*}/ranks.sh"
sed 's/"n_head": 2/"n_head": 4/' "$work/config.json" > "$work/heads.json"
from="--config_name $work/heads.json --train_file $work/text --block_size 32"

# alike NAME NAME [LIMIT]: 12 steps of the same losses, relative, and of the same norms, within five times as much
alike()
{
    for key in loss grad_norm; do
        numbers $key "$work/$1/log.jsonl" > "$work/expected"
        numbers $key "$work/$2/log.jsonl" > "$work/got"
        [ "$(wc -l < "$work/got")" -eq 12 ] || fail "$2: not 12 steps in the log"
        paste "$work/expected" "$work/got" | awk -v limit="${3:-2e-6}" -v factor="$([ $key = loss ] && echo 1 || echo 5)" \
            '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= factor * limit * $1)) { print "step " NR ": " $1 " and " $2; bad = 1 } } END { exit bad }' \
            > "$work/out" || fail "$2: other values of $key than $1"
    done
}

# split RANKS PARTS NAME ARGUMENT...
split()
{
    n=$1 parts=$2 name=$3
    shift 3
    ranks "$n" "$name" --tensor_parallel "$parts" --per_device_train_batch_size $((12 * parts / n)) "$@"
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
split 1 1 one $saves || fail "one rank"
for way in 2.2 4.4 4.2; do
    # shellcheck disable=SC2086
    split "${way%.*}" "${way#*.}" "by$way" $saves --ddp_check 4 || fail "$way"
    alike one "by$way"
    [ "$(grep -c '"weights"' "$work/by$way/log.jsonl")" -eq 3 ] || fail "$way: weights were not compared"
done
split 4 2 folded --gradient_accumulation_steps 3 --per_device_train_batch_size 2 --gradient_checkpointing \
    --ddp_overlap yes || fail "accumulation and checkpointing"
alike one folded
for stage in 1 2 3; do
    # shellcheck disable=SC2086
    split 4 2 stage$stage $saves --zero_stage $stage --ddp_check 4 || fail "ZeRO's stage $stage"
    for file in model.safetensors optimizer.safetensors; do
        cmp -s "$work/by4.2/checkpoint-6/$file" "$work/stage$stage/checkpoint-6/$file" || fail "stage $stage: other $file"
        [ "$(wc -c < "$work/one/checkpoint-6/$file")" -eq "$(wc -c < "$work/by4.4/checkpoint-6/$file")" ] || fail "$file is not whole"
    done
    same by4.2 stage$stage
done
split 4 2 spread --zero_stage 3 --gradient_accumulation_steps 3 --per_device_train_batch_size 2 --gradient_checkpointing || fail "stage 3, accumulation and checkpointing"
alike one spread

# In 16 bits the parts are rounded before they are summed.
for bits in --bf16 --fp16 "--dtype bfloat16"; do
    # shellcheck disable=SC2086
    { split 1 1 half1 $bits --overwrite_output_dir && split 4 2 half2 $bits --overwrite_output_dir --ddp_check 6; } || fail "$bits"
    alike half1 half2 3e-3
    # shellcheck disable=SC2086
    split 4 2 half3 $bits --overwrite_output_dir --zero_stage 3 || fail "$bits, stage 3"
    same half2 half3
done

# Whatever wrote it, whoever goes on: the weights and moments to the bit, and the same steps.
for way in by2.2:1.1 by4.2:1.1 one:2.2 one:4.2 by2.2:4.4; do
    to=${way#*:}
    go_on "${way%:*}" on
    split "${to%.*}" "${to#*.}" on --resume_from_checkpoint --max_steps 6 || fail "$way: nothing left to train"
    cmp -s "$work/${way%:*}/checkpoint-6/model.safetensors" "$work/on/model.safetensors" || fail "$way: other weights"
    go_on "${way%:*}" on
    split "${to%.*}" "${to#*.}" on --resume_from_checkpoint || fail "$way"
    alike one on
done

# Other models, from files, with evaluations.
cat > "$work/llama.json" << 'EOF'
{"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 257, "attention_dropout": 0.1}
EOF
from="--config_name $work/llama.json --train_file $work/text --block_size 32"
ranks 1 base --max_steps 1 --per_device_train_batch_size 12 || fail "a model to begin with"
from="--model_name_or_path $work/base --train_file $work/text --validation_file $work/text --block_size 32 --eval_strategy steps --eval_steps 6"
split 1 1 llama || fail "Llama on one rank"
split 4 2 llama42 || fail "Llama on 4 ranks"
alike llama llama42
numbers eval_loss "$work/llama/log.jsonl" > "$work/expected"
numbers eval_loss "$work/llama42/log.jsonl" > "$work/got"
paste "$work/expected" "$work/got" | awk '{ d = $1 - $2; if (d < 0) d = -d; bad += !(d <= 2e-6 * $1) } END { exit bad || NR != 2 }' ||
    fail "Llama: other evaluations"

# A classifier, which reads the first positions of its last block alone, by batches of several lengths.
write_texts
mkdir "$work/words"
cp "${0%/*}"/../chat/golden/tokenizer*.json "$work/words"
cat > "$work/words/config.json" << 'EOF'
{"model_type": "bert", "vocab_size": 342, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
 "max_position_embeddings": 24}
EOF
from="--config_name $work/words --tokenizer_name $work/words --train_file $work/texts.tsv --task_name sst2 --max_seq_length 20 --pad_to_max_length false"
split 1 1 bert --learning_rate 1e-3 || fail "BERT on one rank"
split 4 2 bert42 --learning_rate 1e-3 || fail "BERT on 4 ranks"
alike bert bert42

# Samples side by side in a row, each with positions of its own.
awk 'BEGIN {
    split("cat dog bird", who, " ")
    for (i = 0; i < 240; i++)
        printf "{\"messages\": [{\"role\": \"user\", \"content\": \"greet the %s\"}, {\"role\": \"assistant\", \"content\": \"hi %s\"}]}\n", \
            who[i % 3 + 1], who[i % 3 + 1]
}' > "$work/talk.jsonl"
mkdir "$work/talks"
cp "${0%/*}"/../chat/golden/tokenizer*.json "$work/talks"
cat > "$work/talks/config.json" << 'EOF'
{"model_type": "gpt2", "vocab_size": 342, "n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 64}
EOF
from="--config_name $work/talks --tokenizer_name $work/talks --train_file $work/talk.jsonl --chat_template chatml --max_seq_length 64 --packing true --label_smoothing_factor 0.1"
split 1 1 talk --learning_rate 1e-3 || fail "conversations on one rank"
split 4 2 talk42 --learning_rate 1e-3 || fail "conversations on 4 ranks"
alike talk talk42

# refused WORDS RANKS PARTS ARGUMENT...: ends, and says why in one line
refused()
{
    words=$1
    shift
    n=$1 parts=$2
    shift 2
    split "$n" "$parts" refused "$@" && fail "not refused: $words"
    grep -q "$words" "$work/err" || fail "another reason than: $words"
    rm -rf "$work/refused"
}
from="--model_name_or_path $work/base --train_file $work/text --block_size 32"
refused "num_key_value_heads: 2 cannot be divided among 4 ranks" 4 4
refused "ranks cannot be divided into groups of so many" 2 4
refused "leave --lora_r and --load_in_4bit out" 2 2 --lora_r 4
refused "take AdamW, SGD or Lion" 2 2 --optim adafactor

# A rank that dies, and one that stops while its group waits for it: the run ends by itself and names it.
command -v pgrep > /dev/null || { echo "pgrep is missing: no rank dies"; exit $((failures != 0)); }
for signal in KILL STOP; do
    folder=$work/$signal
    timeout -s KILL 60 "$launcher" -n 2 "$bin/txtrain" --train_file "$work/text" --config_name "$work/heads.json" \
        --block_size 32 --threads 1 --max_steps 100000 --logging_strategy no --save_strategy no --ddp_overlap no --device "$device" \
        --comm_timeout 2 --tensor_parallel 2 --output_dir "$folder" > "$work/out" 2> "$work/err" &
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
