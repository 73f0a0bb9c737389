#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every numeric training option in every split: loss and gradient norm of the first steps are those of one rank. A
# factor computed from a number of rows, positions or tokens must be that of the whole step, for any part on a rank.
#
#   test_ranks_scales.sh BIN LAUNCHER DEVICE each|all    each: the options of a model together; all: also one by one
device=$3
options=$4
. "${0%/*}/ranks.sh"
write_texts
mkdir "$work/words"
cp "${0%/*}"/../chat/golden/tokenizer*.json "$work/words"
vocabulary='"vocab_size": 342, "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
 "max_position_embeddings": 48'
llama="\"num_key_value_heads\": 2, \"eos_token_id\": 2, \"attention_dropout\": 0.1"
# Answers of several lengths, so that rows are padded, and eleven of them, so that the last step has too few rows.
awk 'BEGIN {
    for (i = 0; i < 11; i++) {
        text = "hi"
        for (k = 0; k < i * 5 % 11; k++) text = text " and hi"
        printf "{\"messages\": [{\"role\": \"user\", \"content\": \"greet %d\"}, " \
            "{\"role\": \"assistant\", \"content\": \"%s\"}]}\n", i, text
    }
}' > "$work/talk.jsonl"
sed 's/"messages": \[{"role": "user", "content": \("[^"]*"\)}, {[^}]*"content": \("[^"]*"\)}\]/"prompt": \1, "chosen": \2, "rejected": "no"/' \
    "$work/talk.jsonl" > "$work/pairs.jsonl"
sed 's/.*"content": \("[^"]*"\)}, {[^}]*"content": \("[^"]*"\)}.*/{"anchor": \1, "positive": \2, "negative": "no line"}/' \
    "$work/talk.jsonl" > "$work/triplets.jsonl"
sed 's/.*"content": \("[^"]*"\)}, {.*/{"prompt": \1}/' "$work/talk.jsonl" > "$work/prompts.jsonl"

# config NAME KEYS: a model with the tokenizer
config()
{
    mkdir "$work/$1"
    cp "$work"/words/tokenizer* "$work/$1"
    echo "{$vocabulary, $2}" > "$work/$1/config.json"
}
config gpt2 '"model_type": "gpt2"'
config llama "\"model_type\": \"llama\", \"intermediate_size\": 48, $llama"
config bert '"model_type": "bert", "intermediate_size": 48'
write_masks
cat > "$work/masked/config.json" << 'END'
{"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 12, "num_hidden_layers": 2,
 "hidden_size": 32,
 "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 48}
END
config experts "\"model_type\": \"mixtral\", \"intermediate_size\": 24, $llama, \"num_local_experts\": 4,
    \"output_router_logits\": true, \"router_aux_loss_coef\": 0.5"
talk="--train_file $work/talk.jsonl --chat_template chatml --max_seq_length 48"
blocks="--train_file $work/text --block_size 32"

# data_of MODEL: sets $from, the options of its data, and $splits, the ways to divide it
data_of()
{
    splits="accumulation zero data tensor sequence pipeline context"
    case $1 in
    gpt2) from="--config_name $work/gpt2 $blocks" ;;
    llama) # context groups take whole rows
        from="--config_name $work/llama $talk"
        splits="accumulation zero data tensor sequence pipeline"
        ;;
    masked)
        from="--config_name $work/masked --train_file $work/text --max_seq_length 32"
        splits="accumulation zero data tensor pipeline"
        ;;
    words)
        from="--config_name $work/bert --task_name sst2 --train_file $work/texts.tsv --max_seq_length 24"
        from="$from --pad_to_max_length false"
        splits="accumulation zero data tensor pipeline"
        ;;
    experts) # whose routers have their losses by micro-batches
        from="--config_name $work/experts $talk"
        splits="zero data pipeline expert"
        ;;
    dpo | simpo | reward)
        from="--model_name_or_path $work/base --task_name $1 --train_file $work/pairs.jsonl --max_seq_length 48"
        splits="accumulation zero data"
        ;;
    grpo) # whose second pass over the completions has ratios that are clipped
        from="--model_name_or_path $work/base --task_name grpo --train_file $work/prompts.jsonl --num_generations 2"
        from="$from --max_completion_length 8 --num_iterations 2 --reward_funcs length,regex"
        from="$from --ref_model $work/other --reward_config {\"regex\":{\"pattern\":\"[a-c]\"}}"
        splits="accumulation data"
        ;;
    triplets)
        from="--config_name $work/bert --task_name embedding --train_file $work/triplets.jsonl --max_seq_length 24"
        splits="accumulation zero data"
        ;;
    adapter | taught)
        from="--model_name_or_path $work/base $talk"
        splits="accumulation zero data"
        ;;
    esac
}

# way SPLIT NAME ARGUMENT...: a run of 4 rows a step
way()
{
    split=$1 name=$2
    shift 2
    rows=4 n=2
    case $split in
    one) n=1 ;;
    accumulation) n=1 rows=2; set -- --gradient_accumulation_steps 2 "$@" ;;
    data) rows=2 ;;
    zero) rows=2; set -- --zero_stage 3 "$@" ;;
    tensor) set -- --tensor_parallel 2 "$@" ;;
    sequence) set -- --tensor_parallel 2 --sequence_parallel "$@" ;;
    pipeline) rows=2; set -- --pipeline_parallel 2 --gradient_accumulation_steps 2 "$@" ;;
    context) set -- --context_parallel 2 "$@" ;;
    expert) rows=2; set -- --expert_parallel 2 "$@" ;;
    esac
    ranks $n "$name" --per_device_train_batch_size $rows --max_steps 3 --train_sampling_strategy sequential \
        --learning_rate 1e-3 --overwrite_output_dir "$@"
}

# numbers_of NAME: loss and norm of each step, and the tokens read
numbers_of()
{
    for key in loss grad_norm tokens; do
        numbers $key "$work/$1/log.jsonl"
    done
}

# check MODEL WITHOUT ARGUMENT...: the options in every split of the model except those of the list WITHOUT
check()
{
    model=$1 without=$2
    shift 2
    data_of "$model"
    first=one least=0
    [ "$model" = experts ] && first=accumulation
    case "$model $*" in # the terms of these losses, which are near 1 or 5, nearly cancel out
    grpo*vespo*) least=0.05 ;;
    grpo*) least=0.01 ;;
    esac
    way $first whole "$@" || { fail "$model $*"; return; }
    numbers_of whole > "$work/expected"
    [ "$(wc -l < "$work/expected")" -eq 9 ] || fail "$model $*: not three steps in the log"
    for s in $splits; do
        case " $without " in *" $s "*) continue ;; esac
        way "$s" part "$@" || { fail "$model $*, $s"; continue; }
        numbers_of part | paste "$work/expected" - | awk -v least="$least" '
            { d = $1 - $2; if (d < 0) d = -d; size = $1 < 0 ? -$1 : $1 }
            size > 0 && size < least { size = least }
            !(NF == 2 && size > 0 && d <= 2e-5 * size) { print $1 " and " $2; bad = 1 }
            END { exit bad || NR != 9 }' > "$work/out" || fail "$model $*, $s: $(tr '\n' ';' < "$work/out")"
    done
}

# Options that no rank's share of the work can change: rates and optimizers come after the gradient, which is summed by
# then.
later=" learning_rate lr_scheduler_kwargs warmup_steps warmup_ratio num_train_epochs \
validation_split_percentage logging_steps eval_steps eval_delay save_steps early_stopping_threshold comm_timeout \
start_timeout init_scale sparsity adam_beta1 adam_beta2 adam_epsilon \
loraplus_lr_ratio loraplus_lr_embedding reward_timeout "
# Groups of ranks (test_ranks_hsdp.sh).
later="$later zero_hpz_partition_size "
# Ranks by themselves (test_ranks_local.sh).
later="$later sync_every outer_learning_rate outer_momentum "
# Weights are rounded before ranks share the work (tests/train/test_qat.sh).
later="$later fake_quant_after_n_steps "
# Methods with means over the tokens, or with other samples as negatives, of a micro-batch.
later="$later cpo_alpha desirable_weight undesirable_weight top_entropy_quantile entropy_coef "
dropouts="--config_overrides resid_pdrop=0.2,embd_pdrop=0.3,attn_pdrop=0.2"
data_of llama
ranks 1 base --max_steps 1 || fail "a base"
ranks 1 other --max_steps 1 --seed 5 || fail "a reference"
cat > "$work/table" << END
gpt2 - --weight_decay 0.3 --label_smoothing_factor 0.2 $dropouts
gpt2 - --max_grad_norm 0.1
llama - --neftune_noise_alpha 25
llama - --label_smoothing_factor 0.2 --max_grad_norm 0.1
masked - --mlm_probability 0.4 --label_smoothing_factor 0.2 --config_overrides hidden_dropout_prob=0.2,attention_probs_dropout_prob=0.2
words - --label_smoothing_factor 0.2 --neftune_noise_alpha 25
experts - --router_z_loss_coef 0.3 --expert_capacity_factor 0.8 --neftune_noise_alpha 25
adapter - --lora_r 4 --lora_alpha 16 --lora_dropout 0.3 --neftune_noise_alpha 25
taught - --teacher_model_name_or_path $work/base --distill_temperature 3 --distill_alpha 0.3
dpo - --loss_type discopop,robust --label_smoothing 0.2 --beta 0.3 --ld_alpha 0.5 --discopop_tau 0.1 --f_divergence_type alpha_divergence --f_alpha_divergence_coef 0.7
simpo - --simpo_gamma 1 --alpha 0.2
reward - --center_rewards_coefficient 0.1
triplets - --embedding_loss TripletLoss --triplet_margin 3
grpo - --epsilon 0.01 --epsilon_high 0.02 --delta 1.1 --temperature 0.7 --top_p 0.9 --min_p 0.01 --repetition_penalty 1.2 --beta 0.1
grpo - --temperature 0.7 --top_p 0.9 --repetition_penalty 1.2 --loss_type vespo --vespo_k_pos 1.5 --vespo_lambda_pos 2 --vespo_k_neg 2 --vespo_lambda_neg 1.5
triplets accumulation --gather_across_devices --similarity_scale 5
END
[ "$options" = all ] && cat >> "$work/table" << END
gpt2 - --neftune_noise_alpha 25
gpt2 - --weight_decay 0.3
gpt2 - --label_smoothing_factor 0.2
gpt2 - --config_overrides resid_pdrop=0.4,embd_pdrop=0,attn_pdrop=0
gpt2 - --config_overrides resid_pdrop=0,embd_pdrop=0.4,attn_pdrop=0
gpt2 - --config_overrides resid_pdrop=0,embd_pdrop=0,attn_pdrop=0.4
llama - --neftune_noise_alpha 25 --pad_to_max_length
llama - --packing
masked - --mlm_probability 0.4 --line_by_line
masked - --neftune_noise_alpha 25
words - --task_name stsb --max_grad_norm 0.1
experts - --router_z_loss_coef 0.3
experts - --expert_capacity_factor 0.5
experts - --config_overrides router_aux_loss_coef=2
adapter - --lora_r 4 --lora_dropout 0.3
taught - --teacher_model_name_or_path $work/base --distill_temperature 3
taught - --teacher_model_name_or_path $work/base --distill_alpha 0.1
END
while read -r model without arguments <&3; do
    # shellcheck disable=SC2086
    check "$model" "$without" $arguments
done 3< "$work/table"

# An option of a program that is in neither list has not been classified.
COLUMNS=999 "$bin/txtrain" --help all | sed -n 's/^  *\(--[a-z_]*, \)*--\([a-z_0-9]*\) X\( .*\)*$/\2/p' | while read -r name; do
    grep -q -e "--$name " "$work/table" || case $later in *" $name "*) ;; *) echo "$name" ;; esac
done > "$work/out"
[ -s "$work/out" ] && fail "not in the table: $(tr '\n' ' ' < "$work/out")"

verdict " on $device"
