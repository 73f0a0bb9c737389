/* SPDX-License-Identifier: Apache-2.0
 * How the OpenMP threads of a program wait. */
#define _GNU_SOURCE
#include "tools/cli/waiting.h"

#include "tx.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

/* How often GNU's threads look for work before they sleep: some microseconds. Beside other programs this costs nothing.
 * A program that began on a busy machine keeps most of its speed when the machine is idle again. Threads that sleep at
 * once take twice the time for a token. */
#define SPINS "1000"

void tx_wait_passively(char **argv, int32_t threads)
{
    static const char *const settings[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};
    char self[PATH_MAX];
    const char *asked = getenv("OMP_NUM_THREADS");
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        if (getenv(settings[i]))
            return;
    if (threads <= 0 && asked)
        threads = (int32_t)strtol(asked, NULL, 10);
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0 || !tx_cores_shared(threads) || setenv("OMP_WAIT_POLICY", "passive", 1) ||
        setenv("GOMP_SPINCOUNT", SPINS, 1))
        return;
    self[length] = '\0';
    execv(self, argv); /* if it fails, the program continues with threads that spin */
}
