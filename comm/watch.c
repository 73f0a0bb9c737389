/* SPDX-License-Identifier: Apache-2.0
 * The watchdog of a run: a thread that measures the time without progress, exchanges heartbeats with the other
 * ranks, and reports to txlaunch. */
#include "comm/watch_state.h"

#include "api/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double check_interval = 0.25; /* seconds between checks; shorter if the timeout is short */
static const double min_heartbeat = 0.1;   /* minimum seconds between the heartbeats of two steps */
static const double min_report = 0.2;      /* minimum seconds between the reports of two steps */
static const double max_report = 0.5;      /* maximum seconds between reports */

/* ---- Reports to txlaunch, under the lock ----------------------------------------------------- */

/* Rank 0 reports the last step, unless it did so within the last `min_interval` seconds. */
static void report_step(tx_watchdog *w, double min_interval)
{
    const double now = tx_now();
    if (w->rank != 0 || now - w->reported < min_interval)
        return;
    w->reported = now;
    tx_report(w->channel, 0.0, "%" PRId32 " step %" PRId64, w->rank, w->step);
}

/* ---- Thread ---------------------------------------------------------------------------------- */

static void end_process(const tx_watchdog *w, int status, const char *why)
{
    const char *advice = w->o.advice ? w->o.advice : "";
    if (*why)
        tx_watchdog_report(w, "%s; the run ends%s%s", why, *advice ? "; " : "", advice);
    tx_watchdog_unmark(w);
    if (w->o.end) {
        w->o.end(w->o.context, status);
        return;
    }
    if (w->leave && status)
        w->leave();
    _exit(status);
}

void tx_watchdog_leave(tx_watchdog *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true; /* its file is not renewed any more */
    pthread_mutex_unlock(&w->lock);
    end_process(w, TX_WATCHDOG_STATUS, "");
}

static void sleep_until(tx_watchdog *w, double moment)
{
    struct timespec until = {.tv_sec = (time_t)moment};
    until.tv_nsec = (long)(1e9 * (moment - (double)until.tv_sec));
    while (!w->stop && pthread_cond_timedwait(&w->wake, &w->lock, &until) == 0)
        ;
}

static void *watch(void *argument)
{
    tx_watchdog *w = argument;
    char why[1000];
    int status;
    pthread_mutex_lock(&w->lock);
    double last = tx_now();
    bool ends = false;
    while (!w->stop && !ends) {
        const double interval = fmin(tx_watchdog_default_limit(w) / 8.0, check_interval);
        sleep_until(w, last + interval);
        /* A gap that is much longer than the sleep means that the process itself was suspended. Only part of it
         * counts. */
        const double now = tx_now(), gap = fmin(now - last, 2.0 * interval);
        w->quiet += gap;
        last = now;
        tx_watchdog_listen(w, gap);
        report_step(w, max_report);
        ends = !w->stop && tx_watchdog_judge(w, &status, why, sizeof why) && !tx_watchdog_survive(w, why);
        if (!ends && !w->stop && !tx_watchdog_renew(w)) { /* the run has continued without this rank */
            ends = true;
            *why = 0;
        }
    }
    pthread_mutex_unlock(&w->lock);
    if (ends)
        end_process(w, status, why);
    return NULL;
}

static tx_status start_thread(tx_watchdog *w)
{
    w->running = tx_thread_start(&w->thread, watch, w);
    return w->running ? TX_OK : tx_fail(TX_MEMORY, "no thread for the watchdog: %s", strerror(errno));
}

tx_status tx_watchdog_start(const tx_watchdog_options *options, tx_watchdog **created)
{
    if (options->size != sizeof *options)
        return tx_fail(TX_INVALID, "tx_watchdog_options: size is %zu, expected %zu", options->size, sizeof *options);
    tx_watchdog *w = calloc(1, sizeof *w);
    if (!w)
        return tx_fail(TX_MEMORY, "no memory for the watchdog");
    const int32_t ranks = tx_launcher_ranks(NULL), rank = tx_launcher_rank();
    *w = (tx_watchdog){.rank = rank < 0 ? 0 : rank,
                       .size = ranks < 1 ? 1 : ranks,
                       .leave = tx_comm_default()->leave,
                       .o = *options,
                       .step = -1,
                       .began = tx_now(),
                       .channel = tx_report_descriptor()};
    if (gethostname(w->host, sizeof w->host - 1) != 0 || !*w->host)
        snprintf(w->host, sizeof w->host, "this host");
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, &clock);
    pthread_condattr_destroy(&clock);
    report_step(w, 0.0); /* before MPI starts, which may hang */
    tx_status status = w->size > 1 || w->channel >= 0 || options->timeout > 0.0 ? start_thread(w) : TX_OK;
    return TX_RETURN(status, w, created, tx_watchdog_stop);
}

tx_status tx_watchdog_join(tx_watchdog *w, tx_comm *comm)
{
    if (!w)
        return TX_OK;
    tx_watchdog_other *others = calloc((size_t)comm->size, sizeof *others);
    if (!others)
        return tx_fail(TX_MEMORY, "no memory for the watchdog of %" PRId32 " ranks", comm->size);
    pthread_mutex_lock(&w->lock);
    w->comm = comm;
    w->others = others;
    w->rank = comm->rank;
    w->size = comm->size;
    snprintf(w->host, sizeof w->host, "%s", comm->ranks[comm->rank].name);
    w->quiet = 0.0;
    tx_watchdog_report_silent(w);
    pthread_mutex_unlock(&w->lock);
    return w->running || comm->size == 1 ? TX_OK : start_thread(w);
}

void tx_watchdog_stop(tx_watchdog *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (w->running)
        pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->others);
    free(w);
}

/* ---- Progress reports ------------------------------------------------------------------------ */

static void find_median(tx_watchdog *w)
{
    double sorted[TX_WATCHDOG_WINDOW];
    int64_t count = w->steps < TX_WATCHDOG_WINDOW ? w->steps : TX_WATCHDOG_WINDOW;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i;
        for (; at > 0 && sorted[at - 1] > w->took[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = w->took[i];
    }
    w->median = count >= TX_WATCHDOG_KNOWN ? sorted[count / 2] : 0.0;
}

/* Takes the lock for a progress report; returns false without a watchdog. */
static bool lock_progress(tx_watchdog *w)
{
    if (!w)
        return false;
    pthread_mutex_lock(&w->lock);
    w->quiet = 0.0;
    return true;
}

static void unlock(tx_watchdog *w)
{
    pthread_mutex_unlock(&w->lock);
}

void tx_watchdog_begin(tx_watchdog *w, tx_watchdog_phase phase)
{
    if (!lock_progress(w))
        return;
    w->phase = phase;
    w->detail[0] = 0;
    w->reports = 0;
    w->notice = tx_watchdog_default_limit(w);
    w->began = tx_now();
    tx_watchdog_listen(w, 0.0); /* the other ranks learn the phase, in case this process stops in it */
    unlock(w);
}

void tx_watchdog_step(tx_watchdog *w, int64_t step)
{
    if (!lock_progress(w))
        return;
    double now = tx_now();
    w->took[w->steps++ % TX_WATCHDOG_WINDOW] = now - w->began;
    w->began = now;
    w->step = step;
    find_median(w);
    if (w->steps == 1 ||
        now - w->sent_at >
            min_heartbeat) /* the other ranks learn the step, in case this process stops before the next check */
        tx_watchdog_listen(w, 0.0);
    report_step(w, min_report);
    unlock(w);
}

void tx_watchdog_alive(tx_watchdog *w, const char *detail)
{
    if (!lock_progress(w))
        return;
    w->reports++;
    if (detail)
        snprintf(w->detail, sizeof w->detail, "%s", detail);
    unlock(w);
}

void tx_watchdog_saved(tx_watchdog *w, const char *checkpoint)
{
    if (!lock_progress(w))
        return;
    tx_report(w->channel, 1.0, "%" PRId32 " saved %s", w->rank, checkpoint);
    tx_watchdog_mark_saved(w, checkpoint);
    unlock(w);
}

/* Reports the end of the run; only the first call counts. */
static void end_run(tx_watchdog *w, int status, const char *message)
{
    if (!lock_progress(w))
        return;
    if (!w->over) {
        report_step(w, 0.0);
        if (status)
            tx_report(w->channel, 5.0, "%" PRId32 " failed %d %.500s", w->rank, status, message);
        else
            tx_report(w->channel, 5.0, "%" PRId32 " done", w->rank);
    }
    w->over = true;
    w->result = status;
    tx_watchdog_unmark(w);
    w->survives = false;
    unlock(w);
}

void tx_watchdog_done(tx_watchdog *w)
{
    end_run(w, 0, "");
}

void tx_watchdog_failed(tx_watchdog *w, int status, const char *message)
{
    end_run(w, status, message);
}
