/* SPDX-License-Identifier: Apache-2.0
 * Gradients of attention's keys and values on CPU devices: rows are keys, columns queries of all heads that read this
 * key head. */
#include "attention_cpu_tile.cl"

/* Dimension 0: tiles of keys, from the first, which most queries see when causal; 1: key head; 2: b
 * from `first_b` on. */
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
    __local int *const first_part = (__local int *)firsts;
    const int kv_head = first_head + (int)get_group_id(1), b = first_b + (int)get_group_id(2);
    const int k0 = (first_tile + (int)get_group_id(0)) * ROWS, group = heads / kv_heads;
    const int length = LENGTHS ? clamp(lengths[leo + b], 0, T) : T;
    const int first = k0 >= length ? length : CAUSAL ? k0 / COLS * COLS : 0;
    const int end = WINDOW ? min(length, k0 + ROWS - 1 + window) : length; /* of the queries that a window leaves */
    const __global int *const starts_of = starts + sto + b * (long)T;
    const long stride = (long)(heads + 2 * kv_heads) * D;
    const long key = (b * (long)T + k0) * stride + (long)(heads + kv_head) * D;

    vec dk[ROW_STEPS][DIM_STEPS][MR], dv[ROW_STEPS][DIM_STEPS][MR];
    EACH_ROW(rs, m)
    {
        for (int ds = 0; ds < DIM_STEPS; ds++)
            dk[rs][ds][m] = dv[rs][ds][m] = 0.0f;
    }
    load_tile(k_tile, qkv + qo + key, stride, ROWS, length - k0);
    load_tile(v_tile, qkv + qo + key + (long)kv_heads * D, stride, ROWS, length - k0);
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        const draws drop = draws_of(control, b, site, plane + head, p, first_row, first_column);
        for (int q0 = first; q0 < end; q0 += COLS) {
            if (STARTS && least_key(0, q0, COLS, T, window, starts_of) >= k0 + ROWS)
                continue;
            const long at = b * (long)T + q0, stats = (b * (long)heads + head) * T + q0;
            load_tile(q_tile, qkv + qo + at * stride + (long)head * D, stride, COLS, length - q0);
            load_tile(do_tile, d_o + doo + (at * heads + head) * D, (long)heads * D, COLS, length - q0);
            transpose(q_tile_t, q_tile);
            transpose(do_tile_t, do_tile);
            for (int i = 0; i < COLS; i++) {
                lse_part[i] = q0 + i < length ? lse[lso + stats + i] : 0.0f;
                delta_part[i] = q0 + i < length ? delta[deo + stats + i] : 0.0f;
                first_part[i] = BOUNDED ? first_key(0, min(q0 + i, T - 1), window, starts_of) : 0;
            }
            if (DROPOUT)
                draw_tile(scores, COLS, ROWS, 1, COLS, q0, k0, &drop);
            EACH_SCORE(rs, cs)
            {
                vec s[MR], dp[MR];
                product_nt(k_tile, q_tile_t, s, rs, cs);
                product_nt(v_tile, do_tile_t, dp, rs, cs);
                const vec l = LLOAD(lse_part + cs * VW), delta_of = LLOAD(delta_part + cs * VW);
                const ivec query = q0 + SCORE_COLS(cs);
                UNROLL for (int m = 0; m < MR; m++)
                {
                    const int row = ROW(rs, m), start = k0 + row >= length ? length : CAUSAL ? k0 + row : 0;
                    const int place = row * COLS + cs * VW;
                    vec w = tx_exp(s[m] * scale - l);
                    w = (query >= start && query < length) ? w : (vec)0.0f;
                    if (BOUNDED)
                        w = k0 + row >= vload16(0, first_part + cs * VW) ? w : (vec)0.0f;
                    vec kept = w;
                    if (DROPOUT) {
                        const vec factor = LLOAD(scores + place);
                        kept *= factor;
                        dp[m] *= factor;
                    }
                    LSTORE(kept, scores + place);
                    w *= (dp[m] - delta_of) * scale;
                    LSTORE(w, slopes + place);
                }
            }
            product_nn(scores, do_tile, dv, min(COLS, length - q0));
            product_nn(slopes, q_tile, dk, min(COLS, length - q0));
        }
    }
    dqkv += dqo + key;
    EACH_ROW(rs, m)
    {
        for (int ds = 0; ds < DIM_STEPS && k0 + ROW(rs, m) < T; ds++) {
            store_row(dk[rs][ds][m], dqkv + ROW(rs, m) * stride + ds * VW, ds * VW);
            store_row(dv[rs][ds][m], dqkv + ROW(rs, m) * stride + (long)kv_heads * D + ds * VW, ds * VW);
        }
    }
}
