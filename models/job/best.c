/* SPDX-License-Identifier: Apache-2.0
 * The best checkpoint, the failures that a run reports at its end, and runs that were complete before. */
#include "models/job/results.h"

#include "api/base/number.h"
#include "models/files/folder.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define STATE_LIMIT ((int64_t)1 << 30)

void tx_job_note_missing(tx_job *j, const char *format, ...)
{
    char text[sizeof j->missing];
    va_list args;
    va_start(args, format);
    tx_format_list(text, sizeof text, format, args);
    va_end(args);
    tx_list_add(j->missing, sizeof j->missing, "; ", "%s", text);
}

void tx_job_find_best(const tx_job *j)
{
    char *best = NULL;
    if (!j->set.load_best || tx_run_state_best(&j->inputs.state, j->set.output_dir, &best))
        return;
    if (!tx_is_folder(best))
        tx_reporter_print(
            &j->report,
            "%.400s: the best checkpoint so far is missing; the run will fail at its end unless a later evaluation "
            "is better",
            best);
    free(best);
}

/* Whether both objects have the member and its values differ. */
static bool has_changed(const tx_json *then, const tx_json *now, const char *key)
{
    const char *before = NULL, *after = NULL;
    return tx_json_has(then, key) && !tx_json_get_string(then, key, &before) && !tx_json_get_string(now, key, &after) &&
           strcmp(before, after) != 0;
}

void tx_job_judge_anew(tx_job *j, const tx_json *description)
{
    tx_run_state *state = &j->inputs.state;
    if (!has_changed(state->run, description, TX_JOB_NAME(metric)) &&
        !has_changed(state->run, description, TX_JOB_NAME(greater)))
        return;
    free(state->best_checkpoint);
    state->best_checkpoint = NULL;
    state->has_best = false;
    state->best_step = -1;
    state->stale = 0;
}

typedef struct best_load {
    const tx_job *job;
    char *folder;
} best_load;

static tx_status load_best(void *context)
{
    best_load *load = context;
    const tx_job *j = load->job;
    TX_TRY(tx_run_state_best(&j->inputs.state, j->set.output_dir, &load->folder));
    TX_TRY(tx_checkpoint_verify(load->folder, &j->report));
    return tx_job_load(j, load->folder);
}

static void note_best(const tx_job *j, const char *best)
{
    const tx_run_state *state = &j->inputs.state;
    const char *metric = j->inputs.metric->name;
    if (tx_checkpoint_step(best) == state->best_step)
        tx_job_note(j, "best    %s: %s %.4f", best, metric, state->best);
    else
        tx_job_note(j, "best    %s among the saved ones; step %" PRId64 " had %s %.4f but was not saved", best,
                    state->best_step, metric, state->best);
}

/* Reports that there is no best evaluation. An evaluation whose metric is NaN is never the best. */
static void lack_best(tx_job *j)
{
    const char *option = j->set.load_best ? TX_JOB_NAME(load_best) : "save_strategy best";
    int64_t count = 0;
    for (size_t i = 0; i < tx_json_size(j->inputs.state.history); i++) {
        const tx_json *entry = tx_json_at(j->inputs.state.history, i);
        int64_t step = 0;
        count += tx_json_has(entry, "eval_runtime") && !tx_json_get_int(entry, "step", 1, INT64_MAX, &step);
    }
    if (count)
        tx_job_note_missing(j,
                            "%s: there is no best evaluation: %s was not a number in %" PRId64 " of %" PRId64
                            " evaluation%s; the run keeps the last weights",
                            option, j->inputs.metric->name, count, count, tx_s(count));
    else
        tx_job_note_missing(
            j, "%s: there is no best evaluation: none was made after a step; the run keeps the last weights", option);
}

tx_status tx_job_load_best(tx_job *j)
{
    best_load load = {.job = j};
    bool replaced = false;
    if (!j->inputs.state.has_best && (j->set.load_best || j->set.saving == TX_STRATEGY_BEST))
        lack_best(j);
    if (!j->set.load_best || !j->inputs.state.has_best)
        return TX_OK;
    tx_status status = tx_run_replace_weights(j->model, j->comm, load_best, &load, &replaced);
    if (!status && replaced)
        note_best(j, load.folder);
    else if (!status)
        tx_job_note_missing(j, "cannot load the best checkpoint, so the run keeps the last weights: %.500s",
                            tx_error());
    free(load.folder);
    return status;
}

/* ---- Runs that were complete before ------------------------------------------------------------------------- */

bool tx_job_is_over(const tx_job *j)
{
    const tx_job_inputs *in = &j->inputs;
    const bool stopped = j->set.stop_patience && in->state.stale >= j->set.stop_patience;
    return in->checkpoint && in->train.count && (in->state.step >= j->steps || stopped);
}

static bool is_written(const tx_job *j)
{
    tx_json *state = NULL;
    int64_t step = -1;
    if (!tx_file_exists(TX_PATH(j->set.output_dir, TX_JOB_TRAIN_RESULTS)) ||
        tx_json_read(TX_PATH(j->set.output_dir, TX_TRAINER_STATE), STATE_LIMIT, &state) ||
        tx_json_get_int(state, "global_step", 0, INT64_MAX, &step))
        step = -1;
    tx_json_free(state);
    return step >= 0 && step >= j->inputs.state.step;
}

tx_status tx_job_is_written(const tx_job *j, bool *written)
{
    int32_t answer = tx_job_leads(j) && is_written(j);
    TX_TRY(tx_comm_collect(j->comm, TX_BROADCAST, &answer, 1, TX_I32, 0));
    *written = answer != 0;
    return TX_OK;
}

bool tx_job_evaluates_at_end(const tx_job *j)
{
    bool asks = false;
    for (int32_t i = 0; i < tx_job_table.count; i++)
        asks = asks || ((tx_job_traits(&tx_job_table.option[i]) & TX_EVALUATION) &&
                        tx_option_asked(&j->options, tx_job_table.option[i].offset));
    return asks;
}
