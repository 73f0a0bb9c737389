/* SPDX-License-Identifier: Apache-2.0
 * Finds and reads the data, and chooses the task that the model is trained for. */
#include "models/job/inputs.h"

#include "api/base/cores.h"
#include "api/base/file.h"
#include "models/data/rows.h"
#include "models/train/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- The task --------------------------------------------------------------------------------------------- */

/* Finds the row of the task that is named, or that the model and the data are for. */
static tx_status find_row(const tx_job *j, const tx_task_row **row)
{
    const tx_job_inputs *in = &j->inputs;
    const char *path = in->train_path ? in->train_path : in->validation_path;
    *row = tx_task_named(j->set.task);
    if (*row)
        return TX_OK;
    const tx_task_signs signs = {.head = in->config->architecture->head,
                                 .path = path,
                                 .labelled = path && (tx_rows_is_table(path) || j->set.label_column),
                                 .trains = tx_job_trains(&j->set)};
    TX_TRY(tx_task_detect(&signs, row));
    return *row ? TX_OK
                : tx_fail(TX_UNSUPPORTED,
                          "a %s has no labels, and the run does not train: give a classifier or --do_train",
                          in->config->architecture->class_name);
}

/* Refuses options of other tasks. */
static tx_status refuse_others(const tx_job *j)
{
    const tx_job_inputs *in = &j->inputs;
    char owners[256];
    for (int32_t i = 0; i < tx_job_table.count; i++) {
        const tx_option *option = &tx_job_table.option[i];
        const uint32_t trait = tx_job_traits(option) & TX_TASK_OPTIONS & ~in->row->traits;
        if (!trait || !tx_job_in_use(&j->set, option))
            continue;
        tx_task_owners(trait, owners, sizeof owners);
        return tx_fail(TX_INVALID, "--%s is for %s; this is %s", option->name, owners, in->task->name);
    }
    if (!(in->row->traits & TX_PREFER) && j->set.loss_type && strcmp(j->set.loss_type, "nll") != 0)
        return tx_fail(TX_INVALID, "--loss_type %s is for preferences (--task_name dpo or cpo); this is %s",
                       j->set.loss_type, in->task->name);
    return TX_OK;
}

/* Sets the options whose defaults depend on the task. They still count as not given. */
static tx_status set_task_defaults(tx_job *j)
{
    const tx_task_row *row = j->inputs.row;
    const int64_t positions = j->inputs.config->positions;
    tx_job_settings *set = &j->set;
    for (const tx_task_usual *u = row->usual; u->value && !j->inherited; u++) {
        if (tx_option_given(&j->options, u->at))
            continue;
        TX_TRY(tx_option_set_at(&j->options, u->at, u->value));
        j->options.source[tx_option_at(&tx_job_table, u->at) - tx_job_table.option] = TX_OPTION_UNSET;
        if (u->at == TX_JOB_AT(max_seq_length) && set->max_seq_length > positions)
            set->max_seq_length = positions;
    }
    if ((row->traits & (TX_TALK | TX_WRITE)) && !tx_option_given(&j->options, TX_JOB_AT(pad_to_max_length)) &&
        !j->inherited)
        set->pad_to_max_length = set->packing;
    return refuse_others(j);
}

/* The lengths of sources and targets. */
static tx_status choose_lengths(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    const struct {
        size_t at;
        bool used;
        const char *why;
    } refused[] = {{TX_JOB_AT(max_seq_length), tx_option_from(&j->options, TX_JOB_AT(max_seq_length)) == TX_OPTION_SET,
                    "the lengths are --max_source_length and --max_target_length"},
                   {TX_JOB_AT(block), set->block != 0, "the lengths are --max_source_length and --max_target_length"},
                   {TX_JOB_AT(tensor_parallel), set->tensor_parallel > 1, "ranks cannot divide its attention"},
                   {TX_JOB_AT(context_parallel), set->context_parallel > 1, "ranks cannot divide its positions"},
                   {TX_JOB_AT(pipeline_parallel), set->pipeline_parallel > 1, "stages cannot share the source"},
                   {TX_JOB_AT(parallel), set->parallel == TX_JOB_PARALLEL_AUTO, "only data-parallel ranks train it"}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (refused[i].used)
            return tx_fail(TX_UNSUPPORTED, "--%s is not for %s: %s", tx_option_at(&tx_job_table, refused[i].at)->name,
                           in->task->name, refused[i].why);
    in->block = set->max_source_length;
    tx_seq2seq_sized(&in->seq2seq, set->max_target_length, set->predict_with_generate);
    in->task = &in->seq2seq.task;
    if (!set->predict_with_generate)
        return TX_OK;
    TX_TRY(tx_writer_settings(in->config, in->model_folder,
                              set->generation_max_length ? set->generation_max_length : set->max_target_length,
                              set->generation_num_beams, &j->report, &in->write));
    in->write.seed = (uint64_t)set->seed;
    return TX_OK;
}

static tx_status choose_block(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    const int64_t positions = in->config->positions;
    const size_t blocks = TX_JOB_AT(block), texts = TX_JOB_AT(max_seq_length);
    const tx_option *other = tx_option_at(&tx_job_table, in->task->of_texts ? blocks : texts);
    if (tx_job_in_use(&j->set, other) && tx_option_from(&j->options, other->offset) == TX_OPTION_SET)
        return tx_fail(TX_INVALID, "--%s: the length of %s is --%s", other->name,
                       in->task->of_texts ? "texts and conversations" : "blocks of text",
                       tx_option_at(&tx_job_table, in->task->of_texts ? texts : blocks)->name);
    if (in->task->head == TX_HEAD_SEQ2SEQ)
        return choose_lengths(j);
    in->block = in->task->of_texts ? set->max_seq_length : set->block ? set->block : 1024;
    if (in->block > positions && set->block && !in->task->of_texts)
        return tx_fail(TX_INVALID, "block_size %" PRId64 " is more than the model's %" PRId64 " positions", in->block,
                       positions);
    if (in->block > positions && in->task->of_texts)
        tx_reporter_print(&j->report,
                          "max_seq_length %" PRId64 " is more than the model's %" PRId64
                          " positions: texts are truncated to "
                          "these",
                          in->block, positions);
    in->block = in->block < positions ? in->block : positions;
    return in->block < 2 ? tx_fail(TX_INVALID, "block_size must be 2 or more: the label of a token is the next one")
                         : TX_OK;
}

tx_status tx_job_choose_task(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    const tx_task_row *named = tx_task_named(j->set.task);
    const tx_head own = in->config->architecture->head, head = named ? named->task->head : own;
    if (head == TX_HEAD_SEQ2SEQ || (head == TX_HEAD_CAUSAL_LM && own == head))
        TX_TRY(tx_job_rows_of_tables(j));
    TX_TRY(find_row(j, &in->row));
    in->task = j->set.packing && in->row->task->packed ? in->row->task->packed : in->row->task;
    TX_TRY(tx_config_set_head(in->config, in->task->head));
    TX_TRY(set_task_defaults(j));
    TX_TRY(choose_block(j));
    if (j->set.do_predict && !in->task->predict)
        return tx_fail(TX_INVALID, "--do_predict: %s predicts no labels; %s", in->task->name,
                       in->task->head == TX_HEAD_SEQ2SEQ ? "add --predict_with_generate"
                                                         : "use txgen to generate text");
    return TX_OK;
}

/* ---- Reading ------------------------------------------------------------------------------------------------ */

static tx_status open_samples(tx_job *j, const tx_task *task, const char *path, const char *name, tx_data_split split,
                              tx_samples *samples)
{
    static const char *const names[] = {"train  ", "eval   ", "test   "};
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    const int64_t most[] = {set->max_train_samples, set->max_eval_samples, set->max_predict_samples};
    const double cut = in->shared ? set->validation_split : 0.0;
    char *cache = set->output_dir ? tx_path_join(set->output_dir, "cache") : NULL;
    if (set->output_dir && !cache)
        return TX_MEMORY;
    const tx_data_options options = {
        .set = set,
        .split = split,
        .config = in->config,
        .keeps_labels = in->model_folder && !in->config->new_head && (in->checkpoint || !set->new_head),
        .resumes = in->checkpoint,
        .tokenizer = in->tokenizer,
        .block = in->block,
        .from = split == TX_DATA_TRAIN ? cut : 0.0,
        .to = split == TX_DATA_VALIDATION && in->shared ? cut : 100.0,
        .most = most[split],
        .cache = cache,
        .threads = set->tokenize_threads > 0 ? (int32_t)set->tokenize_threads : tx_cores(),
        .seed = tx_job_data_seed(set),
        .report = j->report,
    };
    tx_status status = tx_samples_open(task, path, &options, samples);
    free(cache);
    if (status)
        return status;
    in->task = samples->task;
    tx_job_note(j, "%s %s: %" PRId64 " token%s, %" PRId64 " %s%s of %s%" PRId64, names[split], name, samples->tokens,
                tx_s(samples->tokens), samples->count, j->set.packing ? "row" : in->row->unit, tx_s(samples->count),
                in->task->of_texts ? "at most " : "", in->block);
    return TX_OK;
}

tx_status tx_job_open_data(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    const tx_task *task = in->task; /* data may have a task of their own */
    if (in->train_path && tx_job_trains(&j->set))
        TX_TRY(open_samples(j, task, in->train_path, in->train_name, TX_DATA_TRAIN, &in->train));
    if (in->validation_path)
        TX_TRY(open_samples(j, task, in->validation_path, in->validation_name, TX_DATA_VALIDATION, &in->validation));
    if (in->test_path)
        TX_TRY(open_samples(j, task, in->test_path, in->test_name, TX_DATA_TEST, &in->test));
    return tx_job_metric(&j->set, in->task, &in->metric);
}
