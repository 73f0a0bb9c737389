/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of attention's queries on CPU devices.
 */
#include "attention_cpu_tile.cl"

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
attention_grad_q(ATTENTION_GRAD_ARGUMENTS, __local vec *pool)
{
    TILE(q_tile, ROWS, DP);
    TILE(do_tile, ROWS, DP);
    TILE(k_tile, COLS, DP);
    TILE(k_tile_t, DP, COLS);
    TILE(v_tile, COLS, DP);
    TILE(v_tile_t, DP, COLS);
    TILE(scores, ROWS, COLS);
    QUERY_TILE(ROWS, COLS);
    const long stride = (long)(heads + 2 * kv_heads) * D, stats = (b * (long)heads + head) * T;
    const long query = (b * (long)T + q0) * stride + (long)head * D;
    const __global h_t *k = qkv + qo + b * (long)T * stride + (long)(heads + kv_head) * D;
    const __global h_t *v = k + (long)kv_heads * D;
    lse += lso + stats;
    delta += deo + stats;

    vec acc[ROW_STEPS][DIM_STEPS][MR];
    clear(acc);
    load_tile(q_tile, qkv + qo + query, stride, ROWS, length - q0);
    load_tile(do_tile, d_o + doo + (b * (long)T + q0) * heads * D + (long)head * D, (long)heads * D, ROWS, length - q0);
    for (int k0 = begin; k0 < last; k0 += COLS) {
        load_tile(k_tile, k + k0 * stride, stride, COLS, last - k0);
        load_tile(v_tile, v + k0 * stride, stride, COLS, last - k0);
        transpose(k_tile_t, k_tile);
        transpose(v_tile_t, v_tile);
        if (DROPOUT)
            draw_tile(scores, ROWS, COLS, COLS, 1, q0, k0, &drop);
        EACH_SCORE(rs, cs)
        {
            vec s[MR], dp[MR];
            product_nt(q_tile, k_tile_t, s, rs, cs);
            product_nt(do_tile, v_tile_t, dp, rs, cs);
            UNROLL for (int m = 0; m < MR; m++)
            {
                const int row = ROW(rs, m), at = min(q0 + row, length - 1);
                const int limit = q0 + row >= length ? 0 : CAUSAL ? min(last, q0 + row + 1) : last;
                __local float *const place = scores + row * COLS + cs * VW;
                vec w = tx_exp(CAPPED(s[m] * scale) - lse[at]);
                w = k0 + SCORE_COLS(cs) < limit ? w : (vec)0.0f;
                if (BOUNDED)
                    w = k0 + SCORE_COLS(cs) >= first_key(0, at, window, starts_of) ? w : (vec)0.0f;
                if (DROPOUT)
                    dp[m] *= LLOAD(place);
                w *= (dp[m] - delta[at]) * scale CAP_SLOPE(s[m] * scale);
                LSTORE(w, place);
            }
        }
        product_nn(scores, k_tile, acc, min(COLS, last - k0));
    }
    store_tile(acc, dqkv + dqo + query, stride, T - q0);
}
