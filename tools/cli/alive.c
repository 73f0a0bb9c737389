/* SPDX-License-Identifier: Apache-2.0
 * Progress lines of programs that print nothing for a long time. */
#include "tools/cli/alive.h"

#include "tools/cli/terminal.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST_SECONDS 1.5 /* seconds until the first line, and between two lines */
#define LINE_SECONDS 10.0
#define BAR_SECONDS 1.0   /* operations that take less are not reported */
#define POLL_SECONDS 0.5  /* seconds between two calls of `ask`, and between two states of a bar */
#define STALE_SECONDS 3.0 /* an operation without a report for so long has ended, or failed */
#define STATUS_BYTES 256
#define FEW 4         /* units that say little about the others, unless they are half of all */
#define COUNTED 10000 /* larger totals are shown in percent */

/* An operation that reports its progress. */
typedef struct bar {
    char what[STATUS_BYTES];
    int64_t done, total;  /* total is 0 if there is no operation */
    double began, report; /* times of its start and of the last report */
    double shows;         /* when it may be printed */
    bool drawn;           /* on the last line of the terminal */
} bar;

struct tx_alive {
    const char *program;
    FILE *to;
    bool terminal;
    pthread_t thread;
    pthread_mutex_t lock; /* protects all members below */
    pthread_cond_t wake;
    char doing[STATUS_BYTES];
    double began, last_line;     /* start of the current action; time of the last line */
    bool started, printed, stop; /* the thread runs; a line was printed; the thread has to end */
    bar bar;
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

void tx_bar_text(char *text, size_t size, const char *what, int64_t done, int64_t total, double seconds)
{
    const double left = done > 0 ? ceil(seconds * (double)(total - done) / (double)done) : 0.0;
    const int used = total < COUNTED ? snprintf(text, size, "%s %" PRId64 " of %" PRId64, what, done, total)
                                     : snprintf(text, size, "%s %.0f %%", what, 100.0 * (double)done / (double)total);
    if ((done < FEW && 2 * done < total) || used < 0 || (size_t)used >= size)
        return;
    snprintf(text + used, size - (size_t)used, left < 100.0 ? ", %.0f s left" : ", %.0f min left",
             left < 100.0 ? left : ceil(left / 60.0));
}

/* Ends an operation, and erases its line, so that another line may follow. */
static void erase(tx_alive *a)
{
    a->bar.total = 0;
    if (!a->bar.drawn)
        return;
    fputs("\r\033[K", a->to);
    fflush(a->to);
    a->bar.drawn = false;
}

/* Prints the bar, which replaces the last one on terminals, or the current action. */
static void print(tx_alive *a, double now, bool shown)
{
    char text[2 * STATUS_BYTES], safe[2 * STATUS_BYTES];
    if (shown)
        tx_bar_text(text, sizeof text, a->bar.what, a->bar.done, a->bar.total, now - a->bar.began);
    else
        snprintf(text, sizeof text, "still %s, %.0f s", a->doing, now - a->began);
    if (shown && a->terminal) {
        const size_t width = tx_terminal_width(fileno(a->to)), named = strlen(a->program) + 3; /* with a free column */
        tx_escape(text, safe, sizeof safe);
        fprintf(a->to, "\r\033[K%s: %.*s", a->program, (int)(width > named ? width - named : 0), safe);
        a->bar.drawn = true;
    } else {
        tx_print_line(a->to, "%s: %s", a->program, text);
        a->last_line = now;
        a->printed = true;
    }
    fflush(a->to);
}

/* Prints if it is time. Returns the seconds until the next call, or a negative number if there is nothing to print. */
static double step(tx_alive *a, double now)
{
    if (a->ask)
        poll(a, now);
    if (now - a->bar.report > STALE_SECONDS)
        erase(a);
    const bool shown = a->bar.total > 0 && now >= a->bar.shows;
    const double due = shown && a->terminal ? now : a->last_line + (a->printed ? LINE_SECONDS : FIRST_SECONDS);
    if (!shown && !*a->doing)
        return a->bar.total > 0 ? POLL_SECONDS : -1.0;
    if (now >= due)
        print(a, now, shown);
    return a->ask || a->bar.total > 0 ? POLL_SECONDS : now >= due ? LINE_SECONDS : due - now;
}

static void *run(void *argument)
{
    tx_alive *a = argument;
    pthread_mutex_lock(&a->lock);
    a->started = true;
    pthread_cond_signal(&a->wake);
    while (!a->stop) {
        const double left = step(a, tx_now());
        struct timespec until;
        if (left < 0.0) {
            pthread_cond_wait(&a->wake, &a->lock);
            continue;
        }
        clock_gettime(CLOCK_MONOTONIC, &until);
        const double end = (double)until.tv_sec + 1e-9 * (double)until.tv_nsec + left;
        until.tv_sec = (time_t)end;
        until.tv_nsec = (long)(1e9 * (end - (double)until.tv_sec));
        pthread_cond_timedwait(&a->wake, &a->lock, &until);
    }
    erase(a);
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

static const tx_cli *running; /* a process is one program */

void tx_warn_as(const tx_cli *program)
{
    running = program;
}

void tx_warn(void *alive, const char *message)
{
    tx_alive_printed(alive);
    tx_complain(running, 0, "warning: %s", message);
}

static tx_reporter reporter = {.warn = tx_warn, .progress = tx_alive_progress};

const tx_reporter *tx_alive_reporter(void)
{
    return &reporter;
}

tx_alive *tx_alive_start(const tx_cli *program, FILE *to, const char *doing)
{
    pthread_condattr_t clock;
    const char *wish = getenv("TX_PROGRESS");
    const bool quiet = (wish && strcmp(wish, "0") == 0) || tx_launcher_rank() > 0;
    tx_alive *a = quiet ? NULL : calloc(1, sizeof *a);
    if (!a)
        return NULL;
    reporter.context = a;
    a->program = program->name;
    a->to = to;
    a->terminal = isatty(fileno(to));
    snprintf(a->doing, sizeof a->doing, "%s", doing);
    a->began = a->last_line = tx_now();
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&a->wake, &clock);
    pthread_condattr_destroy(&clock);
    if (start(a))
        return a;
    reporter.context = NULL;
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
    reporter.context = NULL;
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
    const bool idle = !*a->doing; /* the program waited, perhaps for a user */
    va_start(args, format);
    vsnprintf(a->doing, sizeof a->doing, format, args);
    va_end(args);
    a->began = tx_now();
    if (idle) {
        a->last_line = a->began;
        a->printed = false;
    }
    erase(a);
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

/* Operations that follow each other within a moment are shown as soon as one that takes as long as all of them. Reports
 * of several threads may come out of order. */
void tx_alive_progress(void *alive, const char *what, int64_t done, int64_t total)
{
    tx_alive *a = alive;
    const char *slash = strrchr(what, '/'), *name = slash && slash[1] ? slash + 1 : what;
    const double now = tx_now();
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    bar *b = &a->bar;
    if (b->total == 0) /* otherwise the thread looks every half second */
        pthread_cond_signal(&a->wake);
    if (b->total == 0 && now - b->report > BAR_SECONDS)
        b->shows = now + BAR_SECONDS;
    if (now - b->report > STALE_SECONDS || done == 0 || strncmp(b->what, name, sizeof b->what - 1) != 0)
        b->began = now;
    snprintf(b->what, sizeof b->what, "%s", name);
    b->done = done;
    b->total = total;
    b->report = now;
    if (done >= total)
        erase(a);
    pthread_mutex_unlock(&a->lock);
}

void tx_alive_printed(tx_alive *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    erase(a);
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
