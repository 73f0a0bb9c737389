/* SPDX-License-Identifier: Apache-2.0
 * What both gradients of attention do with scores by matrix units. */
#include "attention_matrix_tile.cl"

/* From a score s to its probability w, and from the gradient t of what dropout leaves of that to the gradient of the scaled score. lse is in powers
 * of 2, and negated where it is read: were it negated here, Intel's compiler for CPUs would do that before the loop, and give all work-items that of
 * one. The factor of the scores is positive. */
static float probability(float s, float factor, float minus_lse)
{
    return EXP2(fma(s, factor, minus_lse));
}

static float slope(float w, float t, float delta, int is_left, float keep)
{
    return w * ((DROPOUT ? (is_left ? t * keep : 0.0f) : t) - delta);
}
