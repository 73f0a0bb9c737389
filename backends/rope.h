/* SPDX-License-Identifier: Apache-2.0
 * Rotary positions: how far a pair turns. */
#ifndef TX_BACKENDS_ROPE_H
#define TX_BACKENDS_ROPE_H

#include "backends/backend.h"

#include <math.h>

/* The angle of pair `pair` at position 1, in radians, as tx_rope says. In fp32, as models keep these numbers: at
 * position 100,000 another rounding would turn by a hundredth. */
static inline float tx_rope_frequency(const tx_attrs *attrs, int32_t pair)
{
    const tx_rope *r = &attrs->rope;
    const double frequency = pow((double)r->theta, -2.0 * pair / attrs->head_size);
    const double ramp = (double)r->ramp + (double)r->ramp_pair * pair + (double)r->ramp_frequency * frequency;
    const double slow = fmin(fmax(ramp, 0.0), 1.0);
    return (float)(frequency * (1.0 - slow + slow / (double)r->factor));
}

#endif
