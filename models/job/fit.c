/* SPDX-License-Identifier: Apache-2.0
 * Planned memory beside what there is. */
#include "models/job/fit.h"

#include "api/base/memory_left.h"
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

/* All that is drawn on one memory. */
typedef struct purse {
    int64_t planned, lasting; /* lasting: weights, gradients, optimizer states */
    int64_t limit;            /* INT64_MAX: unknown */
    int32_t ranks;
    const char *owner;
} purse;

static purse add_up(const tx_fit_rank *all, int32_t count, const tx_fit_rank *first)
{
    purse sum = {.limit = INT64_MAX, .owner = first->device};
    for (int32_t r = 0; r < count; r++) {
        const tx_fit_rank *one = &all[r];
        if (!share_purse(one, first))
            continue;
        const int64_t *bytes = one->planned.bytes;
        sum.planned += tx_memory_total(&one->planned);
        sum.lasting += bytes[TX_MEMORY_WEIGHTS] + bytes[TX_MEMORY_COPIES] + bytes[TX_MEMORY_GRADIENTS] +
                       bytes[TX_MEMORY_OPTIMIZER];
        sum.ranks++;
        const int64_t there = one->on_host ? one->left : one->device_memory ? one->device_memory : INT64_MAX;
        if (there < sum.limit) {
            sum.limit = there;
            sum.owner = one->on_host ? one->owner : one->device;
        }
    }
    return sum;
}

static tx_status refuse(const purse *p)
{
    char ranks[64] = "";
    if (p->ranks > 1)
        snprintf(ranks, sizeof ranks, " by %" PRId32 " ranks", p->ranks);
    const char *advice =
        p->lasting < p->limit
            ? "--gradient_checkpointing, or a smaller --per_device_train_batch_size with more "
              "--gradient_accumulation_steps, takes less"
            : "these alone are too many: a smaller model, or --zero_stage 2 over ranks on other devices";
    return tx_fail(TX_MEMORY,
                   "the run does not fit: %.2f GiB are planned%s, %s has %.2f GiB; weights, gradients and optimizer "
                   "states are %.2f GiB of it: %s",
                   tx_gib(p->planned), ranks, p->owner, tx_gib(p->limit), tx_gib(p->lasting), advice);
}

tx_status tx_fit_judge(const tx_fit_rank *ranks, int32_t count, char *text, size_t size)
{
    int64_t narrowest = INT64_MAX;
    snprintf(text, size, "how much memory there is, is not known");
    for (int32_t r = 0; r < count; r++) {
        const purse p = add_up(ranks, count, &ranks[r]);
        if (p.planned > p.limit)
            return refuse(&p);
        if (p.limit < INT64_MAX && p.limit - p.planned < narrowest) {
            narrowest = p.limit - p.planned;
            snprintf(text, size, "fits: %.2f GiB are planned, %s has %.2f GiB", tx_gib(p.planned), p.owner,
                     tx_gib(p.limit));
        }
    }
    return TX_OK;
}

/* Whether all ranks together have memory for what each of them plans; the same answer on all of them. */
static tx_status judge(tx_job *j, const tx_memory *planned, char *text, size_t size)
{
    const tx_device_info *device = tx_engine_device(j->engine);
    tx_fit_rank *all = calloc((size_t)j->comm->size, sizeof *all);
    if (!all)
        return tx_fail(TX_MEMORY, "no memory to compare the ranks");
    tx_fit_rank *mine = &all[j->comm->rank];
    mine->host = j->comm->ranks[j->comm->rank].host;
    mine->on_host = device->type == TX_DEVICE_CPU;
    mine->device_memory = device->memory;
    mine->left = tx_memory_left("", mine->owner, sizeof mine->owner);
    mine->planned = *planned;
    snprintf(mine->device, sizeof mine->device, "%s", device->id);
    tx_status status = tx_comm_share(j->comm, all, sizeof *all);
    if (!status)
        status = tx_fit_judge(all, j->comm->size, text, size);
    free(all);
    return status;
}

/* Compiles, and refuses what does not fit. */
static tx_status compile(tx_job *j)
{
    char text[256];
    tx_memory planned;
    TX_TRY(tx_job_compile(j));
    TX_TRY(tx_model_memory(j->model, &planned));
    TX_TRY(judge(j, &planned, text, sizeof text));
    if (j->set.dry_run)
        tx_job_note(j, "memory  %s", text);
    return TX_OK;
}

/* TX_MEMORY on all ranks where it is that on one. */
static tx_status agree(tx_job *j, tx_status mine)
{
    tx_status *all = calloc((size_t)j->comm->size, sizeof *all);
    if (!all)
        return tx_fail(TX_MEMORY, "no memory to compare the ranks");
    all[j->comm->rank] = mine;
    tx_status status = tx_comm_share(j->comm, all, sizeof *all);
    for (int32_t r = 0; r < j->comm->size && !status && !mine; r++)
        if (all[r])
            status = tx_fail(TX_MEMORY, "rank %" PRId32 " has a tensor that its device has no room for", r);
    free(all);
    return status ? status : mine;
}

/* Compiles for `rows` in a micro-batch of a rank, `times` as many of these, where there is memory for that. */
static tx_status try_batch(tx_job *j, int64_t rows, int64_t times)
{
    char text[256];
    tx_trainer_forecast forecast;
    j->set.batch = rows;
    j->set.accumulation = times;
    tx_status status = tx_job_split(j);
    if (!status)
        status = tx_job_foresee(j, &forecast);
    if (!status || status == TX_MEMORY)
        status = agree(j, status);
    if (!status)
        status = judge(j, &forecast.memory, text, sizeof text);
    return status ? status : compile(j);
}

tx_status tx_job_compile_to_fit(tx_job *j)
{
    const int64_t batch = j->set.batch, times = j->set.accumulation;
    if (!j->set.find_batch)
        return compile(j);
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
