/* SPDX-License-Identifier: Apache-2.0
 * Warns of given options that have no effect in this run, with the reasons. */
#include "models/job/inputs.h"

#include "models/task/preference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOGETHER = 7 };

/* Options that have no effect for the same reason. */
typedef struct idle_options {
    size_t at[TOGETHER]; /* TX_JOB_AT of each, 0 after the last */
    const char *why;
    bool idle;
} idle_options;

/* Adds those that were given. */
static void add(const tx_job *j, const idle_options *row, char *text, size_t size)
{
    char list[160] = "";
    for (int i = 0; i < TOGETHER && (i == 0 || row->at[i] != 0); i++) {
        const tx_option *option = tx_option_at(&tx_job_table, row->at[i]);
        if (tx_option_asked(&j->options, row->at[i]) && tx_job_in_use(&j->set, option))
            tx_list_add(list, sizeof list, ", ", "--%s", option->name);
    }
    if (*list)
        tx_list_add(text, size, "; ", "%s (%s)", list, row->why);
}

static void add_all(const tx_job *j, const idle_options *rows, size_t count, char *text, size_t size)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].idle)
            add(j, &rows[i], text, size);
}

#define ADD_ALL(rows) add_all(j, rows, sizeof(rows) / sizeof(rows)[0], text, size)

static void add_of_data(const tx_job *j, char *text, size_t size)
{
    const tx_job_settings *set = &j->set;
    const tx_job_inputs *in = &j->inputs;
    const bool blocks = !in->task->length, table = tx_arch_classifies(in->config);
    const uint32_t traits = in->row->traits;
    const bool talks = (traits & TX_TALK) && !(traits & TX_PREFER), plain = traits & TX_PLAIN_TEXT;
    const bool evaluates = tx_job_evaluates(set), padded = j->pipeline || j->expert;
    const idle_options rows[] = {
        {{TX_JOB_AT(sampling)},
         "group_by_length: all rows have the same length",
         set->sampling == TX_SAMPLING_BY_LENGTH && !tx_loader_groups(set, in->task)},
        {{TX_JOB_AT(pad_to_max_length)}, "all blocks have the same length", blocks},
        {{TX_JOB_AT(pad_to_max_length)}, "pipeline stages and expert groups pad all rows", !blocks && padded},
        {{TX_JOB_AT(completion_only), TX_JOB_AT(assistant_only)}, "the data are not conversations", !talks},
        {{TX_JOB_AT(max_seq_length)}, "the length of blocks is --block_size", !in->task->of_texts},
        {{TX_JOB_AT(block)}, "the length of texts is --max_seq_length", in->task->of_texts},
        {{TX_JOB_AT(group_texts)}, "each sample is a separate text", !plain || set->line_by_line},
        {{TX_JOB_AT(tokenize_threads)}, "one thread reads samples of this kind", !plain},
        {{TX_JOB_AT(validation_split)}, "no part of the training file is held out", !in->shared},
        {{TX_JOB_AT(validation_file), TX_JOB_AT(max_eval_samples)}, "nothing is evaluated", !evaluates},
        {{TX_JOB_AT(max_train_samples)}, "nothing is trained", !tx_job_trains(set)},
        {{TX_JOB_AT(allow_nonfinite), TX_JOB_AT(new_head)}, "the weights are new", !in->model_folder},
        {{TX_JOB_AT(resize_tokens)},
         "the tokenizer has no more tokens than the model",
         in->model_folder && !in->config->grown_from},
        {{TX_JOB_AT(text_delimiter)},
         "only with several columns of --text_column_name",
         !set->text_column || !strchr(set->text_column, ',')},
        {{TX_JOB_AT(eval_batch), TX_JOB_AT(bf16_full_eval), TX_JOB_AT(fp16_full_eval), TX_JOB_AT(predict_with_generate),
          TX_JOB_AT(generation_max_length), TX_JOB_AT(generation_num_beams)},
         "nothing is evaluated or predicted",
         !evaluates && !set->do_predict},
        {{TX_JOB_AT(max_predict_samples)}, "only with --do_predict", !set->do_predict},
        {{TX_JOB_AT(dump_order)}, "nothing is trained", set->dry_run || !tx_job_trains(set)},
        {{TX_JOB_AT(new_head)}, "the model is not a classifier", in->model_folder && !table},
    };
    ADD_ALL(rows);
}

static void add_of_training(const tx_job *j, char *text, size_t size)
{
    const tx_job_settings *set = &j->set;
    tx_optimizer_options o = {.kind = TX_ADAMW};
    const tx_status known = tx_job_optimizer(set, &o);
    const bool betas = known || (o.kind != TX_SGD && o.kind != TX_ADAFACTOR),
               dense = !tx_job_has_experts(j->inputs.config);
    const bool to_file = set->offload_optimizer == TX_OFFLOAD_FILE || set->offload_param == TX_OFFLOAD_FILE;
    const idle_options rows[] = {
        {{TX_JOB_AT(temperature), TX_JOB_AT(alpha)}, "only with --teacher_model_name_or_path", !set->teacher},
        {{TX_JOB_AT(label_smoothing)},
         "no loss of --loss_type reads it",
         !tx_preference_uses(j->inputs.task, set, NULL, TX_PREFERENCE_SMOOTHS)},
        {{TX_JOB_AT(f_alpha)},
         "only with --f_divergence_type alpha_divergence",
         set->f_divergence != TX_DIVERGENCE_ALPHA_DIVERGENCE},
        {{TX_JOB_AT(ref_model), TX_JOB_AT(precompute_ref), TX_JOB_AT(reference_free)},
         "the method has no reference model",
         j->inputs.task->is_preference && !tx_preference_compares(j->inputs.task)},
        {{TX_JOB_AT(cpo_alpha), TX_JOB_AT(alphapo)},
         "only with --task_name cpo or simpo",
         !tx_preference_has(j->inputs.task, TX_PREFERENCE_CPO)},
        {{TX_JOB_AT(center_rewards)},
         "only with --task_name reward",
         !tx_preference_has(j->inputs.task, TX_PREFERENCE_REWARD)},
        {{TX_JOB_AT(desirable_weight), TX_JOB_AT(undesirable_weight)},
         "only with --task_name kto",
         !tx_preference_has(j->inputs.task, TX_PREFERENCE_KTO)},
        {{TX_JOB_AT(ld_alpha), TX_JOB_AT(use_weighting)},
         "only with --task_name dpo",
         !tx_preference_has(j->inputs.task, TX_PREFERENCE_DPO)},
        {{TX_JOB_AT(simpo_gamma)}, "only with --loss_type simpo", !tx_preference_uses(j->inputs.task, set, "simpo", 0)},
        {{TX_JOB_AT(discopop_tau)},
         "only with --loss_type discopop",
         !tx_preference_uses(j->inputs.task, set, "discopop", 0)},
        {{TX_JOB_AT(gather_across)},
         "only with MultipleNegativesRankingLoss on several ranks",
         !(j->inputs.row->traits & TX_EMBED) || !j->inputs.task->compares || j->data->size == 1},
        {{TX_JOB_AT(z_loss), TX_JOB_AT(capacity)}, "the model has no experts", dense},
        {{TX_JOB_AT(init_scale), TX_JOB_AT(growth_interval)}, "only with --fp16", !set->fp16},
        {{TX_JOB_AT(nvme_path)}, "only with --offload_optimizer nvme or --offload_param nvme", !to_file},
        {{TX_JOB_AT(beta1), TX_JOB_AT(beta2)}, "the optimizer has none", !betas},
        {{TX_JOB_AT(epsilon)}, "the optimizer has none", !betas || o.kind == TX_LION},
        {{TX_JOB_AT(warmup_ratio)}, "--warmup_steps is used", set->warmup_steps > 0},
        {{TX_JOB_AT(epochs)}, "--max_steps is used", set->max_steps > 0},
        {{TX_JOB_AT(accumulation)}, "--global_batch_size is used", set->global_batch > 0},
        {{TX_JOB_AT(zero_stage), TX_JOB_AT(bucket_cap), TX_JOB_AT(ddp_comm), TX_JOB_AT(overlap), TX_JOB_AT(ddp_check),
          TX_JOB_AT(batch_weights), TX_JOB_AT(start_timeout)},
         "the run has one rank",
         j->comm->size == 1},
        {{TX_JOB_AT(pipeline_schedule)},
         "only with --pipeline_parallel",
         set->pipeline_parallel == 1 && set->parallel != TX_JOB_PARALLEL_AUTO},
    };
    ADD_ALL(rows);
}

/* `logging_steps` is also the default of `eval_steps`. */
static void add_of_course(const tx_job *j, char *text, size_t size)
{
    const tx_job_settings *set = &j->set;
    const bool by_steps = set->evaluation == TX_STRATEGY_STEPS,
               events = set->report_to && set->report_to != 1u << TX_REPORT_NONE;
    const idle_options rows[] = {
        {{TX_JOB_AT(logging_steps)},
         "only with --logging_strategy steps",
         set->logging != TX_STRATEGY_STEPS && !(by_steps && !(set->eval_steps > 0))},
        {{TX_JOB_AT(eval_steps)}, "only with --eval_strategy steps", !by_steps},
        {{TX_JOB_AT(eval_delay), TX_JOB_AT(greater), TX_JOB_AT(metric)},
         "nothing is evaluated during training",
         !set->evaluation},
        {{TX_JOB_AT(save_steps)}, "only with --save_strategy steps", set->saving != TX_STRATEGY_STEPS},
        {{TX_JOB_AT(save_total_limit), TX_JOB_AT(only_model), TX_JOB_AT(on_save_error)},
         "no checkpoints are saved",
         set->saving == TX_STRATEGY_NO},
        {{TX_JOB_AT(stop_threshold)}, "only with --early_stopping_patience", !set->stop_patience},
        {{TX_JOB_AT(logging_dir), TX_JOB_AT(run_name)}, "only with --report_to", !events},
        {{TX_JOB_AT(run_name)}, "--logging_dir is used", events && set->logging_dir},
    };
    ADD_ALL(rows);
}

/* Options of other programs with a value that TX accepts and does not follow. */
static void add_foreign(const tx_job *j, char *text, size_t size)
{
    for (int32_t i = 0; i < tx_job_table.count; i++)
        if (tx_job_table.option[i].kind == TX_OPTION_FOREIGN && j->options.source[i] == TX_OPTION_SET)
            tx_list_add(text, size, "; ", "--%s (%s)", tx_job_table.option[i].name, tx_job_table.option[i].help);
}

void tx_job_report_idle(const tx_job *j)
{
    char text[3072] = "";
    add_of_data(j, text, sizeof text);
    add_of_training(j, text, sizeof text);
    add_of_course(j, text, sizeof text);
    add_foreign(j, text, sizeof text);
    if (*text)
        tx_reporter_print(&j->report, "options without effect: %s", text);
}
