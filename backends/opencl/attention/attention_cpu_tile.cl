/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of attention tiles on CPU devices. A work-group is one work-item that processes whole tiles.
 *
 * A work-group holds a tile of ROWS rows (queries, or keys in attention_grad_kv) and loops over tiles of COLS rows
 * of the other operand. All products are small matrices in local memory, which is cache on CPUs.
 *
 *   `product_nt`  A score tile: row tile times column tile, summed over the head size.
 *   `product_nn`  A score tile times a column tile, added to [ROWS, D] that the work-item keeps in all steps.
 *
 * Micro-tiles are MR rows by one vector along columns. A transposed copy of the column tile makes the vectors
 * contiguous.
 *
 *   ROWS, COLS    Multiples of MR and of VW.
 */
#include "attention_shared.cl"

#define ROW_STEPS (ROWS / MR)
#define COL_STEPS (COLS / VW)
#define DIM_STEPS (DP / VW)
#define ROW(rs, m) ((rs) * MR + (m))
#define LLOAD(p) vload16(0, p)
#define LSTORE(v, p) vstore16(v, 0, p)
#define SCORE_COLS(cs) ((cs) * VW + (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))

#define EACH_SCORE(rs, cs)                                                                          \
    for (int rs = 0; rs < ROW_STEPS; rs++)                                                          \
        for (int cs = 0; cs < COL_STEPS; cs++)
#define EACH_ROW(rs, m)                                                                             \
    for (int rs = 0; rs < ROW_STEPS; rs++)                                                          \
        UNROLL for (int m = 0; m < MR; m++)

/* A tile in local memory, aligned for vectors: the next piece of the kernel's argument `pool`. */
#define TILE(name, rows, length)                                                                    \
    __local float *const name = (__local float *)pool;                                              \
    pool += (rows) * (length) / VW

/* Loads rows 0..valid-1 of `rows` rows, and zeroes the others. `load` loads elements i.. of row r. */
#define LOAD_TILE(tile, rows, valid, load)                                                          \
    for (int r = 0; r < (rows); r++)                                                                \
        for (int i = 0; i < DP; i += VW) {                                                          \
            vec w = 0.0f;                                                                           \
            if (r < (valid))                                                                        \
                w = load;                                                                           \
            LSTORE(w, (tile) + r * DP + i);                                                         \
        }
static void load_tile(__local float *tile, const __global h_t *p, long stride, int rows, int valid)
{
    LOAD_TILE(tile, rows, valid, load_row(p + r * stride + i, i))
}

static void transpose(__local float *tile_t, const __local float *tile)
{
    for (int i = 0; i < DP; i++)
        for (int r = 0; r < COLS; r++)
            tile_t[i * COLS + r] = tile[r * DP + i];
}

/* acc = rows of `a` times columns of `b`, summed over the head size: a micro-tile of scores. */
static void product_nt(const __local float *a, const __local float *b, vec *acc, int rs, int cs)
{
    UNROLL for (int m = 0; m < MR; m++) acc[m] = 0.0f;
    for (int k = 0; k < D; k++) {
        vec v = LLOAD(b + k * COLS + cs * VW);
        UNROLL for (int m = 0; m < MR; m++)
            acc[m] = fma((vec)a[ROW(rs, m) * DP + k], v, acc[m]);
    }
}

/* acc += scores times the first `count` rows of a column tile. Later rows have score 0. */
static void product_nn(const __local float *scores, const __local float *b, vec acc[ROW_STEPS][DIM_STEPS][MR],
                       int count)
{
    for (int rs = 0; rs < ROW_STEPS; rs++)
        for (int ds = 0; ds < DIM_STEPS; ds++) {
            vec sum[MR];
            UNROLL for (int m = 0; m < MR; m++)
                sum[m] = acc[rs][ds][m];
            for (int k = 0; k < count; k++) {
                vec v = LLOAD(b + k * DP + ds * VW);
                UNROLL for (int m = 0; m < MR; m++)
                    sum[m] = fma((vec)scores[ROW(rs, m) * COLS + k], v, sum[m]);
            }
            UNROLL for (int m = 0; m < MR; m++)
                acc[rs][ds][m] = sum[m];
        }
}

static void clear(vec acc[ROW_STEPS][DIM_STEPS][MR])
{
    EACH_ROW(rs, m)
    {
        for (int ds = 0; ds < DIM_STEPS; ds++)
            acc[rs][ds][m] = 0.0f;
    }
}

/* Stores rows `stride` apart, of which `left` exist. */
static void store_tile(vec acc[ROW_STEPS][DIM_STEPS][MR], __global h_t *to, long stride, int left)
{
    EACH_ROW(rs, m)
    {
        for (int ds = 0; ds < DIM_STEPS && ROW(rs, m) < left; ds++)
            store_row(acc[rs][ds][m], to + ROW(rs, m) * stride + ds * VW, ds * VW);
    }
}

/* Draws dropout's factors for a tile of queries q0.. and keys k0.. (a multiple of 4). The factor of (query, key) is
 * stored in scores[query * query_step + key * key_step]; one of the steps is 1. */
static void draw_tile(__local float *scores, int queries, int keys, int query_step, int key_step, int q0, int k0,
                      const draws *d)
{
    for (int q = 0; q < queries; q += 8)
        for (int k = 0; k < keys; k += 4) {
            __local float *const at = scores + q * query_step + k * key_step;
            float8 f[4];
            draw_factors8(f, d, (uint)(q0 + q) + (uint8)(0, 1, 2, 3, 4, 5, 6, 7), (uint)(k0 + k));
#define PUT_KEY(w) vstore8(f[w], 0, at + w * key_step);
#define PUT_QUERY(l) vstore4((float4)(FACTORS_OF(f, l)), 0, at + l * query_step);
            if (query_step == 1) {
                PUT_KEY(0) PUT_KEY(1) PUT_KEY(2) PUT_KEY(3)
            } else {
                PUT_QUERY(0) PUT_QUERY(1) PUT_QUERY(2) PUT_QUERY(3)
                PUT_QUERY(4) PUT_QUERY(5) PUT_QUERY(6) PUT_QUERY(7)
            }
        }
}
