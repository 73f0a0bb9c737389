/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradients of attention's keys and values by matrix units. A work-group holds OWN_LINES keys and loops over the
 * queries of all heads that read them, so no sum crosses work-groups. `column_sums`, if not NULL, gets the sums of the
 * gradients' columns over each tile of keys.
 *
 * With PAIRED two warps share their keys, if the registers of one cannot hold both gradients. The first warp
 * computes the scores and the gradient of values, the second the gradients of probabilities and the gradient of
 * keys. The probabilities pass from the first to the second through local memory, so no product is computed twice.
 */
#define KEYS_OUT 1
#define OWN_BLOCKS 2
#define STAGE_ELEMENTS (2 * BLOCK(ALONG | TURNED)) /* queries, gradients of the output */
#include "attention_matrix_slope.cl"

/* The queries of a work-group: `tiles` turns for each head that reads its keys. */
typedef struct walk {
    const __global h_t *x, *dy;        /* of head 0 */
    const __global float *lse, *delta; /* of head 0 */
    const __global int *starts;
    uint stride, o_stride;
    int first, tiles, turns, first_head, k0, T, length, window;
} walk;

/* One turn: its number, and the data that is being copied to local memory. */
typedef struct turn {
    int number, head, q0;
    float minus_lse, delta; /* of one query, lse in powers of 2 */
    moving q, dy;
} turn;

/* Begins to copy turn `number`, or the first later turn in which a query attends to a key, to `block`. */
static void begin_turn(turn *now, int number, const walk *w, __local ab_t *block, int item)
{
    while (STARTS && number < w->turns &&
           least_key(0, w->first + number % w->tiles * OTHERS, OTHERS, w->T, w->window, w->starts) >= w->k0 + OWN_LINES)
        number++;
    now->number = number;
    if (number >= w->turns)
        return;
    now->head = w->first_head + number / w->tiles;
    now->q0 = w->first + number % w->tiles * OTHERS;
    const int left = w->length - now->q0, q = now->q0 + item;
    bring_begin(&now->q, block, w->x + (uint)now->q0 * w->stride + now->head * D, w->stride, OTHERS, left, item);
    bring_begin(&now->dy, block + BLOCK(ALONG | TURNED), w->dy + (uint)now->q0 * w->o_stride + now->head * D,
                w->o_stride, OTHERS, left, item);
    if (item < OTHERS) {
        now->minus_lse = q < w->length ? w->lse[now->head * (long)w->T + q] * -LOG2_E : -INFINITY;
        now->delta = q < w->length ? w->delta[now->head * (long)w->T + q] : 0.0f;
    }
}

/* A block of queries and keys: the masks and the values of the queries. */
typedef struct tile_state {
    __local float *minus_lse, *delta;
    __local int *from; /* the first key that each query attends to */
    int q0, k0, length;
} tile_state;

/* Finishes the copy of the turn's queries to `block`. */
static void end_turn(const turn *now, const walk *w, __local ab_t *block, const tile_state *of, int item)
{
    bring_end(&now->q, block, ALONG | TURNED, item);
    bring_end(&now->dy, block + BLOCK(ALONG | TURNED), ALONG | TURNED, item);
    if (item < OTHERS) {
        of->minus_lse[item] = now->minus_lse;
        of->delta[item] = now->delta;
        of->from[item] = BOUNDED ? first_key(0, min(of->q0 + item, w->T - 1), w->window, w->starts) : 0;
    }
}

/* Returns score s of a query and a key, both relative to the block, or -INFINITY if it is masked. */
static float masked(float s, const tile_state *of, int query, int key)
{
    const int at = of->k0 + key, from = BOUNDED ? of->from[query] : 0,
              until = CAUSAL ? min(of->length, of->q0 + query + 1) : of->length;
    return ((at < from) | (at >= until)) ? -INFINITY : s;
}

/* Masks all scores of a warp whose keys begin at `line`. */
static void hide(scores *s, const tile_state *of, int line, int lane)
{
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++) EACH_SCORE(j, e) s->of[i][j][e] =
        masked(s->of[i][j][e], of, j * OTHER_ATOM + OTHER_OF(e, lane), line + i * OWN_ATOM + OWN_OF(LINE_OF(e), lane));
}

/* Returns the probability of a score of a warp whose keys begin at `line`. */
static float probability_of(const scores *s, int i, int j, int e, const tile_state *of, float factor, int line,
                            int lane)
{
    const int query = j * OTHER_ATOM + OTHER_OF(e, lane), key = line + i * OWN_ATOM + OWN_OF(LINE_OF(e), lane);
    return probability(BOUNDED ? masked(s->of[i][j][e], of, query, key) : s->of[i][j][e], factor, of->minus_lse[query]);
}

#if PAIRED
/* Four sums of a lane are adjacent, followed by those of the next lane. */
#define PASSED_AT(i, j, e) ((((line / OWN_ATOM + i) * OTHER_ATOMS + j) * (SUMS / 4) + e / 4) * LANES + lane)

/* In the first warp s becomes the probabilities after dropout, without its factor. In the second warp s, the
 * gradients of the probabilities, becomes the gradients of the scaled scores. */
TX_INLINE void slopes(scores *s, int second, __local float *passed, const tile_state *of, float factor,
                      const __local uchar *kept, float keep, int line, int lane)
{
    UNROLLED for (int i = 0; i < OWN_ATOMS && !second; i++)
    {
        EACH_SCORE(j, e) s->of[i][j][e] = probability_of(s, i, j, e, of, factor, line, lane);
        UNROLLED for (int j = 0; j < OTHER_ATOMS; j++)
            UNROLLED for (int e = 0; e < SUMS; e += 4) vstore4(vload4(0, s->of[i][j] + e), PASSED_AT(i, j, e), passed);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        EACH_RUN(j, first)
        {
            const int other = j * OTHER_ATOM + OTHER_OF(first, lane);
            kept_run run;
            if (DROPOUT)
                read_kept(&run, kept, line + i * OWN_ATOM + OWN_OF(LINE_OF(first), lane), other);
            UNROLLED for (int q = 0; q < BESIDE; q += 4)
            {
                float w[4], d[4];
                vstore4(vload4(PASSED_AT(i, j, (first + q)), passed), 0, w);
                vstore4(vload4(0, of->delta + other + q), 0, d);
                UNROLLED for (int r = 0; r < 4; r++)
                {
                    const int is_left = DROPOUT ? IS_KEPT(run, q + r) : 1;
                    float *const it = &s->of[i][j][first + q + r];
                    *it = second ? slope(w[r], *it, d[r], is_left, keep) : is_left ? w[r] : 0.0f;
                }
            }
        }
}

/* Own lines and output of a warp: keys and the gradient of values, or in a `second` warp values and the gradient of
 * keys. */
typedef struct work {
    own_lines own;
    outputs out;
    int second;
    __local float *passed;
} work;

static void work_begin(work *w, own_lines k, own_lines v)
{
    w->own.block = w->second ? v.block : k.block;
    clear(&w->out);
}

/* Adds the contributions of a block of queries, and of the gradients of their outputs, to the outputs. */
TX_INLINE void work_step(work *w, const __local ab_t *q, const __local ab_t *dy, const tile_state *of, float factor,
                         const __local uchar *bits, float keep, int line, int lane, __local uint *shown)
{
    scores s;
    product_scores(&s, &w->own, w->second ? dy : q, lane, shown);
    if (!BOUNDED && !w->second && (HIDES_ALL || IS_EDGE(of->k0 + OWN_LINES, of->length, of->q0)))
        hide(&s, of, line, lane);
    slopes(&s, w->second, w->passed, of, factor, bits, keep, line, lane);
    product_out(&w->out, 0, &s, TURNED_IN(w->second ? q : dy, ALONG | TURNED), lane, shown);
}

static void work_store(work *w, __global ab_t *dk, __global ab_t *dv, float scale, float keep, uint stride, int line,
                       int left, int lane)
{
    store_out(&w->out, w->second ? scale : keep, w->second ? dk : dv, stride, line, left, lane);
}
#else
/* s becomes the probabilities after dropout, without its factor. t, the gradients of the probabilities, becomes the
 * gradients of the scaled scores. */
TX_INLINE void slopes(scores *s, scores *t, const tile_state *of, float factor, const __local uchar *kept, float keep,
                      int line, int lane, __local uint *shown)
{
#if ATOM == WGMMA /* computes t meanwhile */
    EACH_SCORE(j, e) s->of[0][j][e] = probability_of(s, 0, j, e, of, factor, line, lane);
    powers_hold(2.0f - s->of[0][OTHER_ATOMS - 1][SUMS - 1]);
    scores_end(t, 0, shown);
#endif
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        EACH_RUN(j, first)
        {
            kept_run run;
            if (DROPOUT)
                read_kept(&run, kept, line + i * OWN_ATOM + OWN_OF(LINE_OF(first), lane),
                          j * OTHER_ATOM + OTHER_OF(first, lane));
            UNROLLED for (int r = 0; r < BESIDE; r++)
            {
                const int e = first + r, is_left = DROPOUT ? IS_KEPT(run, r) : 1;
                const float w = ATOM == WGMMA ? s->of[i][j][e] : probability_of(s, i, j, e, of, factor, line, lane);
                t->of[i][j][e] = slope(w, t->of[i][j][e], of->delta[j * OTHER_ATOM + OTHER_OF(e, lane)], is_left, keep);
                s->of[i][j][e] = is_left ? w : 0.0f;
            }
        }
}

/* Own lines and outputs of a warp. */
typedef struct work {
    own_lines k, v;
    outputs dk, dv;
} work;

static void work_begin(work *w, own_lines k, own_lines v)
{
    w->k = k;
    w->v = v;
    clear(&w->dk);
    clear(&w->dv);
}

/* Adds the contributions of a block of queries, and of the gradients of their outputs, to the outputs. */
TX_INLINE void work_step(work *w, const __local ab_t *q, const __local ab_t *dy, const tile_state *of, float factor,
                         const __local uchar *bits, float keep, int line, int lane, __local uint *shown)
{
    scores s, t;
    out_end(&w->dv, 1, shown);
    out_end(&w->dk, 0, shown);
    product_scores(&s, &w->k, q, lane, shown);
    product_scores(&t, &w->v, dy, lane, shown);
    scores_end(&s, 1, shown);
    if (!BOUNDED && (HIDES_ALL || IS_EDGE(of->k0 + OWN_LINES, of->length, of->q0)))
        hide(&s, of, line, lane);
    slopes(&s, &t, of, factor, bits, keep, line, lane, shown);
    product_out(&w->dv, 0, &s, TURNED_IN(dy, ALONG | TURNED), lane, shown);
    product_out(&w->dk, 0, &t, TURNED_IN(q, ALONG | TURNED), lane, shown);
}

static void work_store(work *w, __global ab_t *dk, __global ab_t *dv, float scale, float keep, uint stride, int line,
                       int left, int lane)
{
    store_out(&w->dk, scale, dk, stride, line, left, lane);
    store_out(&w->dv, keep, dv, stride, line, left, lane);
}
#endif

#if SUMS_COLUMNS
#define STORE_SUMS                                                                     \
    if (column_sums) {                                                                 \
        const int tile = b * ((T - 1) / OWN_LINES + 1) + k0 / OWN_LINES;               \
        column_sums += column_sums_at + (tile * 2 * kv_heads + kv_head) * (long)D;     \
        store_sums(&work.dk, scale, column_sums, pool, item, shown);                   \
        store_sums(&work.dv, keep, column_sums + kv_heads * D, pool, item, shown);     \
    }
#else
#define STORE_SUMS
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) SUB_GROUP void
attention_grad_kv(ATTENTION_GRAD_ARGUMENTS SUMS_ARGUMENTS)
{
    LOCAL_MEMORY;
    __local float minus_lse_of[STAGES * OTHERS], delta_of[STAGES * OTHERS];
    __local int from_of[STAGES * OTHERS];
    KEY_TILE(OWN_LINES, OTHERS);
    int item = (int)get_local_id(0), lane = item % LANES;
    const int warp = item / LANES, line = warp % OWN_WARPS * (OWN_ATOMS * OWN_ATOM);
    const uint stride = (uint)(heads + 2 * kv_heads) * D, o_stride = (uint)heads * D, key = (uint)(heads + kv_head) * D;
    const int tiles = (max(end - first, 0) + OTHERS - 1) / OTHERS;
    const __global h_t *const x = qkv + qo + b * (long)T * stride, *const own = x + key + (uint)k0 * stride;
    const walk w = {x,
                    d_o + doo + b * (long)T * o_stride,
                    lse + lso + b * (long)heads * T,
                    delta + deo + b * (long)heads * T,
                    starts_of,
                    stride,
                    o_stride,
                    first, tiles, tiles * group, kv_head * group,
                    k0, T, length, window};

    own_lines k, v;
    turn next;
    work work;
    take_own(&k, pool + OWN_AT(0), own, stride, length - k0, line, lane, shown);
    take_own(&v, pool + OWN_AT(1), own + kv_heads * D, stride, length - k0, line, lane, shown);
#if PAIRED
    __local float passed[OWN_LINES * OTHERS] __attribute__((aligned(16)));
    work.second = warp >= OWN_WARPS;
    work.passed = passed;
#endif
    work_begin(&work, k, v);
    int stage = 0;
    begin_turn(&next, 0, &w, pool + OTHERS_AT, item);
    while (next.number < w.turns) {
        const int q0 = next.q0, at = stage * OTHERS;
        __local ab_t *const here = pool + OTHERS_AT + stage * (STAGE_ELEMENTS);
        __local uchar *const bits = kept + stage * KEPT;
        const tile_state of = {minus_lse_of + at, delta_of + at, from_of + at, q0, k0, length};
        item = IN_STEP(item, q0, T);
        lane = item % LANES;
        const draws drop = draws_of(control, b, site, plane + next.head, p, first_row, first_column);
        if (STAGES == 1)
            barrier(CLK_LOCAL_MEM_FENCE); /* the previous block has been read */
        end_turn(&next, &w, here, &of, item);
        if (DROPOUT)
            draw_kept(bits, &drop, q0, k0, item);
        COPIED_BARRIER;
        stage = (stage + 1) % STAGES;
        begin_turn(&next, next.number + 1, &w, pool + OTHERS_AT + stage * (STAGE_ELEMENTS), item);
        work_step(&work, here, here + BLOCK(ALONG | TURNED), &of, scale * LOG2_E, bits, drop.keep, line, lane, shown);
    }
    dqkv += dqo + b * (long)T * stride + key + (uint)k0 * stride;
    const float keep = DROPOUT ? 1.0f / (1.0f - p) : 1.0f;
    out_end(&work.dv, 1, shown);
    out_end(&work.dk, 0, shown);
    work_store(&work, dqkv, dqkv + kv_heads * D, scale, keep, stride, line, T - k0, lane);
    STORE_SUMS
}
