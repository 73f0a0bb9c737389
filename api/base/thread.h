/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the library, which receive no signals. */
#ifndef TX_API_THREAD_H
#define TX_API_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* Starts a thread with all signals blocked, so that the program's own threads handle them. Returns false, with errno
 * set, if the system refuses. */
bool tx_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);
/* Block all signals, except those of faults, in the calling thread and in threads that it starts, until
 * tx_signals_take. Blocked signals are delivered then. */
void tx_signals_hold(sigset_t *before);
void tx_signals_take(const sigset_t *before);

#endif
