/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of attention's queries on GPUs. A work-group holds ROWS queries and loops over the keys.
 */
#include "attention_gpu_slope.cl"

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attention_grad_q(ATTENTION_GRAD_ARGUMENTS, __local float4 *pool)
{
    const int item = (int)get_local_id(0), tx = GRID_X(item, TX), ty = GRID_Y(item, TX);
    const int ux = GRID_X(item, UX), uy = GRID_Y(item, UX);
    __local float *const stage = (__local float *)pool, *const scores = stage + STAGE;
    __local float *const lse_of = scores + ROWS * LP, *const delta_of = lse_of + ROWS;
    QUERY_TILE(ROWS, COLS);
    const uint stride = (uint)(heads + 2 * kv_heads) * D, o_stride = (uint)heads * D;
    const uint query = q0 * stride + head * D, key = (heads + kv_head) * D, value = key + kv_heads * D;
    const __global h_t *const x = qkv + qo + b * (long)T * stride, *const dy = d_o + doo + b * (long)T * o_stride;
    const long stats = (b * (long)heads + head) * T + q0;

    float4 acc[AR][AQ];
    clear(acc);
    bring_stats(lse + lso + stats, delta + deo + stats, length - q0, lse_of, delta_of);
    for (int k0 = begin; k0 < last; k0 += COLS) {
        const uint at = key + k0 * stride;
        float4 s[MR][SQ], held[OUT_LINES][OUT_QUADS];
        product_scores(dy, q0 * o_stride + head * D, o_stride, length - q0, x, value + k0 * stride, stride, last - k0,
                       stage, s, tx, ty);
        PUT_SCORES(scores, s);
        product_scores(x, query, stride, length - q0, x, at, stride, last - k0, stage, s, tx, ty);
        fetch_terms(x, at, stride, last - k0, held);
        slopes(s, scores, lse_of, delta_of, q0, k0, last, T, window, starts_of, scale * LOG2_E, &drop, tx, ty);
        BARRIER;
        product_out(scores, x, at, stride, min(COLS, last - k0), stage, held, acc, ux, uy);
    }
    store_out(acc, scale, dqkv + dqo + b * (long)T * stride + query, stride, T - q0, ux, uy);
}
