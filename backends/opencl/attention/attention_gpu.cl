/* SPDX-License-Identifier: Apache-2.0
 * Attention in tiles on GPUs (Dao, FlashAttention-2, 2023): a work-group holds ROWS queries and walks over the keys. */
#include "attention_gpu_tile.cl"

#define LN_2 0.693147181f
#define KEEPER (WG == ROWS || item < ROWS) /* items that keep the running maximum and sum of row `item` */

static float4 larger(float4 a, float4 b)
{
    return a > b ? a : b;
}

static float row_max(const float4 s[SQ])
{
    float4 v = s[0];
    for (int n = 1; n < SQ; n++)
        v = larger(v, s[n]);
    return fmax(fmax(v.x, v.y), fmax(v.z, v.w)); /* NaN shows in the sums instead */
}

/* Masks the keys from `last` on and those that queries do not see. */
static void mask(float4 s[MR][SQ], int base, int q0, int k0, int last, int T, int window, const __global int *starts,
                 int tx, int ty)
{
    const int reach = base + q0 + 4 * ty + 1 - k0 - 4 * tx, limit = last - k0 - 4 * tx; /* from the item's first score */
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

/* Running maximum and sum of the row that an item keeps. A tile may hide all its keys from it. */
typedef struct kept_row {
    float top, total;
} kept_row;

/* Takes a tile of scores into the maxima: those go to top_of, the factors of earlier sums to fade_of. */
static void raise_tops(const float4 s[MR][SQ], kept_row *kept, __local float *scores, __local float *top_of,
                       __local float *fade_of, int item, int tx, int ty)
{
    UNROLL for (int m = 0; m < MR; m++) scores[4 * ty * LP + tx + DOWN(m) * LP] = row_max(s[m]);
    BARRIER;
    if (KEEPER) {
        float high = kept->top;
        for (int i = 0; i < TX; i++)
            high = fmax(high, scores[item * LP + i]);
        top_of[item] = high;
        fade_of[item] = EXP2(kept->top - high);
        kept->total *= EXP2(kept->top - high);
        kept->top = high;
    }
    BARRIER;
}

/* Scores become exponentials in local memory, after dropout; the sums of an item's before that go to `sums`. */
static void exponentials(const float4 s[MR][SQ], __local float *scores, const __local float *top_of, __local float *sums,
                         const draws *drop, int q0, int k0, int tx, int ty)
{
    UNROLL for (int m = 0; m < MR; m++)
    {
        const float row_top = top_of[ROW(m)];
        float4 sum = 0.0f;
        UNROLL for (int n = 0; n < SQ; n++)
        {
            float4 w = EXP2(s[m][n] - row_top);
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
    __local float *const top_of = scores + ROWS * LP, *const fade_of = top_of + ROWS, *const sums = stage + SUMS;
    QUERY_TILE(ROWS, COLS);
    const uint stride = (uint)(heads + 2 * kv_heads) * D, query = q0 * stride + head * D;
    const __global h_t *const x = qkv + qo + b * (long)T * stride;
#if CACHED
    const uint kv_stride = (uint)kv_heads * D, key = kv_head * D, value = key;
    const __global h_t *const k = k_cache + ko + b * (long)S * kv_stride;
    const __global h_t *const v = v_cache + vo + b * (long)S * kv_stride;
#else
    const uint kv_stride = stride, key = (heads + kv_head) * D, value = key + kv_heads * D;
    const __global h_t *const k = x, *const v = x;
#endif
    float4 acc[AR][AQ];
    kept_row kept = {LOWEST, 0.0f};
    clear(acc);
    for (int k0 = begin; k0 < last; k0 += COLS) {
        float4 s[MR][SQ], held[OUT_LINES][OUT_QUADS];
        product_scores(x, query, stride, T - q0, k, key + k0 * kv_stride, kv_stride, last - k0, stage, s, tx, ty);
        fetch_terms(v, value + k0 * kv_stride, kv_stride, last - k0, held);
        EACH_SCORE(m, n) s[m][n] *= scale * LOG2_E;
        mask(s, base, q0, k0, last, T, window, starts_of, tx, ty);
        raise_tops(s, &kept, scores, top_of, fade_of, item, tx, ty);
        exponentials(s, scores, top_of, sums, &drop, q0, k0, tx, ty);
        EACH_OUT(m, n) acc[m][n] *= fade_of[OUT_ROW(m)];
        product_out(scores, v, value + k0 * kv_stride, kv_stride, min(COLS, last - k0), stage, held, acc, ux, uy);
        if (KEEPER)
            for (int i = 0; i < TX; i++)
                kept.total += sums[item * TX + i];
    }

    /* The reciprocal of each row's sum; 0 if the row has no keys. */
    BARRIER;
    if (KEEPER) {
        const int dead = q0 + item >= length;
        fade_of[item] = dead ? 0.0f : 1.0f / kept.total;
#if !CACHED
        if (q0 + item < T)
            lse[lso + (b * (long)heads + head) * T + q0 + item] = dead ? 0.0f : (kept.top + log2(kept.total)) * LN_2;
#endif
    }
    BARRIER;
    EACH_OUT(m, n)
    {
        const float factor = fade_of[OUT_ROW(m)];
        acc[m][n] = factor == 0.0f ? (float4)0.0f : acc[m][n] * factor;
    }
    store_out(acc, 1.0f, o + oo + (b * (long)T + q0) * heads * D + head * D, (uint)heads * D, T - q0, ux, uy);
}
