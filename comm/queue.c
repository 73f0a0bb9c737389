/* SPDX-License-Identifier: Apache-2.0
 * The order of transfers, and the thread that makes them. */
#include "comm/queue.h"
#include "api/base/clock.h"
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
    int32_t begun, done; /* requests; numbered anew when none is outstanding. Of the thread that begins and waits, */
    double waited;       /* as is this */
    bool threaded;       /* and this */
    pthread_t thread;
    pthread_mutex_t mutex; /* for all that follows */
    pthread_cond_t more, made;
    tx_transfer *pending; /* by request number */
    int32_t room;
    int32_t count, over; /* transfers in it, and those that were made */
    bool stop;
    double moving;
    tx_status status; /* of the transfer that failed, and its message */
    char error[512];
};

/* Makes one transfer, unless an earlier one failed. The mutex is held before and after. */
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
            pthread_cond_wait(&q->more, &q->mutex);
        if (q->stop)
            break;
        make_next(q);
        pthread_cond_signal(&q->made);
    }
    pthread_mutex_unlock(&q->mutex);
    return NULL;
}

/* ---- The thread -------------------------------------------------------------------------------------------- */

static void end_thread(tx_queue *q)
{
    if (!q->threaded)
        return;
    pthread_mutex_lock(&q->mutex);
    q->stop = true;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->mutex);
    pthread_join(q->thread, NULL);
    q->threaded = q->stop = false;
}

tx_status tx_queue_idle(const tx_comm *comm, const char *call)
{
    const int32_t outstanding = comm->queue->begun - comm->queue->done;
    if (outstanding > 0)
        return tx_fail(TX_INVALID, "%s: %" PRId32 " transfers are outstanding: wait for them first", call, outstanding);
    return TX_OK;
}

tx_status tx_queue_background(tx_comm *comm, bool on)
{
    tx_queue *q = comm->queue;
    TX_TRY(tx_queue_idle(comm, "background"));
    if (!on)
        end_thread(q);
    else if (q->make && !q->threaded && !(q->threaded = tx_thread_start(&q->thread, serve, q)))
        return tx_fail(TX_MEMORY, "cannot start the thread of the communicator: %s", strerror(errno));
    return TX_OK;
}

/* ---- Transfers ---------------------------------------------------------------------------------------------- */

/* Under the mutex. */
static bool keep(tx_queue *q, const tx_transfer *transfer)
{
    if (q->begun == q->room) {
        int32_t room = q->room ? 2 * q->room : 64;
        tx_transfer *grown = realloc(q->pending, (size_t)room * sizeof *grown);
        if (!grown)
            return false;
        q->pending = grown;
        q->room = room;
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
    bool kept = keep(q, transfer);
    if (kept)
        pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->mutex);
    if (!kept)
        return tx_fail(TX_MEMORY, "no memory for %" PRId32 " transfers", q->begun + 1);
    *request = q->begun - 1;
    return TX_OK;
}

tx_status tx_queue_wait(tx_comm *comm, int32_t request)
{
    tx_queue *q = comm->queue;
    const double begin = tx_now();
    if (q->done == q->begun)
        return tx_fail(TX_INVALID, "wait: request %" PRId32 " was not begun or is done already", request);
    if (request != q->done)
        return tx_fail(TX_INVALID, "wait: request %" PRId32 " is not the oldest one, %" PRId32, request, q->done);
    q->done++;
    pthread_mutex_lock(&q->mutex);
    while (q->over <= request)
        if (q->threaded)
            pthread_cond_wait(&q->made, &q->mutex);
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

/* ---- Making and ending ---------------------------------------------------------------------------------------- */

tx_status tx_queue_create(tx_comm *comm, tx_transfer_make make)
{
    tx_queue *q = calloc(1, sizeof *q);
    if (!q)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    q->comm = comm;
    q->make = make;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_cond_init(&q->made, NULL);
    comm->queue = q;
    return TX_OK;
}

void tx_queue_free(tx_queue *queue)
{
    if (!queue)
        return;
    end_thread(queue);
    pthread_cond_destroy(&queue->more);
    pthread_cond_destroy(&queue->made);
    pthread_mutex_destroy(&queue->mutex);
    free(queue->pending);
    free(queue);
}
