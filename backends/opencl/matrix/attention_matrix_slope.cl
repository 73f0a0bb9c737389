/* SPDX-License-Identifier: Apache-2.0
 *
 * Code that both gradients of attention share with matrix units: scores, and sums of columns.
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

#if defined(LINE_BIT) && !BOUNDED /* there compilers would spill registers */
#define SUMS_COLUMNS 1
#define SUMS_ARGUMENTS , __global float *column_sums, long column_sums_at

/* Stores the sums of the output's columns over the own lines of the work-group, times `factor`. Lines that do not exist
 * are 0. The pool has room for D sums of each warp. */
TX_INLINE void store_sums(const outputs *out, float factor, __global float *to, __local ab_t *pool, int item,
                          __local uint *shown)
{
    __local float *const warp_sums = (__local float *)pool;
    const int lane = item % LANES;
    barrier(CLK_LOCAL_MEM_FENCE); /* the pool has been read */
    UNROLLED for (int c = 0; c < OUT_ATOMS; c++)
        UNROLLED for (int first = 0; first < SUMS; first += BESIDE * LANE_LINES)
            UNROLLED for (int e = first; e < first + BESIDE; e++)
    {
        float sum = 0.0f;
        UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
            UNROLLED for (int l = 0; l < LANE_LINES; l++) sum += out->of[i][c][e + l * BESIDE];
        UNROLLED for (int bit = LINE_BIT; bit < LINE_END; bit *= 2) sum += across(sum, bit, shown);
        if (OWN_OF(0, lane) == 0)
            warp_sums[item / LANES * D + c * OTHER_ATOM + OTHER_OF(e, lane)] = sum * factor;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int column = item; column < D; column += GROUP) {
        float sum = 0.0f;
        UNROLLED for (int warp = 0; warp < WARPS; warp++) sum += warp_sums[warp * D + column];
        to[column] = sum;
    }
}
#else
#define SUMS_COLUMNS 0
#define SUMS_ARGUMENTS
#endif
