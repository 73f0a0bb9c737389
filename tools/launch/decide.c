/* SPDX-License-Identifier: Apache-2.0
 * Whether to start again after an attempt, and what to say of it. */
#include "tools/launch/txlaunch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SIGNALLED 128 /* a shell's status of a signal's end is above */

/* ---- The decision --------------------------------------------------------------------------------------- */

/* Status of a run that a signal stopped: it has saved and is to be started again by whoever sent the signal. */
static int32_t stopped_by(const tx_launch_outcome *o)
{
    static const int signals[] = {SIGTERM, SIGINT};
    if (o->caught)
        return SIGNALLED + o->caught;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        int32_t status = SIGNALLED + signals[i];
        if ((o->sign.kind == TX_LAUNCH_FAILED && o->sign.status == status) ||
            (o->sign.rank < 0 && o->exited && o->status == status))
            return status;
    }
    return 0;
}

/* Why another start would end as this one did; NULL where it may not. */
static const char *hopeless(const tx_launch_outcome *o)
{
    if (o->done)
        return "all that could be done is done";
    if (o->sign.kind == TX_LAUNCH_FAILED && o->step < 0)
        return "it refuses to start";
    if (!o->reported && o->exited && o->status == TX_EXIT_USAGE)
        return "the command line is wrong";
    if (!o->reported && o->exited && o->status == 0)
        return "the command is none that reports to txlaunch";
    return NULL;
}

/* Enters the failure in the history. An unreachable host may come back, so it is not counted as the same failure. */
static void enter(tx_launch_history *h, const tx_launch_outcome *o)
{
    int64_t apart = o->step > h->step ? o->step - h->step : h->step - o->step;
    int64_t known = o->stride > h->stride ? o->stride : h->stride;
    bool same = h->same > 0 && !o->unreachable && h->kind == o->sign.kind && apart <= known;
    h->same = o->unreachable ? 0 : same ? h->same + 1 : 1;
    h->kind = o->sign.kind;
    h->step = o->step;
    h->stride = o->stride;
}

void tx_launch_decide(const tx_launch_outcome *o, int64_t max_restarts, tx_launch_history *h,
                      tx_launch_decision *decision)
{
    *decision = (tx_launch_decision){.verdict = TX_LAUNCH_GIVE_UP, .status = TX_EXIT_FAILURE};
    const int32_t stopped = stopped_by(o);
    /* After rank 0's word a launcher that had to be ended is none of the run's failures: some MPIs hang at their end.
     */
    if (o->done && (!o->exited || o->status == 0)) {
        decision->verdict = TX_LAUNCH_SUCCESS;
        decision->status = 0;
        return;
    }
    if (stopped) {
        decision->verdict = TX_LAUNCH_STOPPED;
        decision->status = stopped;
        return;
    }
    enter(h, o);
    const char *why = hopeless(o);
    if (why)
        snprintf(decision->reason, sizeof decision->reason, "%s: starting again would not help", why);
    else if (h->same >= TX_LAUNCH_SAME)
        snprintf(decision->reason, sizeof decision->reason,
                 "the same failure %" PRId32 " times %s: starting again does not help", h->same,
                 o->step >= 0 ? "after the same step" : "before the first step");
    else if (h->restarts >= max_restarts)
        snprintf(decision->reason, sizeof decision->reason, "%" PRId64 " %s allowed (--max_restarts)", max_restarts,
                 max_restarts == 1 ? "restart was" : "restarts were");
    else {
        decision->verdict = TX_LAUNCH_RESTART;
        decision->wait = h->restarts < 5 ? (double)(1 << h->restarts) : 30.0;
        h->restarts++;
    }
}

/* ---- Its words --------------------------------------------------------------------------------------------- */

/* Appends to a line that is cut where it gets too long. */
static void append(char *line, size_t room, const char *format, ...) TX_PRINTF(3, 4);

static void append(char *line, size_t room, const char *format, ...)
{
    size_t length = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + length, room - length, format, args);
    va_end(args);
}

static void append_who(const tx_launch_outcome *o, char *line, size_t room)
{
    append(line, room, "rank %" PRId32, o->sign.rank);
    if (o->who.here)
        append(line, room, " on %s (pid %" PRId64 ")", o->who.host, o->who.pid);
    else if (o->who.host[0])
        append(line, room, " on %s", o->who.host);
}

static void append_step(const tx_launch_outcome *o, char *line, size_t room)
{
    if (o->who.step >= 0)
        append(line, room, "; its last known step is %" PRId64, o->who.step);
    else if (o->who.here)
        append(line, room, "; it made no step");
    if (o->who.awaited && o->who.bucket >= 0)
        append(line, room, ", it did not reach bucket %" PRId32, o->who.bucket);
}

void tx_launch_describe(const tx_launch_outcome *o, const char *launcher, char *line, size_t room)
{
    const tx_launch_sign *s = &o->sign;
    const bool itself = s->teller == s->rank;
    *line = 0;
    if (s->rank >= 0)
        append_who(o, line, room);
    switch (s->kind) {
    case TX_LAUNCH_DIED:
        append(line, room, " died");
        break;
    case TX_LAUNCH_FAILED:
        append(line, room, " failed with status %" PRId32, s->status);
        break;
    case TX_LAUNCH_LOST:
        append(line, room, itself ? " does not get on" : " does not answer");
        break;
    case TX_LAUNCH_LATE:
        append(line, room, " gave no sign of life for %.0f s", s->seconds);
        break;
    case TX_LAUNCH_ABSENT:
        append(line, room, " did not report within %.0f s", s->seconds);
        break;
    case TX_LAUNCH_LEFT:
        append(line, room,
               "%s ended while its ranks were well: somebody killed it, or, where it is MPICH's, connected to its port "
               "(see docs/RANKS.md)",
               launcher);
        break;
    default:
        append(line, room,
               o->done       ? "the run is complete"
               : o->reported ? "no rank said that the run is complete"
                             : "no rank reported");
    }
    if (s->kind >= TX_LAUNCH_DIED && s->kind <= TX_LAUNCH_LATE)
        append_step(o, line, room);
    if (s->kind == TX_LAUNCH_FAILED)
        append(line, room, ": %.300s", s->text);
    if (s->kind == TX_LAUNCH_LOST && !itself)
        append(line, room, " (told by rank %" PRId32 ")", s->teller);
    if (o->exited)
        append(line, room, " (%s: status %" PRId32, launcher, o->status);
    if (o->exited && o->status > SIGNALLED && o->status < SIGNALLED + 32)
        append(line, room, ", signal %" PRId32, o->status - SIGNALLED);
    if (o->exited)
        append(line, room, ")");
}
