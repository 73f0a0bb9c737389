/* SPDX-License-Identifier: Apache-2.0
 * Progress lines of programs that print nothing for a long time. */
#include "tools/cli/alive.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIRST_SECONDS 1.5 /* seconds until the first line, and between two lines */
#define LINE_SECONDS 9.0
#define POLL_SECONDS 0.5 /* seconds between two calls of `ask` */
#define STATUS_BYTES 256

struct tx_alive {
    const char *program;
    FILE *to;
    pthread_t thread;
    pthread_mutex_t lock; /* protects all members below */
    pthread_cond_t wake;
    char doing[STATUS_BYTES];
    double began, last_line;     /* start of the current action; time of the last line */
    bool started, printed, stop; /* the thread runs; a line was printed; the thread has to end */
    void (*ask)(void *context, char *text, size_t size);
    void *context;
};

/* A status with a different text before the comma starts a new action. */
static void poll(tx_alive *a, double now)
{
    char text[STATUS_BYTES] = "";
    a->ask(a->context, text, sizeof text);
    if (!*text)
        return;
    const size_t named = strcspn(text, ",");
    if (strcspn(a->doing, ",") != named || strncmp(a->doing, text, named) != 0)
        a->began = now;
    memcpy(a->doing, text, sizeof text);
}

static void print(tx_alive *a, double now)
{
    tx_print_line(a->to, "%s: still %s, %.0f s", a->program, a->doing, now - a->began);
    fflush(a->to);
    a->last_line = now;
    a->printed = true;
}

static void *run(void *argument)
{
    tx_alive *a = argument;
    pthread_mutex_lock(&a->lock);
    a->started = true;
    pthread_cond_signal(&a->wake);
    while (!a->stop) {
        const double now = tx_now();
        double left = a->last_line + (a->printed ? LINE_SECONDS : FIRST_SECONDS) - now;
        if (a->ask)
            poll(a, now);
        if (!*a->doing) {
            pthread_cond_wait(&a->wake, &a->lock);
            continue;
        }
        if (left <= 0.0) {
            print(a, now);
            continue;
        }
        if (a->ask && left > POLL_SECONDS)
            left = POLL_SECONDS;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        const double end = (double)until.tv_sec + 1e-9 * (double)until.tv_nsec + left;
        until.tv_sec = (time_t)end;
        until.tv_nsec = (long)(1e9 * (end - (double)until.tv_sec));
        pthread_cond_timedwait(&a->wake, &a->lock, &until);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* Starts the thread with all signals blocked, so that the program's handlers run in its own threads. Waits until the
 * thread runs: a child process forked before that could inherit locked memory. */
static bool start(tx_alive *a)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&a->thread, NULL, run, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_lock(&a->lock);
    while (!error && !a->started)
        pthread_cond_wait(&a->wake, &a->lock);
    pthread_mutex_unlock(&a->lock);
    return error == 0;
}

tx_alive *tx_alive_start(const tx_cli *program, FILE *to, const char *doing)
{
    pthread_condattr_t clock;
    const char *wish = getenv("TX_PROGRESS");
    const bool quiet = (wish && strcmp(wish, "0") == 0) || tx_launcher_rank() > 0;
    tx_alive *a = quiet ? NULL : calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->program = program->name;
    a->to = to;
    snprintf(a->doing, sizeof a->doing, "%s", doing);
    a->began = a->last_line = tx_now();
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&a->wake, &clock);
    pthread_condattr_destroy(&clock);
    if (start(a))
        return a;
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    free(a);
    return NULL;
}

void tx_alive_stop(tx_alive *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

void tx_alive_doing(tx_alive *a, const char *format, ...)
{
    va_list args;
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    va_start(args, format);
    vsnprintf(a->doing, sizeof a->doing, format, args);
    va_end(args);
    a->began = tx_now();
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

/* The time of an action counts from its first report. */
void tx_alive_progress(void *alive, const char *what, int64_t done, int64_t total)
{
    tx_alive *a = alive;
    char text[STATUS_BYTES];
    const char *slash = strrchr(what, '/');
    if (!a)
        return;
    const int named = snprintf(text, sizeof text, "working on %.150s, ", slash && slash[1] ? slash + 1 : what);
    snprintf(text + named, sizeof text - (size_t)named, "%.0f %%",
             total > 0 ? 100.0 * (double)done / (double)total : 0.0);
    pthread_mutex_lock(&a->lock);
    if (strncmp(a->doing, text, (size_t)named) != 0)
        a->began = tx_now();
    memcpy(a->doing, text, sizeof text);
    pthread_mutex_unlock(&a->lock);
}

void tx_alive_printed(tx_alive *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->last_line = tx_now();
    a->printed = true;
    pthread_mutex_unlock(&a->lock);
}

void tx_alive_set_status(tx_alive *a, void (*ask)(void *context, char *text, size_t size), void *context)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->ask = ask;
    a->context = context;
    pthread_mutex_unlock(&a->lock);
}
