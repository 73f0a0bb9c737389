/* SPDX-License-Identifier: Apache-2.0
 * The state of an attempt, computed from the reports of its ranks and their times. */
#include "tools/launch/txlaunch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_launch_job_start(tx_launch_job *job, int32_t size, double now)
{
    tx_launch_rank *rank = calloc((size_t)size, sizeof *rank);
    if (!rank)
        return tx_fail(TX_MEMORY, "no memory for %" PRId32 " ranks", size);
    *job = (tx_launch_job){.rank = rank, .size = size, .began = now, .heard = now, .step = -1, .sign = {.rank = -1}};
    return TX_OK;
}

void tx_launch_job_free(tx_launch_job *job)
{
    free(job->rank);
    *job = (tx_launch_job){0};
}

/* Records the first sign of a failure. Later signs are its consequences. */
static void record_sign(tx_launch_job *job, tx_launch_sign sign)
{
    if (job->sign.kind == TX_LAUNCH_NONE)
        job->sign = sign;
}

/* Records the start of a rank. Returns false if the report is not of this job. */
static bool record_start(tx_launch_job *job, tx_launch_rank *r, const char *rest)
{
    int32_t size;
    tx_launch_rank read = *r;
    if (sscanf(rest, "%" SCNd32 " %63s %" SCNd64, &size, read.host, &read.pid) != 3 || size != job->size || r->started)
        return false;
    *r = read;
    r->started = true;
    return true;
}

static void record_step(tx_launch_job *job, int64_t step)
{
    if (step > job->step && job->step >= 0)
        job->stride = step - job->step;
    job->step = step;
}

/* Records the end of a rank's process. It is a sign of failure unless the rank reported how it ends. */
static void record_end(tx_launch_job *job, int32_t rank, int32_t status)
{
    job->worst = job->worst ? job->worst : status;
    if (!job->rank[rank].spoke)
        record_sign(job, (tx_launch_sign){.kind = TX_LAUNCH_LEFT, .rank = rank, .status = status});
}

bool tx_launch_job_hear(tx_launch_job *job, const char *report, double now)
{
    int32_t rank, number = 0;
    int used = 0;
    char word[8];
    if (sscanf(report, "%" SCNd32 " %7s %n", &rank, word, &used) != 2 || rank < 0 || rank >= job->size)
        return false;
    const char *rest = report + used;
    const bool numbered = sscanf(rest, "%" SCNd32 " %n", &number, &used) == 1;
    tx_launch_rank *r = &job->rank[rank];
    tx_launch_sign sign = {.rank = rank, .teller = rank, .status = number};
    job->heard = now;
    if (strcmp(word, "hello") == 0)
        return record_start(job, r, rest);
    if (strcmp(word, "left") == 0 && numbered) {
        record_end(job, rank, number);
        return true;
    }
    if (strcmp(word, "step") == 0 && numbered)
        record_step(job, strtoll(rest, NULL, 10));
    else if (strcmp(word, "saved") == 0 && *rest)
        snprintf(job->saved, sizeof job->saved, "%s", rest);
    else if (strcmp(word, "keeps") == 0 && *rest)
        snprintf(job->kept, sizeof job->kept, "%s", rest);
    else if (strcmp(word, "lost") == 0 && numbered && number >= 0 && number < job->size) {
        r->spoke = true;
        sign.kind = TX_LAUNCH_LOST;
        sign.rank = number;
        record_sign(job, sign);
    } else if (strcmp(word, "failed") == 0 && numbered) {
        r->spoke = true;
        sign.kind = TX_LAUNCH_FAILED;
        snprintf(sign.text, sizeof sign.text, "%s", rest + used);
        record_sign(job, sign);
    } else if (strcmp(word, "done") == 0) {
        r->spoke = r->done = true;
        job->done = job->done || rank == 0;
    } else
        return false;
    job->reported = true;
    return true;
}

bool tx_launch_job_silent(const tx_launch_job *job, double now, double heartbeat_timeout, double start_timeout)
{
    return now - job->heard > (job->reported ? heartbeat_timeout : start_timeout);
}

void tx_launch_job_poll(tx_launch_job *job, double now, double heartbeat_timeout, double start_timeout)
{
    int32_t missing = 0;
    while (missing < job->size && job->rank[missing].started)
        missing++;
    if (missing < job->size && now - job->began > start_timeout)
        record_sign(job, (tx_launch_sign){.kind = TX_LAUNCH_ABSENT, .rank = missing, .seconds = now - job->began});
    else if (tx_launch_job_silent(job, now, heartbeat_timeout, start_timeout))
        record_sign(job, (tx_launch_sign){.kind = TX_LAUNCH_SILENT, .rank = 0, .seconds = now - job->heard});
}

void tx_launch_job_forgive(tx_launch_job *job, double seconds)
{
    job->began += seconds;
    job->heard += seconds;
}
