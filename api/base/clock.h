/* SPDX-License-Identifier: Apache-2.0
 * The system's clocks in seconds. tx_now is declared in tx_base.h. */
#ifndef TX_API_CLOCK_H
#define TX_API_CLOCK_H

#include "tx_base.h"

#include <time.h>

static inline double tx_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
