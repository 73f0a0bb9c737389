/* SPDX-License-Identifier: Apache-2.0
 * Gradient of attention's queries by matrix units: a work-group holds OWN_LINES queries and walks over the keys. */
#define KEYS_OUT 0
#define OWN_BLOCKS 2
#define BLOCKS (BLOCK(ALONG) + BLOCK(ALONG | TURNED)) /* values, keys */
#include "attention_matrix_slope.cl"

/* What is known of a warp's queries. */
typedef struct rows {
    factors minus_lse, delta;
    bounds from;
} rows;

/* s becomes the gradient of the scaled scores; t is that of the probabilities. */
static void slopes(scores *s, const scores *t, const rows *known, float factor, const __local uchar *kept, float keep, int line, int lane)
{
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
                const float w = probability(s->of[i][j][e], factor, known->minus_lse[i][l]);
                s->of[i][j][e] = slope(w, t->of[i][j][e], known->delta[i][l], DROPOUT ? IS_KEPT(run, r) : 1, keep);
            }
        }
}

/* Dimensions as in attention. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) SUB_GROUP void
attention_grad_q(ATTENTION_GRAD_ARGUMENTS)
{
    __local ab_t pool[POOL] __attribute__((aligned(128)));
    __local uchar kept[STAGES * KEPT] __attribute__((aligned(16)));
#if EMULATED
    __local uint shown[GROUP * SHOWN];
#else
    __local uint *const shown = 0;
#endif
    int item = (int)get_local_id(0), lane = item % LANES;
    const int line = item / LANES * (OWN_ATOMS * OWN_ATOM);
    const int head = first_head + (int)get_group_id(1), b = first_b + (int)get_group_id(2);
    const int q0 = ((T - 1) / OWN_LINES - first_tile - (int)get_group_id(0)) * OWN_LINES;
    const uint stride = (uint)(heads + 2 * kv_heads) * D, o_stride = (uint)heads * D, key = (uint)(heads + head / (heads / kv_heads)) * D;
    const __global h_t *const x = qkv + qo + b * (long)T * stride, *const keys = x + key, *const values = keys + kv_heads * D;
    const __global h_t *const dy = d_o + doo + b * (long)T * o_stride + head * D;
    const int length = LENGTHS ? clamp(lengths[leo + b], 0, T) : T;
    const int last = q0 >= length ? 0 : CAUSAL ? min(length, q0 + OWN_LINES) : length;
    const __global int *const starts_of = starts + sto + b * (long)T;
    const int begin = least_key(0, q0, OWN_LINES, T, window, starts_of) / OTHERS * OTHERS;
    const long stats = (b * (long)heads + head) * T;
    const draws drop = draws_of(control, b, site, plane + head, p, first_row, first_column);

    own_lines q, slope_o;
    rows known;
    outputs out;
    scores s, t;
    moving moving_k, moving_v;
    take_own(&q, pool + OWN_AT(0), x + (uint)q0 * stride + head * D, stride, length - q0, line, lane, shown);
    take_own(&slope_o, pool + OWN_AT(1), dy + (uint)q0 * o_stride, o_stride, length - q0, line, lane, shown);
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        UNROLLED for (int l = 0; l < LANE_LINES; l++)
        {
            const int row = q0 + line + i * OWN_ATOM + OWN_OF(l, lane);
            known.minus_lse[i][l] = row < length ? lse[lso + stats + row] * -LOG2_E : -INFINITY;
            known.delta[i][l] = row < length ? delta[deo + stats + row] : 0.0f;
            known.from[i][l] = BOUNDED ? first_key(0, min(row, T - 1), window, starts_of) : 0;
        }
    clear(&out);
    int stage = 0;
    __local ab_t *block = pool + OTHERS_AT;
    if (begin < last) {
        bring_begin(&moving_v, block, values + (uint)begin * stride, stride, OTHERS, last - begin, item);
        bring_begin(&moving_k, block + BLOCK(ALONG), keys + (uint)begin * stride, stride, OTHERS, last - begin, item);
    }
    for (int k0 = begin; k0 < last; k0 += OTHERS) {
        item = IN_STEP(item, k0, T);
        lane = item % LANES;
        if (STAGES == 1)
            barrier(CLK_LOCAL_MEM_FENCE); /* the block before is read */
        bring_end(&moving_v, block, ALONG, item);
        bring_end(&moving_k, block + BLOCK(ALONG), ALONG | TURNED, item);
        const __local ab_t *const here = block;
        __local uchar *const bits = kept + stage * KEPT;
        if (DROPOUT)
            draw_kept(bits, &drop, q0, k0, item);
        barrier(CLK_LOCAL_MEM_FENCE);
        const int next = k0 + OTHERS;
        stage = (stage + 1) % STAGES;
        block = pool + OTHERS_AT + stage * (BLOCKS);
        if (next < last) {
            bring_begin(&moving_v, block, values + (uint)next * stride, stride, OTHERS, last - next, item);
            bring_begin(&moving_k, block + BLOCK(ALONG), keys + (uint)next * stride, stride, OTHERS, last - next, item);
        }
        product_scores(&t, &slope_o, here, lane, shown);
        product_scores(&s, &q, here + BLOCK(ALONG), lane, shown);
        if (HIDES_ALL || IS_EDGE(next, last, q0 + line) || begins_behind(&known.from, k0))
            hide(&s, &known.from, q0 + line, k0, last, lane);
        slopes(&s, &t, &known, scale * LOG2_E, bits, drop.keep, line, lane);
        product_out(&out, 0, &s, TURNED_IN(here + BLOCK(ALONG), ALONG | TURNED), lane, shown);
    }
    store_out(&out, scale, dqkv + dqo + (b * (long)T + q0) * stride + head * D, stride, line, T - q0, lane);
}
