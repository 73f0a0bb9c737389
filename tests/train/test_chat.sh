#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Instruction data, end to end: a small Llama learns to answer, is saved with its chat template, and answers. Also
# evaluation, rows of several lengths, packed rows, a resumed run, and ranks.
#
#   test_chat.sh BIN-FOLDER LAUNCHER DEVICE     LAUNCHER "": no ranks
. "${0%/*}/../device.sh"

mkdir "$work/model"
cp "${0%/*}"/../chat/golden/tokenizer*.json "$work/model"
cat > "$work/model/config.json" << 'END'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 342, "hidden_size": 32,
 "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 96,
 "rms_norm_eps": 1e-5, "bos_token_id": null, "eos_token_id": 2, "tie_word_embeddings": true}
END
# Each conversation asks in one of some forms for a greeting, every third conversation twice.
awk 'BEGIN {
    split("cat dog bird fish", who, " ")
    for (i = 0; i < 60; i++) {
        printf "{\"messages\": [{\"role\": \"user\", \"content\": \"greet the %s\"}, " \
            "{\"role\": \"assistant\", \"content\": \"hi %s\"}", \
            who[i % 4 + 1], who[i % 4 + 1]
        if (i % 3 == 0)
            printf ", {\"role\": \"user\", \"content\": \"and the %s\"}, " \
                "{\"role\": \"assistant\", \"content\": \"hi %s too\"}", \
                who[i / 3 % 4 + 1], who[i / 3 % 4 + 1]
        print "]}"
    }
}' > "$work/train.jsonl"
head -n 8 "$work/train.jsonl" > "$work/dev.jsonl"

# run FOLDER ARGUMENT...
run()
{
    folder=$1
    shift
    "$bin/txtrain" --device "$device" --threads 1 --disable_tqdm --logging_strategy no --config_name "$work/model" \
        --train_file "$work/${data:-train}.jsonl" --per_device_train_batch_size 4 --learning_rate 1e-2 \
        --max_seq_length 64 --output_dir "$work/$folder" "$@" > "$work/out" 2> "$work/err"
}
outcome 1 "--chat_template" run none --max_steps 1
run learnt --chat_template chatml --max_steps 300 --save_strategy no --validation_file "$work/dev.jsonl" ||
    fail "training"
grep -q 'im_start' "$work/learnt/chat_template.jinja" || fail "no chat template is saved"
# What ends answers ends texts in other programs, too: the files say it as TRL's SFTTrainer writes them with --eos_token
# '<|im_end|>' (token 334; config.json had 2).
tr -d ' \n' < "$work/learnt/generation_config.json" | grep -q '"eos_token_id":\[334,2\]' ||
    fail "generation_config.json: $(cat "$work/learnt/generation_config.json")"
grep -q '"eos_token_id": 334' "$work/learnt/config.json" || fail "config.json has the former eos_token_id"
grep -q '"eos_token": "<|im_end|>"' "$work/learnt/tokenizer_config.json" ||
    fail "the tokenizer has the former eos_token"
"$bin/txgen" --device "$device" --threads 1 --model "$work/learnt" -n 20 --temperature 0 --prompt "<|im_start|>user
greet the dog<|im_end|>
<|im_start|>assistant
" > "$work/out" 2> "$work/err"
[ "$(tail -n 1 "$work/out")" = "hi dog" ] || fail "a text does not end with the answer: $(cat "$work/out" "$work/err")"
# The token is an end already: nothing changes. Another template replaces the model's, with a message.
"$bin/txtrain" --device "$device" --threads 1 --disable_tqdm --model_name_or_path "$work/learnt" \
    --train_file "$work/dev.jsonl" \
    --max_steps 1 --save_strategy no --output_dir "$work/further" > "$work/out" 2> "$work/err" ||
    fail "training further"
cmp -s "$work/learnt/generation_config.json" "$work/further/generation_config.json" ||
    fail "generation_config.json changes again"
! grep -q "replaces" "$work/out" "$work/err" || fail "a template that stays is said to be replaced"
"$bin/txtrain" --device "$device" --threads 1 --disable_tqdm --model_name_or_path "$work/learnt" \
    --train_file "$work/dev.jsonl" \
    --chat_template zephyr --max_steps 1 --save_strategy no --overwrite_output_dir --output_dir "$work/further" \
    > "$work/out" 2>&1
grep -q "zephyr replaces the model's own chat template" "$work/out" || fail "a template is replaced without a word"
# An adapter's folder says it, too.
"$bin/txtrain" --device "$device" --threads 1 --disable_tqdm --config_name "$work/model" \
    --train_file "$work/dev.jsonl" --max_steps 1 \
    --chat_template chatml --save_strategy no --output_dir "$work/base" > "$work/out" 2>&1
rm "$work/base/chat_template.jinja"
sed -i 's/334/2/' "$work/base/generation_config.json" "$work/base/config.json"
"$bin/txtrain" --device "$device" --threads 1 --disable_tqdm --model_name_or_path "$work/base" \
    --train_file "$work/dev.jsonl" --max_steps 1 \
    --chat_template chatml --lora_r 2 --save_strategy no --output_dir "$work/adapter" > "$work/out" 2>&1
grep -q 334 "$work/adapter/generation_config.json" || fail "an adapter has no eos_token_id of its own"
"$bin/txgen" --device "$device" --threads 1 --adapter "$work/adapter" --save_merged "$work/merged" > "$work/out" 2>&1
cmp -s "$work/adapter/generation_config.json" "$work/merged/generation_config.json" ||
    fail "--save_merged has the base's generation_config.json"
[ -n "$(numbers eval_loss "$work/learnt/eval_results.json")" ] || fail "no eval_loss"
awk -v loss="$(numbers eval_loss "$work/learnt/eval_results.json")" 'BEGIN { exit !(loss < 0.05) }' ||
    fail "nothing is learnt"

# Parts of a conversation that no template renders, and other forms of data, by line and key; other keys are told of.
echo '{"messages": [{"role": "user", "content": "a"},' \
    '{"role": "assistant", "content": "", "tool_calls": [{}]},' \
    '{"role": "tool", "content": "b"}, {"role": "assistant", "content": "c"}]}' > "$work/tools.jsonl"
sed 's/"content"/"name": "x", &/' "$work/dev.jsonl" > "$work/named.jsonl"
tools="tools.jsonl: line 1: message 2: tool_calls: the chat template does not render it"
data=tools
outcome 1 "$tools" run none --chat_template chatml
outcome 1 "$tools" "$bin/txgen" --device "$device" --model "$work/learnt" --chat --prompts "$work/tools.jsonl"
data=named
outcome 0 "named.jsonl: keys that TX ignores: name" run named --chat_template chatml --max_steps 1
data=

# The model answers, with the template that it was saved with, and in one conversation.
chat()
{
    "$bin/txgen" --device "$device" --threads 1 --model "$work/learnt" --chat --temperature 0 "$@" 2> "$work/err"
}
[ "$(chat --prompt "greet the dog" --prompt "greet the bird")" = "$(printf 'hi dog\nhi bird')" ] || fail "answers"
printf 'greet the cat\nand the dog\n/reset\ngreet the fish\n\n/exit\ngreet the dog\n' | chat > "$work/out"
[ "$(cat "$work/out")" = "$(printf 'hi cat\nhi dog too\nhi fish')" ] || fail "a conversation"
# A conversation continues from the caches. Each answer equals the one to the whole history, computed again.
printf 'the dog\nand cat\na fish\n' > "$work/questions"
chat -n 7 < "$work/questions" > "$work/turns"
paste -d '\n' "$work/questions" "$work/turns" | awk '{
    said = said (NR > 1 ? ", " : "") "{\"role\": \"" (NR % 2 ? "user" : "assistant") "\", \"content\": \"" $0 "\"}"
    if (NR % 2)
        print "{\"messages\": [" said "]}"
}' > "$work/histories"
: > "$work/anew"
while read -r history; do
    echo "$history" | chat -n 7 --prompts - | sed 's/.*"content": "\(.*\)"}\]}$/\1/' >> "$work/anew"
done < "$work/histories"
[ "$(wc -l < "$work/anew")" = 3 ] && cmp -s "$work/turns" "$work/anew" || fail "other answers to whole histories"
head -n 3 "$work/train.jsonl" | tail -n 2 > "$work/ask.jsonl"
chat --prompts "$work/ask.jsonl" > "$work/out"
cmp -s "$work/out" "$work/ask.jsonl" || fail "answers to a file of conversations"
printf '{"prompt": "greet the dog"}\n{"instruction": "greet the cat"}\n' | chat --prompts - > "$work/out"
[ "$(grep -c '"content": "hi \(cat\|dog\)"}\]}$' "$work/out")" -eq 2 ] || fail "answers to prompts"
chat --prompts "$work/ask.jsonl" --system "Be kind" |
    grep -qc '^{"messages": \[{"role": "system", "content": "Be kind"}, ' ||
    fail "what the system says"
# Tokens that are parts of characters only: U+FFFD stands for them in JSON.
echo '{"prompt": "greet the dog"}' | chat --prompts - --do_sample --temperature 100 -n 40 > "$work/out" ||
    fail "an answer that is no UTF-8: $(cat "$work/err")"
grep -q "$(printf '\357\277\275')" "$work/out" && iconv -f UTF-8 -t UTF-16 "$work/out" > "$work/wide" ||
    fail "an answer that is no UTF-8"
# When the context is full the oldest turns are dropped with a message. A single message that is too long is refused.
awk 'BEGIN { for (i = 0; i < 6; i++) print "greet the dog" }' | chat > "$work/out"
[ "$(wc -l < "$work/out")" -eq 6 ] && grep -q "oldest 1 turns" "$work/err" || fail "a conversation that is too long"
awk 'BEGIN { for (i = 0; i < 90; i++) printf "dog "; print "" }' | chat > "$work/out"
[ ! -s "$work/out" ] && grep -q "tokens, but the context only .*: shorten it" "$work/err" || fail "words that are too long"
outcome 1 "line 1" chat --prompts "$work/model/config.json"
awk 'BEGIN { print "{\"prompt\": \"a\"}"; printf "{\"prompt\": \""
    for (i = 0; i < 90; i++) printf "dog "; print "\"}" }' > "$work/wide.jsonl"
outcome 1 "line 2: the conversation has" chat --prompts "$work/wide.jsonl"
outcome 1 "chatml, qwen" chat --chat_template gpt --prompt a
outcome 2 "--chat" "$bin/txgen" --model "$work/learnt" --system a

# Rows of several lengths give the results of rows of one length, except for rounding.
steps="--chat_template chatml --max_steps 20 --save_strategy no"
# shellcheck disable=SC2086
{
run lengths $steps || fail "several lengths"
run padded $steps --pad_to_max_length true || fail "one length"
}
numbers loss "$work/lengths/log.jsonl" > "$work/a"
numbers loss "$work/padded/log.jsonl" > "$work/b"
near "$work/a" "$work/b" 1e-4 || fail "several lengths give other losses"

# From a checkpoint on, to the byte; the template is the checkpoint's, and so is the length.
steps="--chat_template chatml --max_steps 24 --save_strategy steps --save_steps 8 --eval_strategy steps --eval_steps 8 \
    --validation_file $work/dev.jsonl"
# shellcheck disable=SC2086
for packing in false true; do
    run "kept$packing" $steps --packing $packing || fail "with checkpoints, packing $packing"
    mkdir "$work/on$packing"
    cp -r "$work/kept$packing/checkpoint-8" "$work/on$packing"
    run "on$packing" --resume_from_checkpoint || fail "going on, packing $packing"
    same "kept$packing" "on$packing"
    cmp -s "$work/kept$packing/checkpoint-24/optimizer.safetensors" \
        "$work/on$packing/checkpoint-24/optimizer.safetensors" ||
        fail "going on, packing $packing: other moments"
    # shellcheck disable=SC2086
    if [ -n "$launcher" ]; then
        timeout -s KILL 300 "$launcher" -n 2 "$bin/txtrain" --device "$device" --threads 1 --disable_tqdm \
            --logging_strategy no --config_name "$work/model" --train_file "$work/train.jsonl" --learning_rate 1e-2 \
            --per_device_train_batch_size 2 --max_seq_length 64 --output_dir "$work/ranks" \
            --overwrite_output_dir $steps \
            --packing $packing --zero_stage 2 > "$work/out" 2> "$work/err" || fail "ranks, packing $packing"
        numbers loss "$work/kept$packing/log.jsonl" > "$work/a"
        numbers loss "$work/ranks/log.jsonl" > "$work/b"
        near "$work/a" "$work/b" 1e-4 || fail "ranks give other losses, packing $packing"
    fi
done
outcome 1 "chat_template" run onfalse --resume_from_checkpoint --chat_template zephyr --max_steps 30

verdict
