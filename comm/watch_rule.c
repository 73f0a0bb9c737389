/* SPDX-License-Identifier: Apache-2.0
 * The rule of the watchdog: the current limit, the detection of dead ranks, and the decision to end the process. */
#include "comm/watch_state.h"

#include "api/base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double min_limit = 30.0;    /* seconds, by default */
static const double failed_limit = 10.0; /* limit for the end after a failure, in which other ranks do not take part */
/* Seconds that ranks wait before they report another one: the lowest rank of all, the lowest of its host, and the
 * others. Launchers take up to a second to end the remaining ranks. */
static const double first_delay = 0.25, host_delay = 3.0, other_delay = 6.0;

/* ---- Limits, under the lock ------------------------------------------------------------------ */

static const char *const phases[TX_WATCHDOG_PHASE_COUNT] = {
#define X(name, text) text,
    TX_WATCHDOG_PHASE_MAP(X)
#undef X
};

double tx_watchdog_default_limit(const tx_watchdog *w)
{
    if (w->o.timeout > 0.0)
        return w->o.timeout;
    return fmax(10.0 * w->median, min_limit);
}

double tx_watchdog_limit_now(const tx_watchdog *w)
{
    const double limit = tx_watchdog_default_limit(w), long_limit = fmax(limit, TX_WATCHDOG_LONG);
    if (w->over)
        return w->result ? failed_limit : limit;
    switch (w->phase) {
    case TX_WATCHDOG_JOINING:
        return w->o.join > 0.0 ? w->o.join : fmax(limit, TX_WATCHDOG_JOIN);
    case TX_WATCHDOG_TRAINING:
        return w->steps < (w->o.timeout > 0.0 ? 1 : TX_WATCHDOG_KNOWN) ? long_limit : limit;
    case TX_WATCHDOG_EVALUATING:
        return w->reports < TX_WATCHDOG_KNOWN ? long_limit : limit;
    case TX_WATCHDOG_WRITING:
    case TX_WATCHDOG_GENERATING:
        return (double)INFINITY;
    default:
        return long_limit;
    }
}

/* Returns the seconds that this rank waits before it reports `other`. */
static double delay_of(const tx_comm *comm, int32_t other)
{
    int32_t lower = 0, lower_on_host = 0;
    for (int32_t r = 0; r < comm->rank; r++) {
        lower += r != other;
        lower_on_host += r != other && comm->ranks[r].host == comm->ranks[comm->rank].host;
    }
    if (lower == 0)
        return first_delay;
    return lower_on_host == 0 ? host_delay : other_delay + 1.5 * (lower_on_host < 20 ? lower_on_host : 20);
}

void tx_watchdog_report(const tx_watchdog *w, const char *format, ...)
{
    char line[1200];
    size_t length = (size_t)snprintf(line, sizeof line / 2, "%s: ", w->o.program);
    va_list args;
    va_start(args, format);
    tx_format_list(line + length, sizeof line - 1 - length, format, args);
    va_end(args);
    if (w->o.print) {
        w->o.print(w->o.context, line);
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

/* ---- Other ranks, under the lock ------------------------------------------------------------- */

void tx_watchdog_report_silent(const tx_watchdog *w)
{
    int32_t count = 0, first = -1;
    tx_comm_peer peer;
    for (int32_t r = w->size - 1; r > 0 && w->rank == 0; r--)
        if (!w->comm->table->read_status(w->comm, r, &peer)) {
            count++;
            first = r;
        }
    if (count == 0)
        return;
    tx_watchdog_report(w,
                       "warning: no datagram (UDP) of %" PRId32
                       " ranks arrives at rank 0 on %s; the first is rank %" PRId32
                       " on %s. If one of them stops, it is detected later",
                       count, w->host, first, w->comm->ranks[first].name);
}

void tx_watchdog_listen(tx_watchdog *w, double elapsed)
{
    if (!w->comm || w->over)
        return;
    char doing[sizeof((tx_comm_peer *)0)->doing];
    snprintf(doing, sizeof doing, "%s%s%s", phases[w->phase], *w->detail ? ": " : "", w->detail);
    w->comm->table->send_status(w->comm, w->step, doing);
    w->sent_at = tx_now();
    for (int32_t r = 0; r < w->size; r++) {
        tx_comm_peer peer;
        tx_watchdog_other *other = &w->others[r];
        if (r == w->rank || !w->comm->table->read_status(w->comm, r, &peer))
            continue;
        other->silent = peer.beats == other->beats ? other->silent + elapsed : 0.0;
        other->beats = peer.beats;
    }
}

/* Returns the first rank without recent heartbeats; -1 if there is none. */
static int32_t find_silent(const tx_watchdog *w)
{
    const double limit = tx_watchdog_default_limit(w);
    for (int32_t r = 0; r < w->size; r++)
        if (w->others[r].silent >= limit && w->others[r].silent >= limit + delay_of(w->comm, r))
            return r;
    return -1;
}

/* Returns true if the rank that this one waits for is busy, or waits for a busy rank. The watchdog of the busy rank
 * then decides. If only rank 0 receives heartbeats of that rank, rank 0 decides. */
static bool is_busy(const tx_watchdog *w, int32_t rank)
{
    tx_comm_peer peer;
    for (int32_t hops = 0; hops < w->size; hops++) {
        if (rank == w->rank)
            return false;
        if (!w->comm->table->read_status(w->comm, rank, &peer))
            return w->rank != 0 && w->comm->table->read_status(w->comm, 0, &peer);
        if (peer.waits_for < 0)
            return true;
        rank = peer.waits_for;
    }
    return false;
}

/* ---- The rule, under the lock ---------------------------------------------------------------- */

static void write_step(int64_t step, char text[48])
{
    tx_format(text, 48, step >= 0 ? "last step %" PRId64 : "last step unknown", step);
}

/* Reports to txlaunch the rank that caused the end of the run. */
static void report_lost(const tx_watchdog *w, int32_t rank)
{
    tx_report(w->channel, 0.5, "%" PRId32 " lost %" PRId32, w->rank, rank);
}

/* Reports that another rank does not answer. `laggard` is NULL if no rank waits for it. */
static void report_other(tx_watchdog *w, int32_t rank, const tx_comm_laggard *laggard, double seconds, char *why,
                         size_t size)
{
    tx_comm_peer peer;
    char step[48], phase[120] = "", missing[64] = "no sign of life";
    const bool heard = w->comm->table->read_status(w->comm, rank, &peer);
    const int64_t last = heard ? peer.step : -1;
    write_step(last, step);
    if (heard)
        snprintf(phase, sizeof phase, ", phase %s", peer.doing);
    if (laggard && laggard->bucket >= 0)
        snprintf(missing, sizeof missing, "bucket %" PRId32 " not reached", laggard->bucket);
    else if (laggard)
        snprintf(missing, sizeof missing, "current transfer not reached");
    tx_format(why, size, "rank %" PRId32 " on %s does not answer: %s%s, %s for %.3g s", rank, w->comm->ranks[rank].name,
              step, phase, missing, seconds);
    w->blames = true;
    report_lost(w, rank);
}

static void report_self(tx_watchdog *w, char *why, size_t size)
{
    char step[48];
    write_step(w->step, step);
    if (w->phase == TX_WATCHDOG_JOINING)
        tx_format(why, size,
                  "rank %" PRId32
                  " on %s waited for all ranks to start for %.3g s; one of them is stopped, has ended or "
                  "cannot be reached",
                  w->rank, w->host, w->quiet);
    else
        tx_format(why, size,
                  "rank %" PRId32 " on %s is stuck: %s, phase %s%s%s, no progress for %.3g s, and it is not "
                  "waiting for another rank (check its device and file system)",
                  w->rank, w->host, step, phases[w->phase], *w->detail ? ": " : "", w->detail, w->quiet);
    report_lost(w, w->rank);
}

/* Whether txlaunch's agent has ended, which this process is to survive. */
static bool is_orphan(tx_watchdog *w, char *why, size_t size)
{
    if (!*w->folder || getppid() == w->parent)
        return false;
    w->blames = true;
    tx_format(why, size, "the launcher of rank %" PRId32 " on %s has ended", w->rank, w->host);
    return true;
}

/* A surviving rank must leave its step, and then write its files. */
static bool judge_survivor(const tx_watchdog *w, char *why, size_t size)
{
    const double limit = tx_watchdog_default_limit(w);
    if (w->quiet < (w->phase == TX_WATCHDOG_WRITING ? fmax(limit, TX_WATCHDOG_LONG) : limit))
        return false;
    tx_format(why, size, "rank %" PRId32 " on %s does not save its last step", w->rank, w->host);
    return true;
}

static void warn_slow_disk(tx_watchdog *w)
{
    if (w->phase != TX_WATCHDOG_WRITING || w->quiet < w->notice)
        return;
    w->notice *= 2.0;
    tx_watchdog_report(
        w, "rank %" PRId32 " on %s has been writing files for %.3g s; the disk may be slow, and the run waits", w->rank,
        w->host, w->quiet);
}

bool tx_watchdog_judge(tx_watchdog *w, int *status, char *why, size_t size)
{
    const double limit = tx_watchdog_limit_now(w);
    tx_comm_laggard other = {.rank = -1, .bucket = -1};
    *why = 0;
    *status = w->over ? w->result : TX_WATCHDOG_STATUS;
    if (w->over)
        return w->quiet >= limit;
    if (w->survives)
        return judge_survivor(w, why, size);
    if (is_orphan(w, why, size))
        return true;
    const bool waits = w->comm && w->comm->table->laggard(w->comm, &other) && other.rank != w->rank;
    if (other.begun != w->begun)
        w->quiet = 0.0;
    w->begun = other.begun;
    const int32_t silent = w->comm ? find_silent(w) : -1;
    if (silent >= 0) {
        report_other(w, silent, waits && other.rank == silent ? &other : NULL, w->others[silent].silent, why, size);
    } else if (waits) {
        if (w->quiet <
                fmin(limit, fmax(tx_watchdog_default_limit(w), TX_WATCHDOG_LONG)) + delay_of(w->comm, other.rank) ||
            is_busy(w, other.rank))
            return false;
        report_other(w, other.rank, &other, w->quiet, why, size);
    } else {
        warn_slow_disk(w);
        if (w->quiet < limit)
            return false;
        report_self(w, why, size);
    }
    return true;
}

void tx_watchdog_doing(tx_watchdog *w, char *text, size_t size)
{
    *text = '\0';
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    if (!w->over && w->phase == TX_WATCHDOG_TRAINING && w->step > 0)
        snprintf(text, size, "%s, step %" PRId64, phases[w->phase], w->step);
    else if (!w->over)
        snprintf(text, size, "%s%s%s", phases[w->phase], *w->detail ? ", " : "", w->detail);
    pthread_mutex_unlock(&w->lock);
}
