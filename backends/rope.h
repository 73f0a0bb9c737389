/* SPDX-License-Identifier: Apache-2.0
 * Rotary positions: how far a pair turns. */
#ifndef TX_BACKENDS_ROPE_H
#define TX_BACKENDS_ROPE_H

#include "backends/backend.h"

#include <math.h>

/* The angle of pair `pair` at position 1, in radians, as tx_rope says. Models are trained with these numbers as fp32
 * gives them, exponent, power, product and inverse rounded one after the other; exact ones would be off by 0.005 at
 * position 10,000. */
static inline float tx_rope_frequency(const tx_attrs *attrs, int32_t pair)
{
    const tx_rope *r = &attrs->rope;
    const float exponent = (float)(2 * pair) / (float)attrs->attention.head_size;
    const float power = (float)pow((double)r->theta, (double)exponent);
    const double frequency = (double)(1.0f / (r->divisor[pair] > 0.0f ? r->divisor[pair] * power : power));
    const double ramp = (double)r->ramp + (double)r->ramp_pair * pair + (double)r->ramp_frequency * frequency;
    const double slow = fmin(fmax(ramp, 0.0), 1.0);
    return (float)(frequency * (1.0 - slow + slow / (double)r->factor));
}

#endif
