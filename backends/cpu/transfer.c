/* SPDX-License-Identifier: Apache-2.0
 * The transfer queue: a thread that copies beside what the caller's thread computes. Copies are numbered from 1 in the
 * order in which they are given. */
#include "backends/cpu/cpu.h"

#include "api/base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Copies that may wait for the thread; whoever gives one more waits for room. */
#define ROOM 64

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copy;

struct tx_cpu_transfers {
    pthread_t thread;
    pthread_mutex_t mutex; /* for all that follows */
    pthread_cond_t more, fewer;
    copy copy[ROOM];
    int64_t given, made;
    bool stop;
};

static void *serve(void *argument)
{
    tx_cpu_transfers *t = argument;
    pthread_mutex_lock(&t->mutex);
    for (;;) {
        while (!t->stop && t->made == t->given)
            pthread_cond_wait(&t->more, &t->mutex);
        if (t->made == t->given)
            break;
        const copy next = t->copy[t->made % ROOM];
        pthread_mutex_unlock(&t->mutex);
        memcpy(next.to, next.from, next.bytes);
        pthread_mutex_lock(&t->mutex);
        t->made++;
        pthread_cond_signal(&t->fewer);
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
    pthread_cond_init(&t->more, NULL);
    pthread_cond_init(&t->fewer, NULL);
    if (!tx_thread_start(&t->thread, serve, t)) {
        free(t);
        return tx_fail(TX_MEMORY, "cpu: cannot start the thread of the transfer queue: %s", strerror(errno));
    }
    *transfers = t;
    return TX_OK;
}

/* Waits until copy `number` has been made. The mutex is held before and after. */
static void await_copy(tx_cpu_transfers *t, int64_t number)
{
    while (t->made < number)
        pthread_cond_wait(&t->fewer, &t->mutex);
}

tx_status tx_cpu_transfer(tx_cpu_transfers **transfers, void *to, const void *from, int64_t bytes)
{
    TX_TRY(*transfers ? TX_OK : start(transfers));
    tx_cpu_transfers *t = *transfers;
    pthread_mutex_lock(&t->mutex);
    await_copy(t, t->given + 1 - ROOM);
    t->copy[t->given++ % ROOM] = (copy){to, from, (size_t)bytes};
    pthread_cond_signal(&t->more);
    pthread_mutex_unlock(&t->mutex);
    return TX_OK;
}

int64_t tx_cpu_transfers_given(const tx_cpu_transfers *t)
{
    return t ? t->given : 0; /* the caller's own thread gives */
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
    pthread_cond_signal(&t->more);
    pthread_mutex_unlock(&t->mutex);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->more);
    pthread_cond_destroy(&t->fewer);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}
