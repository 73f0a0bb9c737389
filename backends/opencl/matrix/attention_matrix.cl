/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, forward, by matrix units. A work-group holds OWN_LINES queries and loops over the keys.
 */
#define KEYS_OUT 0
#define OWN_BLOCKS 1
#define SECOND TURNED
#define STAGE_ELEMENTS (BLOCK(ALONG) + BLOCK(SECOND)) /* keys, values */
#include "attention_matrix_tile.cl"

/* The state of a warp's queries. */
typedef struct rows {
    factors maximum, total; /* total: of this lane's scores */
    bounds from;
} rows;

/* The state of queries from q0 on before the first key. */
static void rows_begin(rows *state, int q0, int T, int window, const __global int *starts, int lane)
{
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        UNROLLED for (int l = 0; l < LANE_LINES; l++)
        {
            const int q = min(q0 + i * OWN_ATOM + OWN_OF(l, lane), T - 1);
            state->maximum[i][l] = -FLT_MAX;
            state->total[i][l] = 0.0f;
            state->from[i][l] = BOUNDED ? first_key(0, q, window, starts) : 0;
        }
}

/* Replaces scores by their exponentials below the running maximum. Each row of the output is divided by its sum at
 * the end. `rescale` is the factor of earlier sums. */
TX_INLINE void exponentials(scores *s, rows *state, factors *rescale, float factor, int lane, __local uint *shown)
{
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
    {
        float high[LANE_LINES];
        UNROLLED for (int l = 0; l < LANE_LINES; l++) high[l] = -INFINITY;
        EACH_SCORE(j, e)
        high[LINE_OF(e)] = fmax(high[LINE_OF(e)], s->of[i][j][e]); /* NaN is ignored here; the sums propagate it */
        UNROLLED for (int l = 0; l < LANE_LINES; l++)
        {
            JOIN(fmax, high[l])
            high[l] = fmax(state->maximum[i][l], high[l] * factor);
            (*rescale)[i][l] = EXP2(state->maximum[i][l] - high[l]);
            state->maximum[i][l] = high[l];
            state->total[i][l] *= (*rescale)[i][l];
        }
        EACH_SCORE(j, e)
        {
            const float w = EXP2(fma(s->of[i][j][e], factor, -high[LINE_OF(e)]));
            state->total[i][LINE_OF(e)] += w;
            s->of[i][j][e] = w;
        }
    }
}

TX_INLINE void drop_scores(scores *s, const __local uchar *kept, int line, int lane)
{
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        EACH_RUN(j, first)
        {
            kept_run run;
            read_kept(&run, kept, line + i * OWN_ATOM + OWN_OF(LINE_OF(first), lane),
                      j * OTHER_ATOM + OTHER_OF(first, lane));
            UNROLLED for (int r = 0; r < BESIDE; r++) s->of[i][j][first + r] =
                IS_KEPT(run, r) ? s->of[i][j][first + r] : 0.0f;
        }
}

/* The scores of step k0 become probabilities after dropout, without its factor. `line` is a warp's first query. */
TX_INLINE void soften(scores *s, rows *state, factors *rescale, float factor, const __local uchar *kept, int q0,
                      int line, int k0, int last, int lane, __local uint *shown)
{
    if (HIDES_ALL || IS_EDGE(k0 + OTHERS, last, q0 + line) || begins_behind(&state->from, k0))
        hide(s, &state->from, q0 + line, k0, last, lane);
    exponentials(s, state, rescale, factor, lane, shown);
    if (DROPOUT)
        drop_scores(s, kept, line, lane);
}

/* Divides the output of a warp's queries, from q0 on, by their sums, and stores the lse of the queries before T.
 * Queries from `length` on give zeros. */
static void finish_rows(outputs *out, const rows *state, __global float *lse, int q0, int length, int T, float keep,
                        int lane, __local uint *shown)
{
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        UNROLLED for (int l = 0; l < LANE_LINES; l++)
        {
            const int q = q0 + i * OWN_ATOM + OWN_OF(l, lane), dead = q >= length;
            float total = state->total[i][l];
            JOIN(ADD, total)
            if (q < T && OTHER_OF(0, lane) == 0)
                lse[q] = dead ? 0.0f : (state->maximum[i][l] + log2(total)) * LN_2;
            const float share = dead ? 0.0f : (DROPOUT ? keep : 1.0f) / total;
            UNROLLED for (int c = 0; c < OUT_ATOMS; c++)
                UNROLLED for (int e = 0; e < SUMS; e++)
                    if (LINE_OF(e) == l)
                        out->of[i][c][e] = dead ? 0.0f : out->of[i][c][e] * share;
        }
}

#if ATOM == WGMMA
/* A step: its first key, and the blocks of its keys and values. */
typedef struct turn {
    int k0, keys, values;
} turn;

/* Makes the operands of the products with this step's values, while the products of the step before run. Its scores
 * have begun. The next step's keys and this step's values arrive in between. */
TX_INLINE void turn_soften(const turn *now, scores *s, rows *state, outputs *out, probabilities *weights, const walk *w,
                           __local ab_t *pool, __local uchar *kept, const draws *drop, float factor, int q0, int line,
                           int item, __local uint *shown)
{
    const int lane = item % LANES;
    __local uchar *const bits = kept + now->keys * KEPT;
    factors rescale;
    if (DROPOUT)
        draw_kept(bits, drop, q0, now->k0, item);
    scores_wait(s->of[0][0], 1, shown);
    walk_end(w, pool + KEYS_AT(now->keys ^ 1), pool + VALUES_AT(now->values), now->k0 + OTHERS, item);
    walk_begin(w, w->keys, pool + KEYS_AT(now->keys), now->k0 + 2 * OTHERS, item);
    walk_begin(w, w->values, pool + VALUES_AT(VALUES_AFTER(now->values)), now->k0 + OTHERS, item);
    soften(s, state, &rescale, factor, bits, q0, line, now->k0, w->last, lane, shown);
    powers_hold(state->total[0][0] + state->total[0][1]);
    outputs_wait(out->of[0][0], 0, shown);
    EACH_OUT(i, c, e) out->of[i][c][e] *= rescale[i][LINE_OF(e)];
    sums_hold(out->of[0][0]);
    operands_make(weights, s, lane, shown);
}
#endif

/* The factor of the scores is positive, and there are no caches. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) SUB_GROUP void
attention(ATTENTION_ARGUMENTS)
{
    LOCAL_MEMORY;
    QUERY_TILE(OWN_LINES, OTHERS);
    int item = (int)get_local_id(0), lane = item % LANES;
    const int line = item / LANES * (OWN_ATOMS * OWN_ATOM);
    const uint stride = (uint)(heads + 2 * kv_heads) * D;
    const __global h_t *const x = qkv + qo + b * (long)T * stride, *const k = x + (uint)(heads + kv_head) * D;
    const float factor = scale * LOG2_E;

    rows state;
    outputs out;
    scores s;
    rows_begin(&state, q0 + line, T, window, starts_of, lane);
    clear(&out);
#if ATOM == WGMMA
    const walk w = {.keys = k, .values = k + kv_heads * D, .stride = stride, .last = last};
    const own_lines own = {pool + line / 64 * SEGMENT(64)};
    turn now = {begin, 0, 0};
    probabilities weights;
    bring_begin(0, pool, x + (uint)q0 * stride + head * D, stride, OWN_LINES, T - q0, item);
    walk_begin(&w, w.keys, pool + KEYS_AT(0), begin, item);
    lines_show(pool, OWN_LINES, item);
    walk_end(&w, pool + KEYS_AT(0), 0, begin, item);
    walk_begin(&w, w.keys, pool + KEYS_AT(1), begin + OTHERS, item);
    walk_begin(&w, w.values, pool + VALUES_AT(0), begin, item);
    units_begin();
    scores_begin(&s, &own, pool + KEYS_AT(0), shown);
    units_close(shown); /* no products with values before the first step */
    turn_soften(&now, &s, &state, &out, &weights, &w, pool, kept, &drop, factor, q0, line, item, shown);
    while (now.k0 + OTHERS < last) {
        units_begin();
        scores_begin(&s, &own, pool + KEYS_AT(now.keys ^ 1), shown);
        outputs_begin(&out, &weights, pool + VALUES_AT(now.values), shown);
        now = (turn){now.k0 + OTHERS, now.keys ^ 1, VALUES_AFTER(now.values)};
        turn_soften(&now, &s, &state, &out, &weights, &w, pool, kept, &drop, factor, q0, line, item, shown);
    }
    units_begin();
    outputs_begin(&out, &weights, pool + VALUES_AT(now.values), shown);
    outputs_wait(out.of[0][0], 0, shown);
#else
    own_lines own;
    factors rescale;
    walk w = {.first = k, .second = k + kv_heads * D, .stride = stride, .q0 = q0, .last = last, .stage = 0};
    take_own(&own, pool, x + (uint)q0 * stride + head * D, stride, T - q0, line, lane, shown);
    walk_begin(&w, pool, begin, item);
    for (int k0 = begin; k0 < last; k0 += OTHERS) {
        item = IN_STEP(item, k0, T);
        lane = item % LANES;
        __local uchar *const bits = kept + w.stage * KEPT;
        const __local ab_t *const here = walk_step(&w, pool, bits, &drop, k0, item);
        product_scores(&s, &own, here, lane, shown);
        soften(&s, &state, &rescale, factor, bits, q0, line, k0, last, lane, shown);
        product_out(&out, &rescale, &s, TURNED_IN(here + BLOCK(ALONG), TURNED), lane, shown);
    }
#endif
    finish_rows(&out, &state, lse + lso + (b * (long)heads + head) * T, q0 + line, length, T, drop.keep, lane, shown);
    store_out(&out, 1.0f, o + oo + (b * (long)T + q0) * heads * D + head * D, (uint)heads * D, line, T - q0, lane);
}
