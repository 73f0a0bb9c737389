/* SPDX-License-Identifier: Apache-2.0
 * The rule of the watch: which limit holds, which ranks live, and when a process has to end. */
#include "comm/watch_state.h"

#include "api/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double least_limit = 30.0;  /* seconds, by default */
static const double failed_limit = 10.0; /* for the end after a failure: other ranks do not take part in it */
/* How long ranks hold back before they speak of another one: the lowest of all; the lowest of its host; those after it.
 * Launchers take up to a second to end what is left. */
static const double first_delay = 0.25, host_delay = 3.0, other_delay = 6.0;

/* ---- Limits, under the lock ----------------------------------------------------------------------------------- */

static const char *const phases[TX_WATCH_PHASE_COUNT] = {
#define X(name, text) text,
    TX_WATCH_PHASE_MAP(X)
#undef X
};

double tx_watch_default_limit(const tx_watch *w)
{
    if (w->o.timeout > 0.0)
        return w->o.timeout;
    return fmax(10.0 * w->median, least_limit);
}

double tx_watch_limit_now(const tx_watch *w)
{
    const double limit = tx_watch_default_limit(w), most = fmax(limit, TX_WATCH_LONG);
    if (w->over)
        return w->result ? failed_limit : limit;
    switch (w->phase) {
    case TX_WATCH_JOINING:
        return w->o.join > 0.0 ? w->o.join : fmax(limit, TX_WATCH_JOIN);
    case TX_WATCH_TRAINING:
        return w->steps < (w->o.timeout > 0.0 ? 1 : TX_WATCH_KNOWN) ? most : limit;
    case TX_WATCH_EVALUATING:
        return w->reports < TX_WATCH_KNOWN ? most : limit;
    case TX_WATCH_WRITING:
        return (double)INFINITY;
    default:
        return most;
    }
}

/* How long this rank holds back before it speaks of `other`. */
static double delay_of(const tx_comm *comm, int32_t other)
{
    int32_t before = 0, here = 0;
    for (int32_t r = 0; r < comm->rank; r++) {
        before += r != other;
        here += r != other && comm->ranks[r].host == comm->ranks[comm->rank].host;
    }
    if (before == 0)
        return first_delay;
    return here == 0 ? host_delay : other_delay + 1.5 * (here < 20 ? here : 20);
}

void tx_watch_report(const tx_watch *w, const char *format, ...)
{
    char line[1200];
    size_t length = (size_t)snprintf(line, sizeof line / 2, "%s: ", w->o.program);
    va_list args;
    va_start(args, format);
    vsnprintf(line + length, sizeof line - 1 - length, format, args);
    va_end(args);
    if (w->o.tell) {
        w->o.tell(w->o.context, line);
        return;
    }
    length = strlen(line);
    line[length++] = '\n';
    for (size_t at = 0; at < length;) {
        ssize_t done = write(STDERR_FILENO, line + at, length - at);
        if (done < 0 && errno != EINTR)
            return;
        at += done > 0 ? (size_t)done : 0;
    }
}

/* ---- The other ranks, under the lock ---------------------------------------------------------------------------- */

void tx_watch_report_silent(const tx_watch *w)
{
    int32_t count = 0, first = -1;
    tx_comm_peer peer;
    for (int32_t r = w->size - 1; r > 0 && w->rank == 0; r--)
        if (!w->comm->table->hear(w->comm, r, &peer)) {
            count++;
            first = r;
        }
    if (count == 0)
        return;
    tx_watch_report(w,
                    "warning: no datagram (UDP) of %" PRId32
                    " ranks arrives at rank 0 on %s; the first is rank %" PRId32
                    " on %s. Where one of them stops, that is found later",
                    count, w->host, first, w->comm->ranks[first].name);
}

void tx_watch_listen(tx_watch *w, double elapsed)
{
    if (!w->comm || w->over)
        return;
    char doing[sizeof((tx_comm_peer *)0)->doing];
    snprintf(doing, sizeof doing, "%s%s%s", phases[w->phase], *w->detail ? ": " : "", w->detail);
    w->comm->table->tell(w->comm, w->step, doing);
    w->told = tx_now();
    for (int32_t r = 0; r < w->size; r++) {
        tx_comm_peer peer;
        tx_watch_other *other = &w->others[r];
        if (r == w->rank || !w->comm->table->hear(w->comm, r, &peer))
            continue;
        other->silent = peer.beats == other->beats ? other->silent + elapsed : 0.0;
        other->beats = peer.beats;
    }
}

/* The first rank whose process gives no sign of life; -1: all do. */
static int32_t find_silent(const tx_watch *w)
{
    const double limit = tx_watch_default_limit(w);
    for (int32_t r = 0; r < w->size; r++)
        if (w->others[r].silent >= limit && w->others[r].silent >= limit + delay_of(w->comm, r))
            return r;
    return -1;
}

/* Whether the rank that this one waits for is busy itself, or waits for one that is: its own watch then sees to it. Of
 * ranks that only rank 0 hears, that is rank 0's business. */
static bool is_busy(const tx_watch *w, int32_t rank)
{
    tx_comm_peer peer;
    for (int32_t hops = 0; hops < w->size; hops++) {
        if (rank == w->rank)
            return false;
        if (!w->comm->table->hear(w->comm, rank, &peer))
            return w->rank != 0 && w->comm->table->hear(w->comm, 0, &peer);
        if (peer.waits_for < 0)
            return true;
        rank = peer.waits_for;
    }
    return false;
}

/* ---- The rule, under the lock ------------------------------------------------------------------------------------ */

static void tell_step(int64_t step, char text[48])
{
    snprintf(text, 48, step >= 0 ? "its last step is %" PRId64 : "no step of it is known", step);
}

/* Reports the rank by which the run ends. */
static void report_lost(const tx_watch *w, int32_t rank)
{
    tx_report(w->channel, 0.5, "%" PRId32 " lost %" PRId32, w->rank, rank);
}

/* Another rank does not answer; `laggard` NULL: nobody waits for it. */
static void lose(tx_watch *w, int32_t rank, const tx_comm_laggard *laggard, double seconds, char *why, size_t room)
{
    tx_comm_peer peer;
    char step[48], was[120] = "", missed[64] = "gave no sign of life";
    const bool heard = w->comm->table->hear(w->comm, rank, &peer);
    const int64_t last = heard ? peer.step : -1;
    tell_step(last, step);
    if (heard)
        snprintf(was, sizeof was, ", it was %s", peer.doing);
    if (laggard && laggard->bucket >= 0)
        snprintf(missed, sizeof missed, "did not reach bucket %" PRId32, laggard->bucket);
    else if (laggard)
        snprintf(missed, sizeof missed, "did not reach what the others wait in");
    snprintf(why, room, "rank %" PRId32 " on %s does not answer: %s%s, it %s for %.3g s", rank,
             w->comm->ranks[rank].name, step, was, missed, seconds);
    report_lost(w, rank);
}

static void lose_self(tx_watch *w, char *why, size_t room)
{
    char step[48];
    tell_step(w->step, step);
    if (w->phase == TX_WATCH_JOINING)
        snprintf(why, room,
                 "rank %" PRId32 " on %s waited for all ranks to start for %.3g s: one of them is stopped, ended, or "
                 "cannot be reached",
                 w->rank, w->host, w->quiet);
    else
        snprintf(why, room,
                 "rank %" PRId32 " on %s does not get on: %s, it is %s%s%s, and nothing was done for %.3g s though it "
                 "waits for no other rank (its device, or a file system?)",
                 w->rank, w->host, step, phases[w->phase], *w->detail ? ": " : "", w->detail, w->quiet);
    report_lost(w, w->rank);
}

static void tell_of_slow_disk(tx_watch *w)
{
    if (w->phase != TX_WATCH_WRITING || w->quiet < w->notice)
        return;
    w->notice *= 2.0;
    tx_watch_report(w, "rank %" PRId32 " on %s has been writing files for %.3g s, is the disk slow? The run waits",
                    w->rank, w->host, w->quiet);
}

bool tx_watch_judge(tx_watch *w, int *status, char *why, size_t room)
{
    const double limit = tx_watch_limit_now(w);
    tx_comm_laggard other = {.rank = -1, .bucket = -1};
    *why = 0;
    *status = w->over ? w->result : TX_WATCH_STATUS;
    if (w->over)
        return w->quiet >= limit;
    const bool waits = w->comm && w->comm->table->laggard(w->comm, &other) && other.rank != w->rank;
    const int32_t silent = w->comm ? find_silent(w) : -1;
    if (silent >= 0) {
        lose(w, silent, waits && other.rank == silent ? &other : NULL, w->others[silent].silent, why, room);
    } else if (waits) {
        if (w->quiet < fmin(limit, fmax(tx_watch_default_limit(w), TX_WATCH_LONG)) + delay_of(w->comm, other.rank) ||
            is_busy(w, other.rank))
            return false;
        lose(w, other.rank, &other, w->quiet, why, room);
    } else {
        tell_of_slow_disk(w);
        if (w->quiet < limit)
            return false;
        lose_self(w, why, room);
    }
    return true;
}

void tx_watch_doing(tx_watch *w, char *text, size_t size)
{
    *text = '\0';
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    if (!w->over && w->phase == TX_WATCH_TRAINING && w->step > 0)
        snprintf(text, size, "%s, step %" PRId64, phases[w->phase], w->step);
    else if (!w->over)
        snprintf(text, size, "%s%s%s", phases[w->phase], *w->detail ? ", " : "", w->detail);
    pthread_mutex_unlock(&w->lock);
}
