/* SPDX-License-Identifier: Apache-2.0
 * The order of transfers, and the thread that makes them. */
#include "comm/queue.h"
#include "api/base/clock.h"
#include "comm/common.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tx_queue {
    tx_transfer_make make;
    void *context;
    tx_requests requests; /* of the thread that begins and waits */
    double waited;        /* likewise */
    bool threaded;        /* likewise */
    pthread_t thread;
    pthread_mutex_t mutex; /* for all that follows */
    pthread_cond_t begun, made;
    tx_transfer *pending; /* by request number */
    int32_t room;
    int32_t count, over; /* transfers begun and made since none was outstanding */
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
    if (!status)
        status = q->make(q->context, &transfer);
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
            pthread_cond_wait(&q->begun, &q->mutex);
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
    pthread_cond_signal(&q->begun);
    pthread_mutex_unlock(&q->mutex);
    pthread_join(q->thread, NULL);
    q->threaded = q->stop = false;
}

static tx_status start_thread(tx_queue *q)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are left to the program's own threads */
    int error = pthread_create(&q->thread, NULL, serve, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return tx_fail(TX_MEMORY, "cannot start the thread of the communicator: %s", strerror(error));
    q->threaded = true;
    return TX_OK;
}

tx_status tx_queue_idle(tx_queue *queue, const char *call)
{
    return tx_requests_idle(&queue->requests, call);
}

tx_status tx_queue_background(tx_queue *queue, bool on)
{
    tx_status status = tx_queue_idle(queue, "background");
    if (status || on == queue->threaded)
        return status;
    if (on)
        return start_thread(queue);
    end_thread(queue);
    return TX_OK;
}

/* ---- Transfers ---------------------------------------------------------------------------------------------- */

static bool keep(tx_queue *q, const tx_transfer *transfer, int32_t request)
{
    if (request == q->room) {
        int32_t room = q->room ? 2 * q->room : 64;
        tx_transfer *grown = realloc(q->pending, (size_t)room * sizeof *grown);
        if (!grown)
            return false;
        q->pending = grown;
        q->room = room;
    }
    if (request == 0)
        q->count = q->over = 0;
    q->pending[request] = *transfer;
    q->count = request + 1;
    return true;
}

tx_status tx_queue_begin(tx_queue *queue, const tx_transfer *transfer, int32_t *request)
{
    const tx_requests before = queue->requests;
    int32_t number = tx_requests_begin(&queue->requests);
    pthread_mutex_lock(&queue->mutex);
    bool kept = keep(queue, transfer, number);
    if (kept)
        pthread_cond_signal(&queue->begun);
    pthread_mutex_unlock(&queue->mutex);
    if (!kept) {
        queue->requests = before;
        return tx_fail(TX_MEMORY, "no memory for %" PRId32 " transfers", number + 1);
    }
    *request = number;
    return TX_OK;
}

tx_status tx_queue_wait(tx_queue *queue, int32_t request)
{
    const double begin = tx_now();
    tx_status status = tx_requests_end(&queue->requests, request);
    if (status)
        return status;
    pthread_mutex_lock(&queue->mutex);
    while (queue->over <= request)
        if (queue->threaded)
            pthread_cond_wait(&queue->made, &queue->mutex);
        else
            make_next(queue);
    status = queue->status;
    pthread_mutex_unlock(&queue->mutex);
    queue->waited += tx_now() - begin;
    return status ? tx_fail(status, "%s", queue->error) : TX_OK;
}

void tx_queue_times(tx_queue *queue, double *moving, double *waited)
{
    pthread_mutex_lock(&queue->mutex);
    *moving = queue->moving;
    pthread_mutex_unlock(&queue->mutex);
    *waited = queue->waited;
}

/* ---- Making and ending ---------------------------------------------------------------------------------------- */

tx_status tx_queue_create(tx_transfer_make make, void *context, tx_queue **queue)
{
    tx_queue *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    made->make = make;
    made->context = context;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->begun, NULL);
    pthread_cond_init(&made->made, NULL);
    *queue = made;
    return TX_OK;
}

void tx_queue_free(tx_queue *queue)
{
    if (!queue)
        return;
    end_thread(queue);
    pthread_cond_destroy(&queue->begun);
    pthread_cond_destroy(&queue->made);
    pthread_mutex_destroy(&queue->mutex);
    free(queue->pending);
    free(queue);
}
