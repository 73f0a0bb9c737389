#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands that users of torchrun, accelerate, DeepSpeed, transformers, TRL, axolotl, LLaMA-Factory, llama.cpp, vLLM
# and others write first, and TX's answer: it does what they ask (status 0), or one line has the right command.
#   first_commands.sh BIN-FOLDER
bin=$(cd "$1" && pwd)
. "${0%/*}/../program.sh"
cd "$work" || exit 1
write_small_text 60
write_small_config 1 16 64
mkdir -p model corpus
cp text corpus/a.txt
echo '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}' > chat.jsonl
cat > accelerate.yaml << 'END'
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: FULL_SHARD
machine_rank: 0
mixed_precision: bf16
num_machines: 1
num_processes: 1
END
cat > axolotl.yaml << 'END'
config_name: config.json
train_file: text
micro_batch_size: 2
num_epochs: 1
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
flash_attention: true
output_dir: ./out-axolotl
END
echo '{"zero_optimization": {"stage": 2, "aio": {"queue_depth": 8}}, "bf16": {"enabled": "auto"}}' > ds.json

# A row: the program | its arguments | the exit status | words of the answer
try() # a small run that only plans
{
    "$bin/txtrain" --config_name config.json --train_file text --block_size 16 --output_dir out --dry_run "$@"
}
rows=0
while IFS='|' read -r program arguments wanted words; do
    [ -n "$program" ] || continue
    rows=$((rows + 1))
    # shellcheck disable=SC2086 # words of the row
    set -- $arguments
    words=${words# }
    case $program in
    'try ') outcome "${wanted# }" "$words" try "$@" ;;
    *) outcome "${wanted# }" "$words" "$bin/${program% }" "$@" ;;
    esac
    [ "$status" -eq 0 ] || [ "$(grep -c . "$work/err")" -eq 1 ] || fail "$program $arguments: not one line"
done << 'END'
txlaunch | --nproc_per_node gpu txtrain --max_steps 1 | 2 | not a whole number
txlaunch | --nnodes 2 --nproc_per_node 2 txtrain | 2 | --hosts
txlaunch | --multi_gpu --num_processes 1 --mixed_precision bf16 txtrain | 2 | give --bf16 or --fp16 to txtrain
txlaunch | --config_file accelerate.yaml txtrain | 2 | give the file to txtrain as its first argument
txlaunch | --rdzv_endpoint host:29500 txtrain | 2 | list the hosts with --hosts
txtrain | text --output_dir out | 2 | --train_file takes a text
txtrain | accelerate.yaml --config_name config.json --train_file text --block_size 16 --dry_run | 0 | --zero_stage (the run has one rank)
txtrain | axolotl.yaml --block_size 16 --dry_run | 0 | fits
try | --deepspeed ds.json | 0 | fits
try | --mixed_precision fp16 | 0 | fits
try | --accelerator_config {"split_batches":false,"dispatch_batches":null} | 0 | fits
try | --accelerator_config {"split_batches":true} | 2 | use --global_batch_size
try | --do_train --evaluation_strategy steps | 2 | use --eval_strategy
try | --per_gpu_train_batch_size 8 | 2 | use --per_device_train_batch_size
try | --bf16 --tf32 true --torch_compile | 0 | fits
try | --use_ipex | 2 | use --device
try | --attn_implementation flash_attention_2 | 0 | fits
try | --optim adamw_apex_fused | 0 | fits
try | --optim adamw_bnb_8bit | 0 | fits
try | --optim paged_adamw_8bit | 2 | adamw_8bit with --offload_optimizer cpu
try | --optim stable_adamw | 0 | fits
try | --optim ademamix --optim_args beta3=0.999,alpha=4,t_alpha=100 | 0 | fits
try | --optim lion_8bit | 0 | fits
try | --optim schedule_free_adamw | 2 | --lr_scheduler_type
try | --optim apollo_adamw --optim_args proj=random,rank=1,scale=128.0,scale_type=tensor,update_proj_gap=200 | 0 | fits
try | --optim apollo_adamw --optim_target_modules all-linear | 2 | leave it out
try | --optim apollo_adamw_layerwise | 2 | apollo_adamw is the same update
try | --optim galore_adamw | 2 | apollo_adamw
try | --optim adam | 2 | adamw_torch
try | --report_to mlflow | 2 | tensorboard or trackio
try | --report_to comet_ml,tensorboard | 2 | use tensorboard
try | --push_to_hub --hub_model_id me/model | 2 | hf upload
try | --fsdp full_shard --fsdp_config {"fsdp_offload_params":false} | 0 | fits
try | --neftune 5 | 2 | --neftune_noise_alpha
try | --seq_len 512 | 2 | --block_size
try | --output x | 2 | --output_dir
try | --dataset imdb | 2 | --dataset_name
try | --max_memory 0=10GiB | 2 | --offload_optimizer
try | --offload_folder off | 2 | --nvme_path
try | --load_in_8bit | 2 | needs --lora_r
try | --num_processes 8 | 0 | txlaunch -n N txtrain
try | --nproc_per_node 8 | 2 | txlaunch -n N txtrain
txtrain | sft --model_name_or_path model --dataset_name d | 2 | conversations are learned without it
txtrain | dpo --model_name_or_path model | 2 | --task_name dpo
txtrain | train | 2 | txtrain FILE.yaml
txtrain | --model_name_or_path Qwen/Qwen3-8B --train_file text --dry_run | 1 | hf download Qwen/Qwen3-8B
txtrain | --stage dpo --train_file text --dry_run | 2 | --task_name dpo
txtrain | --template llama3 --train_file text --dry_run | 2 | --chat_template
txtrain | --finetuning_type lora --train_file text --dry_run | 2 | use --lora_r
txtrain | --rl dpo --train_file text --dry_run | 2 | use --task_name dpo
txtrain | --datasets d --train_file text --dry_run | 2 | --dataset_name
txtrain | --config_name config.json --train_file corpus --block_size 16 --dry_run | 0 | fits
txgen | --model_name_or_path model | 2 | its name is --model
txgen | -m model.gguf -p hello -n 20 -ngl 99 | 2 | --device_map
txgen | -m model.gguf -cnv | 2 | use --chat
txgen | -m model.gguf -p hello -c 4096 | 2 | use --max_length
txgen | --model model --prompt hi --num_return_sequences 4 | 2 | repeat the prompt
txgen | --model meta-llama/Llama-3.1-8B --prompt hi | 1 | hf download meta-llama/Llama-3.1-8B
txserve | -m model.gguf --ctx_size 4096 | 2 | use --max_length
txserve | --model model --max_num_seqs 8 | 2 | use --slots
txserve | --model model --gpu_memory_utilization 0.9 | 2 | --slots
txserve | --model model --tensor_parallel_size 2 | 2 | --device_map auto
txconvert | --model model --outfile x.gguf | 2 | txconvert MODEL --to
txconvert | model --outtype iq2_m --to x.gguf | 2 | must be one of
txsearch | --backend optuna | 2 | use --method
txmem | --model meta-llama/Llama-3.1-8B --card 3090 | 1 | hf download meta-llama/Llama-3.1-8B
txmem | axolotl.yaml --memory 8 | 0 | fits with
txlaunch | --num_gpus 2 --deepspeed ds.json txtrain | 2 | give --deepspeed FILE to txtrain
txlaunch | --include localhost:0,1 txtrain | 2 | --device opencl:0,opencl:1
txlaunch | --use_fsdp --num_processes 2 txtrain | 2 | --fsdp full_shard
txlaunch | --fsdp_sharding_strategy 1 txtrain | 2 | --zero_stage 3
txlaunch | --use_deepspeed --num_processes 2 txtrain | 2 | --zero_stage
txlaunch | --megatron_lm_tp_degree 2 txtrain | 2 | --tensor_parallel
txlaunch | --cpu txtrain | 2 | give --device cpu
txlaunch | --multi_gpu --dynamo_backend no --gpu_ids 0,1 txtrain | 2 | opencl:0,opencl:1
txlaunch | --tee 3 txtrain | 2 | --log_dir
txlaunch | launch --num_processes 2 txtrain | 2 | leave the word out
txlaunch | -m torch.distributed.run | 2 | txlaunch -n N txtrain
txlaunch | --standalone --nproc-per-node 2 train.py | 2 | start txtrain
txtrain | rloo --model_name_or_path model | 2 | --task_name rloo
txtrain | vllm-serve --model model | 2 | without a server
txtrain | kto --model_name_or_path model | 2 | --task_name kto
txtrain | env | 2 | --list_devices
txtrain | --reward_model_path model --train_file text --dry_run | 2 | model:FOLDER
try | --use_vllm true --vllm_mode colocate | 0 | --use_vllm (TX generates completions by itself)
txgen | -hf ggml-org/gemma-3-1b-it-GGUF | 2 | hf download
txgen | -m model.gguf -f prompt.txt | 2 | use --prompts
txgen | -m model.gguf --jinja -fa on | 2 | in tiles
txgen | -m model.gguf -sys hello | 2 | use --system
txgen | -m model.gguf --ppl | 2 | use --perplexity FILE
txgen | -m model.gguf -md draft.gguf | 2 | use --assistant_model
txgen | -m model.gguf -ctk q8_0 | 2 | use --cache_type
txgen | --tasks hellaswag | 2 | docs/guides/serve.md
txserve | serve --model model | 2 | leave the word out
txserve | Qwen/Qwen3-0.6B | 2 | --model takes a model
txserve | -m model.gguf -np 4 | 2 | use --slots
txserve | -m model.gguf --jinja --cont-batching --metrics --embedding | 2 | --task embed
txserve | --model model --enable-prefix-caching --enforce-eager --kv-cache-dtype fp8 | 2 | use --cache_type
txserve | --model model --max-num-batched-tokens 2048 | 2 | --slots
txserve | create -m model.gguf | 2 | Modelfile
txconvert | model.gguf out.gguf Q4_K_M | 2 | --to is missing
txconvert | model --to x.gguf -q | 2 | use --outtype
txconvert | model --to x --merge_method ties | 2 | --combination_type
txconvert | model --to x.gguf --task text-generation --weight-format int4 | 2 | use --outtype
txconvert | model --to x.gguf --optimize O2 | 2 | ONNX files are not written
txconvert | model --to x.gguf --framework pt --opset 17 | 2 | ONNX files are not written
txconvert | config.yml out --cuda --out-shard-size 5B --trust-remote-code | 2 | models are not merged
txconvert | config.yml out --copy-tokenizer | 2 | models are not merged
txconvert | config.yml out --allow-crimes | 2 | models are not merged
txgen | --model model --num_fewshot 5 | 2 | docs/guides/serve.md
txgen | --model model --limit 10 | 2 | docs/guides/serve.md
txgen | --model model --log_samples | 2 | docs/guides/serve.md
txgen | --model model --apply_chat_template | 2 | docs/guides/serve.md
txgen | --model model --system_instruction hello | 2 | use --system
txserve | --model model --tasks hellaswag | 2 | docs/guides/serve.md
txmem | estimate-memory --model gpt2 | 2 | leave the word out
txmem | --model gpt2 --memory 8 --dtypes float16 | 2 | use --bf16
END
outcome 2 "--prompt takes a text" "$bin/txgen" --model model "the old dog"
[ $rows -ge 100 ] || fail "only $rows rows"
verdict ": $rows commands"
