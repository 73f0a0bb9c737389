/* SPDX-License-Identifier: Apache-2.0
 * The clock that durations are measured by. */
#ifndef TX_API_CLOCK_H
#define TX_API_CLOCK_H

#include <time.h>

/* Seconds since some fixed moment; never goes back. */
static inline double tx_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
