#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every option of txtrain has an effect. A table lists options, values, and the expected effects. An option that is not
# in the table fails the test.
#
#   test_train_options.sh BIN-FOLDER SHIM LAUNCHER
#     SHIM      the library of count_calls.c, or "" if it cannot be preloaded
#     LAUNCHER  MPI's launcher, or "" to skip rows that need two ranks
bin=$1
shim=$2
launcher=$3
. "${0%/*}/../program.sh"
# shellcheck source=tests/train/option_effects.sh
. "${0%/*}/option_effects.sh"
cat > "$work/config.json" << 'END'
{"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 24, "vocab_size": 257,
 "bos_token_id": 256, "eos_token_id": 256, "embd_pdrop": 0.1, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
END
echo '{"model_type": "mixtral", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 257,
 "num_key_value_heads": 1, "intermediate_size": 16, "max_position_embeddings": 24, "num_local_experts": 4}' \
    > "$work/experts.json"
mkdir "$work/bert"
echo '{"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 257,
 "intermediate_size": 16, "max_position_embeddings": 64}' > "$work/bert/config.json"
write_small_text 30
{ echo "sentence,label"; awk '{ print $0 "," NR % 2 }' "$work/text"; } > "$work/texts.csv"
sed 's/^sentence,label/sentence,stars/' "$work/texts.csv" > "$work/stars.csv"
sed 's/^line[^,]*,/cat,/' "$work/texts.csv" > "$work/words.csv"
sed 's/cat/dog/' "$work/text" > "$work/other"
awk '{ line[NR] = $0 } END { for (i = 0; i < 2000; i++) for (n = 1; n <= NR; n++) print line[n] }' "$work/text" \
    > "$work/big"
sed 's/.*/{"text": "&"}/' "$work/text" > "$work/lines.jsonl"
echo "broken" >> "$work/lines.jsonl"
write_data
sed 's/"prompt": \[/"messages": [/; s/\], "completion": \[/, /' "$work/talk.jsonl" > "$work/messages.jsonl"
echo '{"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.5]}}}' > "$work/ds.json"
mkdir "$work/t5"
echo '{"model_type": "t5", "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 257}' \
    > "$work/t5/config.json"
for word in cat dog; do
    echo "{\"text\": \"a $word\", \"summary\": \"a $word\"}"
done > "$work/texts.jsonl"
cat > "$work/form.jinja" << 'END'
{% for m in messages %}{% if m.role == 'user' %}U{{ m.content }}{% else %}A{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}A{% endif %}
END
mkdir -p "$work/home/datasets/pets/small" "$work/home/models/tiny"
cp "$work/text" "$work/home/datasets/pets/small/train.txt"
cp "$work/other" "$work/home/datasets/pets/small/validation.txt"
export TX_HOME="$work/home"

# run NAME ARGUMENT...: the common arguments, then these
run()
{
    name=$1
    shift
    bare --train_file "$work/text" --config_name "$work/config.json" --output_dir "$work/$name" "$@"
}
# The same without data and model
bare()
{
    short --block_size 16 "$@"
}
short()
{
    LD_PRELOAD=$shim "$bin/txtrain" --max_steps 6 --learning_rate 1e-2 --per_device_train_batch_size 2 \
        --threads 1 --disable_tqdm --save_strategy no "$@" > "$work/out" 2> "$work/err"
}
# A small BERT over bytes on texts with labels
glue()
{
    short --train_file "$work/texts.csv" --config_name "$work/bert" --output_dir "$work/r" "$@"
}
# An adapter of the base run's model
adapt()
{
    bare --train_file "$work/text" --model_name_or_path tiny --output_dir "$work/r" --lora_r 2 "$@"
}
# An adapter of a model that is wide enough for 4 bits
packs()
{
    bare --train_file "$work/text" --model_name_or_path "$work/wide" --output_dir "$work/r" --lora_r 2 "$@"
}
# A small GPT-2 over bytes on conversations, which need no more than its 24 positions
talk()
{
    short --train_file "$work/${form:-talk}.jsonl" --config_name "$work/config.json" --output_dir "$work/r" "$@"
}
# The same on messages
messages()
{
    form=messages talk "$@"
}

# The base run's model on preferences
prefer()
{
    short --train_file "$work/pairs.jsonl" --model_name_or_path tiny --task_name dpo --output_dir "$work/r" "$@"
}

# The same on single completions, and with a reward model
likes()
{
    short --train_file "$work/likes.jsonl" --model_name_or_path tiny --task_name kto --output_dir "$work/r" "$@"
}
rewards()
{
    prefer --task_name reward "$@"
}

# A small BERT over bytes on triplets of texts
embed()
{
    short --train_file "$work/trios.jsonl" --config_name "$work/bert" --task_name embedding --output_dir "$work/r" "$@"
}

# A small BERT over bytes on a question
ask()
{
    short --train_file "$work/question.jsonl" --config_name "$work/bert" --task_name question_answering \
        --max_seq_length 40 --output_dir "$work/r" "$@"
}

# A small T5 over bytes on pairs of texts
write()
{
    short --train_file "$work/texts.jsonl" --config_name "$work/t5" --output_dir "$work/r" "$@"
}

# The same as two ranks
pair()
{
    [ -n "$launcher" ] || return 0
    timeout -s KILL 60 "$launcher" -n 2 "$bin/txtrain" \
        --train_file "$work/text" --config_name "$work/config.json" --output_dir "$work/r" --block_size 16 \
        --max_steps 8 --per_device_train_batch_size 2 --threads 1 --save_strategy no "$@" > "$work/out" 2> "$work/err"
}

run base --logging_steps 2 --validation_file "$work/other" --eval_strategy steps --eval_steps 3 ||
    fail "the base run"
cp "$work/out" "$work/base.out"


# As the Trainer's arguments say it.
echo '{"gradient_checkpointing": true, "gradient_checkpointing_kwargs": {"use_reentrant": false}}' > "$work/again.json"
cp -r "$work/base/." "$work/home/models/tiny"
adapt || fail "the run of an adapter"
mv "$work/r/adapter_model.safetensors" "$work/adapter"
rm -r "$work/r"
run wide --config_overrides n_embd=128 || fail "the run of a wide model"
run other_model --seed 3 || fail "the run of another model"
glue --task_name sst2 || fail "the run of a classifier"
mv "$work/r" "$work/sst2"
run saved --save_strategy steps --save_steps 3 || fail "the run with checkpoints"
{ head -c 8 "$work/base/model.safetensors"; tail -c +9 "$work/base/model.safetensors"; } > "$work/copy"
size=$(wc -c < "$work/copy")
mkdir "$work/nan"
cp "$work/base/config.json" "$work/base/tokenizer.json" "$work/nan"
{ head -c $((size - 4)) "$work/copy"; printf '\377\377\377\377'; } > "$work/nan/model.safetensors"

for i in 1 2 3 4 5 6 7 8 9; do printf 'caf\351 au lait %d\n' $i; done > "$work/latin.txt"

# Another device than the cpu, if there is one.
other=cpu
"$bin/txtrain" --list_devices | grep -q "^opencl:0" && other=opencl

# Common parts of rows
evaluates="--validation_file $work/other --eval_strategy steps --eval_steps"
both="--do_train --do_eval"
from="bare --train_file $work/text --output_dir $work/r"
new="bare --config_name $work/config.json --output_dir $work/r"
mixed="$new --dataset_name pets/small,pets/small --interleave_probabilities"
columns="$new --train_file $work/texts.csv --text_column_name"
saves="--save_strategy steps --save_steps 3"
epoch="--max_steps -1 --num_train_epochs 1"
words="short --train_file $work/words.csv --config_name $work/bert --task_name sst2 --output_dir $work/r"
deep="--config_overrides n_layer=4,n_embd=64"
alpha="--f_divergence_type alpha_divergence"
predicts="--do_train --do_predict --test_file"
answers="ask --doc_stride 4 $predicts $work/question.jsonl"
writes="write $predicts $work/texts.jsonl --predict_with_generate"
# option | arguments (after "bare": all of them) | expected effect. Steps and files are those of $work/r.
table="
model_name_or_path | $from --model_name_or_path tiny --learning_rate 0 | weights_kept
config_name | --config_name gpt2 --block_size 8 --dry_run --tokenizer_name tiny | says 12 layers
config_overrides | --config_overrides n_layer=2,n_head=4 | holds config.json n_layer.*2
tokenizer_name | --tokenizer_name tiny | says 257
add_tokens | --tokenizer_name tiny --add_tokens NEW --resize_token_embeddings | says 257 -> 258
resize_token_embeddings | $from --model_name_or_path tiny --resize_token_embeddings | says the tokenizer has no more tokens
text_column_delimiter | --text_column_delimiter / | says --text_column_delimiter (only with several columns
save_total_limit | --save_total_limit 1 --save_only_model --on_save_error stop | says --save_total_limit, --save_only_model, --on_save_error (no checkpoints
resize_token_embeddings | --tokenizer_name tiny --add_tokens NEW --resize_token_embeddings | says the mean of the others
allow_nonfinite_weights | bare --train_file $work/text --output_dir $work/r --model_name_or_path $work/nan \
    --allow_nonfinite_weights --max_bad_steps 9 | logged loss.*NaN
ignore_mismatched_sizes | short --train_file $work/texts.csv --model_name_or_path $work/sst2 --task_name mnli --output_dir $work/r --ignore_mismatched_sizes | says lacks classifier.weight, classifier.bias
train_file | bare --config_name $work/config.json --output_dir $work/r --train_file $work/other | weights_differ
validation_file | --validation_file $work/text --do_train --do_eval | has eval_results.json
dataset_name | bare --config_name $work/config.json --output_dir $work/r --dataset_name pets/small | says pets/small/train.txt
dataset_config_name | bare --config_name $work/config.json --output_dir $work/r --dataset_name pets --dataset_config_name small --do_train --do_eval | says small/validation.txt
interleave_probabilities | $mixed 0.5,0.5 | rows_are 47
stopping_strategy | $mixed 0.9,0.1 --stopping_strategy all_exhausted | rows_are 284
encoding | $new --train_file $work/latin.txt --encoding latin-1 | says latin.txt
text_column_name | $columns label | prepared \"text\": \"1\"
text_column_delimiter | $columns label,sentence --text_column_delimiter / | prepared \"1/
label_column_name | short --train_file $work/stars.csv --model_name_or_path $work/sst2 --output_dir $work/r --label_column_name stars | says stars.csv
validation_split_percentage | $both --validation_split_percentage 40 | holds eval_results.json eval_samples.*43
block_size | --block_size 12 | says blocks of 12
group_texts | --group_texts 3 | weights_differ
max_train_samples | --max_train_samples 9 | says 9 blocks
max_eval_samples | $both --validation_file $work/other --max_eval_samples 4 | holds eval_results.json eval_samples.*4
skip_bad | bare --config_name $work/config.json --output_dir $work/r --train_file $work/lines.jsonl --skip_bad 1 | says malformed
preprocessing_num_workers | $new --train_file $work/big --preprocessing_num_workers 3 | counted pthread_create 2
dataloader_num_workers | --preprocessing_num_workers 1 --dataloader_num_workers 2 | counted pthread_create 2
dataloader_pin_memory | --dataloader_pin_memory false | counted mlock 0
dump_order | --dump_order $work/r.order | steps_are 6
do_train | --do_train | lacks eval_results.json
do_eval | --do_eval --validation_file $work/other | lacks train_results.json
per_device_train_batch_size | --per_device_train_batch_size 3 | weights_differ
dataloader_drop_last | $epoch --per_device_train_batch_size 4 --dataloader_drop_last | steps_are 27
train_sampling_strategy | --train_sampling_strategy sequential | weights_differ
train_sampling_strategy | --train_sampling_strategy group_by_length | grouping_changes_nothing
group_by_length | talk --chat_template $work/form.jinja --max_steps -1 --num_train_epochs 2 --group_by_length --per_device_train_batch_size 1 --dump_order $work/lengths | begins_with_the_longest
group_by_length | --group_by_length --train_sampling_strategy sequential | says --group_by_length and --train_sampling_strategy exclude each other
optim_args | --optim_args beta1=0.5,eps=1e-4 | weights_differ
task_name | glue --task_name sst2 | holds config.json BertForSequenceClassification
test_file | glue --task_name sst2 --do_train --do_predict --test_file $work/texts.csv | has predict_results_sst2.txt
do_predict | glue --task_name sst2 --do_train --do_predict --test_file $work/texts.csv | has predict_results_sst2.txt
max_predict_samples | glue --task_name sst2 --do_train --do_predict --test_file $work/texts.csv --max_predict_samples 3 | says 3 samples of
max_seq_length | glue --task_name sst2 --max_seq_length 9 | says samples of at most 9
max_seq_length | --max_seq_length 9 | says the length of blocks of text is --block_size
pad_to_max_length | $words --pad_to_max_length false | alters padded_tokens $words
max_seq_length | talk --chat_template $work/form.jinja --max_seq_length 20 | says samples of at most 20
chat_template | talk --chat_template $work/form.jinja | has chat_template.jinja
chat_template | --chat_template chatml | says is for instruction data
completion_only_loss | talk --chat_template $work/form.jinja --completion_only_loss false --assistant_only_loss false | learns_more talk
completion_only_loss | messages --chat_template $work/form.jinja --completion_only_loss false | says --completion_only_loss has no effect
completion_only_loss | talk --chat_template $work/form.jinja --completion_only_loss false | says give --assistant_only_loss false, too
assistant_only_loss | messages --chat_template $work/form.jinja --assistant_only_loss false | learns_more messages
mlm_probability | --mlm_probability 0.2 | says is for masked language modelling
line_by_line | --line_by_line | says is for masked language modelling
packing | talk --chat_template $work/form.jinja --packing | says 2 rows of at most 24
label_smoothing_factor | --label_smoothing_factor 0.1 | weights_differ
router_z_loss_coef | --config_name $work/experts.json --router_z_loss_coef 0.5 | experts_differ
expert_capacity_factor | --config_name $work/experts.json --expert_capacity_factor 0.5 | logged \"dropped\":.[1-9]
lora_r | adapt --lora_r 3 | adapter_differs
lora_alpha | adapt --lora_alpha 3 | adapter_differs
lora_dropout | adapt --lora_dropout 0.5 | adapter_differs
loraplus_lr_ratio | adapt --loraplus_lr_ratio 16 | adapter_differs
loraplus_lr_embedding | adapt --loraplus_lr_embedding 0.1 | says needs --loraplus_lr_ratio
lora_target_modules | adapt --lora_target_modules c_fc | adapter_differs
lora_target_parameters | adapt --lora_target_parameters mlp.experts.down_proj | says has none that TX adapts
lora_modules_to_save | adapt --lora_modules_to_save ln_f | holds adapter_model.safetensors ln_f.weight
trainable_token_indices | adapt --trainable_token_indices 9,7 | holds adapter_model.safetensors trainable_tokens_delta
use_rslora | adapt --use_rslora | adapter_differs
init_lora_weights | adapt --init_lora_weights pissa | adapter_differs
use_peft | adapt --use_peft | has adapter_config.json
use_peft | --use_peft | says --use_peft needs --lora_r
use_dora | adapt --use_dora | holds adapter_model.safetensors lora_magnitude_vector
adapter | adapt --adapter qlora | says --adapter qlora needs --load_in_4bit
adapter | --adapter lora | says --adapter needs --lora_r
mixed_precision | --mixed_precision bf16 | weights_differ
distributed_type | --distributed_type DEEPSPEED | says as --deepspeed
num_processes | --num_processes 2 | says txlaunch -n N
load_in_4bit | packs --load_in_4bit | packed_adapter_differs NF4 packs
load_in_4bit | --load_in_4bit | says needs --lora_r
load_in_8bit | packs --load_in_8bit | packed_adapter_differs Q8 packs
qat | --qat q8_0 | weights_differ
qat | adapt --qat q8_0 | adapter_differs
fake_quant_after_n_steps | --qat q8_0 --fake_quant_after_n_steps 99 | weights_kept
fake_quant_after_n_steps | --fake_quant_after_n_steps 1 | says needs --qat
bnb_4bit_quant_type | packs --load_in_4bit --bnb_4bit_quant_type fp4 | says TX supports only nf4
bnb_4bit_use_double_quant | packs --load_in_4bit --bnb_4bit_use_double_quant | packed_adapter_differs NF4_DOUBLE packs --load_in_4bit
bnb_4bit_compute_dtype | packs --load_in_4bit --bnb_4bit_compute_dtype float16 | says add --fp16
teacher_model_name_or_path | --teacher_model_name_or_path tiny | weights_differ
distill_temperature | --teacher_model_name_or_path tiny --distill_temperature 3 | alters model.safetensors run r --teacher_model_name_or_path tiny
distill_alpha | --teacher_model_name_or_path tiny --distill_alpha 1 | weights_kept
doc_stride | ask --doc_stride 40 | says leaves no room
max_answer_length | $answers --max_answer_length 1 | alters predict_results.txt $answers
summary_column | write --summary_column title | says title
source_lang | write --source_lang en | says needs --target_lang
target_lang | write --target_lang de | says needs --source_lang
source_prefix | write --source_prefix say: | says 28 tokens
max_source_length | write --max_source_length 3 | says are truncated
max_target_length | write --max_target_length 3 | says are truncated
predict_with_generate | write $both --validation_file $work/texts.jsonl --predict_with_generate | holds eval_results.json eval_rougeLsum
generation_max_length | write $both --validation_file $work/texts.jsonl --predict_with_generate --generation_max_length 4 | holds eval_results.json eval_gen_len...3.0
generation_num_beams | $writes --generation_num_beams 3 | alters predict_results.txt $writes
embedding_loss | embed --embedding_loss TripletLoss | logged \"step\":.1,.*\"loss\":.[45][.]
similarity_scale | embed --similarity_scale 1e-6 | logged \"step\":.1,.*\"loss\":.1[.]386
gather_across_devices | embed --gather_across_devices | says only with MultipleNegativesRankingLoss on several ranks
triplet_margin | embed --embedding_loss TripletLoss --triplet_margin 100 | logged \"step\":.1,.*\"loss\":.[19][0-9][0-9.]*,
pooling_mode | embed --pooling_mode cls | holds 1_Pooling/config.json cls_token...true
loss_type | prefer --loss_type ipo | logged \"step\":.1,.*\"loss\":.25,
beta | prefer --loss_type ipo --beta 0.5 | logged \"step\":.1,.*\"loss\":.1,
loss_weights | prefer --loss_type ipo,sft --loss_weights 1,0 | logged \"step\":.1,.*\"loss\":.25,
f_divergence_type | prefer --f_divergence_type forward_kl --loss_type ipo | logged \"step\":.1,.*\"loss\":.25,
f_alpha_divergence_coef | prefer --f_alpha_divergence_coef 0.7 | says only with --f_divergence_type alpha_divergence
ld_alpha | prefer --task_name cpo --ld_alpha 0.5 | says only with --task_name dpo
use_weighting | prefer --use_weighting --loss_type ipo | logged \"step\":.1,.*\"loss\":.[0-9]*[.][0-9]
discopop_tau | prefer --discopop_tau 0.1 | says only with --loss_type discopop
cpo_alpha | prefer --cpo_alpha 0.5 | says only with --task_name cpo or simpo
desirable_weight | prefer --desirable_weight 2 | says only with --task_name kto
undesirable_weight | prefer --undesirable_weight 2 | says only with --task_name kto
center_rewards_coefficient | prefer --center_rewards_coefficient 1 | says only with --task_name reward
simpo_gamma | prefer --simpo_gamma 1 | says only with --loss_type simpo
alpha | prefer --alpha 0.5 | says only with --task_name cpo or simpo
label_smoothing | prefer --label_smoothing 0.1 | says no loss of --loss_type reads it
reference_free | prefer --reference_free | logged \"step\":.1,.*\"rewards/chosen\":.-
ref_model | prefer --ref_model $work/other_model | alters loss prefer
precompute_ref_log_probs | prefer --precompute_ref_log_probs | says of 2 samples computed
f_alpha_divergence_coef | prefer $alpha --f_alpha_divergence_coef 0.2 | alters loss prefer $alpha
ld_alpha | prefer --ld_alpha 0.5 | alters loss prefer
discopop_tau | prefer --loss_type discopop --discopop_tau 0.9 | alters loss prefer --loss_type discopop
cpo_alpha | prefer --task_name cpo --cpo_alpha 0.5 | alters loss prefer --task_name cpo
desirable_weight | likes --desirable_weight 2 | alters loss likes
undesirable_weight | likes --undesirable_weight 2 | alters loss likes
center_rewards_coefficient | rewards --center_rewards_coefficient 1 | alters loss rewards
simpo_gamma | prefer --task_name simpo --simpo_gamma 1 | alters loss prefer --task_name simpo
alpha | prefer --task_name simpo --alpha 0.5 | alters loss prefer --task_name simpo
label_smoothing | prefer --loss_type robust --label_smoothing 0.1 | alters loss prefer --loss_type robust
disable_dropout | prefer --disable_dropout false | logged \"step\":.1,.*\"rewards/margins\":.-*[0-9.e-]*[1-9]
num_generations | sample --per_device_train_batch_size 4 --num_generations 4 | says 1 prompts with 4 completions
max_completion_length | sample --max_completion_length 2 | logged \"completions/max_length\":.2,
num_iterations | replay --num_iterations 3 | says for 3 steps
steps_per_generation | replay --steps_per_generation 2 | says 2 prompts with 2 completions each, for 2 steps
generation_batch_size | replay --generation_batch_size 4 | says 2 prompts with 2 completions each, for 2 steps
epsilon | replay --num_iterations 2 --epsilon 1e-6 | alters loss replay --num_iterations 2
epsilon_high | replay --num_iterations 2 --epsilon_high 1e-6 | alters loss replay --num_iterations 2
delta | replay --num_iterations 2 --delta 0.9 | alters loss replay --num_iterations 2
importance_sampling_level | replay --num_iterations 2 --importance_sampling_level sequence | alters loss replay --num_iterations 2
scale_rewards | replay --scale_rewards none | alters grad_norm replay
multi_objective_aggregation | replay --multi_objective_aggregation normalize_then_sum --steps_per_generation 2 | alters grad_norm replay --steps_per_generation 2
use_bias_correction_kl | replay --beta 1 --use_bias_correction_kl false | alters loss replay --beta 1
top_entropy_quantile | replay --top_entropy_quantile 0.2 | alters grad_norm replay
entropy_coef | replay --entropy_coef 1 | alters loss replay
vespo_k_pos | replay --num_iterations 2 --loss_type vespo --vespo_k_pos 0.5 | alters loss replay --num_iterations 2 --loss_type vespo
vespo_lambda_pos | replay --num_iterations 2 --loss_type vespo --vespo_lambda_pos 0.5 | alters loss replay --num_iterations 2 --loss_type vespo
vespo_k_neg | replay --num_iterations 2 --loss_type vespo --vespo_k_neg 0.5 | alters loss replay --num_iterations 2 --loss_type vespo
vespo_lambda_neg | replay --num_iterations 2 --loss_type vespo --vespo_lambda_neg 0.5 | alters loss replay --num_iterations 2 --loss_type vespo
mask_truncated_completions | replay --mask_truncated_completions | logged \"step\":.1,.*\"grad_norm\":.0,
normalize_advantages | replay_rloo --normalize_advantages --steps_per_generation 2 | alters grad_norm replay_rloo --steps_per_generation 2
temperature | replay --temperature 2 | alters grad_norm replay
top_p | sample --top_p 1e-9 | logged \"step\":.1,.*\"frac_reward_zero_std\":.1,
top_k | sample --top_k 1 | logged \"step\":.1,.*\"frac_reward_zero_std\":.1,
min_p | sample --min_p 1 | logged \"step\":.1,.*\"frac_reward_zero_std\":.1,
repetition_penalty | sample --repetition_penalty 100 --log_completions | alters completions/completions_00001.jsonl sample --log_completions
reward_funcs | sample --reward_funcs overlong | logged \"rewards/overlong/mean\"
reward_config | sample --reward_config {\"length\":{\"target\":4}} | alters reward sample
reward_timeout | sample --reward_timeout 3 | says no reward is a program
log_completions | sample --log_completions | has completions/completions_00001.jsonl
reward_weights | replay --reward_weights 3,1 | alters reward replay
rollout_file | replay | logged \"rewards/a/mean\":.0.5,
neftune_noise_alpha | --neftune_noise_alpha 5 | weights_differ
logging_first_step | --logging_first_step | holds trainer_state.json \"step\":.1,\?$
eval_on_start | --validation_file $work/other --eval_on_start | logged \"step\":.0,.*eval_loss
eval_delay | --validation_file $work/other --eval_strategy steps --eval_steps 2 --eval_delay 4 | evaluations_are 4 6
early_stopping_patience | $evaluates 1 --learning_rate 0 --early_stopping_patience 2 | stopped_at 3
early_stopping_threshold | $evaluates 1 --early_stopping_patience 3 --early_stopping_threshold 50 | stopped_at 4
greater_is_better | $evaluates 3 --greater_is_better true | holds trainer_state.json best_global_step.*3
save_text_only | --save_text_only | says --save_text_only (the model has no other parts)
save_only_model | --save_strategy steps --save_steps 3 --save_only_model | holds_the_model_alone
run_name | --report_to tensorboard --run_name mine | has runs/mine/events.out.tfevents.*
use_cpu | --use_cpu | says cpu:
per_device_eval_batch_size | $both --validation_file $work/other --per_device_eval_batch_size 1 | one_batch_a_sample
auto_find_batch_size | --dry_run --config_overrides n_embd=512,n_layer=12 --auto_find_batch_size --per_device_train_batch_size 1048576 --gradient_accumulation_steps 3 | finds_a_batch
auto_find_batch_size | --auto_find_batch_size | weights_kept
gradient_accumulation_steps | --gradient_accumulation_steps 2 | weights_differ
learning_rate | --learning_rate 2e-2 | weights_differ
lr_scheduler_type | --lr_scheduler_type cosine | log_differs
lr_scheduler_kwargs | --lr_scheduler_type polynomial --lr_scheduler_kwargs {\"power\":3} | log_differs
warmup_steps | --warmup_steps 2 | logged \"step\":.1,.*\"learning_rate\":.0,
warmup_ratio | --warmup_ratio 0.5 | logged \"step\":.1,.*\"learning_rate\":.0,
optim | --optim sgd | weights_differ
optim | --optim lion_32bit | weights_differ
optim | --optim adafactor | weights_differ
optim | --optim muon | weights_differ
optim_args | --optim adamw_anyprecision --optim_args momentum_dtype=bfloat16,variance_dtype=bfloat16 | weights_differ
offload_optimizer | --offload_optimizer cpu | says --offload_optimizer cpu changes nothing
offload_param | --offload_param cpu | says --offload_param cpu changes nothing
offload_param | --offload_param nvme --nvme_path $work/home | says of weights are kept in a file in $work/home
activation_offloading | --activation_offloading | says --activation_offloading changes nothing
nvme_path | --offload_optimizer nvme --nvme_path $work/home | says kept in a file in $work/home
sparsity | --sparsity 0.5 | says 1536 of 3072 weights are 0, 50.00 %
mask_structure | --mask_structure 1:4 | says 2304 of 3072 weights are 0, 75.00 %
mask_structure | --mask_structure 2:4 --sparsity 0.7 | says its sparsity is 0.5, not 0.7
weight_decay | --weight_decay 0.5 | weights_differ
adam_beta1 | --adam_beta1 0.5 | weights_differ
adam_beta2 | --adam_beta2 0.5 | weights_differ
adam_epsilon | --adam_epsilon 1e-3 | weights_differ
max_grad_norm | --max_grad_norm 0.01 | weights_differ
num_train_epochs | --max_steps -1 --num_train_epochs 0.2 | steps_are 12
max_steps | --max_steps 4 | steps_are 4
max_steps | --max_steps 1 | says trained 1 step, 
seed | --seed 7 | weights_differ
data_seed | --data_seed 7 | weights_differ
max_bad_steps | --adam_epsilon 0 --max_bad_steps 2 --max_steps 20 | says 2 times
output_dir | --max_steps 1 | has model.safetensors
overwrite_output_dir | --overwrite_output_dir | steps_are 6
resume_from_checkpoint | $saves --resume_from_checkpoint $work/saved/checkpoint-3 | lacks checkpoint-3
logging_strategy | --logging_strategy epoch --max_steps -1 --num_train_epochs 1 | says epoch 1.000
logging_steps | --logging_steps 3 | says step 3/6
eval_strategy | --validation_file $work/other --eval_strategy epoch | logged eval_loss
eval_steps | --validation_file $work/other --eval_strategy steps --eval_steps 2 | logged \"step\":.4,.*eval_loss
save_strategy | --save_strategy epoch | has checkpoint-6
save_steps | --save_strategy steps --save_steps 2 | has checkpoint-4
save_total_limit | --save_strategy steps --save_steps 2 --save_total_limit 1 | lacks checkpoint-4
on_save_error | --dry_run | stops_when_saving_fails
load_best_model_at_end | --validation_file $work/other --eval_strategy steps --eval_steps 3 --save_strategy steps --save_steps 3 --load_best_model_at_end | holds trainer_state.json best_model_checkpoint.*checkpoint
metric_for_best_model | --validation_file $work/other --eval_strategy steps --eval_steps 6 --metric_for_best_model perplexity | holds trainer_state.json best_metric.*[1-9][0-9][0-9]\\.
report_to | --report_to tensorboard | has runs/*/events.out.tfevents.*
logging_dir | --report_to tensorboard --logging_dir $work/r/tb | has tb/events.out.tfevents.*
disable_tqdm | --dry_run | draws_progress
ddp_bucket_cap_mb | pair --config_overrides n_embd=256,n_layer=4 --ddp_bucket_cap_mb 1 | pair_says 11 buckets
ddp_comm | pair --ddp_comm bf16 | pair_says bf16
ddp_overlap | pair --ddp_overlap no | pair_hides overlap
ddp_check | pair --ddp_check 3 | pair_logged \"step\":.6,.\"weights\"
deepspeed | --deepspeed $work/ds.json | weights_differ
fsdp | pair --dry_run --fsdp $deep | pair_saves $deep
fsdp_config | pair --dry_run --fsdp $deep | pair_saves --fsdp --fsdp_config {\"reshard_after_forward\":false} $deep
zero_stage | pair --dry_run --zero_stage 1 $deep | pair_saves $deep
sync_every | pair --sync_every 4 | pair_says local .*4 steps
outer_learning_rate | pair --sync_every 4 --outer_learning_rate 0.5 | pair_says outer learning rate 0.5
outer_momentum | pair --sync_every 4 --outer_momentum 0.5 | pair_says momentum 0.5
zero_hpz_partition_size | pair --zero_stage 1 --zero_hpz_partition_size 3 | pair_fails must be a multiple of it
parallel | pair --parallel auto | pair_says predicted
tensor_parallel | pair --dry_run --tensor_parallel 2 $deep | pair_saves $deep
sequence_parallel | pair --dry_run --tensor_parallel 2 --sequence_parallel $deep | pair_saves --tensor_parallel 2 $deep
expert_parallel | pair --config_name $work/experts.json --expert_parallel 2 | pair_says 2 ranks shard the experts
context_parallel | pair --dry_run --context_parallel 2 $deep | pair_saves $deep
pipeline_parallel | pair --dry_run --pipeline_parallel 2 $deep | pair_saves $deep
pipeline_parallel | pair --pipeline_parallel 2 --config_overrides n_layer=4 | pair_says 3,1 of 4 blocks
pipeline_schedule | pair --pipeline_parallel 2 --config_overrides n_layer=4 --pipeline_schedule gpipe | pair_says gpipe
pipeline_chunks | pair --pipeline_parallel 2 --config_overrides n_layer=6 --gradient_accumulation_steps 2 --pipeline_schedule interleaved --pipeline_chunks 3 | pair_says 1,1,1,1,1,1 of 6 blocks
pipeline_partition | pair --pipeline_parallel 2 --config_overrides n_layer=4 --pipeline_partition even | pair_says 2,2 of 4 blocks
global_batch_size | --global_batch_size 5 | weights_differ
batch_weights | pair --batch_weights 3,1 | pair_says 3,1 rows
start_timeout | late --start_timeout 1 | pair_fails waited for all ranks to start for 1 s
comm_timeout | --comm_timeout 0.001 --config_overrides n_embd=512,n_positions=512 --block_size 512 --per_device_train_batch_size 8 | times_out
device | --device $other | says $other:
threads | --preprocessing_num_workers 1 --threads 2 | counted pthread_create 1
gradient_checkpointing | --gradient_checkpointing | computes_again
gradient_checkpointing | bare $work/again.json --train_file $work/text --config_name $work/config.json --output_dir $work/r | computes_again
gradient_checkpointing | --dry_run --gradient_checkpointing auto:1KiB --max_steps 6 | says the limit is 1024 bytes
dtype | --dtype bfloat16 | holds config.json torch_dtype.*bfloat16
dtype | $from --model_name_or_path tiny --dtype auto | alters model.safetensors $from --model_name_or_path tiny --dtype bfloat16
dtype | --dtype bfloat16 --optim adamw_anyprecision --optim_args use_kahan_summation=True | weights_differ
bf16 | --bf16 true | weights_differ
residual_dtype | --bf16 --residual_dtype bfloat16 | alters model.safetensors run r --bf16
fp32_residual_gradient | --bf16 --fp32_residual_gradient | alters model.safetensors run r --bf16
fp16 | --fp16 true | logged \"loss_scale\":.65536
bf16_full_eval | $evaluates 3 --bf16_full_eval | evaluates_otherwise
fp16_full_eval | $evaluates 3 --fp16_full_eval | evaluates_otherwise
init_scale | --fp16 --init_scale 64 | logged \"loss_scale\":.64
growth_interval | --fp16 --init_scale 64 --save_strategy steps --save_steps 3 | tells_other_scales
growth_interval | --dry_run --distill_alpha 0.1 --router_z_loss_coef 1 --init_scale 64 --growth_interval 3 --nvme_path x --optim sgd --adam_beta1 0.3 --zero_stage 2 --eval_steps 3 --run_name x --pad_to_max_length false --validation_file $work/other | names_the_idle
growth_interval | --fp16 --growth_interval 2 | logged \"loss_scale\":.131072
tf32 | --tf32 true | says TX uses no tf32 units
no_tf32 | --tf32 true --no_tf32 | does_not_say tf32
list_devices | --list_devices | says cpu
dry_run | --dry_run | lacks model.safetensors
debug | --adam_epsilon 0 --max_steps 20 --debug underflow_overflow | says NaN or infinity (see above)
debug | --debug underflow_overflow | weights_kept
profile | --profile | says peak resident memory
"

run plain && counted mlock '[1-9]' || fail "nothing is pinned"

# The table without empty lines, a row a line.
printf '%s\n' "$table" | sed '/^$/d' > "$work/table"
while IFS='|' read -r option arguments wanted; do
    option=$(echo $option)
    rm -rf "$work/r"
    set -f
    # shellcheck disable=SC2086
    set -- $arguments
    case $1 in
    bare | short | glue | talk | messages | adapt | prefer | likes | rewards | packs | ask | write | embed | pair | late | \
        sample | replay | replay_rloo) "$@" ;;
    *) run r "$@" ;;
    esac
    # shellcheck disable=SC2086
    set -- $wanted
    set +f
    "$@" || fail "--$option ($arguments): not so: $wanted"
done < "$work/table"

[ "$(wc -l < "$work/r.order" 2> /dev/null)" -eq 12 ] || fail "--dump_order: not 12 samples"
COLUMNS=999 "$bin/txtrain" --help all | sed -n 's/^  \(-[-a-z0-9_]*, \)*--\([a-z0-9_]*\).*/\2/p' | sort -u > "$work/all"
sed 's/ *|.*//' "$work/table" | sort -u > "$work/tested"
missing=$(comm -23 "$work/all" "$work/tested" | grep -vx 'help\|version\|man\|completion' | tr '\n' ' ')
[ -z "$missing" ] || fail "options without a row: $missing"
unknown=$(comm -13 "$work/all" "$work/tested" | tr '\n' ' ')
[ -z "$unknown" ] || fail "rows without an option: $unknown"
verdict
