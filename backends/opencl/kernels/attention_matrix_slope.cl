/* SPDX-License-Identifier: Apache-2.0
 * What both gradients of attention do with scores by matrix units. */
#include "attention_matrix_tile.cl"

/* From a score s to its probability w, which is 0 where it is hidden, and from the gradient t of what dropout leaves of that to the gradient
 * of the scaled score. lse in powers of 2. */
static float probability(float s, float factor, float lse, int hidden)
{
    return hidden ? 0.0f : EXP2(fma(s, factor, -lse));
}

static float slope(float w, float t, float delta, int is_left, float keep)
{
    return w * ((DROPOUT ? (is_left ? t * keep : 0.0f) : t) - delta);
}
