/* SPDX-License-Identifier: Apache-2.0
 * Loads batches: a ring of buffers that threads fill in advance. */
#include "models/task/loader.h"

#include "api/base/arithmetic.h"
#include "api/base/file.h"
#include "api/base/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Number of batches that the caller may still read: the last one returned and the one before. */
#define HELD 2
/* Maximum number of threads. */
#define MOST_WORKERS 1024

/* The order in which the steps of a run use the samples. */
typedef struct course {
    int64_t samples, used, step_rows, batch, epoch_steps; /* an epoch has `used` samples */
    int64_t first, rows;                                  /* this rank's rows of a micro-batch */
    bool in_order, local;
    uint64_t seed;
    tx_grouping *grouping; /* NULL if rows are not grouped */
} course;

/* One buffer of the ring. */
typedef struct slot {
    tx_step_batch batch;
    tx_batch room;    /* for the rows of a step and, with several ranks, one row of another rank */
    int64_t ready;    /* index of the step in it, counted from the loader's first step; -1 if none */
    tx_status status; /* of preparing the step */
    char message[1024];
} slot;

struct tx_loader {
    tx_samples samples;
    course course;
    int64_t first; /* step that the loader began with */
    int64_t given; /* index of the step that is returned next */
    slot *slots;
    int64_t slot_count;
    char *memory; /* of all slots */
    size_t memory_size;
    bool locked;

    /* Shared with the workers. Step i may be prepared if i < released + slot_count. */
    pthread_t *workers;
    int32_t worker_count;
    pthread_mutex_t mutex;
    pthread_cond_t filled, freed;
    int64_t next, released;
    bool quit;
};

bool tx_loader_groups(const tx_job_settings *set, const tx_task *task)
{
    return set->sampling == TX_SAMPLING_BY_LENGTH && task->length && !set->pad_to_max_length;
}

int64_t tx_loader_used(int64_t samples, int64_t batch, bool drop_last)
{
    return drop_last ? samples - samples % batch : samples;
}

int64_t tx_loader_epoch_steps(int64_t samples, int64_t step_rows)
{
    return tx_ceil_div(samples, step_rows);
}

static tx_status check(const tx_samples *samples, const tx_loader_options *o, int64_t first)
{
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "loader: the options' size field is %zu, expected %zu", o->size, sizeof *o);
    bool share = o->first >= 0 && o->rows >= 0 && o->first <= o->batch && o->rows <= o->batch - o->first;
    if (o->batch < 1 || o->step_rows < 1 || !share || first < 0)
        return tx_fail(TX_INVALID,
                       "loader: %" PRId64 " rows a step and %" PRId64 " a micro-batch must be 1 or more, rows %" PRId64
                       " to %" PRId64 " must be in a micro-batch, the first step %" PRId64 " must be 0 or more",
                       o->step_rows, o->batch, o->first, o->first + o->rows, first);
    if (tx_loader_used(samples->count, o->batch, o->set->drop_last) < 1)
        return tx_fail(TX_INVALID, "loader: there are no samples, or too few to fill a micro-batch");
    if (o->set->workers < 0 || o->set->workers > MOST_WORKERS)
        return tx_fail(TX_INVALID, "loader: %" PRId64 " workers; must be 0 to %d", o->set->workers, MOST_WORKERS);
    return TX_OK;
}

static course plan_course(const tx_samples *samples, const tx_loader_options *o)
{
    const int64_t used = tx_loader_used(samples->count, o->batch, o->set->drop_last);
    return (course){
        .samples = samples->count,
        .used = used,
        .step_rows = o->step_rows,
        .batch = o->batch,
        .epoch_steps = tx_loader_epoch_steps(used, o->step_rows),
        .first = o->first,
        .rows = o->rows ? o->rows : o->batch,
        .local = o->local,
        .in_order = o->set->sampling == TX_SAMPLING_SEQUENTIAL || samples->task->generates,
        .seed = tx_job_data_seed(o->set),
    };
}

/* Describes a step, without its rows and their labels. */
static tx_step_batch describe(const course *c, int64_t step)
{
    int64_t epoch = step / c->epoch_steps, first = step % c->epoch_steps * c->step_rows, left = c->used - first;
    int64_t rows = left < c->step_rows ? left : c->step_rows;
    int64_t a_step = tx_ceil_div(c->step_rows, c->batch), count = tx_ceil_div(rows, c->batch);
    int64_t an_epoch =
        (c->epoch_steps - 1) * a_step + tx_ceil_div(c->used - (c->epoch_steps - 1) * c->step_rows, c->batch);
    return (tx_step_batch){
        .step = step,
        .epoch = epoch,
        .passed = (double)epoch + (double)(step % c->epoch_steps * a_step + count) / (double)an_epoch,
        .micro_batches = count,
        .first = first,
        .rows = rows,
    };
}

/* The sample at a position of the epoch. */
static int64_t sample_at(const course *c, int64_t epoch, int64_t place)
{
    const tx_sample_order order = {.shuffle = !c->in_order, .seed = c->seed, .epoch = (uint64_t)epoch};
    return c->grouping ? tx_grouping_at(c->grouping, &order, place) : tx_sample_order_at(&order, c->samples, place);
}

/* Makes the rows of one micro-batch and counts their labels. Rows of other ranks are made only to count their labels.
 * Rows after the step's last row are padding. */
static tx_status prepare_rows(const tx_loader *l, const slot *s, tx_step_batch *b, int64_t micro)
{
    const course *c = &l->course;
    const tx_samples *samples = &l->samples;
    const tx_sample_order unshuffled = {.epoch = (uint64_t)b->epoch};
    tx_status status = TX_OK;
    for (int64_t r = 0; r < c->batch && !status; r++) {
        const int64_t at = micro * c->batch + r, own = r - c->first;
        const bool is_own = own >= 0 && own < c->rows;
        const tx_batch row = tx_batch_rows(samples->task, samples->block, &s->room,
                                           is_own ? micro * c->rows + own : s->room.rows - 1, 1);
        if (at < b->rows || is_own)
            status = tx_samples_rows(samples, &unshuffled,
                                     at < b->rows ? sample_at(c, b->epoch, b->first + at) : c->samples, &row);
        if (at < b->rows && !status) {
            const int64_t longest = tx_batch_longest(samples->task, &row);
            const int64_t target = tx_batch_target(samples->task, &row);
            b->tokens += tx_batch_tokens(samples->task, samples->block, &row);
            b->labels += is_own || !c->local ? tx_batch_labels(samples->task, samples->block, &row) : 0;
            b->batch.longest = longest > b->batch.longest ? longest : b->batch.longest;
            b->batch.target = target > b->batch.target ? target : b->batch.target;
        }
    }
    return status;
}

/* Writes the rows of step `number`, or the message of a failure, to its slot. */
static void prepare(const tx_loader *l, slot *s, int64_t number)
{
    tx_step_batch b = describe(&l->course, l->first + number);
    s->status = TX_OK;
    for (int64_t i = 0; i < b.micro_batches && !s->status; i++)
        s->status = prepare_rows(l, s, &b, i);
    if (s->status) /* tx_error() belongs to this thread */
        snprintf(s->message, sizeof s->message, "%s", tx_error());
    if (l->course.local && b.labels == 0) /* the rows of an epoch's last step may all be other ranks' */
        b.labels = 1;
    const tx_batch all = b.batch; /* the lengths are over all ranks' rows, since all ranks run the same plan */
    b.batch = s->room;
    b.batch.longest = all.longest;
    b.batch.target = all.target;
    b.batch.rows = b.micro_batches * l->course.rows;
    s->batch = b;
}

/* ---- Workers --------------------------------------------------------------------------------------- */

static void *work(void *argument)
{
    tx_loader *l = argument;
    pthread_mutex_lock(&l->mutex);
    while (true) {
        while (!l->quit && l->next >= l->released + l->slot_count)
            pthread_cond_wait(&l->freed, &l->mutex);
        if (l->quit)
            break;
        int64_t number = l->next++;
        slot *s = &l->slots[number % l->slot_count];
        pthread_mutex_unlock(&l->mutex);
        prepare(l, s, number);
        pthread_mutex_lock(&l->mutex);
        s->ready = number;
        pthread_cond_signal(&l->filled);
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

/* Starts the workers. If the system refuses some, a warning is printed and the loader continues without them. */
static void start_workers(tx_loader *l, const tx_loader_options *o)
{
    const int32_t wanted = l->samples.task->generates ? 0 : (int32_t)o->set->workers;
    while (l->worker_count < wanted && tx_thread_start(&l->workers[l->worker_count], work, l))
        l->worker_count++;
    if (l->worker_count == wanted)
        return;
    char instead[64] = "each batch is prepared when its step begins";
    if (l->worker_count)
        snprintf(instead, sizeof instead, "continuing with %" PRId32, l->worker_count);
    tx_reporter_print(&o->report, "the system refuses data loading thread %" PRId32 " of %" PRId32 " (%s): %s",
                      l->worker_count + 1, wanted, strerror(errno), instead);
}

static void stop_workers(tx_loader *l)
{
    pthread_mutex_lock(&l->mutex);
    l->quit = true;
    pthread_cond_broadcast(&l->freed);
    pthread_mutex_unlock(&l->mutex);
    for (int32_t i = 0; i < l->worker_count; i++)
        pthread_join(l->workers[i], NULL);
}

/* ---- Memory ---------------------------------------------------------------------------------------- */

/* Allocates the rows of all slots. */
static tx_status allocate(tx_loader *l, const tx_loader_options *o)
{
    const course *c = &l->course;
    const tx_samples *samples = &l->samples;
    const int64_t most = tx_ceil_div(c->step_rows < c->used ? c->step_rows : c->used, c->batch);
    int64_t rows, size, total;
    if (__builtin_mul_overflow(most, c->rows, &rows) || __builtin_add_overflow(rows, c->rows < c->batch, &rows) ||
        __builtin_mul_overflow(rows, tx_task_row_bytes(samples->task, samples->block), &size) ||
        __builtin_mul_overflow(size, l->slot_count, &total))
        return tx_fail(TX_MEMORY, "loader: a step of %" PRId64 " micro-batches of %" PRId64 " rows is too large", most,
                       c->rows);
    l->slots = calloc((size_t)l->slot_count, sizeof *l->slots);
    l->workers = calloc((size_t)o->set->workers + 1, sizeof *l->workers);
    void *memory = NULL;
    /* Page-aligned, so that mlock locks nothing else. */
    if (!l->slots || !l->workers || posix_memalign(&memory, (size_t)sysconf(_SC_PAGESIZE), (size_t)total) != 0)
        return tx_fail(TX_MEMORY,
                       "loader: no memory for %" PRId64 " batches, %" PRId64 " bytes; fewer workers or a "
                       "smaller batch need less",
                       l->slot_count, total);
    l->memory = memory;
    l->memory_size = (size_t)total;
    for (int64_t i = 0; i < l->slot_count; i++)
        l->slots[i] =
            (slot){.room = tx_batch_of(samples->task, samples->block, rows, l->memory + i * size), .ready = -1};
    return TX_OK;
}

static void pin(tx_loader *l, const tx_reporter *report)
{
    l->locked = mlock(l->memory, l->memory_size) == 0;
    if (!l->locked)
        tx_reporter_print(
            report,
            "cannot lock the %zu bytes of the batches in memory (%s): continuing without; `ulimit -l` shows the "
            "limit",
            l->memory_size, strerror(errno));
}

tx_status tx_loader_create(const tx_samples *samples, const tx_loader_options *options, int64_t first,
                           tx_loader **loader)
{
    TX_TRY(check(samples, options, first));
    tx_loader *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "loader: out of memory");
    *created = (tx_loader){
        .samples = *samples,
        .course = plan_course(samples, options),
        .first = first,
        .slot_count = options->set->workers + HELD,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .filled = PTHREAD_COND_INITIALIZER,
        .freed = PTHREAD_COND_INITIALIZER,
    };
    tx_status status = allocate(created, options);
    if (!status && tx_loader_groups(options->set, samples->task))
        status = tx_grouping_create(samples, options->step_rows, &created->course.grouping);
    if (status) {
        tx_loader_free(created);
        return status;
    }
    if (options->set->pin)
        pin(created, &options->report);
    start_workers(created, options);
    *loader = created;
    return TX_OK;
}

void tx_loader_free(tx_loader *loader)
{
    if (!loader)
        return;
    stop_workers(loader);
    pthread_mutex_destroy(&loader->mutex);
    pthread_cond_destroy(&loader->filled);
    pthread_cond_destroy(&loader->freed);
    if (loader->locked)
        munlock(loader->memory, loader->memory_size);
    tx_grouping_free(loader->course.grouping);
    free(loader->memory);
    free(loader->workers);
    free(loader->slots);
    free(loader);
}

/* ---- Use ------------------------------------------------------------------------------------------- */

/* Releases the slot of the step before the last, and waits for step `number`. */
static void wait_for(tx_loader *l, const slot *s, int64_t number)
{
    pthread_mutex_lock(&l->mutex);
    if (number >= HELD) {
        l->released = number - HELD + 1;
        pthread_cond_signal(&l->freed);
    }
    while (s->ready != number)
        pthread_cond_wait(&l->filled, &l->mutex);
    pthread_mutex_unlock(&l->mutex);
}

tx_status tx_loader_next(tx_loader *loader, const tx_step_batch **batch)
{
    int64_t number = loader->given;
    slot *s = &loader->slots[number % loader->slot_count];
    double begin = tx_now();
    if (loader->worker_count)
        wait_for(loader, s, number);
    else
        prepare(loader, s, number);
    s->batch.waited = tx_now() - begin;
    if (s->status)
        return tx_fail(s->status, "%s", s->message);
    loader->given++;
    *batch = &s->batch;
    return TX_OK;
}

tx_status tx_loader_dump_order(const tx_samples *samples, const tx_loader_options *options, int64_t steps,
                               const char *path)
{
    enum { LINE = 48, ROOM = 8192 };
    char text[ROOM];
    size_t used = 0;
    tx_file *file;
    TX_TRY(check(samples, options, steps));
    TX_TRY(tx_file_create_output(path, &file));
    course c = plan_course(samples, options);
    const bool groups = tx_loader_groups(options->set, samples->task);
    tx_status status = groups ? tx_grouping_create(samples, c.step_rows, &c.grouping) : TX_OK;
    for (int64_t step = 0; step < steps && !status; step++) {
        tx_step_batch b = describe(&c, step);
        for (int64_t row = 0; row < b.rows && !status; row++) {
            used += (size_t)snprintf(text + used, LINE, "%" PRId64 " %" PRId64 "\n", b.epoch,
                                     sample_at(&c, b.epoch, b.first + row));
            if (used > ROOM - LINE) {
                status = tx_file_append(file, text, used);
                used = 0;
            }
        }
    }
    TX_THEN(status, tx_file_append(file, text, used));
    tx_grouping_free(c.grouping);
    return tx_file_end(file, status);
}
