/* SPDX-License-Identifier: Apache-2.0
 * Planned memory beside what there is. */
#include "models/job/fit.h"

#include "api/base/memory_left.h"
#include "api/base/message.h"
#include "models/job/parts.h"
#include "models/options/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether two ranks draw on one memory: of a host, or of one of its devices. */
static bool share_purse(const tx_fit_rank *a, const tx_fit_rank *b)
{
    return a->host == b->host && a->on_host == b->on_host && (a->on_host || strcmp(a->device, b->device) == 0);
}

/* Lowers the limit to `there`, of which `owner` is told. */
static void lower(tx_fit *fit, int64_t there, const char *owner)
{
    if (there < fit->limit) {
        fit->limit = there;
        snprintf(fit->owner, sizeof fit->owner, "%s", owner);
    }
}

/* All that is drawn on the memory of the rank `first`. */
static tx_fit add_up(const tx_fit_rank *all, int32_t count, const tx_fit_rank *first)
{
    tx_fit sum = {.limit = INT64_MAX};
    snprintf(sum.owner, sizeof sum.owner, "%s", first->device);
    for (int32_t r = 0; r < count; r++) {
        const tx_fit_rank *one = &all[r];
        if (!share_purse(one, first))
            continue;
        const int64_t *bytes = one->planned.bytes;
        sum.planned += tx_memory_total(&one->planned);
        sum.lasting += bytes[TX_MEMORY_WEIGHTS] + bytes[TX_MEMORY_COPIES] + bytes[TX_MEMORY_GRADIENTS] +
                       bytes[TX_MEMORY_OPTIMIZER];
        sum.ranks++;
        if (one->on_host)
            lower(&sum, one->left, one->owner);
        if (one->device_memory)
            lower(&sum, one->device_memory, one->device);
    }
    return sum;
}

/* All that is drawn on the host of the rank `first`: by ranks that compute there, and by states that are kept there. */
static tx_fit add_up_host(const tx_fit_rank *all, int32_t count, const tx_fit_rank *first)
{
    tx_fit sum = {.limit = INT64_MAX};
    for (int32_t r = 0; r < count; r++) {
        const tx_fit_rank *one = &all[r];
        const int64_t own = one->on_host ? tx_memory_total(&one->planned) : 0;
        if (one->host != first->host || own + one->planned.bytes[TX_MEMORY_OFFLOADED] == 0)
            continue;
        sum.planned += own + one->planned.bytes[TX_MEMORY_OFFLOADED];
        sum.ranks++;
        lower(&sum, one->left, one->owner);
    }
    sum.lasting = sum.planned;
    return sum;
}

tx_fit tx_fit_narrowest(const tx_fit_rank *ranks, int32_t count)
{
    tx_fit narrowest = add_up(ranks, count, ranks);
    for (int32_t r = 0; r < count; r++) {
        const tx_fit of_rank[] = {add_up(ranks, count, &ranks[r]), add_up_host(ranks, count, &ranks[r])};
        for (int i = 0; i < (ranks[r].planned.bytes[TX_MEMORY_OFFLOADED] > 0 ? 2 : 1); i++)
            if (of_rank[i].limit - of_rank[i].planned < narrowest.limit - narrowest.planned)
                narrowest = of_rank[i];
    }
    return narrowest;
}

void tx_fit_text(const tx_fit *fit, char *text, size_t size)
{
    char ranks[64] = "";
    if (fit->ranks > 1)
        snprintf(ranks, sizeof ranks, " by %" PRId32 " ranks", fit->ranks);
    if (fit->limit == INT64_MAX)
        snprintf(text, size, "%.2f GiB are planned%s; how much there is, is not known", tx_gib(fit->planned), ranks);
    else
        snprintf(text, size, "%.2f GiB are planned%s, %s has %.2f GiB", tx_gib(fit->planned), ranks, fit->owner,
                 tx_gib(fit->limit));
}

/* What all ranks together have and what each of them plans; the same answer on all of them. */
static tx_status judge(tx_job *j, const tx_memory *planned, tx_fit *fit)
{
    const tx_device_info *device = tx_engine_device(j->engine);
    tx_fit_rank mine = {.host = j->comm->ranks[j->comm->rank].host,
                        .on_host = device->type == TX_DEVICE_CPU,
                        .device_memory = device->memory,
                        .planned = *planned};
    mine.left = tx_memory_left("", mine.owner, sizeof mine.owner);
    snprintf(mine.device, sizeof mine.device, "%s", device->id);
    tx_status status;
    tx_fit_rank *all = tx_comm_gather(j->comm, &mine, sizeof mine, &status);
    if (!status)
        *fit = tx_fit_narrowest(all, j->comm->size);
    free(all);
    return status;
}

/* A failure on all ranks where one has it. */
static tx_status agree(tx_job *j, tx_status mine)
{
    tx_status status;
    tx_status *all = tx_comm_gather(j->comm, &mine, sizeof mine, &status);
    for (int32_t r = 0; r < j->comm->size && !status && !mine; r++)
        if (all[r])
            status = tx_fail(all[r], "rank %" PRId32 "%s", r,
                             all[r] == TX_MEMORY ? " has a tensor that its device has no room for"
                                                 : " cannot plan its part, as it says");
    free(all);
    return status ? status : mine;
}

tx_status tx_job_forecast_fit(tx_job *j, int64_t scratch, tx_fit *fit)
{
    tx_trainer_forecast forecast;
    tx_status status = tx_job_split(j);
    TX_THEN(status, tx_job_place_blocks(j));
    TX_THEN(status, tx_job_foresee(j, scratch, &forecast));
    TX_TRY(agree(j, status));
    forecast.memory.bytes[TX_MEMORY_SCRATCH] += scratch;
    return judge(j, &forecast.memory, fit);
}

tx_status tx_job_memory_share(tx_job *j, double *bytes)
{
    const tx_memory none = {{0}};
    tx_fit fit;
    TX_TRY(judge(j, &none, &fit));
    *bytes = (double)fit.limit / (double)fit.ranks;
    return TX_OK;
}

/* `why` it does not fit, and what would. */
static tx_status refuse(tx_job *j, const char *why, int64_t scratch)
{
    char advice[1024];
    TX_TRY(tx_job_advise(j, scratch, advice, sizeof advice));
    return tx_fail(TX_MEMORY, "the run does not fit: %s; %s", why, advice);
}

/* A tensor alone was too large, as the last message says. */
static tx_status refuse_tensor(tx_job *j)
{
    char why[512];
    snprintf(why, sizeof why, "%s", tx_error());
    return refuse(j, why, 0);
}

static tx_status refuse_all(tx_job *j, const tx_fit *fit, int64_t scratch)
{
    char why[512];
    tx_fit_text(fit, why, sizeof why);
    tx_list_add(why, sizeof why, "; ", "weights, gradients and optimizer states are %.2f GiB of it",
                tx_gib(fit->lasting));
    return refuse(j, why, scratch);
}

/* Compiles, and refuses what does not fit. */
static tx_status compile(tx_job *j)
{
    char text[512];
    tx_memory planned;
    tx_fit fit;
    tx_trainer_forecast forecast;
    tx_status status = tx_job_compile(j);
    if (!status || status == TX_MEMORY)
        status = agree(j, status);
    if (status)
        return status == TX_MEMORY ? refuse_tensor(j) : status;
    TX_TRY(tx_model_memory(j->model, &planned));
    TX_TRY(judge(j, &planned, &fit));
    if (fit.planned > fit.limit) {
        TX_TRY(tx_job_foresee(j, planned.bytes[TX_MEMORY_SCRATCH], &forecast));
        return refuse_all(j, &fit, tx_memory_total(&planned) - tx_memory_total(&forecast.memory));
    }
    tx_fit_text(&fit, text, sizeof text);
    if (j->set.dry_run)
        tx_job_note(j, "memory  fits: %s", text);
    return TX_OK;
}

/* Compiles what fits but for the scratch memory of kernels, which may be built for minutes before that is known. */
static tx_status foresee_and_compile(tx_job *j)
{
    tx_fit fit;
    tx_status status = tx_job_forecast_fit(j, 0, &fit);
    if (status)
        return status == TX_MEMORY ? refuse_tensor(j) : status;
    return fit.planned > fit.limit ? refuse_all(j, &fit, 0) : compile(j);
}

/* Compiles for `rows` in a micro-batch of a rank, `times` as many of these, where there is memory for that. */
static tx_status try_batch(tx_job *j, int64_t rows, int64_t times)
{
    tx_fit fit;
    j->set.batch = rows;
    j->set.accumulation = times;
    tx_status status = tx_job_forecast_fit(j, 0, &fit);
    if (!status && fit.planned > fit.limit)
        status = tx_fail(TX_MEMORY, "%.2f GiB are planned, %s has %.2f GiB", tx_gib(fit.planned), fit.owner,
                         tx_gib(fit.limit));
    return status ? status : compile(j);
}

tx_status tx_job_compile_to_fit(tx_job *j)
{
    const int64_t batch = j->set.batch, times = j->set.accumulation;
    if (!j->set.find_batch)
        return foresee_and_compile(j);
    tx_status status = TX_MEMORY;
    for (int64_t part = 1; part <= batch && status == TX_MEMORY; part++)
        if (batch % part == 0)
            status = try_batch(j, batch / part, times * part);
    if (!status && j->set.batch < batch)
        tx_job_note(j,
                    "batch   %" PRId64 " rows of a device do not fit in memory: %" PRId64 " do, with %" PRId64
                    " micro-batches in place of %" PRId64,
                    batch, j->set.batch, j->set.accumulation, times);
    return status == TX_MEMORY ? tx_fail_in(status, "--auto_find_batch_size: with one row of a device") : status;
}
