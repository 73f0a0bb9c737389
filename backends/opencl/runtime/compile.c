/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the programs of commands in parallel, before their kernels are made. Several threads may call all OpenCL
 * functions except clSetKernelArg at a time (OpenCL 1.2, appendix A.2).
 */
#include "backends/opencl/runtime/internal.h"

#include "api/base/cores.h"
#include "api/base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define REPORT_AFTER 2.0 /* seconds before the first report; then every second */

typedef struct work {
    const tx_context *context;
    int32_t count;
    pthread_mutex_t mutex; /* protects the fields below */
    pthread_cond_t progressed;
    tx_cl_program *next; /* in the context's list */
    int32_t done;
} work;

/* Returns the first program from `entry` on that must be built, or NULL. */
static tx_cl_program *first_wanted(tx_cl_program *entry)
{
    while (entry && (entry->program || entry->tried))
        entry = entry->next;
    return entry;
}

static void *serve(void *argument)
{
    work *w = argument;
    tx_cl_program *one;
    pthread_mutex_lock(&w->mutex);
    while ((one = first_wanted(w->next)) != NULL) {
        one->tried = true;
        w->next = one->next;
        pthread_mutex_unlock(&w->mutex);
        (void)tx_cl_build_program(w->context, one);
        pthread_mutex_lock(&w->mutex);
        w->done++;
        pthread_cond_signal(&w->progressed);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Starts at most `limit` threads and returns how many were started. */
static int32_t start(work *w, pthread_t *thread, int64_t limit)
{
    int32_t started = 0;
    while (started < limit && tx_thread_start(&thread[started], serve, w))
        started++;
    return started;
}

/* Waits until all programs are built, and reports progress. */
static void follow(work *w)
{
    const tx_reporter *report = w->context->report;
    const double began = tx_cl_now();
    pthread_mutex_lock(&w->mutex);
    while (w->done < w->count) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        while (w->done < w->count && pthread_cond_timedwait(&w->progressed, &w->mutex, &until) != ETIMEDOUT)
            continue;
        const int32_t done = w->done;
        pthread_mutex_unlock(&w->mutex);
        if (report && report->progress && tx_cl_now() - began >= REPORT_AFTER)
            report->progress(report->context, "kernels", done, w->count);
        pthread_mutex_lock(&w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
}

void tx_cl_compile(tx_context *context)
{
    work w = {.context = context, .next = context->programs};
    for (tx_cl_program *one = first_wanted(w.next); one; one = first_wanted(one->next))
        w.count++;
    if (w.count == 0)
        return;
    const int64_t limit = tx_cl_least(tx_cl_least(tx_cores(), context->limits.compilers), w.count);
    pthread_t *thread = calloc((size_t)limit, sizeof *thread);
    if (!thread)
        return; /* each program is built when its command needs it */
    pthread_mutex_init(&w.mutex, NULL);
    pthread_cond_init(&w.progressed, NULL);
    const int32_t started = start(&w, thread, limit);
    if (started > 0)
        follow(&w);
    for (int32_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    pthread_cond_destroy(&w.progressed);
    pthread_mutex_destroy(&w.mutex);
}
