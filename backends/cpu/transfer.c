/* SPDX-License-Identifier: Apache-2.0
 *
 * The transfer queue of the cpu backend: a thread that copies while the calling thread computes. Copies are numbered
 * from 1 in the order in which they are enqueued.
 */
#include "backends/cpu/cpu.h"

#include "api/base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Capacity of the queue. Enqueueing into a full queue waits. */
#define CAPACITY 64

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copy;

struct tx_cpu_transfers {
    pthread_t thread;
    pthread_mutex_t mutex; /* protects the fields below */
    pthread_cond_t not_empty, progress;
    copy copy[CAPACITY];
    int64_t enqueued, done;
    bool stop;
};

static void *serve(void *argument)
{
    tx_cpu_transfers *t = argument;
    pthread_mutex_lock(&t->mutex);
    for (;;) {
        while (!t->stop && t->done == t->enqueued)
            pthread_cond_wait(&t->not_empty, &t->mutex);
        if (t->done == t->enqueued)
            break;
        const copy next = t->copy[t->done % CAPACITY];
        pthread_mutex_unlock(&t->mutex);
        memcpy(next.to, next.from, next.bytes);
        pthread_mutex_lock(&t->mutex);
        t->done++;
        pthread_cond_signal(&t->progress);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

static tx_status start(tx_cpu_transfers **transfers)
{
    tx_cpu_transfers *t = calloc(1, sizeof *t);
    if (!t)
        return tx_fail(TX_MEMORY, "cpu: no memory for the transfer queue");
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->not_empty, NULL);
    pthread_cond_init(&t->progress, NULL);
    if (!tx_thread_start(&t->thread, serve, t)) {
        free(t);
        return tx_fail(TX_MEMORY, "cpu: cannot start the thread of the transfer queue: %s", strerror(errno));
    }
    *transfers = t;
    return TX_OK;
}

/* Waits until copy `number` is done. The caller holds the mutex. */
static void await_copy(tx_cpu_transfers *t, int64_t number)
{
    while (t->done < number)
        pthread_cond_wait(&t->progress, &t->mutex);
}

tx_status tx_cpu_transfer(tx_cpu_transfers **transfers, void *to, const void *from, int64_t bytes)
{
    TX_TRY(*transfers ? TX_OK : start(transfers));
    tx_cpu_transfers *t = *transfers;
    pthread_mutex_lock(&t->mutex);
    await_copy(t, t->enqueued + 1 - CAPACITY);
    t->copy[t->enqueued++ % CAPACITY] = (copy){to, from, (size_t)bytes};
    pthread_cond_signal(&t->not_empty);
    pthread_mutex_unlock(&t->mutex);
    return TX_OK;
}

int64_t tx_cpu_transfers_given(const tx_cpu_transfers *t)
{
    return t ? t->enqueued : 0; /* only the calling thread enqueues */
}

void tx_cpu_transfers_wait(tx_cpu_transfers *t, int64_t number)
{
    if (!t || number == 0)
        return;
    pthread_mutex_lock(&t->mutex);
    await_copy(t, number);
    pthread_mutex_unlock(&t->mutex);
}

void tx_cpu_transfers_free(tx_cpu_transfers *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->mutex);
    t->stop = true;
    pthread_cond_signal(&t->not_empty);
    pthread_mutex_unlock(&t->mutex);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->not_empty);
    pthread_cond_destroy(&t->progress);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}
