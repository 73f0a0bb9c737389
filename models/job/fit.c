/* SPDX-License-Identifier: Apache-2.0
 * Compares planned memory with available memory on all ranks. */
#include "models/job/fit.h"

#include "api/base/memory_left.h"
#include "api/base/number.h"
#include "models/job/ranks.h"
#include "models/options/bytes.h"
#include "models/train/outer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lowers the limit to the `available` bytes of `owner`. */
static void lower(tx_fit *fit, int64_t available, const char *owner)
{
    if (available < fit->limit) {
        fit->limit = available;
        snprintf(fit->owner, sizeof fit->owner, "%s", owner);
    }
}

/* Adds up the ranks that share a memory with rank `first`: the memory of its host, including offloaded tensors, or the
 * memory of its device. */
static tx_fit add_up(const tx_fit_rank *all, int32_t count, const tx_fit_rank *first, bool host)
{
    tx_fit sum = {.limit = INT64_MAX};
    snprintf(sum.owner, sizeof sum.owner, "%s", first->device);
    for (int32_t r = 0; r < count; r++) {
        const tx_fit_rank *one = &all[r];
        const int64_t *bytes = one->planned.bytes, offloaded = host ? bytes[TX_MEMORY_OFFLOADED] : 0;
        const bool computes = host ? one->on_host : !one->on_host && strcmp(one->device, first->device) == 0;
        if (one->host != first->host || !(computes || offloaded))
            continue;
        sum.ranks++;
        sum.planned += offloaded + (computes ? tx_memory_total(&one->planned) : 0);
        sum.lasting += offloaded;
        if (computes)
            sum.lasting += bytes[TX_MEMORY_WEIGHTS] + bytes[TX_MEMORY_COPIES] + bytes[TX_MEMORY_GRADIENTS] +
                           bytes[TX_MEMORY_OPTIMIZER];
        if (host)
            lower(&sum, one->left, one->owner);
        if (computes && one->device_memory)
            lower(&sum, one->device_memory, one->device);
    }
    return sum;
}

tx_fit tx_fit_narrowest(const tx_fit_rank *ranks, int32_t count)
{
    tx_fit narrowest = add_up(ranks, count, ranks, ranks->on_host);
    for (int32_t r = 0; r < count; r++)
        for (int host = 0; host < 2; host++) {
            const bool used =
                host ? ranks[r].on_host || ranks[r].planned.bytes[TX_MEMORY_OFFLOADED] > 0 : !ranks[r].on_host;
            const tx_fit fit = add_up(ranks, count, &ranks[r], host);
            if (used && fit.limit - fit.planned < narrowest.limit - narrowest.planned)
                narrowest = fit;
        }
    return narrowest;
}

void tx_fit_text(const tx_fit *fit, char *text, size_t size)
{
    char ranks[64] = "";
    if (fit->ranks > 1)
        snprintf(ranks, sizeof ranks, " by %" PRId32 " ranks", fit->ranks);
    if (fit->limit == INT64_MAX)
        tx_format(text, size, "%.2f GiB are planned%s; the available memory is unknown", tx_gib(fit->planned), ranks);
    else
        tx_format(text, size, "%.2f GiB are planned%s, %s has %.2f GiB", tx_gib(fit->planned), ranks, fit->owner,
                  tx_gib(fit->limit));
}

/* Compares the memory that the ranks plan with that of their devices and of their hosts. With `whole` hosts have no
 * limit. */
static tx_status judge(tx_job *j, const tx_memory *planned, bool whole, tx_fit *fit)
{
    const tx_device_info *device = tx_engine_device(j->engine);
    tx_fit_rank mine = {.host = j->comm->ranks[j->comm->rank].host,
                        .on_host = device->type == TX_DEVICE_CPU,
                        .device_memory = device->memory,
                        .planned = *planned,
                        .left = INT64_MAX};
    if (j->set.sync_every > 1 && j->data->size > 1)
        mine.planned.bytes[TX_MEMORY_OFFLOADED] +=
            tx_outer_bytes(j->inputs.config->lora ? 0 : tx_arch_param_count(j->inputs.config)); /* adapters are small */
    if (!whole)
        mine.left = tx_memory_left("", mine.owner, sizeof mine.owner);
    snprintf(mine.device, sizeof mine.device, "%s", device->id);
    tx_status status;
    tx_fit_rank *all = tx_comm_gather(j->comm, &mine, sizeof mine, &status);
    if (!status)
        *fit = tx_fit_narrowest(all, j->comm->size);
    free(all);
    return status;
}

tx_status tx_job_judge_fit(tx_job *j, const tx_memory *planned, tx_fit *fit)
{
    return judge(j, planned, false, fit);
}

tx_status tx_job_judge_devices(tx_job *j, const tx_memory *planned, tx_fit *fit)
{
    return judge(j, planned, true, fit);
}
