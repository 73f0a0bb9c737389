/* SPDX-License-Identifier: Apache-2.0
 * --parallel auto: chooses tensor-parallel size, pipeline-parallel size and ZeRO stage by a performance model of a step
 * (models/split/split.h), whose rates the ranks measure. */
#include "models/job/ranks.h"

#include "api/base/arithmetic.h"
#include "models/job/fit.h"
#include "models/job/inputs.h"
#include "models/job/plans.h"
#include "models/options/bytes.h"
#include "models/split/split.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LENIENT 1.25 /* the performance model accepts splits of up to 1.25 times the memory; plans decide later */
#define SIMILAR 1.05 /* predictions cannot tell apart splits whose times differ by less than this factor */

static bool given(const tx_job *j, size_t at)
{
    return tx_option_asked(&j->options, at);
}

static void set_split(tx_job *j, const tx_split *s)
{
    j->set.tensor_parallel = s->tensor;
    j->set.pipeline_parallel = s->pipeline;
    j->set.pipeline_schedule = s->chunks > 1 ? TX_PIPELINE_INTERLEAVED : TX_PIPELINE_1F1B;
    j->set.pipeline_chunks = s->chunks > 1 ? s->chunks : TX_JOB_CHUNKS;
    j->set.zero_stage = j->zero_stage = s->zero;
    if (!given(j, TX_JOB_AT(zero_group)) || !s->hybrid)
        j->set.zero_group = s->hybrid ? 0 : 1;
}

/* ---- Resumed runs ------------------------------------------------------------------------------------------------ */

/* The split that the checkpoint's run chose for the same number of ranks. New measurements could choose another split,
 * which rounds differently. */
static bool find_before(const tx_job *j, tx_split *s)
{
    tx_json *then = NULL;
    const char *parallel = "", *schedule = "";
    int64_t data = 0, zero = 0, group = 1;
    *s = (tx_split){.chunks = 1};
    if (!j->inputs.checkpoint || tx_json_get_int(j->inputs.state.run, "world_size", 1, INT32_MAX, &data) ||
        tx_job_read_arguments(j->inputs.checkpoint, &then))
        return false;
    const bool found = !tx_json_get_string(then, TX_JOB_NAME(parallel), &parallel) && strcmp(parallel, "auto") == 0 &&
                       !tx_json_get_int(then, TX_JOB_NAME(tensor_parallel), 1, INT32_MAX, &s->tensor) &&
                       !tx_json_get_int(then, TX_JOB_NAME(pipeline_parallel), 1, INT32_MAX, &s->pipeline) &&
                       !tx_json_get_int(then, TX_JOB_NAME(zero_stage), 0, 3, &zero) &&
                       !tx_json_get_int(then, TX_JOB_NAME(zero_group), 0, INT32_MAX, &group) &&
                       !tx_json_get_string(then, TX_JOB_NAME(pipeline_schedule), &schedule) &&
                       data * s->tensor * s->pipeline == j->comm->size;
    if (found && strcmp(schedule, "interleaved") == 0 &&
        tx_json_get_int(then, TX_JOB_NAME(pipeline_chunks), 2, INT32_MAX, &s->chunks))
        s->chunks = TX_JOB_CHUNKS;
    s->data = data;
    s->zero = (int32_t)zero;
    s->hybrid = group != 1;
    tx_json_free(then);
    return found && (!given(j, TX_JOB_AT(tensor_parallel)) || s->tensor == j->set.tensor_parallel) &&
           (!given(j, TX_JOB_AT(pipeline_parallel)) || s->pipeline == j->set.pipeline_parallel) &&
           (!given(j, TX_JOB_AT(zero_stage)) || s->zero == j->set.zero_stage) &&
           (!given(j, TX_JOB_AT(zero_group)) || s->hybrid == (j->set.zero_group != 1));
}

/* ---- Choice ----------------------------------------------------------------------------------------------------- */

static void describe(const tx_split *s, char *text, size_t size)
{
    char stages[48] = "";
    if (s->chunks > 1)
        snprintf(stages, sizeof stages, " (interleaved %" PRId64 ")", s->chunks);
    snprintf(text, size, "data %" PRId64 " x tensor %" PRId64 " x pipeline %" PRId64 "%s, ZeRO %" PRId32 "%s", s->data,
             s->tensor, s->pipeline, stages, s->zero, s->hybrid ? " within hosts" : "");
}

/* Adds another split, and how much longer or shorter its predicted step is. */
static void add_other(const tx_split_found *found, const tx_split_found *other, const char *but, char *text,
                      size_t size)
{
    char split[160];
    describe(&other->split, split, sizeof split);
    tx_list_add(text, size, "; ", "%s %+.1f %%%s", split,
                100.0 * (other->figures.seconds / found->figures.seconds - 1.0), but);
}

/* Notes the choice. `fastest` is the fastest split that fits. `larger` is a faster split that does not fit, or NULL. */
static void note(const tx_job *j, const tx_split_found *found, const tx_split_found *fastest,
                 const tx_split_found *larger, const tx_fit *fit)
{
    static const char *const words[] = {
#define X(name, word) word,
        TX_SPLIT_TERM_MAP(X)
#undef X
    };
    char split[160], terms[256] = "", why[1024];
    describe(&found->split, split, sizeof split);
    for (int t = 0; t < TX_SPLIT_TERMS; t++)
        if (found->figures.term[t] >= 0.005 * found->figures.seconds)
            tx_list_add(terms, sizeof terms, ", ", "%s %.3g", words[t], 1e3 * found->figures.term[t]);
    tx_fit_text(fit, why, sizeof why);
    if (found != fastest)
        add_other(found, fastest, "", why, sizeof why);
    if (larger)
        add_other(found, larger, ", which does not fit", why, sizeof why);
    tx_job_note(j, "split   %s: predicted %.3g ms a step (%s); %s", split, 1e3 * found->figures.seconds, terms, why);
}

static void note_machine(const tx_job *j, const tx_split_machine *m)
{
    char links[160] = "";
    if (isfinite(m->inside.rate))
        tx_list_add(links, sizeof links, ", ", "%.3g GB/s and %.0f us between ranks of a host", 1e-9 * m->inside.rate,
                    1e6 * m->inside.latency);
    if (isfinite(m->outside.rate))
        tx_list_add(links, sizeof links, ", ", "%.3g GB/s and %.0f us between hosts", 1e-9 * m->outside.rate,
                    1e6 * m->outside.latency);
    tx_job_note(j, "rates   %.3g TFLOP/s of products a rank, %.3g GB/s of its memory, %s", 1e-12 * m->rate,
                1e-9 * m->moving, links);
}

tx_status tx_job_forecast_fit(tx_job *j, int64_t scratch, tx_fit *fit)
{
    tx_forecast forecast;
    tx_status status = tx_job_split(j);
    TX_THEN(status, tx_job_assign_blocks(j));
    TX_THEN(status, tx_job_forecast(j, scratch, &forecast));
    TX_TRY(tx_comm_agree(j->comm, status, "plan its part"));
    forecast.memory.bytes[TX_MEMORY_SCRATCH] += scratch;
    return tx_job_judge_fit(j, &forecast.memory, fit);
}

typedef enum verdict { UNSUPPORTED, TOO_LARGE, FITS } verdict;

/* Whether the engine supports the split, and whether it fits in the memory of all ranks. */
static tx_status try_split(tx_job *j, const tx_split *s, verdict *is, tx_fit *fit)
{
    *is = UNSUPPORTED;
    set_split(j, s);
    if (tx_job_check(&j->options, &j->inputs))
        return TX_OK;
    TX_TRY(tx_job_make_groups(j));
    const tx_status status = tx_job_forecast_fit(j, 0, fit);
    if (status == TX_MEMORY || (!status && fit->planned > fit->limit))
        *is = TOO_LARGE;
    else if (!status)
        *is = FITS;
    return status == TX_MEMORY || status == TX_UNSUPPORTED || status == TX_INVALID ? TX_OK : status;
}

/* Fails because no split has the given sizes, or because all are too large even by the performance model. */
static tx_status fail_without_split(const tx_job *j, const tx_split_search *search)
{
    if (isfinite(search->least))
        return tx_fail(TX_MEMORY,
                       "--parallel auto: no split of %" PRId32 " ranks fits: the smallest needs about %.2f GiB a rank",
                       j->comm->size, tx_gib((int64_t)search->least));
    return tx_fail(TX_INVALID,
                   "--parallel auto: no split of %" PRId32 " ranks has the given sizes: each stage needs at least one "
                   "of the %" PRId64 " layers, the heads must be a multiple of --tensor_parallel, and the %" PRId64
                   " rows of a step must divide evenly among the ranks",
                   j->comm->size, j->inputs.config->layers, j->step_rows);
}

/* How complicated a split is for the user. */
static int32_t complexity(const tx_split *s)
{
    return s->zero + s->hybrid + (s->tensor > 1 ? 4 : 0) + (s->pipeline > 1 ? 4 : 0) + (s->chunks > 1);
}

/* Chooses the simplest of the splits that fit and are similarly fast as the fastest. If no plan fits, the run gets the
 * fastest split and is refused with its memory. */
static tx_status choose(tx_job *j, const tx_split_search *search)
{
    const tx_split_found *fastest = NULL, *best = NULL, *larger = NULL;
    tx_fit fit, fit_of_best = {0};
    for (int32_t i = 0; i < search->count; i++) {
        const tx_split_found *one = &search->found[i];
        verdict is = UNSUPPORTED;
        if (best && one->figures.seconds > SIMILAR * fastest->figures.seconds)
            break;
        if (!best || complexity(&one->split) < complexity(&best->split))
            TX_TRY(try_split(j, &one->split, &is, &fit));
        if (is == TOO_LARGE && !larger && !best)
            larger = one;
        if (is != FITS)
            continue;
        fastest = fastest ? fastest : one;
        best = one;
        fit_of_best = fit;
    }
    if (!search->count)
        return fail_without_split(j, search);
    if (!best && !larger)
        return tx_fail(TX_UNSUPPORTED, "--parallel auto: no split is possible with the other options; the last: %s",
                       tx_error());
    if (best)
        note(j, best, fastest, larger, &fit_of_best);
    set_split(j, best ? &best->split : &larger->split);
    return tx_job_make_groups(j);
}

/* The size of a group: the given one, else 0 for any. Devices that round differently cannot share blocks. */
static int64_t wanted(const tx_job *j, size_t at, int64_t value)
{
    return given(j, at) ? value : j->mixed ? 1 : 0;
}

static tx_status make_search(tx_job *j, tx_split_search *search)
{
    tx_split_model model;
    tx_split_machine machine;
    tx_trainer_options base;
    tx_fit available;
    int64_t limit;
    TX_TRY(tx_job_split(j));
    TX_TRY(tx_job_trainer_options(j, &base, &limit));
    TX_TRY(tx_split_measure(j->engine, j->comm, base.autocast, &machine));
    TX_TRY(tx_job_judge_fit(j, &(tx_memory){{0}}, &available));
    machine.memory = (double)available.limit / (double)available.ranks;
    note_machine(j, &machine);
    machine.room = TX_SPLIT_MEMORY * (double)j->own_memory;
    machine.memory *= limit ? HUGE_VAL : LENIENT; /* auto:BYTES fits the recomputation to the memory */
    TX_TRY(tx_split_model_make(j->engine, j->inputs.config, &base, &model));
    const int64_t each = j->set.batch * j->comm->size;
    const tx_split_limits limits = {
        .devices = j->comm->size,
        .tokens = tx_round_up(j->step_rows, each) * j->inputs.block,
        .tensor = wanted(j, TX_JOB_AT(tensor_parallel), j->set.tensor_parallel),
        .pipeline = wanted(j, TX_JOB_AT(pipeline_parallel), j->set.pipeline_parallel),
        .expert = 1,
        .context = 1,
        .batch = j->set.batch,
        .zero = given(j, TX_JOB_AT(zero_stage)) ? (int32_t)j->set.zero_stage : -1,
        .hybrid = given(j, TX_JOB_AT(zero_group)) ? j->set.zero_group != 1 : (j->mixed ? 0 : -1),
        .again = base.checkpointing.whole > 0 || base.checkpointing.cheap > 0,
        .built = true,
    };
    tx_split_search_all(&model, &machine, &limits, search);
    return TX_OK;
}

tx_status tx_job_choose_split(tx_job *j)
{
    tx_split before;
    char text[160];
    if (j->comm->size == 1)
        return TX_OK;
    if (!j->set.global_batch) /* a step has the same rows with any split */
        j->set.global_batch = j->set.batch * j->set.accumulation * j->comm->size;
    if (find_before(j, &before)) {
        describe(&before, text, sizeof text);
        tx_job_note(j, "split   %s, as in the run of the checkpoint", text);
        set_split(j, &before);
        return tx_job_make_groups(j);
    }
    tx_split_search *search = malloc(sizeof *search);
    if (!search)
        return tx_fail(TX_MEMORY, "no memory to search for a split");
    tx_status status = make_search(j, search);
    TX_THEN(status, choose(j, search));
    free(search);
    return status;
}
