/* SPDX-License-Identifier: Apache-2.0
 * Gradient checkpointing: reads the option, and searches for the least recomputation that meets a memory limit. */
#include "models/job/plans.h"

#include "api/base/arithmetic.h"
#include "models/options/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_job_read_checkpointing(const char *text, tx_checkpointing *how, int64_t *limit)
{
    *how = (tx_checkpointing){.size = sizeof *how};
    *limit = 0;
    const int truth = !text ? 0 : *text ? tx_option_truth(text) : 1; /* "1" is true, as for the Trainer */
    char *end = NULL;
    const long segments = truth < 0 ? strtol(text, &end, 10) : 0;
    if (truth == 0)
        return TX_OK;
    if (truth == 1 || (!*end && segments > 1 && segments < INT32_MAX)) {
        how->segments = (int32_t)segments;
        how->whole = INT32_MAX;
    } else if (strcmp(text, "auto") == 0)
        how->cheap = INT32_MAX;
    else if (strncmp(text, "auto:", 5) != 0)
        return tx_fail(
            TX_INVALID,
            "--gradient_checkpointing %.40s: must be true, false, a number of segments, auto, or auto: with an "
            "amount of memory, for example auto:2GiB",
            text);
    else if (tx_read_bytes(text + 5, limit))
        return tx_fail_in(TX_INVALID, "--gradient_checkpointing %.40s", text);
    return TX_OK;
}

/* ---- Meeting a limit -------------------------------------------------------------------------------------- */

typedef struct search {
    tx_job *job;
    tx_trainer_options *trainer;
    int64_t limit, scratch;
    int64_t planned; /* the most bytes that a rank plans, in the last try */
} search;

/* The recomputation at a step of the search. Step 0 recomputes nothing. Further steps recompute norms and activation
 * functions block by block, then whole blocks. They start at the first block, since the backward pass needs the last
 * block's activations first. */
static tx_checkpointing effort(const search *s, int32_t step)
{
    const int32_t blocks = (int32_t)s->job->inputs.config->layers;
    return (tx_checkpointing){.size = sizeof(tx_checkpointing),
                              .whole = step > blocks ? step - blocks : 0,
                              .cheap = step > blocks ? blocks : step};
}

/* Whether a step of the search meets the limit on all ranks. */
static tx_status try_effort(search *s, int32_t step, bool *meets)
{
    tx_comm *comm = s->job->comm;
    tx_forecast forecast;
    s->trainer->checkpointing = effort(s, step);
    TX_TRY(tx_trainer_forecast(s->job->engine, s->job->inputs.config, s->trainer, &forecast));
    const int64_t mine = tx_memory_total(&forecast.memory) + s->scratch;
    tx_status status;
    int64_t *planned = tx_comm_gather(comm, &mine, sizeof mine, &status);
    s->planned = 0;
    for (int32_t r = 0; r < comm->size && !status; r++)
        s->planned = planned[r] > s->planned ? planned[r] : s->planned;
    *meets = s->planned <= s->limit;
    free(planned);
    return status;
}

static tx_status find_least(search *s, int32_t *step)
{
    int32_t low = 0, high = 2 * (int32_t)s->job->inputs.config->layers;
    bool meets;
    tx_status status = try_effort(s, 0, &meets);
    if (status || meets) {
        *step = 0;
        return status;
    }
    status = try_effort(s, high, &meets);
    if (!status && !meets)
        status = tx_fail(TX_MEMORY,
                         "--gradient_checkpointing auto: the limit is %" PRId64 " bytes (%.2f GiB), but %" PRId64
                         " (%.2f GiB) are planned even if all blocks are recomputed",
                         s->limit, tx_gib(s->limit), s->planned, tx_gib(s->planned));
    while (!status && high - low > 1) { /* step `high` meets the limit */
        const int32_t middle = low + (high - low) / 2;
        status = try_effort(s, middle, &meets);
        *(meets ? &high : &low) = middle;
    }
    *step = high;
    return status;
}

tx_status tx_job_choose_checkpointing(tx_job *j, tx_trainer_options *trainer, int64_t limit, int64_t scratch)
{
    search s = {.job = j, .trainer = trainer, .limit = limit, .scratch = scratch};
    int32_t step = 0;
    tx_status status = find_least(&s, &step);
    trainer->checkpointing = effort(&s, step);
    return status;
}

/* ---- Notes -------------------------------------------------------------------------------------------------- */

void tx_job_note_checkpointing(const tx_job *j)
{
    const tx_checkpointing *o = &tx_trainer_options_of(j->trainer)->checkpointing;
    const int64_t blocks = j->inputs.config->layers, segments = o->segments ? tx_min(o->segments, blocks) : blocks;
    const int32_t whole = (int32_t)tx_min(o->whole, segments), cheap = (int32_t)tx_min(o->cheap, segments);
    int64_t runs;
    const tx_plan *plan = tx_trainer_plan(j->trainer, TX_TRAINER_TRAIN, &runs);
    const double again = tx_plan_flops(plan, TX_RECOMPUTE);
    const double step = tx_plan_flops(plan, TX_FORWARD) + tx_plan_flops(plan, TX_BACKWARD);
    char more[64] = "";
    if (cheap > whole)
        snprintf(more, sizeof more, ", and norms and activations of %" PRId32, cheap - whole);
    if (whole || cheap)
        tx_job_note(j,
                    "again   the backward pass recomputes %" PRId32 " of %" PRId64 " segment%s%s: %.1f %% more "
                    "operations a step",
                    whole, segments, tx_s(segments), more, 100.0 * again / step);
    else if (j->set.checkpointing)
        tx_job_note(j, "again   the backward pass recomputes nothing");
}
