/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the library, which receive no signals. */
#ifndef TX_API_THREAD_H
#define TX_API_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* Starts a thread with all signals blocked, so that the program's own threads handle them. Returns false, with errno
 * set, if the system refuses. */
bool tx_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);
/* Runs `run` for each of at most TX_PARTS_MOST parts, `size` bytes apart, and waits: the last one in this thread, the
 * others in threads of their own. If the system refuses a thread, this thread runs its part. */
#define TX_PARTS_MOST 256
void tx_thread_each(void *(*run)(void *), void *parts, size_t size, size_t count);
/* Block all signals, except those of faults, in the calling thread and in threads that it starts, until
 * tx_signals_take. Blocked signals are delivered then. */
void tx_signals_hold(sigset_t *before);
void tx_signals_take(const sigset_t *before);

#endif
