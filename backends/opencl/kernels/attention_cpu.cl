/* SPDX-License-Identifier: Apache-2.0
 * Attention in tiles on CPU devices (Dao, FlashAttention-2, 2023). */
#include "attention_cpu_tile.cl"

static vec larger(vec a, vec b)
{
    return a > b ? a : b;
}

/* Largest lane; NaN shows in the sums instead. */
static float largest(vec v)
{
    float8 a = v.lo > v.hi ? v.lo : v.hi;
    float4 b = a.lo > a.hi ? a.lo : a.hi;
    return fmax(fmax(b.x, b.y), fmax(b.z, b.w));
}

/* Dimension 0: tiles of queries, from the last, which has most keys when causal; 1: head; 2: b from
 * `first_b` on. With CACHED, keys and values are S rows a batch of k_cache and v_cache, and `lengths` holds positions: query
 * t stands at lengths[b] + t. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
attention(const __global h_t *qkv, long qo, const __global int *lengths, long leo, const __global h_t *k_cache,
          long ko, const __global h_t *v_cache, long vo, __global h_t *o, long oo, __global float *lse, long lso,
          int T, int S, const __global int *starts, long sto, int heads, int kv_heads, int window, float scale, float p,
          int site, int plane, int first_row, int first_column, int first_b, int first_head, int first_tile, const __global uint *control, __local vec *pool)
{
    TILE(q_tile, ROWS, DP);
    TILE(k_tile, COLS, DP);
    TILE(k_tile_t, DP, COLS);
    TILE(v_tile, COLS, DP);
    TILE(scores, ROWS, COLS);
    const int head = first_head + (int)get_group_id(1), b = first_b + (int)get_group_id(2);
    const int q0 = ((T - 1) / ROWS - first_tile - (int)get_group_id(0)) * ROWS;
    const int kv_head = head / (heads / kv_heads);
    const long stride = (long)(heads + 2 * kv_heads) * D;
    const __global h_t *q = qkv + qo + (b * (long)T + q0) * stride + (long)head * D;
#if CACHED
    const long kv_stride = (long)kv_heads * D;
    const int base = (int)tx_position(lengths[leo + b], S - T), length = T, keys = S;
    const __global h_t *k = k_cache + ko + b * (long)S * kv_stride + (long)kv_head * D;
    const __global h_t *v = v_cache + vo + b * (long)S * kv_stride + (long)kv_head * D;
#else
    const long kv_stride = stride;
    const int base = 0, length = LENGTHS ? clamp(lengths[leo + b], 0, T) : T, keys = length;
    const __global h_t *k = qkv + qo + b * (long)T * stride + (long)(heads + kv_head) * D;
    const __global h_t *v = k + (long)kv_heads * D;
#endif
    /* Keys that any query of the tile sees. */
    const int last = q0 >= length ? 0 : CAUSAL ? min(keys, base + min(q0 + ROWS, T)) : keys;
    const __global int *const starts_of = starts + sto + b * (long)T;
    const int begin = least_key(base, q0, ROWS, T, window, starts_of) / COLS * COLS;
    const draws drop = draws_of(control, b, site, plane + head, p, first_row, first_column);

    vec acc[ROW_STEPS][DIM_STEPS][MR], sum[ROW_STEPS][MR];
    float top[ROW_STEPS][MR];
    EACH_ROW(rs, m)
    {
        top[rs][m] = LOWEST;
        sum[rs][m] = 0.0f;
        for (int ds = 0; ds < DIM_STEPS; ds++)
            acc[rs][ds][m] = 0.0f;
    }
    load_tile(q_tile, q, stride, ROWS, T - q0);
    for (int k0 = begin; k0 < last; k0 += COLS) {
        load_tile(k_tile, k + k0 * kv_stride, kv_stride, COLS, last - k0);
        load_tile(v_tile, v + k0 * kv_stride, kv_stride, COLS, last - k0);
        transpose(k_tile_t, k_tile);
        if (DROPOUT)
            draw_tile(scores, ROWS, COLS, COLS, 1, q0, k0, &drop);
        vec s[ROW_STEPS][COL_STEPS][MR];
        const int edge = BOUNDED || k0 + COLS > last || (CAUSAL && k0 + COLS > base + q0 + 1);
        float high[ROW_STEPS][MR];
        for (int rs = 0; rs < ROW_STEPS; rs++) {
            for (int cs = 0; cs < COL_STEPS; cs++) {
                product_nt(q_tile, k_tile_t, s[rs][cs], rs, cs);
                UNROLL for (int m = 0; m < MR; m++)
                {
                    vec w = s[rs][cs][m] * scale;
                    if (edge) {
                        int limit = CAUSAL ? min(last, base + q0 + ROW(rs, m) + 1) : last;
                        w = k0 + SCORE_COLS(cs) < limit ? w : (vec)-INFINITY;
                        if (BOUNDED) {
                            const int from = first_key(base, min(q0 + ROW(rs, m), T - 1), window, starts_of);
                            w = k0 + SCORE_COLS(cs) >= from ? w : (vec)-INFINITY;
                        }
                    }
                    s[rs][cs][m] = w;
                }
            }
            UNROLL for (int m = 0; m < MR; m++)
            {
                vec w = s[rs][0][m];
                for (int cs = 1; cs < COL_STEPS; cs++)
                    w = larger(w, s[rs][cs][m]);
                high[rs][m] = largest(w);
            }
        }
        EACH_ROW(rs, m)
        {
            const float m1 = fmax(top[rs][m], high[rs][m]), fade = exp(top[rs][m] - m1);
            top[rs][m] = m1;
            sum[rs][m] *= fade;
            for (int cs = 0; cs < COL_STEPS; cs++) {
                __local float *const place = scores + ROW(rs, m) * COLS + cs * VW;
                vec w = tx_exp(s[rs][cs][m] - m1);
                sum[rs][m] += w;
                if (DROPOUT)
                    w *= LLOAD(place);
                LSTORE(w, place);
            }
            for (int ds = 0; ds < DIM_STEPS; ds++)
                acc[rs][ds][m] *= fade;
        }
        product_nn(scores, v_tile, acc, min(COLS, last - k0));
    }

    o += oo + (b * (long)T + q0) * heads * D + (long)head * D;
    EACH_ROW(rs, m)
    {
        const int row = ROW(rs, m), dead = q0 + row >= length;
        if (q0 + row >= T)
            continue;
        const float total = tx_hsum(sum[rs][m]), factor = dead ? 0.0f : 1.0f / total;
        for (int ds = 0; ds < DIM_STEPS; ds++)
            store_row(dead ? (vec)0.0f : acc[rs][ds][m] * factor, o + (long)row * heads * D + ds * VW, ds * VW);
#if !CACHED
        lse[lso + (b * (long)heads + head) * T + q0 + row] = dead ? 0.0f : top[rs][m] + log(total);
#endif
    }
}
