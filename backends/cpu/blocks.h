/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of few rows and weights in blocks (api/base/blocks.h). The rows are rounded to 8 bits, in groups of as many
 * values as a block has, so that the products of a block are sums of integers. Weights are unpacked once for all rows.
 * The order of a sum depends only on its length. AVX512_VNNI has the same sums. Included by files that are compiled
 * once for each instruction set. */
#ifndef TX_BACKENDS_CPU_BLOCKS_H
#define TX_BACKENDS_CPU_BLOCKS_H

#include "api/base/blocks.h"
#include "backends/cpu/gemm_parts.h"
#include "backends/cpu/simd.h"

#if defined(__AVX2__)
#include <immintrin.h>

/* A row of a product, as integers q times the scales d of its groups. */
typedef struct tx_cpu_row8 {
    int8_t *q;
    float *d;
    int16_t *sums; /* of 16 q each */
} tx_cpu_row8;

#define TX_ROW8_ROWS TX_GEMM_THIN
#define TX_ROW8_MOST 256 /* rows that stay in the L2 cache */
#if defined(__AVX512VL__)
#define TX_ROW8_TALL 8 /* rows of a tile; there are 32 registers */
#else
#define TX_ROW8_TALL 4
#endif
#define TX_ROW8_COLUMNS 2 /* of a tile */
#define TX_ROW8_TILE (TX_ROW8_TALL * TX_ROW8_COLUMNS)
#define TX_ROW8_RUN 32 /* blocks whose scales are multiplied at once */
typedef struct tx_cpu_rows8 {
    char *memory; /* of tx_gemm_row8_bytes each */
    int64_t count, k;
} tx_cpu_rows8;

static inline tx_cpu_row8 tx_row8_of(const tx_cpu_rows8 *rows, int64_t i)
{
    char *q = rows->memory + i * tx_gemm_row8_bytes(rows->k), *d = q + tx_gemm_lines(rows->k);
    return (tx_cpu_row8){(int8_t *)q, (float *)(void *)d, (int16_t *)(void *)(d + rows->k / 8)};
}

/* Eight numbers times a factor, as integers. */
static inline __m128i tx_row8_eight(const float *x, float factor)
{
    const __m256i n = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(factor)));
    return _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
}

/* Rounds a row to nearest multiples of 1/127 of the greatest magnitude in a group. The integers get `bias` added. */
static inline void tx_row8_make(const float *restrict x, int64_t k, int64_t group, int8_t bias, const tx_cpu_row8 *row)
{
    for (int64_t g = 0; g < k; g += group) {
        uint32_t bits = 0; /* of the greatest magnitude; those of NaN are the greatest */
        TX_PRAGMA(omp simd reduction(max : bits))
        for (int64_t i = 0; i < group; i++) {
            const uint32_t b = tx_bits_of(x[g + i]) & 0x7fffffffu;
            bits = b > bits ? b : bits;
        }
        const float most = tx_float_of(bits);
        const float inverse = most > 0.0f ? 127.0f / most : 0.0f;
        row->d[g / group] = most / 127.0f;
        for (int64_t i = g; i < g + group; i += 16) {
            const __m128i low = tx_row8_eight(x + i, inverse), high = tx_row8_eight(x + i + 8, inverse);
            const __m128i q = _mm_add_epi8(_mm_packs_epi16(low, high), _mm_set1_epi8(bias));
            _mm_storeu_si128((__m128i *)(void *)(row->q + i), q);
            const __m128i four = _mm_madd_epi16(_mm_add_epi16(low, high), _mm_set1_epi16(1));
            const __m128i two = _mm_add_epi32(four, _mm_srli_si128(four, 8));
            row->sums[i / 16] = (int16_t)_mm_cvtsi128_si32(_mm_add_epi32(two, _mm_srli_si128(two, 4)));
        }
    }
}

static inline float tx_row8_half(const uint8_t *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return _cvtsh_ss(half);
}

/* The scales of a Q4_K block, and its minima, as bytes. */
static inline void tx_q4_k_scales(const uint8_t *at, uint64_t *scales, uint64_t *minima)
{
    uint32_t s[3];
    memcpy(s, at, sizeof s);
    *scales = (s[0] & 0x3f3f3f3fu) | (uint64_t)((s[2] & 0x0f0f0f0fu) | (s[0] >> 6 & 0x03030303u) << 4) << 32;
    *minima = (s[1] & 0x3f3f3f3fu) | (uint64_t)((s[2] >> 4 & 0x0f0f0f0fu) | (s[1] >> 6 & 0x03030303u) << 4) << 32;
}

/* The sum over a Q4_K block of minima times values of the row. */
static inline __m256i tx_q4_k_minima(uint64_t minima, const int16_t *sums)
{
    const __m128i each = _mm_set1_epi64x((int64_t)minima), twice = _mm_unpacklo_epi8(each, each);
    return _mm256_madd_epi16(_mm256_cvtepu8_epi16(twice), _mm256_loadu_si256((const __m256i *)(const void *)sums));
}

/* The sum over a Q6_K block of 32 times scales times values of the row. */
static inline __m256i tx_q6_k_offset(const uint8_t *scales, const int16_t *sums)
{
    const __m256i s = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)scales));
    return _mm256_slli_epi32(_mm256_madd_epi16(s, _mm256_loadu_si256((const __m256i *)(const void *)sums)), 5);
}

static inline float tx_row8_total(__m256 sum)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

static inline void tx_blocks_fetch(const uint8_t *b, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(b + i, 0, 2);
}

/* Fetches bytes of later blocks into the L2 cache: as many as the loop consumes. */
static inline void tx_row8_fetch(const uint8_t *b, int64_t bytes)
{
    tx_blocks_fetch(b + 8192, bytes);
}

#define TX_LOAD256(at) _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define TX_LOAD128(at) _mm_loadu_si128((const __m128i *)(const void *)(at))

/* The integers of a block of 32. */
static inline __m256i tx_block32(tx_dtype dtype, const uint8_t *b)
{
    if (dtype == TX_Q8_0)
        return TX_LOAD256(b + 2);
    const __m128i pairs = TX_LOAD128(b + 2), low = _mm_set1_epi8(15);
    return _mm256_sub_epi8(_mm256_set_m128i(_mm_and_si128(_mm_srli_epi16(pairs, 4), low), _mm_and_si128(pairs, low)),
                           _mm256_set1_epi8(8));
}

/* AVX512_VNNI: sum + four products of unsigned bytes `a` and signed ones `b`, or two of 16 bits. It is assembly, since
 * functions for another target cannot be inlined into these. */
#if defined(__AVX512VL__)
#define TX_VNNI(name, sum, a, b) __asm__("vpdp" name " %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b))
#else
#define TX_VNNI(name, sum, a, b) (void)(sum)
#endif

/* The number that the integers of rows are greater by, for blocks of so many values. */
static inline int8_t tx_row8_bias(bool vnni, int64_t values)
{
    return vnni && values == 32 ? -128 : 0;
}

/* A preparation of weights for tx_row8_fours: their magnitudes; with `vnni`, -128 times the sums of four. */
static inline __m256i tx_row8_start(bool vnni, __m256i w)
{
    __m256i sums = _mm256_setzero_si256();
    if (!vnni)
        return _mm256_sign_epi8(w, w);
    TX_VNNI("busd", sums, _mm256_set1_epi8(-128), w);
    return _mm256_sub_epi32(_mm256_setzero_si256(), sums);
}

/* Sums of four products of weights and values of a row each. */
static inline __m256 tx_row8_fours(bool vnni, __m256i start, __m256i w, __m256i x)
{
    if (vnni)
        TX_VNNI("busd", start, x, w);
    else
        start = _mm256_madd_epi16(_mm256_maddubs_epi16(start, _mm256_sign_epi8(x, w)), _mm256_set1_epi16(1));
    return _mm256_cvtepi32_ps(start);
}

/* sum + sums of two products each, for `rows` rows, a constant. Those of one or two would wait for each other. */
static inline __m256i tx_row8_pairs(bool vnni, int rows, __m256i sum, __m256i a, __m256i b)
{
    if (!vnni || rows <= 2)
        return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    TX_VNNI("wssd", sum, a, b);
    return sum;
}

/* The product of a row and the weights of one column. For a single row this is faster than a tile. */
static inline __attribute__((always_inline)) float tx_row8_block32(tx_dtype dtype, bool vnni, const uint8_t *b,
                                                                   int64_t k, const tx_cpu_row8 *row)
{
    __m256 sum = _mm256_setzero_ps();
    for (int64_t j = 0; j < k / 32; j++, b += tx_block_bytes(dtype)) {
        tx_row8_fetch(b, tx_block_bytes(dtype));
        const __m256i w = tx_block32(dtype, b);
        const __m256 four = tx_row8_fours(vnni, tx_row8_start(vnni, w), w, TX_LOAD256(row->q + 32 * j));
        sum = _mm256_fmadd_ps(four, _mm256_set1_ps(tx_row8_half(b) * row->d[j]), sum);
    }
    return tx_row8_total(sum);
}

/* The scales of `n` blocks, at most 8. It is faster if `n` is a constant. */
static inline __m256 tx_block32_scales(tx_dtype dtype, const uint8_t *b, int64_t n)
{
    uint16_t half[8] = {0};
    for (int64_t i = 0; i < n; i++)
        memcpy(half + i, b + i * tx_block_bytes(dtype), sizeof half[0]);
    return _mm256_cvtph_ps(_mm_setr_epi16((short)half[0], (short)half[1], (short)half[2], (short)half[3],
                                          (short)half[4], (short)half[5], (short)half[6], (short)half[7]));
}

/* y[r, c] = row r times the weights of column c, whose blocks are `bytes` after those of the one before. `rows` and
 * `columns` are constants, so that the sums stay in registers. They wait for the scales of a run, so runs are long. */
static inline __attribute__((always_inline)) void tx_row8_tile32(tx_dtype dtype, bool vnni, const uint8_t *b,
                                                                 int64_t bytes, int64_t k, const tx_cpu_row8 *row,
                                                                 int rows, int columns, float *y, int64_t ld)
{
    __m256 sum[TX_ROW8_TILE];
    for (int s = 0; s < rows * columns; s++)
        sum[s] = _mm256_setzero_ps();
    for (int64_t j = 0; j < k / 32; j += TX_ROW8_RUN, b += TX_ROW8_RUN * tx_block_bytes(dtype)) {
        const int64_t n = tx_min(k / 32 - j, TX_ROW8_RUN);
        float scale[TX_ROW8_TILE][TX_ROW8_RUN];
        for (int64_t i = 0; i < n; i += 8)
            for (int c = 0; c < columns; c++) {
                const uint8_t *at = b + c * bytes + i * tx_block_bytes(dtype);
                const __m256 d = n - i >= 8 ? tx_block32_scales(dtype, at, 8) : tx_block32_scales(dtype, at, n - i);
                for (int r = 0; r < rows; r++) /* the sums of a row follow its last d */
                    _mm256_storeu_ps(scale[r * columns + c] + i, _mm256_mul_ps(d, _mm256_loadu_ps(row[r].d + j + i)));
            }
        for (int64_t i = 0; i < n; i++) {
            __m256i w[TX_ROW8_COLUMNS], start[TX_ROW8_COLUMNS];
            for (int c = 0; c < columns; c++) {
                const uint8_t *at = b + c * bytes + i * tx_block_bytes(dtype);
                tx_row8_fetch(at, tx_block_bytes(dtype));
                w[c] = tx_block32(dtype, at);
                start[c] = tx_row8_start(vnni, w[c]);
            }
            for (int r = 0; r < rows; r++) {
                const __m256i x = TX_LOAD256(row[r].q + 32 * (j + i));
                for (int c = 0; c < columns; c++) {
                    const __m256 four = tx_row8_fours(vnni, start[c], w[c], x);
                    float *s = &scale[r * columns + c][i];
                    sum[r * columns + c] = _mm256_fmadd_ps(four, _mm256_broadcast_ss(s), sum[r * columns + c]);
                }
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            y[r * ld + c] = tx_row8_total(sum[r * columns + c]);
}

/* Multiplies the rows by `columns` columns, which is a constant. */
static inline __attribute__((always_inline)) void tx_row8_tiles32(tx_dtype dtype, bool vnni, const uint8_t *b,
                                                                  int64_t bytes, int64_t k, const tx_cpu_row8 *row,
                                                                  int32_t m, int columns, float *y, int64_t ld)
{
    int32_t i = 0;
    for (; i + TX_ROW8_TALL <= m; i += TX_ROW8_TALL)
        tx_row8_tile32(dtype, vnni, b, bytes, k, row + i, TX_ROW8_TALL, columns, y + i * ld, ld);
    for (; i + 4 <= m; i += 4)
        tx_row8_tile32(dtype, vnni, b, bytes, k, row + i, 4, columns, y + i * ld, ld);
    if (i + 2 <= m)
        tx_row8_tile32(dtype, vnni, b, bytes, k, row + i, 2, columns, y + i * ld, ld);
    if (m % 2)
        for (int c = 0; c < columns; c++)
            y[(m - 1) * ld + c] = tx_row8_block32(dtype, vnni, b + c * bytes, k, row + m - 1);
}

/* As TX_BLOCK_COLUMNS below. */
#define TX_BLOCK32_COLUMNS(name, dtype, vnni)                                                                         \
    static void name(const uint8_t *b, int64_t n, int64_t k, const tx_cpu_row8 *row, int32_t m, float *y, int64_t ld, \
                     int64_t bytes)                                                                                   \
    {                                                                                                                 \
        int64_t c = 0;                                                                                                \
        for (; c + TX_ROW8_COLUMNS <= n; c += TX_ROW8_COLUMNS)                                                        \
            tx_row8_tiles32(dtype, vnni, b + c * bytes, bytes, k, row, m, TX_ROW8_COLUMNS, y + c, ld);                \
        for (; c < n; c++)                                                                                            \
            tx_row8_tiles32(dtype, vnni, b + c * bytes, bytes, k, row, m, 1, y + c, ld);                              \
    }

/* y[i] = row i times the weights of one column; `rows` is a constant. */
static inline __attribute__((always_inline)) void tx_row8_q4_k(bool vnni, const uint8_t *b, int64_t k,
                                                               const tx_cpu_row8 *row, int rows, float *y)
{
    const __m256i low = _mm256_set1_epi8(15);
    __m256 sum[TX_ROW8_TALL];
    for (int r = 0; r < rows; r++)
        sum[r] = _mm256_setzero_ps();
    for (int64_t j = 0; j < k / 256; j++, b += 144) {
        uint64_t scales, minima;
        tx_row8_fetch(b, 144);
        tx_q4_k_scales(b + 4, &scales, &minima);
        const float d = tx_row8_half(b), least = tx_row8_half(b + 2);
        int16_t each[8];
        _mm_storeu_si128((__m128i *)(void *)each, _mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)scales)));
        __m256i total[TX_ROW8_TALL];
        for (int r = 0; r < rows; r++)
            total[r] = _mm256_setzero_si256();
        TX_PRAGMA(GCC unroll 1)       /* otherwise GCC adds at the end, and registers are short */
        for (int c = 0; c < 4; c++) { /* 64 values */
            const __m256i w = TX_LOAD256(b + 16 + 32 * c), first = _mm256_and_si256(w, low),
                          second = _mm256_and_si256(_mm256_srli_epi16(w, 4), low);
            const __m256i s = _mm256_set1_epi16(each[2 * c]), t = _mm256_set1_epi16(each[2 * c + 1]);
            for (int r = 0; r < rows; r++) {
                const int8_t *q = row[r].q + 256 * j + 64 * c;
                total[r] = tx_row8_pairs(vnni, rows, total[r], _mm256_maddubs_epi16(first, TX_LOAD256(q)), s);
                total[r] = tx_row8_pairs(vnni, rows, total[r], _mm256_maddubs_epi16(second, TX_LOAD256(q + 32)), t);
            }
        }
        for (int r = 0; r < rows; r++) {
            const float scale = row[r].d[j];
            const __m256i below = tx_q4_k_minima(minima, row[r].sums + 16 * j);
            sum[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total[r]), _mm256_set1_ps(d * scale), sum[r]);
            sum[r] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(below), _mm256_set1_ps(least * scale), sum[r]);
        }
    }
    for (int r = 0; r < rows; r++)
        y[r] = tx_row8_total(sum[r]);
}

/* As tx_row8_q4_k. */
static inline __attribute__((always_inline)) void tx_row8_q6_k(bool vnni, const uint8_t *b, int64_t k,
                                                               const tx_cpu_row8 *row, int rows, float *y)
{
    const __m256i low = _mm256_set1_epi8(15), two = _mm256_set1_epi8(3);
    const __m128i places = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    __m256 sum[TX_ROW8_TALL];
    for (int r = 0; r < rows; r++)
        sum[r] = _mm256_setzero_ps();
    for (int64_t j = 0; j < k / 256; j++, b += 210) {
        const float d = tx_row8_half(b + 208);
        tx_row8_fetch(b, 210);
        const __m128i scales = TX_LOAD128(b + 192);
        __m256i total[TX_ROW8_TALL];
        for (int r = 0; r < rows; r++)
            total[r] = _mm256_setzero_si256();
        TX_PRAGMA(GCC unroll 8)
        for (int c = 0; c < 8; c++) { /* 32 values */
            const __m256i lower = TX_LOAD256(b + c / 4 * 64 + c % 2 * 32), upper = TX_LOAD256(b + 128 + c / 4 * 32);
            const __m256i w =
                _mm256_or_si256(_mm256_and_si256(c % 4 < 2 ? lower : _mm256_srli_epi16(lower, 4), low),
                                _mm256_slli_epi16(_mm256_and_si256(_mm256_srli_epi16(upper, c % 4 * 2), two), 4));
            const __m128i each = _mm_shuffle_epi8(scales, _mm_add_epi8(places, _mm_set1_epi8((char)(2 * c))));
            const __m256i s = _mm256_cvtepi8_epi16(each);
            for (int r = 0; r < rows; r++) {
                const __m256i pairs = _mm256_maddubs_epi16(w, TX_LOAD256(row[r].q + 256 * j + 32 * c));
                total[r] = tx_row8_pairs(vnni, rows, total[r], pairs, s);
            }
        }
        for (int r = 0; r < rows; r++) {
            const __m256i exact = _mm256_sub_epi32(total[r], tx_q6_k_offset(b + 192, row[r].sums + 16 * j));
            sum[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact), _mm256_set1_ps(d * row[r].d[j]), sum[r]);
        }
    }
    for (int r = 0; r < rows; r++)
        y[r] = tx_row8_total(sum[r]);
}

/* ---- Columns ---------------------------------------------------------------------------------------------- */

/* Defines a function that multiplies the rows by `n` adjacent columns of one type. Results of row i are at y + i * ld.
 */
#define TX_BLOCK_COLUMNS(name, function, vnni)                                                                        \
    static void name(const uint8_t *b, int64_t n, int64_t k, const tx_cpu_row8 *row, int32_t m, float *y, int64_t ld, \
                     int64_t bytes)                                                                                   \
    {                                                                                                                 \
        float one[TX_ROW8_ROWS];                                                                                      \
        for (int64_t c = 0; c < n; c++, b += bytes) {                                                                 \
            int32_t i = 0;                                                                                            \
            for (; i + TX_ROW8_TALL <= m; i += TX_ROW8_TALL)                                                          \
                function(vnni, b, k, row + i, TX_ROW8_TALL, one + i);                                                 \
            for (; i + 4 <= m; i += 4)                                                                                \
                function(vnni, b, k, row + i, 4, one + i);                                                            \
            for (; i + 2 <= m; i += 2)                                                                                \
                function(vnni, b, k, row + i, 2, one + i);                                                            \
            if (i < m)                                                                                                \
                function(vnni, b, k, row + i, 1, one + i);                                                            \
            for (i = 0; i < m; i++)                                                                                   \
                y[i * ld + c] = one[i];                                                                               \
        }                                                                                                             \
    }

TX_BLOCK32_COLUMNS(tx_columns_q8_0, TX_Q8_0, false)
TX_BLOCK32_COLUMNS(tx_columns_q4_0, TX_Q4_0, false)
TX_BLOCK_COLUMNS(tx_columns_q4_k, tx_row8_q4_k, false)
TX_BLOCK_COLUMNS(tx_columns_q6_k, tx_row8_q6_k, false)
#if defined(__AVX512VL__)
TX_BLOCK32_COLUMNS(tx_vnni_columns_q8_0, TX_Q8_0, true)
TX_BLOCK32_COLUMNS(tx_vnni_columns_q4_0, TX_Q4_0, true)
TX_BLOCK_COLUMNS(tx_vnni_columns_q4_k, tx_row8_q4_k, true)
TX_BLOCK_COLUMNS(tx_vnni_columns_q6_k, tx_row8_q6_k, true)
#define TX_COLUMNS(type) (vnni ? tx_vnni_columns_##type : tx_columns_##type)
#else
#define TX_COLUMNS(type) tx_columns_##type
#endif

/* y [rows->count, ld] = the rows, at most TX_ROW8_ROWS, times columns j .. j + n - 1, which are rows of the weights. y
 * has room for another row. The rows have tx_row8_bias. `vnni` is false if the CPU has no AVX512_VNNI. */
static inline void tx_row8_columns(bool vnni, const tx_block_matrix *w, int64_t j, int64_t n, const tx_cpu_rows8 *rows,
                                   float *y, int64_t ld)
{
    (void)vnni;
    tx_cpu_row8 row[TX_ROW8_ROWS];
    const int64_t count = rows->count + (rows->count % 4 == 3); /* four rows are faster than two and one */
    for (int64_t i = 0; i < count; i++)
        row[i] = tx_row8_of(rows, tx_min(i, rows->count - 1));
    for (int64_t done = 0, now; done < n; done += now) {
        tx_dtype dtype;
        int64_t end;
        const uint8_t *b = tx_block_row(w, j + done, &dtype, &end);
        now = tx_min(n - done, end - (j + done));
        (dtype == TX_Q8_0   ? TX_COLUMNS(q8_0)
         : dtype == TX_Q4_0 ? TX_COLUMNS(q4_0)
         : dtype == TX_Q4_K
             ? TX_COLUMNS(q4_k)
             : TX_COLUMNS(q6_k))(b, now, rows->k, row, (int32_t)count, y + done, ld, tx_block_run(dtype, w->width));
    }
}
#endif

#endif
