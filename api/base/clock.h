/* SPDX-License-Identifier: Apache-2.0
 * The system's clocks in seconds. */
#ifndef TX_API_CLOCK_H
#define TX_API_CLOCK_H

#include <time.h>

static inline double tx_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What durations are measured by: seconds since some fixed moment, which never go back. */
static inline double tx_now(void)
{
    return tx_seconds(CLOCK_MONOTONIC);
}

#endif
