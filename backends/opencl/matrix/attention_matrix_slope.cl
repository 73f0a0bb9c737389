/* SPDX-License-Identifier: Apache-2.0
 *
 * Processing of scores that both gradients of attention share with matrix units.
 */
#include "attention_matrix_tile.cl"

/* probability returns the probability of score s. slope returns the gradient of the scaled score from probability w
 * and the gradient t of the probability after dropout. The factor of the scores is positive.
 * lse is in powers of 2, and negated when it is loaded. If it were negated here, Intel's CPU compiler would move
 * the negation before the loop and use one work-item's value for all. */
static float probability(float s, float factor, float minus_lse)
{
    return EXP2(fma(s, factor, minus_lse));
}

static float slope(float w, float t, float delta, int is_left, float keep)
{
    return w * ((DROPOUT ? (is_left ? t * keep : 0.0f) : t) - delta);
}
