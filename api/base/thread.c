/* SPDX-License-Identifier: Apache-2.0
 * Threads with blocked signals. */
#include "api/base/thread.h"

#include <errno.h>

void tx_signals_hold(sigset_t *before)
{
    static const int of_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}; /* cannot be deferred */
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof of_faults / sizeof of_faults[0]; i++)
        sigdelset(&all, of_faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

void tx_signals_take(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

bool tx_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t before;
    tx_signals_hold(&before); /* the new thread inherits the mask */
    int error = pthread_create(thread, NULL, run, argument);
    tx_signals_take(&before);
    if (error)
        errno = error;
    return error == 0;
}

void tx_thread_each(void *(*run)(void *), void *parts, size_t size, size_t count)
{
    pthread_t thread[TX_PARTS_MOST];
    bool started[TX_PARTS_MOST];
    for (size_t i = 0; i < count; i++) {
        void *part = (char *)parts + i * size;
        started[i] = i + 1 < count && tx_thread_start(&thread[i], run, part);
        if (!started[i])
            run(part);
    }
    for (size_t i = 0; i < count; i++)
        if (started[i])
            pthread_join(thread[i], NULL);
}
