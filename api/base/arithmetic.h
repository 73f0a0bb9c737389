/* SPDX-License-Identifier: Apache-2.0
 * Integer arithmetic that the engine, the backends and the communicators share. */
#ifndef TX_API_ARITHMETIC_H
#define TX_API_ARITHMETIC_H

#include <stdint.h>

static inline int64_t tx_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t tx_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the number of parts of `size` that cover `count`, at least 0. It cannot overflow. */
static inline int64_t tx_ceil_div(int64_t count, int64_t size)
{
    return count / size + (count % size != 0);
}

/* Returns the least multiple of `unit` that is at least `count`. */
static inline int64_t tx_round_up(int64_t count, int64_t unit)
{
    return tx_ceil_div(count, unit) * unit;
}

#endif
