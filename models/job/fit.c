/* SPDX-License-Identifier: Apache-2.0
 * Planned memory beside what there is. */
#include "models/job/fit.h"

#include "api/base/memory_left.h"
#include "models/job/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double gib(int64_t bytes)
{
    return (double)bytes / (double)((int64_t)1 << 30);
}

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
        sum.lasting += bytes[TX_MEMORY_WEIGHTS] + bytes[TX_MEMORY_GRADIENTS] + bytes[TX_MEMORY_OPTIMIZER];
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
            ? "a smaller --per_device_train_batch_size with more --gradient_accumulation_steps takes less"
            : "these alone are too many: a smaller model, or --zero_stage 2 over ranks on other devices";
    return tx_fail(TX_MEMORY,
                   "the run does not fit: %.2f GiB are planned%s, %s has %.2f GiB; weights, gradients and optimizer "
                   "states are %.2f GiB of it: %s",
                   gib(p->planned), ranks, p->owner, gib(p->limit), gib(p->lasting), advice);
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
            snprintf(text, size, "fits: %.2f GiB are planned, %s has %.2f GiB", gib(p.planned), p.owner, gib(p.limit));
        }
    }
    return TX_OK;
}

tx_status tx_job_check_fit(tx_job *j)
{
    const tx_device_info *device = tx_engine_device(j->engine);
    tx_fit_rank *all = calloc((size_t)j->comm->size, sizeof *all);
    if (!all)
        return tx_fail(TX_MEMORY, "no memory to compare the ranks");
    tx_fit_rank *mine = &all[j->comm->rank];
    char text[256];
    mine->host = j->comm->ranks[j->comm->rank].host;
    mine->on_host = device->type == TX_DEVICE_CPU;
    mine->device_memory = device->memory;
    mine->left = tx_memory_left("", mine->owner, sizeof mine->owner);
    snprintf(mine->device, sizeof mine->device, "%s", device->id);
    tx_status status = tx_model_memory(j->model, &mine->planned);
    if (!status)
        status = tx_comm_share(j->comm, all, sizeof *all);
    if (!status)
        status = tx_fit_judge(all, j->comm->size, text, sizeof text);
    if (!status && j->set.dry_run)
        tx_job_note(j, "memory  %s", text);
    free(all);
    return status;
}
