/* SPDX-License-Identifier: Apache-2.0
 * The queue of transfers, and the thread that executes them. */
#include "comm/queue.h"
#include "api/base/thread.h"
#include "comm/common.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tx_queue {
    tx_comm *comm;
    tx_transfer_make make;
    int32_t begun, done; /* requests; numbered from 0 again when none is outstanding. Used only by the thread that
                            begins and waits */
    double waited;       /* also only used by that thread */
    bool threaded;       /* also only used by that thread */
    pthread_t thread;
    pthread_mutex_t mutex; /* protects the fields below */
    pthread_cond_t added, completed;
    tx_transfer *pending; /* by request number */
    int32_t capacity;
    int32_t count, over; /* transfers in the queue, and completed transfers */
    bool stop;
    double moving;
    tx_status status; /* status and message of the failed transfer */
    char error[512];
};

/* Executes one transfer, unless an earlier one failed. The mutex is held on entry and on return. */
static void make_next(tx_queue *q)
{
    const tx_transfer transfer = q->pending[q->over];
    tx_status status = q->status;
    const double begin = tx_now();
    pthread_mutex_unlock(&q->mutex);
    if (!status && q->make)
        status = q->make(q->comm, &transfer);
    pthread_mutex_lock(&q->mutex);
    q->moving += tx_now() - begin;
    if (status && !q->status) {
        q->status = status;
        snprintf(q->error, sizeof q->error, "%s", tx_error());
    }
    q->over++;
}

static void *serve(void *argument)
{
    tx_queue *q = argument;
    pthread_mutex_lock(&q->mutex);
    for (;;) {
        while (!q->stop && q->over == q->count)
            pthread_cond_wait(&q->added, &q->mutex);
        if (q->stop)
            break;
        make_next(q);
        pthread_cond_signal(&q->completed);
    }
    pthread_mutex_unlock(&q->mutex);
    return NULL;
}

/* ---- Thread ---------------------------------------------------------------------------------- */

static void end_thread(tx_queue *q)
{
    if (!q->threaded)
        return;
    pthread_mutex_lock(&q->mutex);
    q->stop = true;
    pthread_cond_signal(&q->added);
    pthread_mutex_unlock(&q->mutex);
    pthread_join(q->thread, NULL);
    q->threaded = q->stop = false;
}

tx_status tx_queue_check_empty(const tx_comm *comm, const char *call)
{
    const int32_t outstanding = comm->queue->begun - comm->queue->done;
    if (outstanding > 0)
        return tx_fail(TX_INVALID, "%s: %" PRId32 " transfers are outstanding; wait for them first", call, outstanding);
    return TX_OK;
}

tx_status tx_queue_background(tx_comm *comm, bool on)
{
    tx_queue *q = comm->queue;
    TX_TRY(tx_queue_check_empty(comm, "background"));
    if (!on)
        end_thread(q);
    else if (q->make && !q->threaded && !(q->threaded = tx_thread_start(&q->thread, serve, q)))
        return tx_fail(TX_MEMORY, "cannot start the thread of the communicator: %s", strerror(errno));
    return TX_OK;
}

/* ---- Transfers ------------------------------------------------------------------------------- */

/* The caller holds the mutex. */
static bool append(tx_queue *q, const tx_transfer *transfer)
{
    if (q->begun == q->capacity) {
        int32_t capacity = q->capacity ? 2 * q->capacity : 64;
        tx_transfer *grown = realloc(q->pending, (size_t)capacity * sizeof *grown);
        if (!grown)
            return false;
        q->pending = grown;
        q->capacity = capacity;
    }
    if (q->begun == 0)
        q->over = 0;
    q->pending[q->begun++] = *transfer;
    q->count = q->begun;
    return true;
}

tx_status tx_queue_begin(tx_comm *comm, const tx_transfer *transfer, int32_t *request)
{
    tx_queue *q = comm->queue;
    TX_TRY(tx_comm_check(comm, transfer));
    pthread_mutex_lock(&q->mutex);
    if (q->done == q->begun)
        q->begun = q->done = 0;
    bool appended = append(q, transfer);
    if (appended)
        pthread_cond_signal(&q->added);
    pthread_mutex_unlock(&q->mutex);
    if (!appended)
        return tx_fail(TX_MEMORY, "no memory for %" PRId32 " transfers", q->begun + 1);
    *request = q->begun - 1;
    return TX_OK;
}

tx_status tx_queue_wait(tx_comm *comm, int32_t request)
{
    tx_queue *q = comm->queue;
    const double begin = tx_now();
    if (q->done == q->begun)
        return tx_fail(TX_INVALID, "wait: request %" PRId32 " was not begun or is already complete", request);
    if (request != q->done)
        return tx_fail(TX_INVALID, "wait: request %" PRId32 " is not the oldest, which has number %" PRId32, request,
                       q->done);
    q->done++;
    pthread_mutex_lock(&q->mutex);
    while (q->over <= request)
        if (q->threaded)
            pthread_cond_wait(&q->completed, &q->mutex);
        else
            make_next(q);
    tx_status status = q->status;
    pthread_mutex_unlock(&q->mutex);
    q->waited += tx_now() - begin;
    return status ? tx_fail(status, "%s", q->error) : TX_OK;
}

void tx_queue_times(tx_queue *queue, double *moving, double *waited)
{
    pthread_mutex_lock(&queue->mutex);
    *moving = queue->moving;
    pthread_mutex_unlock(&queue->mutex);
    *waited = queue->waited;
}

/* ---- Creation -------------------------------------------------------------------------------- */

tx_status tx_queue_create(tx_comm *comm, tx_transfer_make make)
{
    tx_queue *q = calloc(1, sizeof *q);
    if (!q)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    q->comm = comm;
    q->make = make;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->added, NULL);
    pthread_cond_init(&q->completed, NULL);
    comm->queue = q;
    return TX_OK;
}

void tx_queue_free(tx_queue *queue)
{
    if (!queue)
        return;
    end_thread(queue);
    pthread_cond_destroy(&queue->added);
    pthread_cond_destroy(&queue->completed);
    pthread_mutex_destroy(&queue->mutex);
    free(queue->pending);
    free(queue);
}
