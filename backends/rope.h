/* SPDX-License-Identifier: Apache-2.0
 *
 * Frequencies of rotary position embeddings, for all backends.
 */
#ifndef TX_BACKENDS_ROPE_H
#define TX_BACKENDS_ROPE_H

#include "backends/backend.h"

#include <math.h>

/* The number of elements of a head that are rotated. */
static inline int32_t tx_rope_rotated(const tx_attrs *attrs)
{
    return attrs->rope->rotated > 0 ? attrs->rope->rotated : attrs->attention.head_size;
}

/* Returns the angle of pair `pair` at position 1, in radians (see tx_rope). Models are trained with frequencies
 * that are rounded to fp32 after each of exponent, power, product and inverse. Unrounded frequencies would be off
 * by 0.005 at position 10,000. */
static inline float tx_rope_frequency(const tx_attrs *attrs, int32_t pair)
{
    const tx_rope *r = attrs->rope;
    const float exponent = (float)(2 * pair) / (float)tx_rope_rotated(attrs);
    const float power = (float)pow((double)r->theta, (double)exponent);
    const double frequency = (double)(1.0f / (r->divisor[pair] > 0.0f ? r->divisor[pair] * power : power));
    const double ramp = (double)r->ramp + (double)r->ramp_pair * pair + (double)r->ramp_frequency * frequency;
    const double slow = fmin(fmax(ramp, 0.0), 1.0);
    return (float)(frequency * (1.0 - slow + slow / (double)r->factor));
}

#endif
