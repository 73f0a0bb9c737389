/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the library. */
#ifndef TX_API_THREAD_H
#define TX_API_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* Starts a thread that takes no signals, so that the program's handlers run where it expects them. False where the
 * system refuses; errno says why. */
bool tx_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);
/* Between the two the calling thread, and those that it starts, take no signals but those of their own faults; the
 * others come after it. */
void tx_signals_hold(sigset_t *before);
void tx_signals_take(const sigset_t *before);

#endif
