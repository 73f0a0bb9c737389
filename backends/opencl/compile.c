/* SPDX-License-Identifier: Apache-2.0
 * Programs built side by side, before a plan's commands ask for them one after the other. Of OpenCL's calls all but
 * clSetKernelArg may be made by several threads at a time (OpenCL 1.2, appendix A.2). */
#include "backends/opencl/internal.h"

#include "api/base/cores.h"
#include "api/base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TELL_AFTER 2.0 /* seconds; and as often again: every second */

struct tx_cl_wanted {
    char *source, *options;
    cl_program program; /* NULL: it is not built */
};

/* ---- What is asked for ----------------------------------------------------------------------------------------- */

static bool is_wanted(const tx_cl_survey *s, const char *source, const char *options)
{
    for (int32_t i = 0; i < s->count; i++)
        if (strcmp(s->wanted[i].source, source) == 0 && strcmp(s->wanted[i].options, options) == 0)
            return true;
    return false;
}

tx_status tx_cl_want_program(const tx_context *context, const char *source, const char *options)
{
    tx_cl_survey *s = context->survey;
    if (is_wanted(s, source, options) || tx_cl_has_program(context, source, options))
        return TX_OK;
    if (s->count == s->room) {
        const int32_t room = s->room ? 2 * s->room : 64;
        tx_cl_wanted *larger = realloc(s->wanted, (size_t)room * sizeof *larger);
        if (!larger)
            return tx_fail(TX_MEMORY, "out of host memory");
        s->wanted = larger;
        s->room = room;
    }
    tx_cl_wanted *w = &s->wanted[s->count];
    *w = (tx_cl_wanted){.source = strdup(source), .options = strdup(options)};
    if (w->source && w->options) {
        s->count++;
        return TX_OK;
    }
    free(w->source);
    free(w->options);
    return tx_fail(TX_MEMORY, "out of host memory");
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

typedef struct work {
    const tx_context *context;
    tx_cl_wanted *wanted;
    int32_t count;
    pthread_mutex_t mutex; /* for all that follows */
    pthread_cond_t one_more;
    int32_t next, done;
} work;

static void *serve(void *argument)
{
    work *w = argument;
    pthread_mutex_lock(&w->mutex);
    while (w->next < w->count) {
        tx_cl_wanted *one = &w->wanted[w->next++];
        pthread_mutex_unlock(&w->mutex);
        if (tx_cl_obtain_program(w->context, one->source, one->options, &one->program) != TX_OK)
            one->program = NULL;
        pthread_mutex_lock(&w->mutex);
        w->done++;
        pthread_cond_signal(&w->one_more);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Starts at most so many threads, and says how many they are. */
static int32_t start(work *w, pthread_t *thread, int64_t most)
{
    int32_t started = 0;
    while (started < most && tx_thread_start(&thread[started], serve, w))
        started++;
    return started;
}

/* Waits until all is done, and tells how far it is. */
static void follow(work *w)
{
    const tx_reporter *report = w->context->report;
    const double began = tx_cl_now();
    pthread_mutex_lock(&w->mutex);
    while (w->done < w->count) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        while (w->done < w->count && pthread_cond_timedwait(&w->one_more, &w->mutex, &until) != ETIMEDOUT)
            continue;
        const int32_t done = w->done;
        pthread_mutex_unlock(&w->mutex);
        if (report && report->progress && tx_cl_now() - began >= TELL_AFTER)
            report->progress(report->context, "kernels", done, w->count);
        pthread_mutex_lock(&w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
}

static void build(const tx_context *context, tx_cl_survey *survey)
{
    work w = {.context = context, .wanted = survey->wanted, .count = survey->count};
    const int64_t most = tx_cl_least(tx_cl_least(tx_cores(), context->limits.compilers), w.count);
    pthread_t *thread = calloc((size_t)most, sizeof *thread);
    if (!thread)
        return; /* each is built when its command asks for it */
    pthread_mutex_init(&w.mutex, NULL);
    pthread_cond_init(&w.one_more, NULL);
    const int32_t started = start(&w, thread, most);
    if (started > 0)
        follow(&w);
    for (int32_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    pthread_cond_destroy(&w.one_more);
    pthread_mutex_destroy(&w.mutex);
}

bool tx_cl_survey_begin(tx_context *context, tx_cl_survey *survey)
{
    if (context->survey)
        return false;
    *survey = (tx_cl_survey){.choices = context->choices};
    context->choices = survey->choices ? strdup(survey->choices) : NULL;
    context->survey = survey;
    return true;
}

void tx_cl_compile_ahead(tx_context *context, tx_cl_survey *survey)
{
    context->survey = NULL;
    free(context->choices);
    context->choices = survey->choices;
    if (survey->count > 0)
        build(context, survey);
    for (int32_t i = 0; i < survey->count; i++) {
        tx_cl_wanted *w = &survey->wanted[i];
        if (w->program)
            tx_cl_keep_program(context, w->source, w->options, w->program);
        free(w->source);
        free(w->options);
    }
    free(survey->wanted);
    free(survey->trials);
}
