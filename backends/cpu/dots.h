/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of few rows and columns that are contiguous in memory. A sum is computed in TX_DOT_LANES lanes, which are
 * added pairwise at the end, so its order does not depend on the width of vectors. Included by gemm_rows.c.
 */
#ifndef TX_BACKENDS_CPU_DOTS_H
#define TX_BACKENDS_CPU_DOTS_H

#include "backends/cpu/tile.h"

#if TX_VECTOR == 8 && defined __AVX2__
#include <immintrin.h>
#endif

#define TX_DOT_LANES 16   /* lanes of a sum. They fill a vector of AVX-512; more would take longer to add */
#define TX_DOT_COLUMNS 16 /* columns whose lanes are in memory at once */

/* Element i of b, which is fp32 or, if `half`, bf16. */
static inline float tx_element(const void *b, bool half, int64_t i)
{
    return half ? tx_bf16_to_f32(((const uint16_t *)b)[i]) : ((const float *)b)[i];
}

typedef float tx_vector __attribute__((vector_size(TX_VECTOR * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef uint16_t tx_halves __attribute__((vector_size(TX_VECTOR * sizeof(uint16_t)), aligned(2), may_alias));
typedef uint32_t tx_vector_bits __attribute__((vector_size(TX_VECTOR * sizeof(uint32_t))));
typedef float tx_lanes[TX_DOT_COLUMNS][TX_DOT_LANES]; /* the sums of a row and TX_DOT_COLUMNS columns */

#define TX_UNROLL TX_PRAGMA(GCC unroll 16)
#define TX_DOT_VECTORS (TX_DOT_LANES / TX_VECTOR)

#define TX_DOT_LANE(row, column) (lane + ((row)*TX_DOT_COLUMNS + (column)) * TX_DOT_LANES)

/* The sums of a tile stay in registers: those of some rows, columns and vectors of lanes. A tile of one row has all
 * lanes of its columns. */
#define TX_DOT_ROWS 4
#if TX_VECTOR == 16
#define TX_DOT_TILE 4
#else
#define TX_DOT_TILE 2
#endif

/* Reads a vector into a register once. Otherwise GCC reads it in memory for each product. */
#ifdef __x86_64__
#define TX_DOT_KEEP(vector) __asm__("" : "+v"(vector))
#else
#define TX_DOT_KEEP(vector) ((void)0)
#endif

/* TX_VECTOR elements of b, which is fp32 or, if `half`, bf16. */
static inline __attribute__((always_inline)) tx_vector tx_load(const void *b, bool half, int64_t i)
{
#if TX_VECTOR == 8 && defined __AVX2__
    if (half) { /* GCC converts vectors of 16 bytes in two parts */
        const __m128i *at = (const __m128i *)(const void *)((const uint16_t *)b + i);
        return (tx_vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at)), 16);
    }
#endif
    if (half)
        return (tx_vector)(__builtin_convertvector(*(const tx_halves *)((const uint16_t *)b + i), tx_vector_bits)
                           << 16);
    return *(const tx_vector *)((const float *)b + i);
}

/* Adds to the lanes of `rows` rows their products with `depth` elements of `columns` columns, `ldb` elements apart.
 * If `first`, the products replace the lanes. The elements of b that come `ahead` elements later are fetched to the L2
 * cache. `rows`, `columns`, `part` and `half` are constants. */
static inline __attribute__((always_inline)) void tx_dot_tile(int rows, int columns, int part, const float *x,
                                                              int64_t ld, const void *b, bool half, int64_t ldb,
                                                              int64_t depth, int64_t ahead, bool first, float *lane)
{
    const int64_t whole = depth - depth % TX_DOT_LANES, size = half ? sizeof(uint16_t) : sizeof(float);
    for (int64_t at = 0; at < TX_DOT_LANES; at += part * TX_VECTOR) {
        tx_vector sum[TX_DOT_ROWS][TX_DOT_TILE][TX_DOT_VECTORS] = {{{{0.0f}}}};
#define TX_EACH_SUM                                                                      \
    TX_UNROLL for (int r = 0; r < rows; r++) TX_UNROLL for (int c = 0; c < columns; c++) \
        TX_UNROLL for (int v = 0; v < part; v++)
        if (!first)
            TX_EACH_SUM sum[r][c][v] = tx_load(TX_DOT_LANE(r, c), false, at + v * TX_VECTOR);
        for (int64_t p = at; p < whole; p += TX_DOT_LANES)
            TX_UNROLL for (int64_t v = 0, i = p; v < part; v++, i += TX_VECTOR)
            {
                tx_vector y[TX_DOT_TILE];
                TX_UNROLL for (int c = 0; c < columns; c++)
                {
                    y[c] = tx_load(b, half, c * ldb + i);
                    __builtin_prefetch((const char *)b + (c * ldb + i + ahead) * size, 0, 2);
                }
                TX_UNROLL for (int r = 0; r < rows; r++)
                {
                    tx_vector a = tx_load(x, false, r * ld + i);
                    TX_DOT_KEEP(a);
                    TX_UNROLL for (int c = 0; c < columns; c++) sum[r][c][v] += a * y[c];
                }
            }
        TX_EACH_SUM *(tx_vector *)(TX_DOT_LANE(r, c) + at + v * TX_VECTOR) = sum[r][c][v];
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            for (int64_t i = whole; i < depth; i++)
                TX_DOT_LANE(r, c)
    [i - whole] = TX_FMA(x[r * ld + i], tx_element(b, half, c * ldb + i), TX_DOT_LANE(r, c)[i - whole]);
}

#define TX_DOT_TILES(rows, columns, part, half)                                                                        \
    for (; c + (columns) <= n; c += (columns))                                                                         \
        tx_dot_tile(rows, columns, part, x + i * ld, ld, (const char *)b + c * ldb * (half ? 2 : 4), half, ldb, depth, \
                    ahead, first, lane[i][c]);
#define TX_DOT_GROUP(rows, part, half)              \
    for (; i + (rows) <= m; i += (rows)) {          \
        int64_t c = 0;                              \
        TX_DOT_TILES(rows, TX_DOT_TILE, part, half) \
        TX_DOT_TILES(rows, 1, part, half)           \
    }
#define TX_DOT_GROUPS(half)                                                                     \
    do {                                                                                        \
        TX_DOT_GROUP(4, 1, half) TX_DOT_GROUP(2, 1, half) TX_DOT_GROUP(1, TX_DOT_VECTORS, half) \
    } while (0)

/* Adds the products of m rows with `depth` elements of n columns, `ldb` elements apart; `ahead` as above. */
static void tx_dot_add(int64_t m, int64_t n, const float *x, int64_t ld, const void *b, bool half, int64_t ldb,
                       int64_t depth, int64_t ahead, bool first, tx_lanes *lane)
{
    int64_t i = 0;
    if (half)
        TX_DOT_GROUPS(true);
    else
        TX_DOT_GROUPS(false);
}

/* TX_JOINn(a, b): the sums of lanes that are n apart, in groups of n: those of a, then those of b. */
#define TX_PICK __builtin_shufflevector
#if TX_VECTOR == 16
#define TX_JOIN8(a, b)                                                       \
    (TX_PICK(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) + \
     TX_PICK(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
#define TX_JOIN4(a, b)                                                         \
    (TX_PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) + \
     TX_PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31))
#define TX_JOIN2(a, b)                                                         \
    (TX_PICK(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) + \
     TX_PICK(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31))
#define TX_JOIN1(a, b)                                                          \
    (TX_PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) + \
     TX_PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31))
#elif TX_VECTOR == 8
#define TX_JOIN4(a, b) (TX_PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + TX_PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15))
#define TX_JOIN2(a, b) (TX_PICK(a, b, 0, 1, 4, 5, 8, 9, 12, 13) + TX_PICK(a, b, 2, 3, 6, 7, 10, 11, 14, 15))
#define TX_JOIN1(a, b) (TX_PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14) + TX_PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15))
#else
#define TX_JOIN2(a, b) (TX_PICK(a, b, 0, 1, 4, 5) + TX_PICK(a, b, 2, 3, 6, 7))
#define TX_JOIN1(a, b) (TX_PICK(a, b, 0, 2, 4, 6) + TX_PICK(a, b, 1, 3, 5, 7))
#endif

/* Adds the lanes of TX_VECTOR columns: y [c] = the sum of lane [c]. */
static void tx_dot_fold(float (*lane)[TX_DOT_LANES], float *y)
{
    tx_vector v[TX_VECTOR];
    for (int c = 0; c < TX_VECTOR; c++) {
        tx_vector part[TX_DOT_VECTORS];
        TX_UNROLL for (int i = 0; i < TX_DOT_VECTORS; i++) part[i] = tx_load(lane[c], false, i * TX_VECTOR);
        for (int width = TX_DOT_VECTORS / 2; width > 0; width /= 2)
            for (int i = 0; i < width; i++)
                part[i] += part[i + width];
        v[c] = part[0];
    }
#define TX_JOIN(n) TX_UNROLL for (int i = 0; i < (n); i++) v[i] = TX_JOIN##n(v[2 * i], v[2 * i + 1]);
#if TX_VECTOR == 16
    TX_JOIN(8)
#endif
#if TX_VECTOR >= 8
    TX_JOIN(4)
#endif
    TX_JOIN(2)
    TX_JOIN(1)
    *(tx_vector *)y = v[0];
}

#endif
