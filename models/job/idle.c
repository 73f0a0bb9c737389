/* SPDX-License-Identifier: Apache-2.0
 * Options that change nothing in this run, since they belong to something that it does not do. */
#include "models/job/parts.h"

#include "api/base/message.h"
#include "models/task/instruction.h"
#include "models/task/masked_lm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tx_job_differs(const tx_job *j, const char *name)
{
    tx_job_settings defaults = tx_job_defaults();
    const tx_option_values usual = {.table = tx_job_table, .values = &defaults};
    const tx_option *option = tx_option_find(&tx_job_table, name);
    char *now = tx_option_text(&j->options, option), *before = tx_option_text(&usual, option);
    const bool differs = now && before && strcmp(now, before) != 0;
    free(now);
    free(before);
    return differs;
}

/* Some options of one kind, "a b c". */
typedef struct idle_options {
    const char *names, *why;
    bool idle;
} idle_options;

static bool has_experts(const tx_job *j)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec = {.experts = false};
    for (int32_t i = 0; i < tx_arch_params(j->inputs.config) && !spec.experts; i++)
        if (tx_arch_param(j->inputs.config, i, name, &spec))
            return true;
    return spec.experts;
}

/* Adds those that were asked for. */
static void add(const tx_job *j, const idle_options *row, char *text, size_t size)
{
    char names[160], list[160] = "", *rest = names;
    snprintf(names, sizeof names, "%s", row->names);
    for (char *name; (name = strtok_r(rest, " ", &rest));)
        if (tx_option_asked(&j->options, tx_option_find(&tx_job_table, name)->offset) && tx_job_differs(j, name))
            tx_list_add(list, sizeof list, ", ", "--%s", name);
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
    const bool blocks = !in->task->length, table = in->task->head == TX_HEAD_SEQUENCE_CLASSIFICATION;
    const bool talks = in->task == &tx_instruction || in->task == &tx_instruction_packed;
    const bool evaluates = tx_job_evaluates(set), padded = j->pipeline || j->expert;
    const idle_options rows[] = {
        {"train_sampling_strategy", "group_by_length: rows are all of one length",
         set->sampling == TX_SAMPLING_BY_LENGTH && !tx_job_groups(j)},
        {"pad_to_max_length", "blocks are all of one length", blocks},
        {"pad_to_max_length", "stages and expert groups pad all rows", !blocks && padded},
        {"completion_only_loss assistant_only_loss", "the data are no conversations", !talks},
        {"max_seq_length", "the length of blocks is --block_size", !in->task->of_texts},
        {"block_size", "the length of texts is --max_seq_length", in->task->of_texts},
        {"group_texts", "each sample is a text of its own", table || talks || set->line_by_line},
        {"preprocessing_num_workers", "one thread reads samples of this kind", table || talks},
        {"validation_split_percentage", "nothing is evaluated on a part of the training file", !in->shared},
        {"validation_file max_eval_samples", "nothing is evaluated", !evaluates},
        {"max_train_samples", "nothing is trained", !tx_job_trains(set)},
        {"allow_nonfinite_weights", "the weights are new", !in->model_folder},
        {"per_device_eval_batch_size bf16_full_eval fp16_full_eval", "nothing is evaluated or predicted",
         !evaluates && !set->do_predict},
        {"max_predict_samples", "only with --do_predict", !set->do_predict},
        {"dump_order", "nothing is trained", set->dry_run || !tx_job_trains(set)},
        {"ignore_mismatched_sizes", "the model is no classifier", !table},
    };
    ADD_ALL(rows);
}

static void add_of_training(const tx_job *j, char *text, size_t size)
{
    const tx_job_settings *set = &j->set;
    tx_optimizer_options o = {.kind = TX_ADAMW};
    const tx_status known = tx_job_optimizer(set, &o);
    const bool betas = known || (o.kind != TX_SGD && o.kind != TX_ADAFACTOR), dense = !has_experts(j);
    const bool to_file = set->offload_optimizer == TX_OFFLOAD_FILE || set->offload_param == TX_OFFLOAD_FILE;
    const idle_options rows[] = {
        {"distill_temperature distill_alpha", "only with --teacher_model_name_or_path", !set->teacher},
        {"router_z_loss_coef expert_capacity_factor", "the model has no experts", dense},
        {"init_scale growth_interval", "only with --fp16", !set->fp16},
        {"nvme_path", "only with --offload_optimizer nvme or --offload_param nvme", !to_file},
        {"adam_beta1 adam_beta2", "the optimizer has none", !betas},
        {"adam_epsilon", "the optimizer has none", !betas || o.kind == TX_LION},
        {"warmup_ratio", "--warmup_steps counts", set->warmup_steps > 0},
        {"num_train_epochs", "--max_steps counts", set->max_steps > 0},
        {"gradient_accumulation_steps", "--global_batch_size counts", set->global_batch > 0},
        {"zero_stage ddp_bucket_cap_mb ddp_comm ddp_overlap ddp_check batch_weights", "the run has one rank",
         j->comm->size == 1},
        {"pipeline_schedule", "only with --pipeline_parallel",
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
        {"logging_steps", "only with --logging_strategy steps",
         set->logging != TX_STRATEGY_STEPS && !(by_steps && !(set->eval_steps > 0))},
        {"eval_steps", "only with --eval_strategy steps", !by_steps},
        {"eval_delay greater_is_better metric_for_best_model", "nothing is evaluated in training", !set->evaluation},
        {"save_steps", "only with --save_strategy steps", set->saving != TX_STRATEGY_STEPS},
        {"early_stopping_threshold", "only with --early_stopping_patience", !set->stop_patience},
        {"logging_dir run_name", "only with --report_to tensorboard", !events},
        {"run_name", "--logging_dir counts", events && set->logging_dir},
    };
    ADD_ALL(rows);
}

void tx_job_tell_idle(const tx_job *j)
{
    char text[3072] = "", message[3200];
    add_of_data(j, text, sizeof text);
    add_of_training(j, text, sizeof text);
    add_of_course(j, text, sizeof text);
    snprintf(message, sizeof message, "options without effect: %s", text);
    if (*text)
        tx_report(&j->report, message);
}
