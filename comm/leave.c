/* SPDX-License-Identifier: Apache-2.0
 * Ends a process so that MPICH's launcher learns its exit status. The launcher's proxy on each host
 * (hydra_pmi_proxy, observed up to 4.0.2) records the status of a process only under two conditions. Another output
 * of its processes must be open when it finds the process dead. The process's connection to the launcher (PMI) must
 * not have been closed without its farewell message. Otherwise the proxy assumes 0, and mpiexec returns 0 although
 * every rank failed. The proxy checks for dead processes whenever an output of one closes.
 *
 * A child process therefore keeps the open files until the parent is dead. It then closes its standard output, which
 * makes the proxy check, and finally the rest. */
#include "comm/transport.h"

#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum {
    FILES = 4096,             /* file descriptors that may be open */
    CHECKS = 5000,            /* checks whether the process has ended */
    CHECK_INTERVAL = 2000000, /* nanoseconds between checks */
    REACTION = 50000000       /* nanoseconds for the proxy to react */
};

static void pause_for(long nanoseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL);
}

/* Runs in the child. It may call only async-signal-safe functions, because other threads of the process may have
 * held any lock. */
static void keep_files_open(pid_t process, int pmi)
{
    for (int i = 0; i < CHECKS && getppid() == process; i++)
        pause_for(CHECK_INTERVAL);
    pause_for(REACTION);
    /* Several descriptors refer to standard output, because the proxy's processes inherit all of them. */
    for (int file = 0; file < FILES; file++)
        if (file != STDERR_FILENO && file != pmi)
            close(file);
    pause_for(REACTION);
    _exit(0);
}

void tx_leave(void)
{
    const char *pmi = getenv("PMI_FD");
    const pid_t process = getpid();
    if (!pmi) /* another launcher */
        return;
    if (fork() == 0)
        keep_files_open(process, atoi(pmi));
}
