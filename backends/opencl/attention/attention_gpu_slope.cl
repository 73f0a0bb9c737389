/* SPDX-License-Identifier: Apache-2.0
 * What both gradients of attention do with a tile of scores on GPUs. */
#include "attention_gpu_tile.cl"

/* Log-sum-exp (in powers of 2) and row sums of do * o of ROWS queries; those after the first `valid` get probability
 * 0. */
static void bring_stats(const __global float *lse, const __global float *delta, int valid, __local float *lse_of,
                        __local float *delta_of)
{
    for (int i = (int)get_local_id(0); i < ROWS; i += WG) {
        lse_of[i] = i < valid ? lse[i] * LOG2_E : INFINITY;
        delta_of[i] = i < valid ? delta[i] : 0.0f;
    }
}

/* From scores s (not yet scaled) and the gradients of their probabilities, which lie in `tile`, to the gradients of the
 * scaled scores in s, and in `tile` what is multiplied first: the probabilities after dropout with KEYS_OUT, else the
 * same gradients. An item touches its own places only. Keys from `last` on are masked, and those before a query's first. */
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
        float4 w = EXP2(fma(s[m][n], (float4)scale, (float4)-lse_of[ROW(m)])), slope = LOCAL4(place), kept;
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
        s[m][n] = w * (slope - delta_of[ROW(m)]);
        LOCAL4(place) = KEYS_OUT ? kept : s[m][n];
    }
}
