/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradients of attention's keys and values on GPUs. A work-group holds COLS keys and loops over the queries of
 * all heads that read them, so no sum crosses work-groups.
 */
#define KEYS_OUT 1
#include "attention_gpu_slope.cl"

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attention_grad_kv(ATTENTION_GRAD_ARGUMENTS, __local float4 *pool)
{
    const int item = (int)get_local_id(0), tx = GRID_X(item, TX), ty = GRID_Y(item, TX);
    const int ux = GRID_X(item, UX), uy = GRID_Y(item, UX);
    __local float *const stage = (__local float *)pool, *const scores = stage + STAGE;
    __local float *const lse_of = scores + ROWS * LP, *const delta_of = lse_of + ROWS;
    KEY_TILE(COLS, ROWS);
    const uint stride = (uint)(heads + 2 * kv_heads) * D, o_stride = (uint)heads * D;
    const uint key = k0 * stride + (heads + kv_head) * D, value = key + kv_heads * D;
    const __global h_t *const x = qkv + qo + b * (long)T * stride, *const dy = d_o + doo + b * (long)T * o_stride;

    float4 dk[AR][AQ], dv[AR][AQ];
    EACH_OUT(m, n) dk[m][n] = dv[m][n] = 0.0f;
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        for (int q0 = first; q0 < end; q0 += ROWS) {
            if (STARTS && least_key(0, q0, ROWS, T, window, starts_of) >= k0 + COLS)
                continue;
            const long stats = (b * (long)heads + head) * T + q0;
            const uint query = q0 * stride + head * D, slope = q0 * o_stride + head * D;
            float4 s[MR][SQ], held[OUT_LINES][OUT_QUADS];
            product_scores(dy, slope, o_stride, length - q0, x, value, stride, length - k0, stage, s, tx, ty);
            bring_stats(lse + lso + stats, delta + deo + stats, length - q0, lse_of, delta_of);
            PUT_SCORES(scores, s);
            product_scores(x, query, stride, length - q0, x, key, stride, length - k0, stage, s, tx, ty);
            const draws drop = draws_of(control, b, site, plane + head, p, first_row, first_column);
            if (!DROPOUT) /* its draws need the registers */
                fetch_terms(dy, slope, o_stride, length - q0, held);
            slopes(s, scores, lse_of, delta_of, q0, k0, length, T, window, starts_of, scale * LOG2_E, &drop, tx, ty);
            if (DROPOUT)
                fetch_terms(dy, slope, o_stride, length - q0, held);
            BARRIER;
            product_out(scores, dy, slope, o_stride, min(ROWS, length - q0), stage, held, dv, ux, uy);
            fetch_terms(x, query, stride, length - q0, held);
            BARRIER;
            PUT_SCORES(scores, s);
            product_out(scores, x, query, stride, min(ROWS, length - q0), stage, held, dk, ux, uy);
        }
    }
    dqkv += dqo + b * (long)T * stride + key;
    store_out(dk, scale, dqkv, stride, T - k0, ux, uy);
    store_out(dv, 1.0f, dqkv + kv_heads * D, stride, T - k0, ux, uy);
}
