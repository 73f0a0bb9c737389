/* SPDX-License-Identifier: Apache-2.0
 * Attention by matrix units: a work-group holds OWN_LINES queries and walks over the keys. */
#define KEYS_OUT 0
#define OWN_BLOCKS 1
#define BLOCKS (BLOCK(ALONG) + BLOCK(TURNED)) /* keys, values */
#include "attention_matrix_tile.cl"

/* What is known of a warp's queries. */
typedef struct rows {
    factors top, total; /* total: of this lane's scores */
    bounds from;
} rows;

/* Scores become probabilities, but for a factor of each row by which the output is divided in the end. What is summed already goes by `fade`. */
static void exponentials(scores *s, rows *known, factors *fade, float factor, int lane, __local uint *shown)
{
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
    {
        float high[LANE_LINES];
        UNROLLED for (int l = 0; l < LANE_LINES; l++) high[l] = -INFINITY;
        EACH_SCORE(j, e) high[LINE_OF(e)] = fmax(high[LINE_OF(e)], s->of[i][j][e]); /* NaN shows in the sums instead */
        UNROLLED for (int l = 0; l < LANE_LINES; l++)
        {
            JOIN(fmax, high[l])
            high[l] = fmax(known->top[i][l], high[l] * factor);
            (*fade)[i][l] = EXP2(known->top[i][l] - high[l]);
            known->top[i][l] = high[l];
            known->total[i][l] *= (*fade)[i][l];
        }
        EACH_SCORE(j, e)
        {
            const float w = EXP2(fma(s->of[i][j][e], factor, -high[LINE_OF(e)]));
            known->total[i][LINE_OF(e)] += w;
            s->of[i][j][e] = w;
        }
    }
}

static void drop_scores(scores *s, const __local uchar *kept, int line, int lane)
{
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        EACH_RUN(j, first)
        {
            kept_run run;
            read_kept(&run, kept, line + i * OWN_ATOM + OWN_OF(LINE_OF(first), lane), j * OTHER_ATOM + OTHER_OF(first, lane));
            UNROLLED for (int r = 0; r < BESIDE; r++) s->of[i][j][first + r] = IS_KEPT(run, r) ? s->of[i][j][first + r] : 0.0f;
        }
}

/* Dimensions and arguments as those of attention_gpu.cl; there are no caches. The factor of the scores is positive. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) SUB_GROUP void
attention(const __global h_t *qkv, long qo, const __global int *lengths, long leo, const __global h_t *k_cache,
          long ko, const __global h_t *v_cache, long vo, __global h_t *o, long oo, __global float *lse, long lso,
          int T, int S, const __global int *starts, long sto, int heads, int kv_heads, int window, float scale, float p,
          int site, int plane, int first_row, int first_column, int first_b, int first_head, int first_tile, const __global uint *control)
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
    const uint stride = (uint)(heads + 2 * kv_heads) * D, key = (uint)(heads + head / (heads / kv_heads)) * D;
    const __global h_t *const x = qkv + qo + b * (long)T * stride, *const keys = x + key, *const values = keys + kv_heads * D;
    const int length = LENGTHS ? clamp(lengths[leo + b], 0, T) : T;
    const int last = q0 >= length ? 0 : CAUSAL ? min(length, q0 + OWN_LINES) : length; /* of the keys that any of them sees */
    const __global int *const starts_of = starts + sto + b * (long)T;
    const int begin = least_key(0, q0, OWN_LINES, T, window, starts_of) / OTHERS * OTHERS;
    const float factor = scale * LOG2_E;
    const draws drop = draws_of(control, b, site, plane + head, p, first_row, first_column);

    own_lines own;
    rows known;
    outputs out;
    scores s;
    factors fade;
    moving moving_k, moving_v;
    take_own(&own, pool, x + (uint)q0 * stride + head * D, stride, T - q0, line, lane, shown);
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        UNROLLED for (int l = 0; l < LANE_LINES; l++)
        {
            const int q = min(q0 + line + i * OWN_ATOM + OWN_OF(l, lane), T - 1);
            known.top[i][l] = -FLT_MAX;
            known.total[i][l] = 0.0f;
            known.from[i][l] = BOUNDED ? first_key(0, q, window, starts_of) : 0;
        }
    clear(&out);
    int stage = 0;
    __local ab_t *block = pool + OTHERS_AT;
    if (begin < last) {
        bring_begin(&moving_k, block, keys + (uint)begin * stride, stride, OTHERS, last - begin, item);
        bring_begin(&moving_v, block + BLOCK(ALONG), values + (uint)begin * stride, stride, OTHERS, last - begin, item);
    }
    for (int k0 = begin; k0 < last; k0 += OTHERS) {
        item = IN_STEP(item, k0, T);
        lane = item % LANES;
        if (STAGES == 1)
            barrier(CLK_LOCAL_MEM_FENCE); /* the block before is read */
        bring_end(&moving_k, block, ALONG, item);
        bring_end(&moving_v, block + BLOCK(ALONG), TURNED, item);
        const __local ab_t *const here = block;
        __local uchar *const bits = kept + stage * KEPT;
        if (DROPOUT)
            draw_kept(bits, &drop, q0, k0, item);
        barrier(CLK_LOCAL_MEM_FENCE);
        const int next = k0 + OTHERS;
        stage = (stage + 1) % STAGES;
        block = pool + OTHERS_AT + stage * (BLOCKS);
        if (next < last) {
            bring_begin(&moving_k, block, keys + (uint)next * stride, stride, OTHERS, last - next, item);
            bring_begin(&moving_v, block + BLOCK(ALONG), values + (uint)next * stride, stride, OTHERS, last - next, item);
        }
        product_scores(&s, &own, here, lane, shown);
        if (HIDES_ALL || IS_EDGE(next, last, q0 + line) || begins_behind(&known.from, k0))
            hide(&s, &known.from, q0 + line, k0, last, lane);
        exponentials(&s, &known, &fade, factor, lane, shown);
        if (DROPOUT)
            drop_scores(&s, bits, line, lane);
        product_out(&out, &fade, &s, TURNED_IN(here + BLOCK(ALONG), TURNED), lane, shown);
    }

    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        UNROLLED for (int l = 0; l < LANE_LINES; l++)
        {
            const int q = q0 + line + i * OWN_ATOM + OWN_OF(l, lane), dead = q >= length;
            float total = known.total[i][l];
            JOIN(ADD, total)
            if (q < T && OTHER_OF(0, lane) == 0)
                lse[lso + (b * (long)heads + head) * T + q] = dead ? 0.0f : (known.top[i][l] + log2(total)) * LN_2;
            const float share = dead ? 0.0f : (DROPOUT ? drop.keep : 1.0f) / total;
            UNROLLED for (int c = 0; c < OUT_ATOMS; c++)
                UNROLLED for (int e = 0; e < SUMS; e++)
                    if (LINE_OF(e) == l)
                        out.of[i][c][e] = dead ? 0.0f : out.of[i][c][e] * share;
        }
    store_out(&out, 1.0f, o + oo + (b * (long)T + q0) * heads * D + head * D, (uint)heads * D, line, T - q0, lane);
}
