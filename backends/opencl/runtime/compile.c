/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the programs of commands in parallel, before their kernels are made. Several threads may call all OpenCL
 * functions except clSetKernelArg at a time (OpenCL 1.2, appendix A.2).
 */
#include "backends/opencl/runtime/internal.h"

#include "api/base/cores.h"
#include "api/base/thread.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FEW 3 /* programs for which threads suffice: a worker takes a moment to open the device */

typedef struct wanted {
    tx_cl_program *program;
    size_t bytes; /* of its text: long texts take longer to build */
} wanted;

typedef struct work {
    const tx_context *context;
    wanted *wanted;
    int32_t count;
    bool workers; /* each thread has one */
    atomic_int next;
    sem_t built; /* counts programs */
} work;

static void *serve(void *argument)
{
    work *w = argument;
    tx_cl_worker worker = {0};
    for (int32_t i; (i = atomic_fetch_add(&w->next, 1)) < w->count;) {
        (void)tx_cl_build_program(w->context, w->wanted[i].program, w->workers ? &worker : NULL);
        sem_post(&w->built);
    }
    tx_cl_worker_end(&worker);
    return NULL;
}

/* Waits until all programs are built. Reports progress every second, even if there is none: the run is alive. */
static void follow(work *w)
{
    const tx_reporter *report = w->context->report;
    for (int32_t done = 0; done < w->count;) {
        struct timespec until;
        if (report && report->progress)
            report->progress(report->context, "kernels", done, w->count);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        done += sem_timedwait(&w->built, &until) == 0;
    }
    if (report && report->progress)
        report->progress(report->context, "kernels", w->count, w->count);
}

static void build(work *w, pthread_t *thread, int64_t limit)
{
    int32_t started = 0;
    sem_init(&w->built, 0, 0);
    while (started < limit && tx_thread_start(&thread[started], serve, w))
        started++;
    if (started > 0)
        follow(w);
    for (int32_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    sem_destroy(&w->built);
}

static size_t bytes_of(const tx_cl_program *program)
{
    char *text = NULL;
    if (program->text)
        return strlen(program->text);
    if (tx_cl_program_text(program->source, program->kernel, &text))
        return 0; /* its build fails as well */
    const size_t bytes = strlen(text);
    free(text);
    return bytes;
}

/* Longer texts come first, so that no thread begins a long build when the others have ended. */
static int longer(const void *a, const void *b)
{
    const size_t x = ((const wanted *)a)->bytes, y = ((const wanted *)b)->bytes;
    return (x < y) - (x > y);
}

/* Without memory for the lists, each program is built when its command needs it. */
void tx_cl_compile(tx_context *context)
{
    work w = {.context = context};
    for (tx_cl_program *one = context->programs; one; one = one->next)
        w.count += !one->program && !one->tried;
    if (w.count == 0)
        return;
    int64_t limit = tx_cl_least(tx_cl_least(tx_cores(), context->limits.compilers), w.count);
    const int64_t workers = w.count < FEW ? 0 : tx_cl_workers_most(context, limit);
    limit = workers > 0 ? workers : limit;
    w.workers = workers > 0;
    pthread_t *thread = calloc((size_t)limit, sizeof *thread);
    wanted *next = w.wanted = calloc((size_t)w.count, sizeof *w.wanted);
    for (tx_cl_program *one = thread ? context->programs : NULL; one && next; one = one->next)
        if (!one->program && !one->tried) {
            one->tried = true;
            *next++ = (wanted){one, bytes_of(one)};
        }
    if (thread && next) {
        qsort(w.wanted, (size_t)w.count, sizeof *w.wanted, longer);
        build(&w, thread, limit);
    }
    free(w.wanted);
    free(thread);
}
