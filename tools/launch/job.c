/* SPDX-License-Identifier: Apache-2.0
 * What is known of the ranks of an attempt, from what they told and when. */
#include "tools/launch/txlaunch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

tx_status tx_launch_job_start(tx_launch_job *job, int32_t size, double now)
{
    tx_launch_rank *rank = calloc((size_t)size, sizeof *rank);
    if (!rank)
        return tx_fail(TX_MEMORY, "no memory for %" PRId32 " ranks", size);
    for (int32_t r = 0; r < size; r++)
        rank[r] = (tx_launch_rank){.heard = now, .step = -1, .bucket = -1};
    *job = (tx_launch_job){.rank = rank, .size = size, .sign = {.rank = -1, .teller = -1}};
    return TX_OK;
}

void tx_launch_job_free(tx_launch_job *job)
{
    free(job->rank);
    *job = (tx_launch_job){0};
}

/* The first sign counts: the others follow from it. */
static void take_sign(tx_launch_job *job, tx_launch_sign sign)
{
    if (job->sign.kind == TX_LAUNCH_NONE)
        job->sign = sign;
}

static bool hear_hello(tx_launch_job *job, int32_t rank, const tx_beat *beat)
{
    tx_launch_rank *r = &job->rank[rank];
    if (r->here || beat->size != job->size || beat->rank != rank)
        return false;
    r->here = job->reported = true;
    r->pid = beat->pid;
    snprintf(r->host, sizeof r->host, "%s", beat->host);
    job->open++;
    return true;
}

static void await(tx_launch_job *job, const tx_beat *beat)
{
    if (beat->rank >= job->size)
        return;
    job->rank[beat->rank].awaited = true;
    job->rank[beat->rank].bucket = beat->bucket;
}

bool tx_launch_job_hear(tx_launch_job *job, int32_t rank, const tx_beat *beat, double now)
{
    if (rank < 0 || rank >= job->size || (beat->kind != TX_BEAT_HELLO && !job->rank[rank].here))
        return false;
    tx_launch_rank *r = &job->rank[rank];
    tx_launch_sign sign = {.rank = rank, .teller = -1};
    switch (beat->kind) {
    case TX_BEAT_HELLO:
        if (!hear_hello(job, rank, beat))
            return false;
        break;
    case TX_BEAT_STEP:
        r->awaited = r->awaited && r->step == beat->step;
        r->stride = r->step >= 0 ? beat->step - r->step : 0;
        r->step = beat->step;
        break;
    case TX_BEAT_WAIT:
        await(job, beat);
        break;
    case TX_BEAT_SAVED:
        job->saved = true;
        break;
    case TX_BEAT_LOST:
        if (beat->rank >= job->size)
            return false;
        r->spoke = true;
        await(job, beat);
        sign.kind = TX_LAUNCH_LOST;
        sign.rank = beat->rank;
        sign.teller = rank;
        take_sign(job, sign);
        break;
    case TX_BEAT_FAILED:
        r->spoke = true;
        sign.kind = TX_LAUNCH_FAILED;
        sign.status = beat->status;
        snprintf(sign.text, sizeof sign.text, "%s", beat->text);
        take_sign(job, sign);
        break;
    case TX_BEAT_DONE:
        r->done = true;
        break;
    default:
        break;
    }
    r->heard = now;
    return true;
}

void tx_launch_job_close(tx_launch_job *job, int32_t rank)
{
    tx_launch_rank *r = &job->rank[rank];
    if (!r->here || r->closed)
        return;
    r->closed = true;
    job->open--;
    if (!r->done && !r->spoke)
        take_sign(job, (tx_launch_sign){.kind = TX_LAUNCH_DIED, .rank = rank, .teller = -1});
}

int32_t tx_launch_job_late(const tx_launch_job *job, double now, double heartbeat_timeout, double start_timeout)
{
    int32_t worst = -1;
    for (int32_t i = 0; i < job->size; i++) {
        const tx_launch_rank *r = &job->rank[i];
        double limit = r->here ? heartbeat_timeout : start_timeout;
        bool late = !r->closed && !r->done && now - r->heard > limit;
        if (late && (worst < 0 || r->heard < job->rank[worst].heard))
            worst = i;
    }
    return worst;
}

void tx_launch_job_look(tx_launch_job *job, double now, double heartbeat_timeout, double start_timeout)
{
    int32_t worst = tx_launch_job_late(job, now, heartbeat_timeout, start_timeout);
    if (worst < 0)
        return;
    take_sign(job, (tx_launch_sign){.kind = job->rank[worst].here ? TX_LAUNCH_LATE : TX_LAUNCH_ABSENT,
                                    .rank = worst,
                                    .teller = -1,
                                    .seconds = now - job->rank[worst].heard});
}

void tx_launch_job_forgive(tx_launch_job *job, double seconds)
{
    for (int32_t r = 0; r < job->size; r++)
        job->rank[r].heard += seconds;
}

const tx_launch_rank *tx_launch_job_first(const tx_launch_job *job)
{
    const tx_launch_rank *first = &job->rank[0];
    for (int32_t r = 1; r < job->size; r++)
        first = job->rank[r].step > first->step ? &job->rank[r] : first;
    return first;
}

bool tx_launch_job_done(const tx_launch_job *job)
{
    return job->rank[0].done;
}

bool tx_launch_job_silent(const tx_launch_job *job, int32_t first, int32_t count, double now, double seconds)
{
    for (int32_t r = first; r < first + count; r++)
        if (job->rank[r].closed || (job->rank[r].here && now - job->rank[r].heard < seconds))
            return false;
    return count > 0;
}
