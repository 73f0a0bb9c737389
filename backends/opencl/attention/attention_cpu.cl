/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiled attention, forward, on CPU devices (Dao, FlashAttention-2, 2023).
 */
#include "attention_cpu_tile.cl"

static vec larger(vec a, vec b)
{
    return a > b ? a : b;
}

/* Returns the largest lane. NaN is ignored here; the sums propagate it. */
static float largest(vec v)
{
    float8 a = v.lo > v.hi ? v.lo : v.hi;
    float4 b = a.lo > a.hi ? a.lo : a.hi;
    return fmax(fmax(b.x, b.y), fmax(b.z, b.w));
}

/* The keys of a step that queries attend to: from k0 on and before `last`; if causal, up to the query's own
 * position. */
typedef struct visibility {
    int base, q0, k0, last, T, window;
    const __global int *starts;
} visibility;

/* Masks the scaled scores of row `row` and vector cs of columns: -INFINITY if the query does not attend to the key. */
static vec mask(vec w, const visibility *of, int row, int cs)
{
    const int limit = CAUSAL ? min(of->last, of->base + of->q0 + row + 1) : of->last;
    w = of->k0 + SCORE_COLS(cs) < limit ? w : (vec)-INFINITY;
    if (BOUNDED) {
        const int from = first_key(of->base, min(of->q0 + row, of->T - 1), of->window, of->starts);
        w = of->k0 + SCORE_COLS(cs) >= from ? w : (vec)-INFINITY;
    }
    return w;
}

/* Computes the scores s of a step and the maximum `high` of each row. */
static void score_tile(vec s[ROW_STEPS][COL_STEPS][MR], float high[ROW_STEPS][MR], const __local float *q_tile,
                       const __local float *k_tile_t, const visibility *of, float scale)
{
    const int k0 = of->k0, edge = BOUNDED || k0 + COLS > of->last || (CAUSAL && k0 + COLS > of->base + of->q0 + 1);
    for (int rs = 0; rs < ROW_STEPS; rs++) {
        for (int cs = 0; cs < COL_STEPS; cs++) {
            product_nt(q_tile, k_tile_t, s[rs][cs], rs, cs);
            UNROLL for (int m = 0; m < MR; m++)
            {
                const vec w = CAPPED(s[rs][cs][m] * scale);
                s[rs][cs][m] = edge ? mask(w, of, ROW(rs, m), cs) : w;
            }
        }
        UNROLL for (int m = 0; m < MR; m++)
        {
            vec w = s[rs][0][m];
            for (int cs = 1; cs < COL_STEPS; cs++)
                w = larger(w, s[rs][cs][m]);
            high[rs][m] = largest(w);
        }
    }
}

/* The running maximum of each row, and the running sum of its exponentials in lanes (online softmax). */
typedef struct rows {
    float maximum[ROW_STEPS][MR];
    vec sum[ROW_STEPS][MR];
} rows;

/* Stores exponentials of the scores in local memory, multiplied by dropout's factors, which `scores` holds before.
 * Rescales the earlier sums. */
static void exponentials(vec s[ROW_STEPS][COL_STEPS][MR], float high[ROW_STEPS][MR], rows *state,
                         vec acc[ROW_STEPS][DIM_STEPS][MR], __local float *scores)
{
    EACH_ROW(rs, m)
    {
        const float maximum = fmax(state->maximum[rs][m], high[rs][m]), rescale = exp(state->maximum[rs][m] - maximum);
        state->maximum[rs][m] = maximum;
        state->sum[rs][m] *= rescale;
        for (int cs = 0; cs < COL_STEPS; cs++) {
            __local float *const place = scores + ROW(rs, m) * COLS + cs * VW;
            vec w = tx_exp(s[rs][cs][m] - maximum);
            state->sum[rs][m] += w;
            if (DROPOUT)
                w *= LLOAD(place);
            LSTORE(w, place);
        }
        for (int ds = 0; ds < DIM_STEPS; ds++)
            acc[rs][ds][m] *= rescale;
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
attention(ATTENTION_ARGUMENTS, __local vec *pool)
{
    TILE(q_tile, ROWS, DP);
    TILE(k_tile, COLS, DP);
    TILE(k_tile_t, DP, COLS);
    TILE(v_tile, COLS, DP);
    TILE(scores, ROWS, COLS);
    QUERY_TILE(ROWS, COLS);
    const long stride = (long)(heads + 2 * kv_heads) * D, kv_stride = CACHED ? (long)kv_heads * D : stride;
    const __global h_t *const x = qkv + qo + b * (long)T * stride;
#if CACHED
    const long key = (long)kv_head * D;
    CACHED_ROWS(ROWS);
#else
    const long key = (long)(heads + kv_head) * D;
    const __global h_t *const k = x, *const v = x + (long)kv_heads * D;
#endif
    vec acc[ROW_STEPS][DIM_STEPS][MR];
    rows state;
    clear(acc);
    EACH_ROW(rs, m)
    {
        state.maximum[rs][m] = SINK(LOWEST);
        state.sum[rs][m] = 0.0f;
        if (SINKS)
            state.sum[rs][m].s0 = 1.0f;
    }
    load_tile(q_tile, x + q0 * stride + (long)head * D, stride, ROWS, T - q0);
    for (int k0 = begin; k0 < last; k0 += COLS) {
        const visibility of = {base, q0, k0, last, T, window, starts_of};
        vec s[ROW_STEPS][COL_STEPS][MR];
        float high[ROW_STEPS][MR];
        LOAD_TILE(k_tile, COLS, last - k0, load_kv(k, key + (k0 + r) * kv_stride + i, i))
        LOAD_TILE(v_tile, COLS, last - k0, load_kv(v, key + (k0 + r) * kv_stride + i, i))
        transpose(k_tile_t, k_tile);
        if (DROPOUT)
            draw_tile(scores, ROWS, COLS, COLS, 1, q0, k0, &drop);
        score_tile(s, high, q_tile, k_tile_t, &of, scale);
        exponentials(s, high, &state, acc, scores);
        product_nn(scores, v_tile, acc, min(COLS, last - k0));
    }

    EACH_ROW(rs, m)
    {
        const int row = ROW(rs, m), dead = q0 + row >= length;
        const float total = tx_hsum(state.sum[rs][m]), factor = dead ? 0.0f : 1.0f / total;
        for (int ds = 0; ds < DIM_STEPS; ds++)
            acc[rs][ds][m] = dead ? (vec)0.0f : acc[rs][ds][m] * factor;
#if !CACHED
        if (q0 + row < T)
            lse[lso + (b * (long)heads + head) * T + q0 + row] = dead ? 0.0f : state.maximum[rs][m] + log(total);
#endif
    }
    store_tile(acc, o + oo + (b * (long)T + q0) * heads * D + (long)head * D, (long)heads * D, T - q0);
}
