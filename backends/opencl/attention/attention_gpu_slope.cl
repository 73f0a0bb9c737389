/* SPDX-License-Identifier: Apache-2.0
 *
 * Processing of score tiles that both gradients of attention share on GPUs.
 */
#include "attention_gpu_tile.cl"

/* Loads the log-sum-exp (in powers of 2) and the row sums of do * o of ROWS queries. Queries after the first
 * `valid` get probability 0. */
static void bring_stats(const __global float *lse, const __global float *delta, int valid, __local float *lse_of,
                        __local float *delta_of)
{
    for (int i = (int)get_local_id(0); i < ROWS; i += WG) {
        lse_of[i] = i < valid ? lse[i] * LOG2_E : INFINITY;
        delta_of[i] = i < valid ? delta[i] : 0.0f;
    }
}

/* On entry s holds unscaled scores, and `tile` the gradients of their probabilities. On return s holds the
 * gradients of the scaled scores. `tile` then holds the operand of the first product: the probabilities after
 * dropout with KEYS_OUT, else the same gradients.
 * A work-item accesses only its own elements of `tile`. Keys from `last` on and before a query's first key are
 * masked. */
static void slopes(float4 s[MR][SQ], __local float *tile, const __local float *lse_of, const __local float *delta_of,
                   int q0, int k0, int last, int T, int window, const __global int *starts, float scale,
                   const draws *drop, int tx, int ty)
{
    const int edge = k0 + COLS > last || (CAUSAL && k0 + COLS > q0 + 1);
    const int reach = q0 + 4 * ty + 1 - k0 - 4 * tx, limit = last - k0 - 4 * tx;
    tile += 4 * ty * LP + 4 * tx;
    EACH_SCORE(m, n)
    {
        __local float *const place = tile + PLACE(m, n);
#ifdef CAP
        const float4 score = s[m][n] * (scale / LOG2_E);
        float4 w = EXP2(CAPPED(score) * LOG2_E - lse_of[ROW(m)]), slope = LOCAL4(place), kept;
#else
        float4 w = EXP2(fma(s[m][n], (float4)scale, (float4)-lse_of[ROW(m)])), slope = LOCAL4(place), kept;
#endif
        if (edge) {
            const int seen = CAUSAL ? min(limit, reach + DOWN(m)) : limit;
            w = 4 * TX * n + (int4)(0, 1, 2, 3) < seen ? w : (float4)0.0f;
        }
        if (BOUNDED) {
            const int from = first_key(0, min(q0 + ROW(m), T - 1), window, starts);
            w = k0 + COL(n) + (int4)(0, 1, 2, 3) >= from ? w : (float4)0.0f;
        }
        kept = w;
        if (DROPOUT) {
            const float4 factor = draw_factors(drop, q0 + ROW(m), k0 + COL(n));
            kept *= factor;
            slope *= factor;
        }
        s[m][n] = w * (slope - delta_of[ROW(m)]) CAP_SLOPE(score);
        LOCAL4(place) = KEYS_OUT ? kept : s[m][n];
    }
}
