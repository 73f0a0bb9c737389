/* SPDX-License-Identifier: Apache-2.0
 * Decides whether to restart after an attempt, and describes how the attempt ended. */
#include "tools/launch/txlaunch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SIGNALLED 128 /* shell status of a process that a signal ended: 128 + signal */

/* ---- The decision --------------------------------------------------------------------------------------- */

/* Returns the exit status of a run that a signal stopped, or 0. Such a run has saved a checkpoint and is not restarted.
 */
static int32_t stopped_by(const tx_launch_job *job)
{
    static const int signals[] = {SIGTERM, SIGINT};
    if (job->caught)
        return SIGNALLED + job->caught;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        const int32_t status = SIGNALLED + signals[i];
        if ((job->sign.kind == TX_LAUNCH_FAILED && job->sign.status == status) ||
            (job->sign.kind == TX_LAUNCH_ENDED && job->status == status))
            return status;
    }
    return 0;
}

/* Returns the reason why a restart would fail in the same way, or NULL if it may succeed. */
static const char *permanent_failure(const tx_launch_job *job)
{
    const tx_launch_sign *s = &job->sign;
    const bool left = s->kind == TX_LAUNCH_LEFT && !job->reported;
    if (job->done)
        return "the run is complete";
    if (s->kind == TX_LAUNCH_FAILED && job->step < 0)
        return "it failed before the first step";
    if (left && (s->status == TX_EXIT_USAGE || s->status == TX_LAUNCH_NO_PROGRAM))
        return "the command line is wrong";
    if (left && s->status == 0)
        return "the command does not report to txlaunch";
    return NULL;
}

bool tx_launch_explained(const tx_launch_job *job)
{
    const tx_launch_sign *s = &job->sign;
    return (s->kind == TX_LAUNCH_LEFT || s->kind == TX_LAUNCH_FAILED) && job->step < 0 &&
           (s->status == TX_EXIT_USAGE || s->status == TX_LAUNCH_NO_PROGRAM);
}

static void add_failure(tx_launch_history *h, const tx_launch_job *job)
{
    const int64_t distance = job->step > h->step ? job->step - h->step : h->step - job->step;
    const int64_t stride = job->stride > h->stride ? job->stride : h->stride;
    h->same = h->same > 0 && h->kind == job->sign.kind && distance <= stride ? h->same + 1 : 1;
    h->kind = job->sign.kind;
    h->step = job->step;
    h->stride = job->stride;
}

/* Whether nothing can be missing. A launcher that had to be killed after rank 0 was done is not a failure: some MPIs
 * hang in MPI_Finalize. Nor is one that complains, or that kills a rank, when all ranks have finished. */
static bool is_complete(const tx_launch_job *job)
{
    bool all = job->size > 0 && (!job->worst || job->worst == SIGNALLED + SIGKILL);
    for (int32_t i = 0; i < job->size; i++)
        all = all && job->rank[i].done;
    return job->done && (all || (!job->worst && (!job->exited || job->status == 0)));
}

void tx_launch_decide(const tx_launch_job *job, int64_t max_restarts, tx_launch_history *h,
                      tx_launch_decision *decision)
{
    *decision = (tx_launch_decision){.verdict = TX_LAUNCH_GIVE_UP, .status = TX_EXIT_FAILURE};
    const int32_t stopped = stopped_by(job);
    if (is_complete(job)) {
        decision->verdict = TX_LAUNCH_SUCCESS;
        decision->status = 0;
        return;
    }
    if (stopped) {
        decision->verdict = TX_LAUNCH_STOPPED;
        decision->status = stopped;
        return;
    }
    add_failure(h, job);
    const char *why = permanent_failure(job);
    if (why)
        snprintf(decision->reason, sizeof decision->reason, "%s: a restart would not help", why);
    else if (h->same >= TX_LAUNCH_SAME)
        snprintf(decision->reason, sizeof decision->reason,
                 "the same failure %" PRId32 " times %s: a restart does not help", h->same,
                 job->step >= 0 ? "after the same step" : "before the first step");
    else if (h->restarts >= max_restarts)
        snprintf(decision->reason, sizeof decision->reason, "%" PRId64 " %s allowed (--max_restarts)", max_restarts,
                 max_restarts == 1 ? "restart was" : "restarts were");
    else {
        decision->verdict = TX_LAUNCH_RESTART;
        decision->wait = job->rescued ? 1.0 : h->restarts < 5 ? (double)(1 << h->restarts) : 30.0;
        h->restarts++;
    }
}

/* ---- The description --------------------------------------------------------------------------------------- */

/* Appends to a line, which is truncated to `room`. */
static void append(char *line, size_t room, const char *format, ...) TX_PRINTF(3, 4);

static void append(char *line, size_t room, const char *format, ...)
{
    size_t length = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + length, room - length, format, args);
    va_end(args);
}

static void append_rank(const tx_launch_job *job, char *line, size_t room)
{
    const tx_launch_rank *r = &job->rank[job->sign.rank];
    append(line, room, "rank %" PRId32, job->sign.rank);
    if (r->started)
        append(line, room, " on %s (pid %" PRId64 ")", r->host, r->pid);
    else if (*r->host)
        append(line, room, " on %s", r->host);
}

static void append_left(int32_t status, char *line, size_t room)
{
    if (status > SIGNALLED)
        append(line, room, " was killed by signal %" PRId32, status - SIGNALLED);
    else
        append(line, room, " ended with status %" PRId32 " and reported no error to txlaunch", status);
}

static void append_sign(const tx_launch_job *job, const char *launcher, char *line, size_t room)
{
    const tx_launch_sign *s = &job->sign;
    switch (s->kind) {
    case TX_LAUNCH_LEFT:
        append_left(s->status, line, room);
        break;
    case TX_LAUNCH_FAILED:
        append(line, room, " failed with status %" PRId32, s->status);
        break;
    case TX_LAUNCH_LOST:
        append(line, room, s->teller == s->rank ? " is stuck" : " does not answer");
        break;
    case TX_LAUNCH_SILENT:
        append(line, room, " sent no heartbeat for %.0f s: it is stopped, or %s is", s->seconds, launcher);
        break;
    case TX_LAUNCH_ABSENT:
        append(line, room, " did not start within %.0f s", s->seconds);
        break;
    default:
        append(line, room,
               job->done ? "the run is complete"
               : job->reported
                   ? "%s ended although no rank did: it was killed, a host is lost, or an unknown program connected "
                     "to its port (docs/guides/debugging.md)"
                   : "%s ended before a rank reported",
               launcher);
    }
}

void tx_launch_describe(const tx_launch_job *job, const char *launcher, char *line, size_t room)
{
    const tx_launch_sign *s = &job->sign;
    *line = 0;
    if (s->rank >= 0)
        append_rank(job, line, room);
    append_sign(job, launcher, line, room);
    if (s->rank >= 0 && job->step >= 0)
        append(line, room, "; the last known step is %" PRId64, job->step);
    else if (s->rank >= 0)
        append(line, room, "; no step was reported");
    if (s->kind == TX_LAUNCH_FAILED)
        append(line, room, ": %.300s", s->text);
    if (s->kind == TX_LAUNCH_LOST && s->teller != s->rank)
        append(line, room, " (reported by rank %" PRId32 ")", s->teller);
    if (job->exited)
        append(line, room, " (%s: status %" PRId32 ")", launcher, job->status);
}
