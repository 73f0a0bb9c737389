/* SPDX-License-Identifier: Apache-2.0
 * Attention in tiles (Dao, FlashAttention-2, 2023): scores exist only for ROWS by COLS of a tile at a time.
 *
 * A work-group holds a tile of ROWS rows (queries, or keys in attention_grad_kv) and walks over tiles of COLS of the
 * others. All products are small matrices in local memory:
 *   product_nt  a score tile: row tile times column tile, summed over the head size
 *   product_nn  a score tile times a column tile, added to [ROWS, D] that the items keep for the whole walk
 * The work-group is a grid of TY by TX items; an item owns micro-tiles of MR rows by VW columns. On CPU devices one item
 * walks over the whole tile, vectors lie along columns, and a transposed copy of the column tile makes them
 * contiguous; on others an item's rows and score columns are interleaved, which keeps memory banks apart.
 *
 *   D                  head size; DP is D rounded up to whole vectors, the rest zero
 *   CAUSAL, LENGTHS, DROPOUT, CACHED   0 or 1
 *   PART               one kernel a program, quicker to build: 0 attention, 1 _delta, 2 _grad_q, 3 _grad_kv */

#define UNROLL _Pragma("unroll")
#define DP ((D + VW - 1) / VW * VW)
#if WG == 1
#define TX 1
#define TY 1
#define LD DP   /* floats from row to row of a tile */
#define LP COLS /* and of a score tile */
#define ROW(rs, m) ((rs) * MR + (m))
#define BARRIER
#define UNROLL_DIM
#define LLOAD(p) vload16(0, p)
#define LSTORE(v, p) vstore16(v, 0, p)
#else
#define TY (ROWS / MR)
#define TX (WG / TY)
#define LD (DP + 4)
#define LP (COLS + 4)
#define ROW(rs, m) (ty + TY * (m))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE);
#define UNROLL_DIM UNROLL
#define LLOAD(p) (*(const __local float4 *)(p))
#define LSTORE(v, p) (*(__local float4 *)(p) = (v))
#endif
#define ROW_STEPS (ROWS / MR / TY)            /* groups of MR rows of an item */
#define COL_STEPS (COLS / VW / TX)            /* vectors of an item in a row of scores */
#define DIM_STEPS ((DP / VW + TX - 1) / TX)   /* vectors of an item in a row of an accumulator */
#define DIM(ds) ((tx + TX * (ds)) * VW)       /* first column of such a vector */

/* Item's place in the grid. */
#define GRID                                                                                        \
    const int tx = (int)get_local_id(0) % TX, ty = (int)get_local_id(0) / TX;                       \
    (void)tx, (void)ty;

#define EACH_SCORE(rs, cs)                                                                          \
    for (int rs = 0; rs < ROW_STEPS; rs++)                                                          \
        for (int cs = 0; cs < COL_STEPS; cs++)

/* A tile in local memory, aligned for vectors: the next piece of the kernel's argument `pool`. */
#define TILE(name, rows, length)                                                                    \
    __local float *const name = (__local float *)pool;                                              \
    pool += (rows) * (length) / VW

#if WG == 1
#define TILE_T(name) TILE(name##_t, DP, COLS) /* the transposed copy */
#else
#define TILE_T(name) __local float *const name##_t = name
#endif

/* Elements i.. of a row of D in global memory; the rest of the vector is 0. */
static vec load_row(const __global float *p, int i)
{
#if D % VW == 0
    return VLOAD(p + i);
#else
    float part[VW];
    for (int k = 0; k < VW; k++)
        part[k] = i + k < D ? p[i + k] : 0.0f;
    return VLOAD_PRIVATE(part);
#endif
}

static void store_row(vec v, __global float *p, int i)
{
#if D % VW == 0
    VSTORE(v, p + i);
#else
    float part[VW];
    VSTORE_PRIVATE(v, part);
    for (int k = 0; k < VW; k++)
        if (i + k < D)
            p[i + k] = part[k];
#endif
}

/* Rows 0..valid-1 of `rows`, `stride` apart, the others 0. */
static void load_tile(__local float *tile, const __global float *p, long stride, int rows, int valid)
{
    for (int e = (int)get_local_id(0); e < rows * (DP / VW); e += WG) {
        int r = e / (DP / VW), i = e % (DP / VW) * VW;
        vec v = 0.0f;
        if (r < valid)
            v = load_row(p + r * stride, i);
        LSTORE(v, tile + r * LD + i);
    }
}

/* On CPU devices: the transpose of a column tile; elsewhere tile_t is the tile itself. */
static void transpose(__local float *tile_t, const __local float *tile)
{
#if WG == 1
    for (int i = 0; i < DP; i++)
        for (int r = 0; r < COLS; r++)
            tile_t[i * COLS + r] = tile[r * LD + i];
#endif
}

/* acc = rows of `a` times rows of the column tile, over the head size; a micro-tile of scores. */
static void product_nt(const __local float *a, const __local float *b, vec *acc, int rs, int cs, int tx, int ty)
{
    UNROLL for (int m = 0; m < MR; m++) acc[m] = 0.0f;
#if WG == 1
    for (int k = 0; k < D; k++) {
        vec v = LLOAD(b + k * COLS + cs * VW);
        UNROLL for (int m = 0; m < MR; m++)
            acc[m] = fma((vec)a[ROW(rs, m) * LD + k], v, acc[m]);
    }
#else
    for (int k = 0; k < DP; k += 4) {
        float4 v[4];
        UNROLL for (int j = 0; j < 4; j++) v[j] = LLOAD(b + (tx + TX * (j + 4 * cs)) * LD + k);
        UNROLL for (int m = 0; m < MR; m++)
        {
            float4 u = LLOAD(a + ROW(rs, m) * LD + k);
            acc[m] = fma(u.xxxx, (float4)(v[0].x, v[1].x, v[2].x, v[3].x), acc[m]);
            acc[m] = fma(u.yyyy, (float4)(v[0].y, v[1].y, v[2].y, v[3].y), acc[m]);
            acc[m] = fma(u.zzzz, (float4)(v[0].z, v[1].z, v[2].z, v[3].z), acc[m]);
            acc[m] = fma(u.wwww, (float4)(v[0].w, v[1].w, v[2].w, v[3].w), acc[m]);
        }
    }
#endif
}

/* acc += scores times the first `count` rows of a column tile (those after them have score 0). */
static void product_nn(const __local float *scores, const __local float *b, vec acc[ROW_STEPS][DIM_STEPS][MR], int count,
                       int tx, int ty)
{
#if WG == 1
    for (int rs = 0; rs < ROW_STEPS; rs++)
        for (int ds = 0; ds < DIM_STEPS; ds++) {
            vec sum[MR];
            UNROLL for (int m = 0; m < MR; m++)
                sum[m] = acc[rs][ds][m];
            for (int k = 0; k < count; k++) {
                vec v = LLOAD(b + k * LD + DIM(ds));
                UNROLL for (int m = 0; m < MR; m++)
                    sum[m] = fma((vec)scores[ROW(rs, m) * LP + k], v, sum[m]);
            }
            UNROLL for (int m = 0; m < MR; m++)
                acc[rs][ds][m] = sum[m];
        }
#else
    for (int k = 0; k < count; k += 4) {
        float4 s[MR];
        UNROLL for (int m = 0; m < MR; m++) s[m] = LLOAD(scores + ROW(0, m) * LP + k);
        UNROLL_DIM for (int ds = 0; ds < DIM_STEPS; ds++)
        {
            if (DIM(ds) >= DP)
                break;
            const __local float *column = b + k * LD + DIM(ds);
            float4 v0 = LLOAD(column), v1 = LLOAD(column + LD), v2 = LLOAD(column + 2 * LD), v3 = LLOAD(column + 3 * LD);
            UNROLL for (int m = 0; m < MR; m++)
            {
                vec sum = acc[0][ds][m];
                sum = fma(s[m].xxxx, v0, sum);
                sum = fma(s[m].yyyy, v1, sum);
                sum = fma(s[m].zzzz, v2, sum);
                acc[0][ds][m] = fma(s[m].wwww, v3, sum);
            }
        }
    }
#endif
}

/* Columns of a vector of scores within the tile; scores from and to local memory by them. */
#if WG == 1
#define SCORE_COLS(cs) ((cs) * VW + (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#define SCORE_GATHER(p, cs) vload16(0, (p) + (cs) * VW)
#define SCORE_PUT(v, p, cs) vstore16(v, 0, (p) + (cs) * VW)
#else
#define SCORE_COL(cs, j) (tx + TX * ((j) + 4 * (cs)))
#define SCORE_COLS(cs) (int4)(SCORE_COL(cs, 0), SCORE_COL(cs, 1), SCORE_COL(cs, 2), SCORE_COL(cs, 3))
#define SCORE_GATHER(p, cs)                                                                         \
    (float4)((p)[SCORE_COL(cs, 0)], (p)[SCORE_COL(cs, 1)], (p)[SCORE_COL(cs, 2)], (p)[SCORE_COL(cs, 3)])
#define SCORE_PUT(v, p, cs)                                                                         \
    {                                                                                               \
        (p)[SCORE_COL(cs, 0)] = (v).x;                                                              \
        (p)[SCORE_COL(cs, 1)] = (v).y;                                                              \
        (p)[SCORE_COL(cs, 2)] = (v).z;                                                              \
        (p)[SCORE_COL(cs, 3)] = (v).w;                                                              \
    }
#endif

static vec larger(vec a, vec b)
{
    return a > b ? a : b;
}

/* Largest lane; NaN shows in the sums instead. */
static float largest(vec v)
{
#if VW == 4
    return fmax(fmax(v.x, v.y), fmax(v.z, v.w));
#else
    float8 a = v.lo > v.hi ? v.lo : v.hi;
    float4 b = a.lo > a.hi ? a.lo : a.hi;
    return fmax(fmax(b.x, b.y), fmax(b.z, b.w));
#endif
}

/* Dropout's factors, 0 or 1 / (1 - p), of queries q0.. and keys k0..; four neighbouring keys share a draw. Element (query,
 * key) of the tile goes to scores[query * query_step + key * key_step]. k0 is a multiple of 4. */
static void draw_factors(__local float *scores, int queries, int keys, int query_step, int key_step, int q0, int k0,
                         uint sample, int site, uint head, float p, const __global uint *control)
{
    uint threshold = tx_dropout_threshold(p);
    float keep = 1.0f / (1.0f - p);
    for (int e = (int)get_local_id(0); e < queries * (keys / 4); e += WG) {
        int q = e / (keys / 4), k = e % (keys / 4) * 4;
        tx_random random = tx_draw(control[TX_CONTROL_SEED_LO], control[TX_CONTROL_SEED_HI], control[TX_CONTROL_STEP],
                                   sample, (uint)site, head, (uint)(q0 + q), (uint)(k0 + k) >> 2);
        for (int j = 0; j < 4; j++)
            scores[q * query_step + (k + j) * key_step] = random.word[j] >= threshold ? keep : 0.0f;
    }
}

/* Joins one float a row of all items of that row (sum, or maximum); `part` has ROWS * TX floats. */
static void join_rows(float values[ROW_STEPS][MR], __local float *part, int maximum, int tx, int ty)
{
#if WG > 1
    BARRIER
    UNROLL for (int m = 0; m < MR; m++) part[ROW(0, m) * TX + tx] = values[0][m];
    BARRIER
    UNROLL for (int m = 0; m < MR; m++)
    {
        const __local float *row = part + ROW(0, m) * TX;
        float v = row[0];
        UNROLL for (int k = 1; k < TX; k++) v = maximum ? fmax(v, row[k]) : v + row[k];
        values[0][m] = v;
    }
#endif
}

#if PART == 0

/* Dimension 0: tiles of queries, from the last, which has most keys when causal; 1: head; 2: b. With CACHED, keys and values
 * are S rows a batch of k_cache and v_cache, and `lengths` holds positions: query t stands at lengths[b] + t. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attention(const __global float *qkv, long qo, const __global int *lengths, long leo, const __global float *k_cache,
          long ko, const __global float *v_cache, long vo, __global float *o, long oo, __global float *lse, long lso,
          int T, int S, int heads, int kv_heads, float scale, float p, int site, const __global uint *control,
          __local vec *pool)
{
    GRID
    TILE(q_tile, ROWS, LD);
    TILE(k_tile, COLS, LD);
    TILE_T(k_tile);
    TILE(v_tile, COLS, LD);
    TILE(scores, ROWS, LP);
    TILE(part, ROWS, TX);
    const int head = (int)get_group_id(1), b = (int)get_group_id(2);
    const int q0 = ((int)get_num_groups(0) - 1 - (int)get_group_id(0)) * ROWS;
    const int kv_head = head / (heads / kv_heads);
    long stride = (long)(heads + 2 * kv_heads) * D, kv_stride = stride;
    const __global float *q = qkv + qo + (b * (long)T + q0) * stride + (long)head * D;
    const __global float *k, *v;
    int length = T, keys = S, base = 0;
#if CACHED
    kv_stride = (long)kv_heads * D;
    base = (int)tx_position(lengths[leo + b], S - T);
    k = k_cache + ko + b * (long)S * kv_stride + (long)kv_head * D;
    v = v_cache + vo + b * (long)S * kv_stride + (long)kv_head * D;
#else
    k = qkv + qo + b * (long)T * stride + (long)(heads + kv_head) * D;
    v = k + (long)kv_heads * D;
#endif
#if LENGTHS
    length = clamp(lengths[leo + b], 0, T);
    keys = length;
#endif
    int last = keys; /* keys that any query of the tile sees */
#if CAUSAL
    last = min(keys, base + min(q0 + ROWS, T));
#endif
    if (q0 >= length)
        last = 0;

    vec acc[ROW_STEPS][DIM_STEPS][MR], sum[ROW_STEPS][MR];
    float top[ROW_STEPS][MR];
    for (int rs = 0; rs < ROW_STEPS; rs++)
        UNROLL for (int m = 0; m < MR; m++)
        {
            top[rs][m] = -INFINITY;
            sum[rs][m] = 0.0f;
            UNROLL_DIM for (int ds = 0; ds < DIM_STEPS; ds++) acc[rs][ds][m] = 0.0f;
        }
    load_tile(q_tile, q, stride, ROWS, T - q0);
    for (int k0 = 0; k0 < last; k0 += COLS) {
        BARRIER
        load_tile(k_tile, k + k0 * kv_stride, kv_stride, COLS, last - k0);
        load_tile(v_tile, v + k0 * kv_stride, kv_stride, COLS, last - k0);
        transpose(k_tile_t, k_tile);
#if DROPOUT
        draw_factors(scores, ROWS, COLS, LP, 1, q0, k0, control[TX_CONTROL_SAMPLE] + (uint)b, site, (uint)head, p, control);
#endif
        BARRIER
        vec s[ROW_STEPS][COL_STEPS][MR];
        float high[ROW_STEPS][MR];
        int edge = k0 + COLS > last || (CAUSAL && k0 + COLS > base + q0 + 1);
        for (int rs = 0; rs < ROW_STEPS; rs++) {
            for (int cs = 0; cs < COL_STEPS; cs++) {
                product_nt(q_tile, k_tile_t, s[rs][cs], rs, cs, tx, ty);
                UNROLL for (int m = 0; m < MR; m++)
                {
                    vec w = s[rs][cs][m] * scale;
                    if (edge) {
                        int limit = CAUSAL ? min(last, base + q0 + ROW(rs, m) + 1) : last;
                        w = k0 + SCORE_COLS(cs) < limit ? w : (vec)-INFINITY;
                    }
                    s[rs][cs][m] = w;
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
        join_rows(high, part, 1, tx, ty);
        for (int rs = 0; rs < ROW_STEPS; rs++)
            UNROLL for (int m = 0; m < MR; m++)
            {
                float m1 = fmax(top[rs][m], high[rs][m]), fade = exp(top[rs][m] - m1);
                top[rs][m] = m1;
                sum[rs][m] *= fade;
                for (int cs = 0; cs < COL_STEPS; cs++) {
                    __local float *row = scores + ROW(rs, m) * LP;
                    vec w = tx_exp(s[rs][cs][m] - m1);
                    sum[rs][m] += w;
#if DROPOUT
                    w *= SCORE_GATHER(row, cs);
#endif
                    SCORE_PUT(w, row, cs);
                }
                UNROLL_DIM for (int ds = 0; ds < DIM_STEPS; ds++) acc[rs][ds][m] *= fade;
            }
        BARRIER
        product_nn(scores, v_tile, acc, min(COLS, last - k0), tx, ty);
    }

    float total[ROW_STEPS][MR];
    for (int rs = 0; rs < ROW_STEPS; rs++)
        UNROLL for (int m = 0; m < MR; m++) total[rs][m] = tx_hsum(sum[rs][m]);
    join_rows(total, part, 0, tx, ty);
    o += oo + (b * (long)T + q0) * heads * D + (long)head * D;
    for (int rs = 0; rs < ROW_STEPS; rs++)
        UNROLL for (int m = 0; m < MR; m++)
        {
            int row = ROW(rs, m);
            if (q0 + row >= T)
                continue;
            int dead = q0 + row >= length;
            float factor = dead ? 0.0f : 1.0f / total[rs][m];
            UNROLL_DIM for (int ds = 0; ds < DIM_STEPS; ds++)
            {
                if (DIM(ds) < DP)
                    store_row(dead ? (vec)0.0f : acc[rs][ds][m] * factor, o + (long)row * heads * D, DIM(ds));
            }
#if !CACHED
            if (tx == 0)
                lse[lso + (b * (long)heads + head) * T + q0 + row] = dead ? 0.0f : top[rs][m] + log(total[rs][m]);
#endif
        }
}

#elif PART == 1

/* Row sums of do * o [B, heads, T]; dimension 0: (b, t, head). */
__kernel void attention_delta(const __global float *d_o, long doo, const __global float *o, long oo,
                              __global float *delta, long deo, long count, int T, int heads)
{
    long e = get_global_id(0);
    if (e >= count)
        return;
    int head = (int)(e % heads);
    long bt = e / heads;
    d_o += doo + e * D;
    o += oo + e * D;
    vec sum = 0.0f;
    for (int i = 0; i < DP; i += VW)
        sum += load_row(d_o, i) * load_row(o, i);
    delta[deo + (bt / T * heads + head) * T + bt % T] = tx_hsum(sum);
}

#elif PART == 2

/* Gradient of the queries. Dimensions as in attention. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attention_grad_q(const __global float *d_o, long doo, const __global float *qkv, long qo, const __global float *lse,
                 long lso, const __global float *delta, long deo, const __global int *lengths, long leo,
                 __global float *dqkv, long dqo, int T, int heads, int kv_heads, float scale, float p, int site,
                 const __global uint *control, __local vec *pool)
{
    GRID
    TILE(q_tile, ROWS, LD);
    TILE(do_tile, ROWS, LD);
    TILE(k_tile, COLS, LD);
    TILE_T(k_tile);
    TILE(v_tile, COLS, LD);
    TILE_T(v_tile);
    TILE(scores, ROWS, LP);
    const int head = (int)get_group_id(1), b = (int)get_group_id(2);
    const int q0 = ((int)get_num_groups(0) - 1 - (int)get_group_id(0)) * ROWS;
    const int kv_head = head / (heads / kv_heads);
    const long stride = (long)(heads + 2 * kv_heads) * D, stats = (b * (long)heads + head) * T;
    const long query = (b * (long)T + q0) * stride + (long)head * D;
    const __global float *k = qkv + qo + b * (long)T * stride + (long)(heads + kv_head) * D;
    const __global float *v = k + (long)kv_heads * D;
    int length = T;
#if LENGTHS
    length = clamp(lengths[leo + b], 0, T);
#endif
    int last = CAUSAL ? min(length, q0 + ROWS) : length;
    if (q0 >= length)
        last = 0;
    lse += lso + stats;
    delta += deo + stats;

    vec acc[ROW_STEPS][DIM_STEPS][MR];
    for (int rs = 0; rs < ROW_STEPS; rs++)
        UNROLL_DIM for (int ds = 0; ds < DIM_STEPS; ds++)
            UNROLL for (int m = 0; m < MR; m++) acc[rs][ds][m] = 0.0f;
    load_tile(q_tile, qkv + qo + query, stride, ROWS, length - q0);
    load_tile(do_tile, d_o + doo + (b * (long)T + q0) * heads * D + (long)head * D, (long)heads * D, ROWS, length - q0);
    for (int k0 = 0; k0 < last; k0 += COLS) {
        BARRIER
        load_tile(k_tile, k + k0 * stride, stride, COLS, last - k0);
        load_tile(v_tile, v + k0 * stride, stride, COLS, last - k0);
        transpose(k_tile_t, k_tile);
        transpose(v_tile_t, v_tile);
#if DROPOUT
        draw_factors(scores, ROWS, COLS, LP, 1, q0, k0, control[TX_CONTROL_SAMPLE] + (uint)b, site, (uint)head, p, control);
#endif
        BARRIER
        EACH_SCORE(rs, cs)
        {
            vec s[MR], dp[MR];
            product_nt(q_tile, k_tile_t, s, rs, cs, tx, ty);
            product_nt(do_tile, v_tile_t, dp, rs, cs, tx, ty);
            UNROLL for (int m = 0; m < MR; m++)
            {
                int row = ROW(rs, m), at = min(q0 + row, length - 1);
                int limit = q0 + row >= length ? 0 : CAUSAL ? min(last, q0 + row + 1) : last;
                __local float *line = scores + row * LP;
                vec w = tx_exp(s[m] * scale - lse[at]);
                w = k0 + SCORE_COLS(cs) < limit ? w : (vec)0.0f;
#if DROPOUT
                dp[m] *= SCORE_GATHER(line, cs);
#endif
                w *= (dp[m] - delta[at]) * scale;
                SCORE_PUT(w, line, cs);
            }
        }
        BARRIER
        product_nn(scores, k_tile, acc, min(COLS, last - k0), tx, ty);
    }
    dqkv += dqo + query;
    for (int rs = 0; rs < ROW_STEPS; rs++)
        UNROLL for (int m = 0; m < MR; m++)
            UNROLL_DIM for (int ds = 0; ds < DIM_STEPS; ds++)
            {
                if (q0 + ROW(rs, m) < T && DIM(ds) < DP)
                    store_row(acc[rs][ds][m], dqkv + ROW(rs, m) * stride, DIM(ds));
            }
}

#elif PART == 3

/* Gradients of keys and values: rows are keys, columns queries of all heads that read this key head. Dimension 0: tiles of keys, from
 * the first, which most queries see when causal; 1: key head; 2: b. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attention_grad_kv(const __global float *d_o, long doo, const __global float *qkv, long qo, const __global float *lse,
                  long lso, const __global float *delta, long deo, const __global int *lengths, long leo,
                  __global float *dqkv, long dqo, int T, int heads, int kv_heads, float scale, float p, int site,
                  const __global uint *control, __local vec *pool)
{
    GRID
    TILE(k_tile, ROWS, LD);
    TILE(v_tile, ROWS, LD);
    TILE(q_tile, COLS, LD);
    TILE_T(q_tile);
    TILE(do_tile, COLS, LD);
    TILE_T(do_tile);
    TILE(scores, ROWS, LP);
    TILE(slopes, ROWS, LP);
    TILE(lse_part, COLS, 1);
    TILE(delta_part, COLS, 1);
    const int kv_head = (int)get_group_id(1), b = (int)get_group_id(2);
    const int k0 = (int)get_group_id(0) * ROWS, group = heads / kv_heads;
    const long stride = (long)(heads + 2 * kv_heads) * D;
    const long key = (b * (long)T + k0) * stride + (long)(heads + kv_head) * D;
    int length = T;
#if LENGTHS
    length = clamp(lengths[leo + b], 0, T);
#endif

    vec dk[ROW_STEPS][DIM_STEPS][MR], dv[ROW_STEPS][DIM_STEPS][MR];
    for (int rs = 0; rs < ROW_STEPS; rs++)
        UNROLL_DIM for (int ds = 0; ds < DIM_STEPS; ds++)
            UNROLL for (int m = 0; m < MR; m++)
            {
                dk[rs][ds][m] = 0.0f;
                dv[rs][ds][m] = 0.0f;
            }
    load_tile(k_tile, qkv + qo + key, stride, ROWS, length - k0);
    load_tile(v_tile, qkv + qo + key + (long)kv_heads * D, stride, ROWS, length - k0);
    int first = CAUSAL ? k0 / COLS * COLS : 0;
    if (k0 >= length)
        first = length;
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int q0 = first; q0 < length; q0 += COLS) {
            const long at = b * (long)T + q0, stats = (b * (long)heads + head) * T + q0;
            BARRIER
            load_tile(q_tile, qkv + qo + at * stride + (long)head * D, stride, COLS, length - q0);
            load_tile(do_tile, d_o + doo + (at * heads + head) * D, (long)heads * D, COLS, length - q0);
            transpose(q_tile_t, q_tile);
            transpose(do_tile_t, do_tile);
            for (int i = (int)get_local_id(0); i < COLS; i += WG) {
                lse_part[i] = q0 + i < length ? lse[lso + stats + i] : 0.0f;
                delta_part[i] = q0 + i < length ? delta[deo + stats + i] : 0.0f;
            }
#if DROPOUT
            draw_factors(scores, COLS, ROWS, 1, LP, q0, k0, control[TX_CONTROL_SAMPLE] + (uint)b, site, (uint)head, p,
                         control);
#endif
            BARRIER
            EACH_SCORE(rs, cs)
            {
                vec s[MR], dp[MR];
                product_nt(k_tile, q_tile_t, s, rs, cs, tx, ty);
                product_nt(v_tile, do_tile_t, dp, rs, cs, tx, ty);
                vec l = SCORE_GATHER(lse_part, cs), delta_of = SCORE_GATHER(delta_part, cs);
                UNROLL for (int m = 0; m < MR; m++)
                {
                    int row = ROW(rs, m), start = k0 + row >= length ? length : CAUSAL ? k0 + row : 0;
                    __local float *line = scores + row * LP, *slope = slopes + row * LP;
                    ivec at_query = q0 + SCORE_COLS(cs);
                    vec w = tx_exp(s[m] * scale - l);
                    w = (at_query >= start && at_query < length) ? w : (vec)0.0f;
                    vec kept = w;
#if DROPOUT
                    vec factor = SCORE_GATHER(line, cs);
                    kept *= factor;
                    dp[m] *= factor;
#endif
                    SCORE_PUT(kept, line, cs);
                    w *= (dp[m] - delta_of) * scale;
                    SCORE_PUT(w, slope, cs);
                }
            }
            BARRIER
            product_nn(scores, do_tile, dv, min(COLS, length - q0), tx, ty);
            product_nn(slopes, q_tile, dk, min(COLS, length - q0), tx, ty);
        }
    dqkv += dqo + key;
    for (int rs = 0; rs < ROW_STEPS; rs++)
        UNROLL for (int m = 0; m < MR; m++)
            UNROLL_DIM for (int ds = 0; ds < DIM_STEPS; ds++)
            {
                if (k0 + ROW(rs, m) >= T || DIM(ds) >= DP)
                    continue;
                store_row(dk[rs][ds][m], dqkv + ROW(rs, m) * stride, DIM(ds));
                store_row(dv[rs][ds][m], dqkv + ROW(rs, m) * stride + (long)kv_heads * D, DIM(ds));
            }
}

#endif
