/* SPDX-License-Identifier: Apache-2.0
 * Gradient of attention's queries on GPUs: a work-group holds ROWS queries and walks over the keys. */
#include "attention_gpu_slope.cl"

/* Dimensions as in attention. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attention_grad_q(ATTENTION_GRAD_ARGUMENTS, __local float4 *pool)
{
    const int item = (int)get_local_id(0), tx = GRID_X(item, TX), ty = GRID_Y(item, TX);
    const int ux = GRID_X(item, UX), uy = GRID_Y(item, UX);
    __local float *const stage = (__local float *)pool, *const scores = stage + STAGE;
    __local float *const lse_of = scores + ROWS * LP, *const delta_of = lse_of + ROWS;
    const int head = first_head + (int)get_group_id(1), b = first_b + (int)get_group_id(2);
    const int q0 = ((T - 1) / ROWS - first_tile - (int)get_group_id(0)) * ROWS;
    const int kv_head = head / (heads / kv_heads), length = LENGTHS ? clamp(lengths[leo + b], 0, T) : T;
    const int last = q0 >= length ? 0 : CAUSAL ? min(length, q0 + ROWS) : length;
    const __global int *const starts_of = starts + sto + b * (long)T;
    const int begin = least_key(0, q0, ROWS, T, window, starts_of) / COLS * COLS;
    const uint stride = (uint)(heads + 2 * kv_heads) * D, o_stride = (uint)heads * D;
    const uint query = q0 * stride + head * D, key = (heads + kv_head) * D, value = key + kv_heads * D;
    const __global h_t *const x = qkv + qo + b * (long)T * stride, *const dy = d_o + doo + b * (long)T * o_stride;
    const long stats = (b * (long)heads + head) * T + q0;
    const draws drop = draws_of(control, b, site, plane + head, p, first_row, first_column);

    float4 acc[AR][AQ];
    EACH_OUT(m, n) acc[m][n] = 0.0f;
    bring_stats(lse + lso + stats, delta + deo + stats, length - q0, lse_of, delta_of);
    for (int k0 = begin; k0 < last; k0 += COLS) {
        const uint at = key + k0 * stride;
        float4 s[MR][SQ], held[OUT_LINES][OUT_QUADS];
        product_scores(dy, q0 * o_stride + head * D, o_stride, length - q0, x, value + k0 * stride, stride, last - k0,
                       stage, s, tx, ty);
        EACH_SCORE(m, n) LOCAL4(scores + 4 * ty * LP + 4 * tx + PLACE(m, n)) = s[m][n];
        product_scores(x, query, stride, length - q0, x, at, stride, last - k0, stage, s, tx, ty);
        fetch_terms(x, at, stride, last - k0, held);
        slopes(s, scores, lse_of, delta_of, q0, k0, last, T, window, starts_of, scale * LOG2_E, &drop, tx, ty);
        BARRIER;
        product_out(scores, x, at, stride, min(COLS, last - k0), stage, held, acc, ux, uy);
    }
    dqkv += dqo + b * (long)T * stride + query;
    EACH_OUT(m, n)
    {
        if (q0 + OUT_ROW(m) < T && OUT_QUAD(n) < DP / 4)
            store_row(acc[m][n] * scale, dqkv + OUT_ROW(m) * stride + 4 * OUT_QUAD(n), 4 * OUT_QUAD(n));
    }
}
