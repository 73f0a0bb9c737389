/* SPDX-License-Identifier: Apache-2.0
 * Finds and reads the data, and chooses the task that the model is trained for. */
#include "models/job/inputs.h"

#include "api/base/file.h"
#include "models/data/rows.h"
#include "models/task/policy.h"
#include "models/train/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names the user's data instead of the prepared file, whose lines are the rows of the data, in a message about it. */
static tx_status name_data(tx_status status, const char *path, const char *name)
{
    static const char lines[] = ": line ";
    char text[1024];
    const size_t length = path ? strlen(path) : 0;
    if (!status || !name || !length || strcmp(path, name) == 0 || strncmp(tx_error(), path, length) != 0)
        return status;
    const char *rest = tx_error() + length;
    const bool numbered = strncmp(rest, lines, strlen(lines)) == 0;
    snprintf(text, sizeof text, "%s%s%s", name, numbered ? ": row " : "", rest + (numbered ? strlen(lines) : 0));
    return tx_fail(status, "%s", text);
}

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
                                 .labelled = path && (tx_rows_kind_of(path) == TX_ROWS_TABLE || j->set.label_column),
                                 .trains = tx_job_trains(&j->set)};
    TX_TRY(name_data(tx_task_detect(&signs, row), path, in->train_path ? in->train_name : in->validation_name));
    return *row ? TX_OK
                : tx_fail(TX_UNSUPPORTED,
                          "a %s has no labels, and the run does not train: give a classifier or --do_train",
                          in->config->architecture->class_name);
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
    return TX_OK;
}

/* The lengths of sources and targets. */
static tx_status choose_lengths(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    in->block = set->max_source_length;
    tx_seq2seq_sized(&in->sized, set->max_target_length, set->predict_with_generate);
    in->task = &in->sized.task;
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
    char why[TX_ARCH_NAME];
    if (in->task->head == TX_HEAD_SEQ2SEQ)
        return choose_lengths(j);
    if (in->task->generates) {
        tx_policy_sized(in->task, set->max_completion_length, &in->sized);
        in->task = &in->sized.task;
    }
    in->block = in->task->of_texts ? set->max_seq_length : set->block ? set->block : 1024;
    if (in->block > positions && set->block && !in->task->of_texts)
        return tx_fail(TX_INVALID, "block_size %" PRId64 " is more than the model's %" PRId64 " positions%s", in->block,
                       positions, tx_config_bound(in->config, why));
    if (in->block > positions && in->task->of_texts)
        tx_reporter_print(&j->report,
                          "max_seq_length %" PRId64 " is more than the model's %" PRId64
                          " positions%s: texts are truncated to "
                          "these",
                          in->block, positions, tx_config_bound(in->config, why));
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
    TX_TRY(tx_job_check(&j->options, in));
    TX_TRY(set_task_defaults(j));
    return choose_block(j);
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
    const tx_status status = name_data(tx_samples_open(task, path, &options, samples), path, name);
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
    if (in->train.count && task->generates)
        in->block = in->train.block; /* of the longest prompt */
    if (in->validation_path)
        TX_TRY(open_samples(j, task, in->validation_path, in->validation_name, TX_DATA_VALIDATION, &in->validation));
    if (in->test_path)
        TX_TRY(open_samples(j, task, in->test_path, in->test_name, TX_DATA_TEST, &in->test));
    return tx_job_metric(&j->set, in->task, &in->metric);
}
