/* SPDX-License-Identifier: Apache-2.0
 * Threads that leave signals to the program. */
#include "api/base/thread.h"

#include <errno.h>
#include <signal.h>

bool tx_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits it */
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        errno = error;
    return error == 0;
}
