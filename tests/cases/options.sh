#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Options of training on texts, conversations and adapters: each is followed, refused or reported. Losses are those of
# transformers 5.23, TRL 1.16 and peft 0.21 on the same files.
# shellcheck source=tests/cases/cases.sh
. "${0%/*}/cases.sh"

# train MODEL FILE ARGUMENT...: into the folder o
train()
{
    trained=$1
    learned=$2
    shift 2
    rm -rf o
    "$bin/txtrain" --model_name_or_path "$trained" --train_file "$learned" --threads 1 --save_strategy no \
        --output_dir o "$@"
}

# loss_is TEXT: that of the last run's first step begins so
loss_is()
{
    numbers loss o/log.jsonl | head -n 1 > "$work/got"
    echo "$1" > "$work/right"
    near "$work/got" "$work/right" 1e-3 || fail "$case_name: the loss is not $1, but $(cat "$work/got")"
}

# SFTTrainer's loss with --completion_only_loss and --assistant_only_loss
open_case prompt-completion-masks
while read -r completion assistant loss; do
    outcome 0 "" train model pc.jsonl --max_length 128 --completion_only_loss "$completion" \
        --assistant_only_loss "$assistant"
    loss_is "$loss"
done << 'END'
true false 5.749
false false 5.791
true true 5.803
false true 5.803
END

# Losses of "Two bells." with the token after it; without an end in the turn, with the end of the text.
open_case end-of-answer-before-eos
outcome 0 "<|end|> ends answers: the model is saved with it as eos_token" train model c.jsonl --max_length 64
loss_is 5.43453
grep -q '"eos_token_id": 4' o/config.json || fail "$case_name: eos_token_id is not <|end|>"
cat > no_prompt.jinja << 'END'
{% for m in messages %}{{ '<|' + m['role'] + '|>
' + m['content'] + '<|end|>
' }}{% endfor -%}
END
outcome 0 "the chat template has no generation prompt" train model c.jsonl --max_length 64 --chat_template no_prompt.jinja
loss_is 5.43453
sed 's/<|end|>//; s/-%}$/-%}{{ eos_token }}/' no_prompt.jinja > no_end.jinja
outcome 0 "the chat template has no generation prompt" train model c.jsonl --max_length 64 --chat_template no_end.jinja
loss_is 5.48033

# Three steps of an adapter that trains the bias of q_proj; then the same file without biases.
open_case lora-only-bias-packed-qkv
cd adapter || exit 1
outcome 0 "q_proj: 160 parameters are trained" train . ../a.txt --block_size 16 --max_steps 3 --learning_rate 1e-2 --lr_scheduler_type constant \
    --train_sampling_strategy sequential
[ "$(numbers loss o/log.jsonl | cut -c -6 | tr '\n' ' ')" = "5.7436 5.7000 5.7344 " ] || fail "$case_name: other losses"
grep -q q_proj.base_layer.bias o/adapter_model.safetensors || fail "$case_name: q_proj has no bias"
grep -q "[kv]_proj" o/adapter_model.safetensors && fail "$case_name: biases without an adapter are saved"
grep -q warning "$work/err" && fail "$case_name: a warning"

# Without biases in the file, as peft before 0.21 saves it, the base model's are trained further.
outcome 0 "" train ../model ../a.txt --block_size 16 --max_steps 1 --lora_r 2 --lora_target_modules q_proj
mv o old
sed 's/"bias": "none"/"bias": "lora_only"/' old/adapter_config.json > config && mv config old/adapter_config.json
outcome 0 "q_proj: 160 parameters are trained" train old ../a.txt --block_size 16 --max_steps 1

# ---- Words of files ----------------------------------------------------------------------------------------

open_case trl-sftconfig-json
model=$data/cases/adafactor-packed-qkv/model
sed "s|m/llama|$model|; s|w/pc|pc|; s|w/o|o|" args.json > sft.json
outcome 0 "" "$bin/txtrain" sft.json --threads 1
grep -q "options without effect" "$work/out" "$work/err" && fail "$case_name: defaults are reported"

# file TEXT: a file of YAML for a run on the case's texts
file() { printf 'model_name_or_path: %s\ntrain_file: pc.jsonl\noutput_dir: f\nmax_steps: 1\noverwrite_output_dir: true\nsave_strategy: "no"\nthreads: 1\n%b\n' "$model" "$1" > run.yaml; }
while IFS='|' read -r status text words; do
    file "$words"
    outcome "$status" "$text" "$bin/txtrain" run.yaml
done << 'END'
2|--adapter qlora needs --load_in_4bit|adapter: qlora\nload_in_4bit: false\nlora_r: 4
2|--adapter qlora needs --load_in_4bit|adapter: qlora\nlora_r: 4
1|cannot be stored in 4 bits|adapter: qlora\nload_in_4bit: true\nlora_r: 4
0|lora    r 4|adapter: lora\nlora_r: 4
2|--adapter needs --lora_r|adapter: lora
0|bf16    matrix products|bf16: auto
0|trained 1 step|dtype: auto
0|trained 1 step|eval_strategy: off\nreport_to: off\npacking: off\ngradient_checkpointing: off\nresume_from_checkpoint: no
0|recomputes|gradient_checkpointing: on
0|trained 1 step|chat_template: |\n  {% for m in messages %}{{ m.role + m.content + eos_token }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant' }}{% endif %}
2|use --max_seq_length|cutoff_len: 2048
2|use --lora_target_modules|lora_target: all
2|use --lora_r|lora_rank: 8
2|use --validation_split_percentage|val_size: 0.1
2|use --chat_template|template: qwen
2|use --task_name|stage: dpo
2|use --lora_r|finetuning_type: lora
0|trained 1 step|finetuning_type: full\nstage: sft\nroles_to_train: [assistant]
2|use --max_train_samples|max_samples: 1000
2|use --assistant_only_loss|roles_to_train: [user]
2|use --add_tokens|special_tokens:\n  pad_token: "<pad>"
0|options without effect: --pad_token (padding has no loss|pad_token: "<pad>"
0|options without effect: --dataset_prepared_path|dataset_prepared_path: here\nwandb_project: mine
END
grep -qF "wandb_project (TX reports to files only" "$work/out" "$work/err" || fail "wandb_project is not reported"
grep -q '"dtype": "float32"' f/training_args.json || fail "dtype: auto is not the model's"
outcome 2 "use --slots" "$bin/txserve" --max_num_seqs 4
outcome 2 "list the hosts with --hosts" "$bin/txlaunch" --nnodes 2 true
outcome 2 "use --repetition_penalty" "$bin/txgen" --repeat_penalty 1.1

# ---- Older cases ---------------------------------------------------------------------------------------------

# padded: the tokens of the last run with padding
padded() { numbers padded_tokens o/log.jsonl | tail -n 1; }
open_case group-by-length-ignored
set -- --max_seq_length 128 --per_device_train_batch_size 8 --num_train_epochs 1
outcome 0 "" train "$model" len.jsonl "$@"
mixed=$(padded)
outcome 0 "" train "$model" len.jsonl "$@" --group_by_length
[ "$(padded)" -lt "$mixed" ] || fail "$case_name: $(padded) tokens with padding instead of $mixed"
open_case tokens-count-padding
outcome 0 "trained 8 steps, 3136 tokens" train "$model" len.jsonl "$@"

texts=$data/cases/adafactor-packed-qkv/a.txt
open_case lora-lm-head-message
outcome 0 "lm_head" train "$model" "$texts" --block_size 64 --max_steps 1 --lora_r 4 --lora_target_modules q_proj,lm_head
open_case modules-to-save-norm
outcome 0 "" train "$model" "$texts" --block_size 64 --max_steps 1 --lora_r 4 --lora_modules_to_save norm
for name in layers.0.input_layernorm.weight layers.0.post_attention_layernorm.weight model.norm.weight; do
    grep -q "$name" o/adapter_model.safetensors || fail "$case_name: lacks $name"
done

talks=$data/cases/tool-calls-dropped/model
open_case sharegpt
outcome 0 "trained 1 step" train "$talks" train.jsonl --chat_template chatml --max_steps 1
open_case sft-eos-not-saved
outcome 0 "<|im_end|> ends answers" train trained ../sharegpt/train.jsonl --max_steps 1
tr -d ' \n' < o/generation_config.json | grep -q '"eos_token_id":\[4,1\]' || fail "$case_name: no list of ends"
open_case tool-calls-dropped
outcome 0 "" train model train.jsonl --max_steps 1
open_case many-turns
awk 'BEGIN { printf "{\"messages\":["; for (i = 0; i < 16000; i++) printf "%s{\"role\":\"%s\",\"content\":\"x\"}", i ? "," : "",
    i % 2 ? "assistant" : "user"; print "]}" }' > t.jsonl
outcome 0 "trained 1 step" timeout 100 "$bin/txtrain" --model_name_or_path "$data/models/stories260K" --train_file t.jsonl \
    --chat_template chatml --max_steps 1 --threads 1 --max_seq_length 64 --save_strategy no --output_dir o

verdict
