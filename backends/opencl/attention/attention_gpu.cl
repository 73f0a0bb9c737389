/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiled attention, forward, on GPUs (Dao, FlashAttention-2, 2023). A work-group holds ROWS queries and loops over
 * the keys.
 */
#include "attention_gpu_tile.cl"

#define LN_2 0.693147181f
#define OWNS_ROW (WG == ROWS || item < ROWS) /* work-items that own the running maximum and sum of row `item` */

static float4 larger(float4 a, float4 b)
{
    return a > b ? a : b;
}

static float row_max(const float4 s[SQ])
{
    float4 v = s[0];
    for (int n = 1; n < SQ; n++)
        v = larger(v, s[n]);
    return fmax(fmax(v.x, v.y), fmax(v.z, v.w)); /* NaN is ignored here; the sums propagate it */
}

/* Masks the keys from `last` on and the keys that queries do not attend to. */
static void mask(float4 s[MR][SQ], int base, int q0, int k0, int last, int T, int window, const __global int *starts,
                 int tx, int ty)
{
    const int reach = base + q0 + 4 * ty + 1 - k0 - 4 * tx,
              limit = last - k0 - 4 * tx; /* relative to the work-item's first score */
    if (k0 + COLS > last || (CAUSAL && k0 + COLS > base + q0 + 1))
        EACH_SCORE(m, n)
        {
            const int seen = CAUSAL ? min(limit, reach + DOWN(m)) : limit;
            s[m][n] = 4 * TX * n + (int4)(0, 1, 2, 3) < seen ? s[m][n] : (float4)-INFINITY;
        }
    if (BOUNDED)
        EACH_SCORE(m, n)
        {
            const int from = first_key(base, min(q0 + ROW(m), T - 1), window, starts);
            s[m][n] = k0 + COL(n) + (int4)(0, 1, 2, 3) >= from ? s[m][n] : (float4)-INFINITY;
        }
}

/* Running maximum and sum of the row that a work-item owns. A tile may mask all keys of the row. */
typedef struct row_state {
    float maximum, total;
} row_state;

/* Updates the running maxima with a tile of scores. Stores the maxima in max_of and the factors of earlier sums in
 * rescale_of. */
TX_INLINE void update_maxima(const float4 s[MR][SQ], row_state *state, __local float *scores, __local float *max_of,
                             __local float *rescale_of, int item, int tx, int ty)
{
    UNROLL for (int m = 0; m < MR; m++) scores[4 * ty * LP + tx + DOWN(m) * LP] = row_max(s[m]);
    BARRIER;
    if (OWNS_ROW) {
        float high = state->maximum;
        for (int i = 0; i < TX; i++)
            high = fmax(high, scores[item * LP + i]);
        max_of[item] = high;
        rescale_of[item] = EXP2(state->maximum - high);
        state->total *= EXP2(state->maximum - high);
        state->maximum = high;
    }
    BARRIER;
}

/* Stores exponentials of the scores after dropout in local memory. The sums before dropout of each work-item are
 * stored in `sums`. */
static void exponentials(const float4 s[MR][SQ], __local float *scores, const __local float *max_of,
                         __local float *sums, const draws *drop, int q0, int k0, int tx, int ty)
{
    UNROLL for (int m = 0; m < MR; m++)
    {
        const float row_maximum = max_of[ROW(m)];
        float4 sum = 0.0f;
        UNROLL for (int n = 0; n < SQ; n++)
        {
            float4 w = EXP2(s[m][n] - row_maximum);
            sum += w;
            if (DROPOUT)
                w *= draw_factors(drop, q0 + ROW(m), k0 + COL(n));
            LOCAL4(scores + 4 * ty * LP + 4 * tx + PLACE(m, n)) = w;
        }
        sums[4 * ty * TX + tx + DOWN(m) * TX] = (sum.x + sum.y) + (sum.z + sum.w);
    }
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attention(ATTENTION_ARGUMENTS, __local float4 *pool)
{
    const int item = (int)get_local_id(0), tx = GRID_X(item, TX), ty = GRID_Y(item, TX);
    const int ux = GRID_X(item, UX), uy = GRID_Y(item, UX);
    __local float *const stage = (__local float *)pool, *const scores = stage + STAGE;
    __local float *const max_of = scores + ROWS * LP, *const rescale_of = max_of + ROWS, *const sums = stage + SUMS;
    QUERY_TILE(ROWS, COLS);
    const uint stride = (uint)(heads + 2 * kv_heads) * D, query = q0 * stride + head * D;
    const __global h_t *const x = qkv + qo + b * (long)T * stride;
#if CACHED
    const uint kv_stride = (uint)kv_heads * D, key = kv_head * D, value = key;
    CACHED_ROWS(ROWS);
#else
    const uint kv_stride = stride, key = (heads + kv_head) * D, value = key + kv_heads * D;
    const __global h_t *const k = x, *const v = x;
#endif
    float4 acc[AR][AQ];
    row_state state = {SINK(LOWEST), SINKS ? 1.0f : 0.0f};
    if (SINKS)
        state.maximum *= LOG2_E;
    clear(acc);
    for (int k0 = begin; k0 < last; k0 += COLS) {
        float4 s[MR][SQ], held[OUT_LINES][OUT_QUADS];
        product_scores(x, query, stride, T - q0, k, key + k0 * kv_stride, kv_stride, last - k0, stage, s, tx, ty);
        fetch_terms(v, value + k0 * kv_stride, kv_stride, last - k0, held);
#ifdef CAP
        EACH_SCORE(m, n) s[m][n] = CAPPED(s[m][n] * scale) * LOG2_E;
#else
        EACH_SCORE(m, n) s[m][n] *= scale * LOG2_E;
#endif
        mask(s, base, q0, k0, last, T, window, starts_of, tx, ty);
        update_maxima(s, &state, scores, max_of, rescale_of, item, tx, ty);
        exponentials(s, scores, max_of, sums, &drop, q0, k0, tx, ty);
        EACH_OUT(m, n) acc[m][n] *= rescale_of[OUT_ROW(m)];
        product_out(scores, v, value + k0 * kv_stride, kv_stride, min(COLS, last - k0), stage, held, acc, ux, uy);
        if (OWNS_ROW)
            for (int i = 0; i < TX; i++)
                state.total += sums[item * TX + i];
    }

    /* The reciprocal of each row's sum; 0 if the row has no keys. */
    BARRIER;
    if (OWNS_ROW) {
        const int dead = q0 + item >= length;
        rescale_of[item] = dead ? 0.0f : 1.0f / state.total;
#if !CACHED
        if (q0 + item < T)
            lse[lso + (b * (long)heads + head) * T + q0 + item] =
                dead ? 0.0f : (state.maximum + log2(state.total)) * LN_2;
#endif
    }
    BARRIER;
    EACH_OUT(m, n)
    {
        const float factor = rescale_of[OUT_ROW(m)];
        acc[m][n] = factor == 0.0f ? (float4)0.0f : acc[m][n] * factor;
    }
    store_out(acc, 1.0f, o + oo + (b * (long)T + q0) * heads * D + head * D, (uint)heads * D, T - q0, ux, uy);
}
