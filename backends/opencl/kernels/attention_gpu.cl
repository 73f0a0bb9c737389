/* SPDX-License-Identifier: Apache-2.0
 * Attention in tiles on GPUs (Dao, FlashAttention-2, 2023): a work-group holds ROWS queries and walks over the keys. */
#include "attention_gpu_tile.cl"

#define LN_2 0.693147181f
#define KEEPER (WG == ROWS || item < ROWS) /* items that keep the books of row `item` */

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

/* Masks what is not below `limit` and, when causal, below `reach`, which grows by 1 a row; both count from the item's
 * first score. */
static void mask(float4 s[MR][SQ], int reach, int limit)
{
    EACH_SCORE(m, n)
    {
        const int seen = CAUSAL ? min(limit, reach + DOWN(m)) : limit;
        s[m][n] = 4 * TX * n + (int4)(0, 1, 2, 3) < seen ? s[m][n] : (float4)-INFINITY;
    }
}

/* Dimension 0: tiles of queries, from the last, which has most keys when causal; 1: head; 2: b from
 * `first_b` on. With CACHED, keys and values are S rows a batch of k_cache and v_cache, and `lengths` holds positions: query
 * t stands at lengths[b] + t. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attention(const __global h_t *qkv, long qo, const __global int *lengths, long leo, const __global h_t *k_cache,
          long ko, const __global h_t *v_cache, long vo, __global h_t *o, long oo, __global float *lse, long lso,
          int T, int S, const __global int *starts, long sto, int heads, int kv_heads, int window, float scale, float p,
          int site, int plane, int first_row, int first_column, int first_b, int first_head, int first_tile, const __global uint *control, __local float4 *pool)
{
    const int item = (int)get_local_id(0), tx = GRID_X(item, TX), ty = GRID_Y(item, TX);
    const int ux = GRID_X(item, UX), uy = GRID_Y(item, UX);
    __local float *const stage = (__local float *)pool, *const scores = stage + STAGE;
    __local float *const top_of = scores + ROWS * LP, *const fade_of = top_of + ROWS, *const sums = stage + SUMS;
    const int head = first_head + (int)get_group_id(1), b = first_b + (int)get_group_id(2);
    const int q0 = ((T - 1) / ROWS - first_tile - (int)get_group_id(0)) * ROWS;
    const int kv_head = head / (heads / kv_heads);
    const uint stride = (uint)(heads + 2 * kv_heads) * D, query = q0 * stride + head * D;
    const __global h_t *const x = qkv + qo + b * (long)T * stride;
#if CACHED
    const uint kv_stride = (uint)kv_heads * D, key = kv_head * D, value = key;
    const int base = (int)tx_position(lengths[leo + b], S - T), length = T, keys = S;
    const __global h_t *const k = k_cache + ko + b * (long)S * kv_stride;
    const __global h_t *const v = v_cache + vo + b * (long)S * kv_stride;
#else
    const uint kv_stride = stride, key = (heads + kv_head) * D, value = key + kv_heads * D;
    const int base = 0, length = LENGTHS ? clamp(lengths[leo + b], 0, T) : T, keys = length;
    const __global h_t *const k = x, *const v = x;
#endif
    /* Keys that any query of the tile sees. */
    const int last = q0 >= length ? 0 : CAUSAL ? min(keys, base + min(q0 + ROWS, T)) : keys;
    const __global int *const starts_of = starts + sto + b * (long)T;
    const int begin = least_key(base, q0, ROWS, T, window, starts_of) / COLS * COLS;
    const draws drop = draws_of(control, b, site, plane + head, p, first_row, first_column);

    float4 acc[AR][AQ];
    /* Of the row that this item keeps the books of. A tile may hide all its keys from it. */
    float top = LOWEST, total = 0.0f;
    EACH_OUT(m, n) acc[m][n] = 0.0f;
    for (int k0 = begin; k0 < last; k0 += COLS) {
        float4 s[MR][SQ], held[OUT_LINES][OUT_QUADS];
        product_scores(x, query, stride, T - q0, k, key + k0 * kv_stride, kv_stride, last - k0, stage, s, tx, ty);
        fetch_terms(v, value + k0 * kv_stride, kv_stride, last - k0, held);
        EACH_SCORE(m, n) s[m][n] *= scale * LOG2_E;
        if (k0 + COLS > last || (CAUSAL && k0 + COLS > base + q0 + 1))
            mask(s, base + q0 + 4 * ty + 1 - k0 - 4 * tx, last - k0 - 4 * tx);
        if (BOUNDED)
            EACH_SCORE(m, n)
            {
                const int from = first_key(base, min(q0 + ROW(m), T - 1), window, starts_of);
                s[m][n] = k0 + COL(n) + (int4)(0, 1, 2, 3) >= from ? s[m][n] : (float4)-INFINITY;
            }
        UNROLL for (int m = 0; m < MR; m++) scores[4 * ty * LP + tx + DOWN(m) * LP] = row_max(s[m]);
        BARRIER;
        if (KEEPER) {
            float high = top;
            for (int i = 0; i < TX; i++)
                high = fmax(high, scores[item * LP + i]);
            top_of[item] = high;
            fade_of[item] = EXP2(top - high);
            total *= EXP2(top - high);
            top = high;
        }
        BARRIER;
        UNROLL for (int m = 0; m < MR; m++)
        {
            const float row_top = top_of[ROW(m)];
            float4 sum = 0.0f;
            UNROLL for (int n = 0; n < SQ; n++)
            {
                float4 w = EXP2(s[m][n] - row_top);
                sum += w;
                if (DROPOUT)
                    w *= draw_factors(&drop, q0 + ROW(m), k0 + COL(n));
                LOCAL4(scores + 4 * ty * LP + 4 * tx + PLACE(m, n)) = w;
            }
            sums[4 * ty * TX + tx + DOWN(m) * TX] = (sum.x + sum.y) + (sum.z + sum.w);
        }
        EACH_OUT(m, n) acc[m][n] *= fade_of[OUT_ROW(m)];
        product_out(scores, v, value + k0 * kv_stride, kv_stride, min(COLS, last - k0), stage, held, acc, ux, uy);
        if (KEEPER)
            for (int i = 0; i < TX; i++)
                total += sums[item * TX + i];
    }

    /* What each row is divided by; 0 where it has no keys. */
    BARRIER;
    if (KEEPER) {
        const int dead = q0 + item >= length;
        fade_of[item] = dead ? 0.0f : 1.0f / total;
#if !CACHED
        if (q0 + item < T)
            lse[lso + (b * (long)heads + head) * T + q0 + item] = dead ? 0.0f : (top + log2(total)) * LN_2;
#endif
    }
    BARRIER;
    o += oo + (b * (long)T + q0) * heads * D + head * D;
    EACH_OUT(m, n)
    {
        const int row = OUT_ROW(m);
        const float factor = fade_of[row];
        if (q0 + row < T && OUT_QUAD(n) < DP / 4)
            store_row(factor == 0.0f ? (float4)0.0f : acc[m][n] * factor, o + row * heads * D + 4 * OUT_QUAD(n),
                      4 * OUT_QUAD(n));
    }
}
