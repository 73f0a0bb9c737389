/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of attention's queries by matrix units. A work-group holds OWN_LINES queries and loops over the keys.
 * `column_sums`, if not NULL, gets the sums of the gradient's columns over each tile of queries.
 */
#define KEYS_OUT 0
#define OWN_BLOCKS 2
#define SECOND (ALONG | TURNED)
#define STAGE_ELEMENTS (BLOCK(ALONG) + BLOCK(SECOND)) /* values, keys */
#include "attention_matrix_slope.cl"

/* The state of a warp's queries. */
typedef struct rows {
    factors minus_lse, delta;
    bounds from;
} rows;

/* s becomes the gradient of the scaled scores; t is the gradient of the probabilities. */
TX_INLINE void slopes(scores *s, scores *t, const rows *state, float factor, const __local uchar *kept, float keep,
                      int line, int lane, __local uint *shown)
{
#if ATOM == WGMMA /* computes t meanwhile */
    EACH_SCORE(j, e) s->of[0][j][e] = probability(s->of[0][j][e], factor, state->minus_lse[0][LINE_OF(e)]);
    powers_hold(2.0f - s->of[0][OTHER_ATOMS - 1][SUMS - 1]);
    scores_end(t, 0, shown);
#endif
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        EACH_RUN(j, first)
        {
            const int l = LINE_OF(first);
            kept_run run;
            if (DROPOUT)
                read_kept(&run, kept, line + i * OWN_ATOM + OWN_OF(l, lane), j * OTHER_ATOM + OTHER_OF(first, lane));
            UNROLLED for (int r = 0; r < BESIDE; r++)
            {
                const int e = first + r;
                const float score = s->of[i][j][e],
                            w = ATOM == WGMMA ? score : probability(score, factor, state->minus_lse[i][l]);
                s->of[i][j][e] = slope(w, t->of[i][j][e], state->delta[i][l], DROPOUT ? IS_KEPT(run, r) : 1, keep);
            }
        }
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) SUB_GROUP void
attention_grad_q(ATTENTION_GRAD_ARGUMENTS SUMS_ARGUMENTS)
{
    LOCAL_MEMORY;
    QUERY_TILE(OWN_LINES, OTHERS);
    int item = (int)get_local_id(0), lane = item % LANES;
    const int line = item / LANES * (OWN_ATOMS * OWN_ATOM);
    const uint stride = (uint)(heads + 2 * kv_heads) * D, o_stride = (uint)heads * D;
    const __global h_t *const x = qkv + qo + b * (long)T * stride, *const k = x + (uint)(heads + kv_head) * D;
    const __global h_t *const dy = d_o + doo + b * (long)T * o_stride + head * D;
    const long stats = (b * (long)heads + head) * T;

    own_lines q, slope_o;
    rows state;
    outputs out;
    scores s, t;
    walk w = {.first = k + kv_heads * D, .second = k, .stride = stride, .q0 = q0, .last = last, .stage = 0};
    take_own(&q, pool + OWN_AT(0), x + (uint)q0 * stride + head * D, stride, length - q0, line, lane, shown);
    take_own(&slope_o, pool + OWN_AT(1), dy + (uint)q0 * o_stride, o_stride, length - q0, line, lane, shown);
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        UNROLLED for (int l = 0; l < LANE_LINES; l++)
        {
            const int row = q0 + line + i * OWN_ATOM + OWN_OF(l, lane);
            state.minus_lse[i][l] = row < length ? lse[lso + stats + row] * -LOG2_E : -INFINITY;
            state.delta[i][l] = row < length ? delta[deo + stats + row] : 0.0f;
            state.from[i][l] = BOUNDED ? first_key(0, min(row, T - 1), window, starts_of) : 0;
        }
    clear(&out);
    walk_begin(&w, pool, begin, item);
    for (int k0 = begin; k0 < last; k0 += OTHERS) {
        item = IN_STEP(item, k0, T);
        lane = item % LANES;
        __local uchar *const bits = kept + w.stage * KEPT;
        const __local ab_t *const here = walk_step(&w, pool, bits, &drop, k0, item);
        out_end(&out, 0, shown);
        product_scores(&s, &q, here + BLOCK(ALONG), lane, shown);
        product_scores(&t, &slope_o, here, lane, shown);
        scores_end(&s, 1, shown);
        if (HIDES_ALL || IS_EDGE(k0 + OTHERS, last, q0 + line) || begins_behind(&state.from, k0))
            hide(&s, &state.from, q0 + line, k0, last, lane);
        slopes(&s, &t, &state, scale * LOG2_E, bits, drop.keep, line, lane, shown);
        product_out(&out, 0, &s, TURNED_IN(here + BLOCK(ALONG), ALONG | TURNED), lane, shown);
    }
    out_end(&out, 0, shown);
    store_out(&out, scale, dqkv + dqo + (b * (long)T + q0) * stride + head * D, stride, line, T - q0, lane);
#if SUMS_COLUMNS
    if (column_sums) {
        const int tile = b * ((T - 1) / OWN_LINES + 1) + q0 / OWN_LINES;
        store_sums(&out, scale, column_sums + column_sums_at + (tile * heads + head) * (long)D, pool, item, shown);
    }
#endif
}
