/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradients of attention's keys and values on CPU devices. Rows are keys, columns are queries of all heads that
 * read this key head.
 */
#include "attention_cpu_tile.cl"

/* The queries of a step in local memory, and their positions. */
typedef struct queries {
    const __local float *tile_t, *slopes_t; /* columns of queries, and of the gradients of their outputs */
    __local float *lse, *delta;
    __local int *first_key; /* of each query */
    int q0, k0, length;
} queries;

/* Columns without a query get lse and delta 0; their probabilities are masked. */
static void load_stats(const queries *of, const __global float *lse, const __global float *delta, int T, int window,
                       const __global int *starts)
{
    for (int i = 0; i < COLS; i++) {
        of->lse[i] = of->q0 + i < of->length ? lse[i] : 0.0f;
        of->delta[i] = of->q0 + i < of->length ? delta[i] : 0.0f;
        of->first_key[i] = BOUNDED ? first_key(0, min(of->q0 + i, T - 1), window, starts) : 0;
    }
}

/* On entry `scores` holds dropout's factors. On return it holds the probabilities after dropout, and `slopes` the
 * gradients of the scaled scores. */
static void slope_tile(const queries *of, const __local float *k_tile, const __local float *v_tile,
                       __local float *scores, __local float *slopes, float scale)
{
    EACH_SCORE(rs, cs)
    {
        vec s[MR], dp[MR];
        product_nt(k_tile, of->tile_t, s, rs, cs);
        product_nt(v_tile, of->slopes_t, dp, rs, cs);
        const vec l = LLOAD(of->lse + cs * VW), delta = LLOAD(of->delta + cs * VW);
        const ivec query = of->q0 + SCORE_COLS(cs);
        UNROLL for (int m = 0; m < MR; m++)
        {
            const int key = of->k0 + ROW(rs, m), start = key >= of->length ? of->length : CAUSAL ? key : 0;
            const int place = ROW(rs, m) * COLS + cs * VW;
            vec w = tx_exp(CAPPED(s[m] * scale) - l);
            w = (query >= start && query < of->length) ? w : (vec)0.0f;
            if (BOUNDED)
                w = key >= vload16(0, of->first_key + cs * VW) ? w : (vec)0.0f;
            vec kept = w;
            if (DROPOUT) {
                const vec factor = LLOAD(scores + place);
                kept *= factor;
                dp[m] *= factor;
            }
            LSTORE(kept, scores + place);
            w *= (dp[m] - delta) * scale CAP_SLOPE(s[m] * scale);
            LSTORE(w, slopes + place);
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
attention_grad_kv(ATTENTION_GRAD_ARGUMENTS, __local vec *pool)
{
    TILE(k_tile, ROWS, DP);
    TILE(v_tile, ROWS, DP);
    TILE(q_tile, COLS, DP);
    TILE(q_tile_t, DP, COLS);
    TILE(do_tile, COLS, DP);
    TILE(do_tile_t, DP, COLS);
    TILE(scores, ROWS, COLS);
    TILE(slopes, ROWS, COLS);
    TILE(lse_part, COLS, 1);
    TILE(delta_part, COLS, 1);
    TILE(firsts, COLS, 1);
    KEY_TILE(ROWS, COLS);
    const long stride = (long)(heads + 2 * kv_heads) * D;
    const long key = (b * (long)T + k0) * stride + (long)(heads + kv_head) * D;

    vec dk[ROW_STEPS][DIM_STEPS][MR], dv[ROW_STEPS][DIM_STEPS][MR];
    clear(dk);
    clear(dv);
    load_tile(k_tile, qkv + qo + key, stride, ROWS, length - k0);
    load_tile(v_tile, qkv + qo + key + (long)kv_heads * D, stride, ROWS, length - k0);
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        const draws drop = draws_of(control, b, site, plane + head, p, first_row, first_column);
        for (int q0 = first; q0 < end; q0 += COLS) {
            if (STARTS && least_key(0, q0, COLS, T, window, starts_of) >= k0 + ROWS)
                continue;
            const queries of = {q_tile_t, do_tile_t, lse_part, delta_part, (__local int *)firsts, q0, k0, length};
            const long at = b * (long)T + q0, stats = (b * (long)heads + head) * T + q0;
            load_tile(q_tile, qkv + qo + at * stride + (long)head * D, stride, COLS, length - q0);
            load_tile(do_tile, d_o + doo + (at * heads + head) * D, (long)heads * D, COLS, length - q0);
            transpose(q_tile_t, q_tile);
            transpose(do_tile_t, do_tile);
            load_stats(&of, lse + lso + stats, delta + deo + stats, T, window, starts_of);
            if (DROPOUT)
                draw_tile(scores, COLS, ROWS, 1, COLS, q0, k0, &drop);
            slope_tile(&of, k_tile, v_tile, scores, slopes, scale);
            product_nn(scores, do_tile, dv, min(COLS, length - q0));
            product_nn(slopes, q_tile, dk, min(COLS, length - q0));
        }
    }
    store_tile(dk, dqkv + dqo + key, stride, T - k0);
    store_tile(dv, dqkv + dqo + key + (long)kv_heads * D, stride, T - k0);
}
