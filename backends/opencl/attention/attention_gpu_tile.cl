/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of attention tiles for work-groups that share local memory (GPUs).
 *
 * The scores of ROWS queries and COLS keys exist only as a tile in local memory. The operands are streamed from
 * global memory through a double buffer in local memory: while one chunk is multiplied, the next is loaded to
 * registers.
 *
 *   `product_scores`   Queries times keys (or do times v), in chunks of DEPTH of the head size.
 *   `product_out`      Scores times rows of [.., D], in chunks of TERMS rows, added to the sums of the work-items.
 *
 * For scores the work-group is a grid of TY by TX work-items; each has MR rows and SQ quads of columns. For the
 * output it is a grid of UY by UX; each has AR rows and AQ quads of D. Neighbouring work-items share a row or a
 * column in pairs. So NVIDIA's hardware serves a 128-bit read of local memory in half the time.
 *
 *   ROWS, COLS, WG     The tile and the work-group: powers of two, at least 8, 16 and 8.
 *   MR                 4 or 8.
 *   AR                 1, 2, 4 or 8; 4 or 8 with KEYS_OUT.
 *   KEYS_OUT           With 1 the output has a row for each key (sums over queries), with 0 for each query.
 */
#include "attention_shared.cl"

#ifndef KEYS_OUT
#define KEYS_OUT 0
#endif
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define LOG2_E 1.44269504f /* exponentials are powers of 2, which the hardware computes: e^x = 2^(x log2 e) */

#define LP (COLS + 4) /* floats from row to row of the scores; 4 more spread a column over the banks */
#define TY (ROWS / MR)
#define TX (WG / TY)
#define SQ (COLS / 4 / TX)
#define UY ((KEYS_OUT ? COLS : ROWS) / AR)
#define UX (WG / UY)
#define AQ ((DP / 4 + UX - 1) / UX)

#define DEPTH 8
#define PITCH(lines) ((lines) + 4)
#define SCORE_CHUNK (DEPTH * (PITCH(ROWS) + PITCH(COLS)))
#define MAX_TERMS (DP <= 64 && !KEYS_OUT ? 16 : DP > 128 && ROWS == 8 ? 4 : 8)
#define TERMS (MAX_TERMS < ROWS ? MAX_TERMS : ROWS)
#define OUT_CHUNK (TERMS * DP)
#define SUMS (2 * OUT_CHUNK) /* after the chunks: a float for each work-item and row, for row sums of scores */
#define STAGE (SUMS + ROWS * TX > 2 * SCORE_CHUNK ? SUMS + ROWS * TX : 2 * SCORE_CHUNK)

/* A work-item's position in a grid of `width` columns: neighbours differ in the row first, then in the column. */
#define GRID_X(item, width) ((item) / 2 % (width))
#define GRID_Y(item, width) ((item) % 2 + (item) / (2 * (width)) * 2)

#define EACH_SCORE(m, n)                                                                            \
    UNROLL for (int m = 0; m < MR; m++)                                                             \
        UNROLL for (int n = 0; n < SQ; n++)
#define EACH_OUT(m, n)                                                                              \
    UNROLL for (int m = 0; m < AR; m++)                                                             \
        UNROLL for (int n = 0; n < AQ; n++)
#define SPREAD(m, height) (4 * (height) * ((m) / 4) + (m) % 4) /* rows in quads, `height` quads apart */
#define DOWN(m) SPREAD(m, TY)                                  /* from a work-item's first row of scores to its row m */
#define ROW(m) (4 * ty + DOWN(m))
#define COL(n) (4 * (tx + TX * (n))) /* first column of a work-item's quad n */
#define PLACE(m, n) (DOWN(m) * LP + 4 * TX * (n))
#define OUT_ROW(m) (KEYS_OUT ? 4 * uy + SPREAD(m, UY) : uy + UY * (m))
#define OUT_QUAD(n) (ux + UX * (n)) /* may be beyond DP / 4 */

#define LOCAL4(p) (*(__local float4 *)(p))

/* Adds rows m..m+3 of an outer product to a sum. */
#define ADD_OUTER(sum, m, n, u, v)                                                                  \
    {                                                                                               \
        sum[m][n] = fma((u).xxxx, v, sum[m][n]);                                                    \
        sum[(m) + 1][n] = fma((u).yyyy, v, sum[(m) + 1][n]);                                        \
        sum[(m) + 2][n] = fma((u).zzzz, v, sum[(m) + 2][n]);                                        \
        sum[(m) + 3][n] = fma((u).wwww, v, sum[(m) + 3][n]);                                        \
    }

/* ---- Scores ---------------------------------------------------------------------------------- */

#define LANES (DEPTH / 4)  /* work-items that load a row's chunk */
#define TURN (WG / LANES)  /* rows that the work-group loads at once */
#define HELD(lines) (((lines) + TURN - 1) / TURN)

/* Loads a work-item's share of the next DEPTH elements of a tile of `lines` rows, of which the first `valid` exist.
 * `load` is load_row or load_kv; `at` is the offset of its first element: row `line`, element i of the head. */
#define FETCH_CHUNK(load, x, at, stride, valid, lines, line, i, held)                               \
    if (DP % DEPTH == 0 && lines % TURN == 0 && valid >= lines) {                                   \
        UNROLL for (int t = 0; t < HELD(lines); t++) held[t] = load(x, at + t * TURN * stride, i);  \
    } else {                                                                                        \
        UNROLL for (int t = 0; t < HELD(lines); t++)                                                \
        {                                                                                           \
            held[t] = 0.0f;                                                                         \
            if (line + t * TURN < valid && (i) < DP)                                                \
                held[t] = load(x, at + t * TURN * stride, i);                                       \
        }                                                                                           \
    }
#define LOAD_H(x, at, i) load_row((x) + (at), i)

/* Stores it transposed in the tile: element i of row r at i * PITCH(lines) + r. */
static void put_chunk(__local float *tile, int lines, const float4 *held)
{
    const int line = (int)get_local_id(0) / LANES;
    tile += (int)get_local_id(0) % LANES * 4 * PITCH(lines) + line;
    UNROLL for (int t = 0; t < HELD(lines); t++)
        if (lines % TURN == 0 || line + t * TURN < lines) {
            tile[t * TURN] = held[t].x;
            tile[t * TURN + PITCH(lines)] = held[t].y;
            tile[t * TURN + 2 * PITCH(lines)] = held[t].z;
            tile[t * TURN + 3 * PITCH(lines)] = held[t].w;
        }
}

/* a and b point to the work-item's first row of each. */
static void multiply_chunk(const __local float *a, const __local float *b, float4 s[MR][SQ])
{
    _Pragma("unroll 4") for (int k = 0; k < DEPTH; k++) {
        float4 v[SQ];
        UNROLL for (int n = 0; n < SQ; n++) v[n] = LOCAL4(b + k * PITCH(COLS) + 4 * TX * n);
        UNROLL for (int m = 0; m < MR; m += 4)
        {
            const float4 u = LOCAL4(a + k * PITCH(ROWS) + TY * m);
            UNROLL for (int n = 0; n < SQ; n++) ADD_OUTER(s, m, n, u, v[n])
        }
    }
}

/* s = rows of a (queries) times rows of b (keys), of which the first a_rows and b_rows exist. */
TX_INLINE void product_scores(const __global h_t *a, uint a_at, uint a_stride, int a_rows, kv_from b, uint b_at,
                              uint b_stride, int b_rows, __local float *stage, float4 s[MR][SQ], int tx, int ty)
{
    const int line = (int)get_local_id(0) / LANES, lane = (int)get_local_id(0) % LANES * 4;
    float4 held_a[HELD(ROWS)], held_b[HELD(COLS)];
    EACH_SCORE(m, n) s[m][n] = 0.0f;
    a_at += line * a_stride + lane;
    b_at += line * b_stride + lane;
    FETCH_CHUNK(LOAD_H, a, a_at, a_stride, a_rows, ROWS, line, lane, held_a)
    FETCH_CHUNK(load_kv, b, b_at, b_stride, b_rows, COLS, line, lane, held_b)
    BARRIER;
    _Pragma("unroll 1") for (int c = DEPTH, turn = 0;; c += DEPTH, turn = SCORE_CHUNK - turn) {
        __local float *const a_tile = stage + turn, *const b_tile = a_tile + DEPTH * PITCH(ROWS);
        put_chunk(a_tile, ROWS, held_a);
        put_chunk(b_tile, COLS, held_b);
        BARRIER;
        if (c < DP) {
            FETCH_CHUNK(LOAD_H, a, a_at + c, a_stride, a_rows, ROWS, line, c + lane, held_a)
            FETCH_CHUNK(load_kv, b, b_at + c, b_stride, b_rows, COLS, line, c + lane, held_b)
        }
        multiply_chunk(a_tile + 4 * ty, b_tile + 4 * tx, s);
        if (c >= DP)
            break;
    }
}

/* Stores a work-item's scores in the tile in local memory. (With a function NVIDIA's compiler needs more
 * registers.) */
#define PUT_SCORES(scores, s) EACH_SCORE(m, n) LOCAL4((scores) + 4 * ty * LP + 4 * tx + PLACE(m, n)) = s[m][n]

/* ---- Output ---------------------------------------------------------------------------------- */

#define SIDE (DP / 4 % 32 == 0 ? 32 : DP / 4 % 16 == 0 ? 16 : 8) /* adjacent work-items along a row */
#define ABREAST (SIDE < WG ? SIDE : WG)
#define OUT_TURN (WG / ABREAST)
#define OUT_LINES ((TERMS + OUT_TURN - 1) / OUT_TURN)
#define OUT_QUADS ((DP / 4 + ABREAST - 1) / ABREAST)
#if DP / 4 % ABREAST == 0 && TERMS % OUT_TURN == 0
#define WHOLE(valid) ((valid) >= TERMS) /* every work-item has its own elements, and all rows exist */
#else
#define WHOLE(valid) 0
#endif

/* Loads a work-item's share of the `valid` rows, at most TERMS, from `at` on. */
static void fetch_terms(kv_from x, uint at, uint stride, int valid, float4 held[OUT_LINES][OUT_QUADS])
{
    const int line = (int)get_local_id(0) / ABREAST, quad = (int)get_local_id(0) % ABREAST;
    at += line * stride + 4 * quad;
    if (WHOLE(valid)) {
        UNROLL for (int t = 0; t < OUT_LINES; t++)
            UNROLL for (int n = 0; n < OUT_QUADS; n++) held[t][n] =
                load_kv(x, at + t * OUT_TURN * stride + 4 * n * ABREAST, 4 * (quad + n * ABREAST));
    } else {
        UNROLL for (int t = 0; t < OUT_LINES; t++)
            UNROLL for (int n = 0; n < OUT_QUADS; n++)
            {
                held[t][n] = 0.0f;
                if (line + t * OUT_TURN < valid && quad + n * ABREAST < DP / 4)
                    held[t][n] = load_kv(x, at + t * OUT_TURN * stride + 4 * n * ABREAST, 4 * (quad + n * ABREAST));
            }
    }
}

static void put_terms(__local float *stage, float4 held[OUT_LINES][OUT_QUADS])
{
    const int line = (int)get_local_id(0) / ABREAST, quad = (int)get_local_id(0) % ABREAST;
    stage += line * DP + 4 * quad;
    UNROLL for (int t = 0; t < OUT_LINES; t++)
        UNROLL for (int n = 0; n < OUT_QUADS; n++)
            if ((TERMS % OUT_TURN == 0 || line + t * OUT_TURN < TERMS) &&
                (DP / 4 % ABREAST == 0 || quad + n * ABREAST < DP / 4))
                LOCAL4(stage + t * OUT_TURN * DP + 4 * n * ABREAST) = held[t][n];
}

/* Quad n of a row of the stage. Quads beyond DP / 4 repeat the last one; their results are not stored. */
#if AQ * UX * 4 == DP
#define STAGED(k, n) LOCAL4(stage + 4 * ux + (k) * DP + 4 * UX * (n))
#else
#define STAGED(k, n) LOCAL4(stage + (k) * DP + 4 * min(OUT_QUAD(n), DP / 4 - 1))
#endif

/* `scores` points to the work-item's first row or, with KEYS_OUT, columns. */
static void multiply_terms(const __local float *scores, const __local float *stage, float4 acc[AR][AQ], int ux)
{
#if KEYS_OUT
    _Pragma("unroll 4") for (int k = 0; k < TERMS; k++) {
        float4 v[AQ];
        UNROLL for (int n = 0; n < AQ; n++) v[n] = STAGED(k, n);
        UNROLL for (int m = 0; m < AR; m += 4)
        {
            const float4 u = LOCAL4(scores + k * LP + UY * m);
            UNROLL for (int n = 0; n < AQ; n++) ADD_OUTER(acc, m, n, u, v[n])
        }
    }
#else
    _Pragma("unroll 1") for (int k = 0; k < TERMS; k += 4) {
        float4 v[AQ][4];
        UNROLL for (int n = 0; n < AQ; n++)
            UNROLL for (int j = 0; j < 4; j++) v[n][j] = STAGED(k + j, n);
        UNROLL for (int m = 0; m < AR; m++)
        {
            const float4 u = LOCAL4(scores + UY * m * LP + k);
            UNROLL for (int n = 0; n < AQ; n++)
            {
                acc[m][n] = fma(u.xxxx, v[n][0], acc[m][n]);
                acc[m][n] = fma(u.yyyy, v[n][1], acc[m][n]);
                acc[m][n] = fma(u.zzzz, v[n][2], acc[m][n]);
                acc[m][n] = fma(u.wwww, v[n][3], acc[m][n]);
            }
        }
    }
#endif
}

/* acc += scores times rows of x, of which the first `count` exist. Later rows have score 0. `held` has the first
 * TERMS rows. On entry all work-items may write scores and stage; on return some may still read both. */
TX_INLINE void product_out(const __local float *scores, kv_from x, uint at, uint stride, int count,
                           __local float *stage, float4 held[OUT_LINES][OUT_QUADS], float4 acc[AR][AQ], int ux, int uy)
{
    scores += KEYS_OUT ? 4 * uy : uy * LP;
    _Pragma("unroll 1") for (int k = TERMS, turn = 0;; k += TERMS, turn = OUT_CHUNK - turn) {
        put_terms(stage + turn, held);
        BARRIER;
        if (k < count)
            fetch_terms(x, at + k * stride, stride, count - k, held);
        multiply_terms(scores, stage + turn, acc, ux);
        if (k >= count)
            break;
        scores += KEYS_OUT ? TERMS * LP : TERMS;
    }
}

static void clear(float4 acc[AR][AQ])
{
    EACH_OUT(m, n) acc[m][n] = 0.0f;
}

/* Stores acc times `factor` in rows `stride` apart, of which `left` exist. */
static void store_out(float4 acc[AR][AQ], float factor, __global h_t *to, uint stride, int left, int ux, int uy)
{
    EACH_OUT(m, n)
    {
        if (OUT_ROW(m) < left && OUT_QUAD(n) < DP / 4)
            store_row(acc[m][n] * factor, to + OUT_ROW(m) * stride + 4 * OUT_QUAD(n), 4 * OUT_QUAD(n));
    }
}
