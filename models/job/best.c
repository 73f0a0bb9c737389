/* SPDX-License-Identifier: Apache-2.0
 * The best weights, and what a run lacks at its end. */
#include "models/job/parts.h"

#include "api/base/file.h"
#include "api/base/message.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tx_job_lack(tx_job *j, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tx_list_vadd(j->lacks, sizeof j->lacks, "; ", format, args);
    va_end(args);
}

void tx_job_look_for_best(const tx_job *j)
{
    char *best = NULL, message[600];
    if (!j->set.load_best || tx_run_state_best(&j->inputs.state, j->set.output_dir, &best))
        return;
    snprintf(message, sizeof message,
             "%.400s: the best checkpoint so far is not there; it is missed at the end unless a better one comes",
             best);
    if (!tx_is_folder(best))
        tx_report(&j->report, message);
    free(best);
}

typedef struct best_load {
    const tx_job *job;
    char *folder;
} best_load;

static tx_status load_best(void *context)
{
    best_load *load = context;
    const tx_job *j = load->job;
    tx_status status = tx_run_state_best(&j->inputs.state, j->set.output_dir, &load->folder);
    if (!status)
        status = tx_checkpoint_verify(load->folder, &j->report);
    return status ? status : tx_job_load(j, load->folder);
}

static void tell_best(const tx_job *j, const char *best)
{
    const tx_run_state *state = &j->inputs.state;
    const char *metric = j->inputs.metric->name;
    if (tx_checkpoint_step(best) == state->best_step)
        tx_job_note(j, "best    %s: %s %.4f", best, metric, state->best);
    else
        tx_job_note(j, "best    %s, of those that were saved; step %" PRId64 " had %s %.4f and was not", best,
                    state->best_step, metric, state->best);
}

tx_status tx_job_load_best(tx_job *j)
{
    best_load load = {.job = j};
    bool replaced = false;
    if (!j->set.load_best || j->inputs.state.best_step < 0)
        return TX_OK;
    tx_status status = tx_run_replace_weights(j->model, j->comm, load_best, &load, &replaced);
    if (!status && replaced)
        tell_best(j, load.folder);
    else if (!status)
        tx_job_lack(j, "the best checkpoint cannot be loaded, the last weights are kept: %.500s", tx_error());
    free(load.folder);
    return status;
}
