/* SPDX-License-Identifier: Apache-2.0
 *
 * Leaving so that MPICH's launcher learns the exit status. Its proxy on each host (hydra_pmi_proxy, seen up to 4.0.2)
 * notes the status of a process only if it finds it dead while another output of its processes is open, and while the
 * process's connection to the launcher (PMI) is not found closed without a farewell: else it takes 0, and mpiexec ends
 * with 0 though every rank failed. It looks for dead processes whenever an output of one closes.
 *
 * So a child keeps what the process has open until that is dead, closes its standard output, by which the proxy finds
 * it, and then the rest. */
#include "comm/transport.h"

#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum {
    FILES = 4096,     /* descriptors that may be open */
    LOOKS = 5000,     /* for the end of the process; */
    LOOK = 2000000,   /* nanoseconds between them */
    MOMENT = 50000000 /* nanoseconds in which the proxy acts */
};

static void rest(long nanoseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL);
}

/* The child, which may call little: other threads of the process may have held any lock. */
static void stay(pid_t process, int pmi)
{
    for (int i = 0; i < LOOKS && getppid() == process; i++)
        rest(LOOK);
    rest(MOMENT);
    for (int file = 0; file < FILES; file++) /* standard output has several: the proxy lets its processes inherit all */
        if (file != STDERR_FILENO && file != pmi)
            close(file);
    rest(MOMENT);
    _exit(0);
}

void tx_leave(void)
{
    const char *pmi = getenv("PMI_FD");
    const pid_t process = getpid();
    if (!pmi) /* another launcher */
        return;
    if (fork() == 0)
        stay(process, atoi(pmi));
}
