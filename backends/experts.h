/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits of op TOP_K, and the capacity of experts for op ROUTE, for all backends.
 */
#ifndef TX_BACKENDS_EXPERTS_H
#define TX_BACKENDS_EXPERTS_H

#include "backends/backend.h"

#include <math.h>

/* The most groups of op TOP_K. */
#define TX_CHOICE_GROUPS 64

/* Returns a mantissa such that factor = mantissa / 2^shift exactly, or 0 if the factor is not positive. */
static inline int64_t tx_factor_mantissa(float factor, int32_t *shift)
{
    int exponent = 0;
    const float part = factor > 0.0f ? frexpf(factor, &exponent) : 0.0f;
    *shift = 24 - exponent;
    return (int64_t)ldexpf(part, 24);
}

/* Returns ceil(factor * choices / experts) computed exactly, at most `choices`. A factor of 0 means no limit:
 * `choices`. */
static inline int64_t tx_expert_capacity(float factor, int64_t choices, int64_t experts)
{
    int32_t shift;
    const int64_t mantissa = tx_factor_mantissa(factor, &shift);
    const int64_t even = tx_ceil_div(mantissa * choices, experts);
    if (mantissa == 0 || shift < 1)
        return choices;
    const int64_t limit = shift < 62 ? (even + ((int64_t)1 << shift) - 1) >> shift : even > 0;
    return limit < choices ? limit : choices;
}

#endif
