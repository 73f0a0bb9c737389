/* SPDX-License-Identifier: Apache-2.0
 * The watch over a run: a thread that counts the seconds without a report, and sends heartbeats. */
#include "comm/watch.h"

#include "api/clock.h"
#include "comm/beat.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    WINDOW = 64, /* steps whose median counts */
    KNOWN = 3,   /* steps after which there is a median */
};

static const double look_every = 0.25;   /* seconds, or less for a short limit */
static const double beat_every = 0.5;    /* seconds between heartbeats at the most ... */
static const double beat_least = 0.2;    /* ... and at the least */
static const double least_limit = 30.0;  /* limit by default */
static const double failed_limit = 10.0; /* for the end after a failure: other ranks do not take part in it */
/* How long ranks that wait hold back: the lowest of all; the lowest of its host; those after it. Launchers take up to a
 * second to end what is left. */
static const double first_delay = 0.25, host_delay = 3.0, other_delay = 6.0;

struct tx_watch {
    tx_comm *comm;
    void (*leave)(void); /* of the communicator, which may be gone by then */
    tx_watch_options o;
    pthread_t thread;
    bool running;         /* the thread */
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t wake;
    bool stop;
    bool over;      /* nothing is left to do: the communicator may be gone */
    int result;     /* then: the exit status */
    bool silent;    /* there is no limit */
    double quiet;   /* seconds without a report */
    int32_t other;  /* the rank that this one waited for when it was last looked at, ... */
    double marked;  /* when that one had made a mark, -1: not known; ... */
    double still;   /* and for how many seconds it made no other */
    double allowed; /* the limit of a pause; 0: there is none */
    int64_t step;
    double began; /* when the present step did */
    double took[WINDOW];
    int64_t steps;
    double median;
    int link; /* to the launcher; -1: none */
    char token[TX_BEAT_TOKEN + 1];
    double beat; /* when the last one was sent */
};

/* ---- Lines --------------------------------------------------------------------------------------------- */

static void tell(const tx_watch *w, const char *line)
{
    if (w->o.tell) {
        w->o.tell(w->o.context, line);
        return;
    }
    char whole[1200];
    int length = snprintf(whole, sizeof whole, "%s\n", line);
    size_t size = length < (int)sizeof whole ? (size_t)length : sizeof whole - 1;
    for (size_t at = 0; at < size;) {
        ssize_t done = write(STDERR_FILENO, whole + at, size - at);
        if (done < 0 && errno != EINTR)
            return;
        at += done > 0 ? (size_t)done : 0;
    }
}

/* ---- Heartbeats, under the lock --------------------------------------------------------------------------- */

static void leave_launcher(tx_watch *w)
{
    char line[128];
    close(w->link);
    w->link = -1;
    snprintf(line, sizeof line, "%s: the launcher is gone; the run goes on without it", w->o.program);
    if (!w->over && w->comm->rank == 0)
        tell(w, line);
}

static void send_beat(tx_watch *w, const tx_beat *beat, double seconds)
{
    if (w->link >= 0 && (tx_beat_gone(w->link) || !tx_beat_send(w->link, beat, seconds)))
        leave_launcher(w);
}

static void send_step(tx_watch *w, double least)
{
    double now = tx_now();
    if (w->link < 0 || now - w->beat < least)
        return;
    w->beat = now;
    send_beat(w, &(tx_beat){.kind = TX_BEAT_STEP, .step = w->step}, 0.0);
}

static void join_launcher(tx_watch *w)
{
    const char *place = getenv(TX_BEAT_VARIABLE);
    w->link = -1;
    if (!place || !*place)
        return;
    if (tx_beat_connect(place, 5.0, &w->link, w->token)) {
        char line[600];
        snprintf(line, sizeof line, "%s: rank %" PRId32 ": %.400s; the run goes on without it", w->o.program,
                 w->comm->rank, tx_error());
        tell(w, line);
        return;
    }
    tx_beat hello = {.kind = TX_BEAT_HELLO, .rank = w->comm->rank, .size = w->comm->size, .pid = getpid()};
    const char *name = w->comm->ranks[w->comm->rank].name;
    snprintf(hello.token, sizeof hello.token, "%s", w->token);
    snprintf(hello.host, sizeof hello.host, "%s", *name ? name : "-");
    for (char *c = hello.host; *c; c++)
        *c = *c == ' ' ? '_' : *c;
    send_beat(w, &hello, 5.0);
}

/* ---- The rule, under the lock ------------------------------------------------------------------------------- */

static double usual_limit(const tx_watch *w)
{
    if (w->o.timeout > 0.0)
        return w->o.timeout;
    return 10.0 * w->median > least_limit ? 10.0 * w->median : least_limit;
}

static double limit_of(const tx_watch *w)
{
    double limit = usual_limit(w);
    if (w->over)
        return w->result ? failed_limit : limit;
    if (w->steps < (w->o.timeout > 0.0 ? 1 : KNOWN))
        limit = w->o.start > 0.0 ? w->o.start : limit > TX_WATCH_LONG ? limit : TX_WATCH_LONG;
    return w->allowed > limit ? w->allowed : limit;
}

/* How long this rank holds back while it waits for `other`. */
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

static void describe(const tx_watch *w, const tx_comm_laggard *other, double seconds, char *line, size_t room)
{
    int32_t rank = other ? other->rank : w->comm->rank;
    int64_t last = other ? other->step : w->step;
    char step[48] = "no step of it is known", bucket[64] = "what the others wait in";
    if (last >= 0)
        snprintf(step, sizeof step, "its last step is %" PRId64, last);
    if (other && other->bucket >= 0)
        snprintf(bucket, sizeof bucket, "bucket %" PRId32, other->bucket);
    const char *host = w->comm->ranks[rank].name, *advice = w->o.advice ? w->o.advice : "";
    if (other)
        snprintf(line, room,
                 "%s: rank %" PRId32 " on %s does not answer: %s, it did not reach %s for %.3g s; the run "
                 "ends%s%s",
                 w->o.program, rank, host, step, bucket, seconds, *advice ? "; " : "", advice);
    else
        snprintf(line, room,
                 "%s: rank %" PRId32 " on %s does not get on: %s, and nothing was done for %.3g s though it "
                 "waits for no other rank (its device, or a file system?); the run ends%s%s",
                 w->o.program, rank, host, step, seconds, *advice ? "; " : "", advice);
}

/* Whether this rank waits for another one, and how long that one's watch has been still where its marks are seen: a
 * process that writes a file or compiles lives, one that is stopped does not. */
static bool waits_for(tx_watch *w, double elapsed, tx_comm_laggard *other)
{
    *other = (tx_comm_laggard){.rank = -1, .step = -1, .bucket = -1, .marked = -1};
    bool waits = w->comm->table->laggard(w->comm, other) && other->rank >= 0 && other->rank < w->comm->size &&
                 other->rank != w->comm->rank;
    bool same = waits && other->marked > 0.0 && other->rank == w->other && other->marked == w->marked;
    w->still = same ? w->still + elapsed : 0.0;
    w->other = waits ? other->rank : -1;
    w->marked = other->marked;
    return waits;
}

/* Whether the process has to end, with this status and line; an empty line is not said. */
static bool judge(tx_watch *w, double elapsed, int *status, char *line, size_t room)
{
    const double limit = limit_of(w);
    *line = 0;
    if (w->over) {
        *status = w->result;
        return w->quiet >= limit;
    }
    tx_comm_laggard other;
    const bool waits = waits_for(w, elapsed, &other);
    const double delay = waits ? delay_of(w->comm, other.rank) : 0.0;
    const bool late = w->quiet >= limit + delay;
    if (!late && w->still < usual_limit(w) + delay)
        return false;
    *status = TX_WATCH_STATUS;
    describe(w, waits ? &other : NULL, late ? w->quiet : w->still, line, room);
    tx_beat lost = {.kind = TX_BEAT_LOST,
                    .rank = waits ? other.rank : w->comm->rank,
                    .step = waits ? other.step : w->step,
                    .bucket = waits ? other.bucket : -1};
    send_beat(w, &lost, 0.5);
    return true;
}

/* Tells the other ranks that this one lives, and the launcher what it waits for, which matters once it is not at once
 * there. */
static void beat(tx_watch *w)
{
    if (!w->over)
        w->comm->table->mark(w->comm, w->step);
    if (w->link >= 0 && tx_beat_gone(w->link))
        leave_launcher(w);
    if (w->link < 0 || tx_now() - w->beat < beat_every)
        return;
    send_step(w, 0.0);
    tx_comm_laggard other;
    if (w->link >= 0 && !w->over && w->quiet > 2.0 * beat_every && w->comm->table->laggard(w->comm, &other) &&
        other.rank >= 0)
        send_beat(w, &(tx_beat){.kind = TX_BEAT_WAIT, .rank = other.rank, .step = other.step, .bucket = other.bucket},
                  0.0);
}

/* ---- The thread --------------------------------------------------------------------------------------------- */

static void end_process(const tx_watch *w, int status, const char *line)
{
    if (*line)
        tell(w, line);
    if (w->o.end) {
        w->o.end(w->o.context, status);
        return;
    }
    if (w->leave && status)
        w->leave();
    _exit(status);
}

static void sleep_until(tx_watch *w, double moment)
{
    struct timespec until = {.tv_sec = (time_t)moment};
    until.tv_nsec = (long)(1e9 * (moment - (double)until.tv_sec));
    while (!w->stop && pthread_cond_timedwait(&w->wake, &w->lock, &until) == 0)
        ;
}

static void *watch(void *argument)
{
    tx_watch *w = argument;
    char line[1000];
    int status;
    pthread_mutex_lock(&w->lock);
    double last = tx_now();
    bool ends = false;
    while (!w->stop && !ends) {
        double limit = usual_limit(w), interval = limit / 8.0 < look_every ? limit / 8.0 : look_every;
        sleep_until(w, last + interval);
        /* A gap that is longer than what was slept for was no fault of the run: the process itself stood still. */
        double now = tx_now(), gap = now - last;
        gap = gap < 2.0 * interval ? gap : 2.0 * interval;
        w->quiet += gap;
        last = now;
        beat(w);
        ends = !w->stop && judge(w, gap, &status, line, sizeof line);
    }
    pthread_mutex_unlock(&w->lock);
    if (ends)
        end_process(w, status, line);
    return NULL;
}

/* Signals are for the program's own threads. */
static tx_status start_thread(tx_watch *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int fault = pthread_create(&w->thread, NULL, watch, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (fault)
        return tx_fail(TX_MEMORY, "no thread for the watch over the run: %s", strerror(fault));
    w->running = true;
    return TX_OK;
}

tx_status tx_watch_start(tx_comm *comm, const tx_watch_options *options, tx_watch **made)
{
    if (options->size != sizeof *options)
        return tx_fail(TX_INVALID, "tx_watch_options has %zu bytes here, %zu were given", sizeof *options,
                       options->size);
    tx_watch *w = calloc(1, sizeof *w);
    if (!w)
        return tx_fail(TX_MEMORY, "no memory for the watch over the run");
    *w = (tx_watch){.comm = comm,
                    .leave = comm->table->leave,
                    .o = *options,
                    .step = -1,
                    .began = tx_now(),
                    .link = -1,
                    .other = -1,
                    .marked = -1};
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, &clock);
    pthread_condattr_destroy(&clock);
    join_launcher(w);
    w->silent = comm->size == 1 && w->link < 0 && options->timeout <= 0.0;
    tx_status status = w->silent ? TX_OK : start_thread(w);
    if (status)
        tx_watch_stop(w);
    else
        *made = w;
    return status;
}

void tx_watch_stop(tx_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (w->running)
        pthread_join(w->thread, NULL);
    if (w->link >= 0)
        close(w->link);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* ---- Reports ------------------------------------------------------------------------------------------------- */

static void find_median(tx_watch *w)
{
    double sorted[WINDOW];
    int64_t count = w->steps < WINDOW ? w->steps : WINDOW;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i;
        for (; at > 0 && sorted[at - 1] > w->took[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = w->took[i];
    }
    w->median = count >= KNOWN ? sorted[count / 2] : 0.0;
}

void tx_watch_step(tx_watch *w, int64_t step)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->comm->table->mark(w->comm, step);
    double now = tx_now();
    w->took[w->steps++ % WINDOW] = now - w->began;
    w->began = now;
    w->step = step;
    w->quiet = 0.0;
    find_median(w);
    send_step(w, beat_least);
    pthread_mutex_unlock(&w->lock);
}

void tx_watch_alive(tx_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->quiet = 0.0;
    pthread_mutex_unlock(&w->lock);
}

static void set_allowed(tx_watch *w, double seconds)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->quiet = 0.0;
    w->began = tx_now();
    w->allowed = seconds;
    pthread_mutex_unlock(&w->lock);
}

void tx_watch_pause(tx_watch *w, double seconds)
{
    set_allowed(w, seconds > 0.0 ? seconds : TX_WATCH_LONG);
}

void tx_watch_resume(tx_watch *w)
{
    set_allowed(w, 0.0);
}

double tx_watch_limit(tx_watch *w)
{
    if (!w)
        return 0.0;
    pthread_mutex_lock(&w->lock);
    double limit = w->silent ? 0.0 : limit_of(w);
    pthread_mutex_unlock(&w->lock);
    return limit;
}

void tx_watch_saved(tx_watch *w, const char *checkpoint)
{
    if (!w)
        return;
    tx_beat saved = {.kind = TX_BEAT_SAVED};
    snprintf(saved.text, sizeof saved.text, "%s", checkpoint);
    pthread_mutex_lock(&w->lock);
    w->quiet = 0.0;
    send_beat(w, &saved, 1.0);
    pthread_mutex_unlock(&w->lock);
}

/* The last word to the launcher. */
static void end_run(tx_watch *w, const tx_beat *last)
{
    pthread_mutex_lock(&w->lock);
    if (!w->over) {
        send_step(w, 0.0);
        send_beat(w, last, 5.0);
    }
    w->over = true;
    w->result = last->status;
    w->allowed = w->quiet = 0.0;
    pthread_mutex_unlock(&w->lock);
}

void tx_watch_done(tx_watch *w)
{
    if (w)
        end_run(w, &(tx_beat){.kind = TX_BEAT_DONE});
}

void tx_watch_failed(tx_watch *w, int status, const char *message)
{
    if (!w)
        return;
    tx_beat failed = {.kind = TX_BEAT_FAILED, .status = status};
    snprintf(failed.text, sizeof failed.text, "%s", message);
    end_run(w, &failed);
}
