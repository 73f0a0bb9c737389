/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of few rows and weights in blocks (api/base/blocks.h). The rows are rounded to 8 bits, in groups of as many
 * values as a block has, so that the products of a block are sums of integers. Weights are unpacked once for all rows.
 * The order of a sum depends only on its length. Included by files that are compiled once for each instruction set.
 */
#ifndef TX_BACKENDS_CPU_BLOCKS_H
#define TX_BACKENDS_CPU_BLOCKS_H

#include "api/base/blocks.h"
#include "backends/cpu/simd.h"

#if defined(__AVX2__)
#include <immintrin.h>

/* A row of a product, as integers q times the scales d of its groups. */
typedef struct tx_cpu_row8 {
    int8_t *q;
    float *d;
    int16_t *sums; /* of 16 q each */
} tx_cpu_row8;

#define TX_ROW8_ROWS 8
typedef struct tx_cpu_rows8 {
    tx_cpu_row8 row[TX_ROW8_ROWS];
    int32_t count;
    int64_t k;
    bool vnni;
} tx_cpu_rows8;

/* Places a row in memory of tx_gemm_row8_bytes. Reads of q may cross its end by 32 bytes. */
static inline tx_cpu_row8 tx_row8_in(char *memory, int64_t k)
{
    char *d = memory + (k + 127) / 64 * 64;
    return (tx_cpu_row8){(int8_t *)memory, (float *)(void *)d, (int16_t *)(void *)(d + k / 8)};
}

/* Eight numbers times a factor, as integers. */
static inline __m128i tx_row8_eight(const float *x, float factor)
{
    const __m256i n = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(factor)));
    return _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
}

/* Rounds a row to nearest multiples of 1/127 of the greatest magnitude in a group. */
static inline void tx_row8_make(const float *restrict x, int64_t k, int64_t group, const tx_cpu_row8 *row)
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
            _mm_storeu_si128((__m128i *)(void *)(row->q + i), _mm_packs_epi16(low, high));
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

/* Fetches bytes of later blocks into the cache: as many as the loop consumes. */
static inline void tx_row8_fetch(const uint8_t *b, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(b + 4096 + i);
}

#define TX_LOAD256(at) _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define TX_LOAD128(at) _mm_loadu_si128((const __m128i *)(const void *)(at))

/* ---- AVX2 ------------------------------------------------------------------------------------------------ */

/* The integers of a block of 32. */
static inline __m256i tx_block32(tx_dtype dtype, const uint8_t *b)
{
    if (dtype == TX_Q8_0)
        return TX_LOAD256(b + 2);
    const __m128i pairs = TX_LOAD128(b + 2), low = _mm_set1_epi8(15);
    return _mm256_sub_epi8(_mm256_set_m128i(_mm_and_si128(_mm_srli_epi16(pairs, 4), low), _mm_and_si128(pairs, low)),
                           _mm256_set1_epi8(8));
}

/* y[i] = row i times the weights of one column. `m` is rows->count, as a constant if it is 1. */
static inline __attribute__((always_inline)) void tx_avx2_block32(tx_dtype dtype, const uint8_t *b,
                                                                  const tx_cpu_rows8 *rows, int32_t m, float *y)
{
    __m256 sum[TX_ROW8_ROWS];
    for (int32_t i = 0; i < m; i++)
        sum[i] = _mm256_setzero_ps();
    for (int64_t j = 0; j < rows->k / 32; j++, b += tx_block_bytes(dtype)) {
        tx_row8_fetch(b, tx_block_bytes(dtype));
        const __m256i w = tx_block32(dtype, b), positive = _mm256_sign_epi8(w, w);
        const float d = tx_row8_half(b);
        for (int32_t i = 0; i < m; i++) {
            const __m256i a = _mm256_sign_epi8(TX_LOAD256(rows->row[i].q + 32 * j), w);
            const __m256i four = _mm256_madd_epi16(_mm256_maddubs_epi16(positive, a), _mm256_set1_epi16(1));
            sum[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(four), _mm256_set1_ps(d * rows->row[i].d[j]), sum[i]);
        }
    }
    for (int32_t i = 0; i < m; i++)
        y[i] = tx_row8_total(sum[i]);
}

static inline __attribute__((always_inline)) void tx_avx2_q4_k(const uint8_t *b, const tx_cpu_rows8 *rows, int32_t m,
                                                               float *y)
{
    const __m256i low = _mm256_set1_epi8(15);
    __m256 sum[TX_ROW8_ROWS];
    for (int32_t i = 0; i < m; i++)
        sum[i] = _mm256_setzero_ps();
    for (int64_t j = 0; j < rows->k / 256; j++, b += 144) {
        uint64_t scales, minima;
        tx_row8_fetch(b, 144);
        tx_q4_k_scales(b + 4, &scales, &minima);
        const float d = tx_row8_half(b), least = tx_row8_half(b + 2);
        for (int32_t i = 0; i < m; i++) {
            const int8_t *q = rows->row[i].q + 256 * j;
            __m256i total = _mm256_setzero_si256();
            for (int c = 0; c < 4; c++) {
                const __m256i w = TX_LOAD256(b + 16 + 32 * c);
                const __m256i first = _mm256_maddubs_epi16(_mm256_and_si256(w, low), TX_LOAD256(q + 64 * c)),
                              second = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(w, 4), low),
                                                            TX_LOAD256(q + 64 * c + 32));
                const int16_t s = (int16_t)(scales >> 16 * c & 255), t = (int16_t)(scales >> (16 * c + 8) & 255);
                total = _mm256_add_epi32(total, _mm256_madd_epi16(first, _mm256_set1_epi16(s)));
                total = _mm256_add_epi32(total, _mm256_madd_epi16(second, _mm256_set1_epi16(t)));
            }
            const float scale = rows->row[i].d[j];
            const __m256i below = tx_q4_k_minima(minima, rows->row[i].sums + 16 * j);
            sum[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), _mm256_set1_ps(d * scale), sum[i]);
            sum[i] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(below), _mm256_set1_ps(least * scale), sum[i]);
        }
    }
    for (int32_t i = 0; i < m; i++)
        y[i] = tx_row8_total(sum[i]);
}

static inline __attribute__((always_inline)) void tx_avx2_q6_k(const uint8_t *b, const tx_cpu_rows8 *rows, int32_t m,
                                                               float *y)
{
    const __m256i low = _mm256_set1_epi8(15), two = _mm256_set1_epi8(3);
    __m256 sum[TX_ROW8_ROWS];
    for (int32_t i = 0; i < m; i++)
        sum[i] = _mm256_setzero_ps();
    for (int64_t j = 0; j < rows->k / 256; j++, b += 210) {
        const float d = tx_row8_half(b + 208);
        tx_row8_fetch(b, 210);
        const int8_t *scale = (const int8_t *)b + 192;
        __m256i total[TX_ROW8_ROWS];
        for (int32_t i = 0; i < m; i++)
            total[i] = _mm256_setzero_si256();
        for (int c = 0; c < 8; c++) { /* 32 values */
            const __m256i lower = TX_LOAD256(b + c / 4 * 64 + c % 2 * 32), upper = TX_LOAD256(b + 128 + c / 4 * 32);
            const __m256i w =
                _mm256_or_si256(_mm256_and_si256(c % 4 < 2 ? lower : _mm256_srli_epi16(lower, 4), low),
                                _mm256_slli_epi16(_mm256_and_si256(_mm256_srli_epi16(upper, c % 4 * 2), two), 4));
            const __m256i s = _mm256_set_m128i(_mm_set1_epi16(scale[2 * c + 1]), _mm_set1_epi16(scale[2 * c]));
            for (int32_t i = 0; i < m; i++)
                total[i] = _mm256_add_epi32(
                    total[i],
                    _mm256_madd_epi16(_mm256_maddubs_epi16(w, TX_LOAD256(rows->row[i].q + 256 * j + 32 * c)), s));
        }
        for (int32_t i = 0; i < m; i++) {
            const __m256i exact = _mm256_sub_epi32(total[i], tx_q6_k_offset(b + 192, rows->row[i].sums + 16 * j));
            sum[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact), _mm256_set1_ps(d * rows->row[i].d[j]), sum[i]);
        }
    }
    for (int32_t i = 0; i < m; i++)
        y[i] = tx_row8_total(sum[i]);
}

/* ---- AVX-512 with VNNI ------------------------------------------------------------------------------------ */

#if defined(__AVX512F__)
#define TX_VNNI __attribute__((target("avx512vnni")))
#define TX_LOAD512(at) _mm512_loadu_si512((const void *)(at))

/* The integers of a block and, if `two`, of the next one. */
static inline TX_VNNI __m512i tx_block64(tx_dtype dtype, const uint8_t *b, bool two)
{
    const uint8_t *next = two ? b + tx_block_bytes(dtype) : b;
    if (dtype == TX_Q8_0)
        return _mm512_inserti64x4(_mm512_castsi256_si512(TX_LOAD256(b + 2)), TX_LOAD256(next + 2), 1);
    const __m256i pairs = _mm256_set_m128i(TX_LOAD128(next + 2), TX_LOAD128(b + 2));
    const __m512i lanes = _mm512_permutex2var_epi64(
        _mm512_castsi256_si512(pairs), _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3), _mm512_castsi256_si512(pairs));
    const __m512i half = _mm512_srlv_epi64(lanes, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
    return _mm512_sub_epi8(_mm512_and_si512(half, _mm512_set1_epi8(15)), _mm512_set1_epi8(8));
}

static inline TX_VNNI __m512 tx_pair512(float low, float high)
{
    return _mm512_mask_broadcastss_ps(_mm512_set1_ps(low), 0xff00, _mm_set_ss(high));
}

static inline TX_VNNI __attribute__((always_inline)) void tx_vnni_block32(tx_dtype dtype, const uint8_t *b,
                                                                          const tx_cpu_rows8 *rows, int32_t m, float *y)
{
    const int64_t blocks = rows->k / 32;
    __m512 sum[TX_ROW8_ROWS];
    for (int32_t i = 0; i < m; i++)
        sum[i] = _mm512_setzero_ps();
    for (int64_t j = 0; j < blocks; j += 2, b += 2 * tx_block_bytes(dtype)) {
        const bool two = j + 1 < blocks;
        tx_row8_fetch(b, 2 * tx_block_bytes(dtype));
        const __m512i w = tx_block64(dtype, b, two), positive = _mm512_abs_epi8(w);
        const __mmask64 negative = _mm512_movepi8_mask(w);
        const __m512 d = tx_pair512(tx_row8_half(b), two ? tx_row8_half(b + tx_block_bytes(dtype)) : 0.0f);
        for (int32_t i = 0; i < m; i++) {
            const __m512i a = TX_LOAD512(rows->row[i].q + 32 * j);
            const __m512i turned = _mm512_mask_sub_epi8(a, negative, _mm512_setzero_si512(), a);
            const __m512i four = _mm512_dpbusd_epi32(_mm512_setzero_si512(), positive, turned);
            const float *of = rows->row[i].d + j;
            const __m512 scale = _mm512_mul_ps(d, tx_pair512(of[0], of[two]));
            sum[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(four), scale, sum[i]);
        }
    }
    for (int32_t i = 0; i < m; i++)
        y[i] = _mm512_reduce_add_ps(sum[i]);
}

static inline TX_VNNI __attribute__((always_inline)) void tx_vnni_q4_k(const uint8_t *b, const tx_cpu_rows8 *rows,
                                                                       int32_t m, float *y)
{
    const __m512i halves = _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4), low = _mm512_set1_epi8(15),
                  upper = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    __m512 sum[TX_ROW8_ROWS];
    __m256 below[TX_ROW8_ROWS];
    for (int32_t i = 0; i < m; i++) {
        sum[i] = _mm512_setzero_ps();
        below[i] = _mm256_setzero_ps();
    }
    for (int64_t j = 0; j < rows->k / 256; j++, b += 144) {
        uint64_t scales, minima;
        tx_row8_fetch(b, 144);
        tx_q4_k_scales(b + 4, &scales, &minima);
        const __m512i each = _mm512_castsi256_si512(_mm256_cvtepu8_epi32(_mm_set1_epi64x((int64_t)scales)));
        const float d = tx_row8_half(b), least = tx_row8_half(b + 2);
        __m512i total[TX_ROW8_ROWS];
        for (int32_t i = 0; i < m; i++)
            total[i] = _mm512_setzero_si512();
        for (int c = 0; c < 4; c++) { /* 64 values */
            const __m512i w =
                _mm512_and_si512(_mm512_srlv_epi64(_mm512_broadcast_i64x4(TX_LOAD256(b + 16 + 32 * c)), halves), low);
            const __m512i s = _mm512_permutexvar_epi32(_mm512_add_epi32(upper, _mm512_set1_epi32(2 * c)), each);
            for (int32_t i = 0; i < m; i++) {
                const __m512i four =
                    _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, TX_LOAD512(rows->row[i].q + 256 * j + 64 * c));
                total[i] = _mm512_add_epi32(total[i], _mm512_mullo_epi32(four, s));
            }
        }
        for (int32_t i = 0; i < m; i++) {
            const float scale = rows->row[i].d[j];
            const __m256i offset = tx_q4_k_minima(minima, rows->row[i].sums + 16 * j);
            sum[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[i]), _mm512_set1_ps(d * scale), sum[i]);
            below[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(offset), _mm256_set1_ps(least * scale), below[i]);
        }
    }
    for (int32_t i = 0; i < m; i++)
        y[i] = _mm512_reduce_add_ps(sum[i]) - tx_row8_total(below[i]);
}

static inline TX_VNNI __attribute__((always_inline)) void tx_vnni_q6_k(const uint8_t *b, const tx_cpu_rows8 *rows,
                                                                       int32_t m, float *y)
{
    const __m512i low = _mm512_set1_epi8(15), two = _mm512_set1_epi8(3),
                  places = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m512 sum[TX_ROW8_ROWS];
    for (int32_t i = 0; i < m; i++)
        sum[i] = _mm512_setzero_ps();
    for (int64_t j = 0; j < rows->k / 256; j++, b += 210) {
        const float d = tx_row8_half(b + 208);
        tx_row8_fetch(b, 210);
        const __m512i each = _mm512_cvtepi8_epi32(TX_LOAD128(b + 192));
        __m512i total[TX_ROW8_ROWS];
        for (int32_t i = 0; i < m; i++)
            total[i] = _mm512_zextsi256_si512(
                _mm256_sub_epi32(_mm256_setzero_si256(), tx_q6_k_offset(b + 192, rows->row[i].sums + 16 * j)));
        for (int c = 0; c < 4; c++) { /* 64 values */
            const int64_t at = c % 2 * 4;
            const __m512i lower = TX_LOAD512(b + c / 2 * 64),
                          upper = _mm512_broadcast_i64x4(TX_LOAD256(b + 128 + c / 2 * 32));
            const __m512i shifts = _mm512_setr_epi64(at, at, at, at, at + 2, at + 2, at + 2, at + 2);
            const __m512i w =
                _mm512_or_si512(_mm512_and_si512(c % 2 ? _mm512_srli_epi16(lower, 4) : lower, low),
                                _mm512_slli_epi16(_mm512_and_si512(_mm512_srlv_epi64(upper, shifts), two), 4));
            const __m512i s = _mm512_permutexvar_epi32(_mm512_add_epi32(places, _mm512_set1_epi32(4 * c)), each);
            for (int32_t i = 0; i < m; i++) {
                const __m512i four =
                    _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, TX_LOAD512(rows->row[i].q + 256 * j + 64 * c));
                total[i] = _mm512_add_epi32(total[i], _mm512_mullo_epi32(four, s));
            }
        }
        for (int32_t i = 0; i < m; i++)
            sum[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[i]), _mm512_set1_ps(d * rows->row[i].d[j]), sum[i]);
    }
    for (int32_t i = 0; i < m; i++)
        y[i] = _mm512_reduce_add_ps(sum[i]);
}
#endif

/* ---- Columns ---------------------------------------------------------------------------------------------- */

/* Defines a function that multiplies the rows by `n` adjacent columns of one type. Results of row i are at y + i * ld.
 */
#define TX_BLOCK_COLUMNS(name, attribute, function, ...)                                                    \
    static attribute void name(const uint8_t *b, int64_t n, const tx_cpu_rows8 *rows, float *y, int64_t ld, \
                               int64_t bytes)                                                               \
    {                                                                                                       \
        float one[TX_ROW8_ROWS];                                                                            \
        for (int64_t c = 0; c < n; c++, b += bytes) {                                                       \
            if (rows->count == 1)                                                                           \
                function(__VA_ARGS__ b, rows, 1, one);                                                      \
            else                                                                                            \
                function(__VA_ARGS__ b, rows, rows->count, one);                                            \
            for (int32_t i = 0; i < rows->count; i++)                                                       \
                y[i * ld + c] = one[i];                                                                     \
        }                                                                                                   \
    }
#define TX_COMMA ,

TX_BLOCK_COLUMNS(tx_columns_avx2_q8_0, , tx_avx2_block32, TX_Q8_0 TX_COMMA)
TX_BLOCK_COLUMNS(tx_columns_avx2_q4_0, , tx_avx2_block32, TX_Q4_0 TX_COMMA)
TX_BLOCK_COLUMNS(tx_columns_avx2_q4_k, , tx_avx2_q4_k, )
TX_BLOCK_COLUMNS(tx_columns_avx2_q6_k, , tx_avx2_q6_k, )
#if defined(__AVX512F__)
TX_BLOCK_COLUMNS(tx_columns_vnni_q8_0, TX_VNNI, tx_vnni_block32, TX_Q8_0 TX_COMMA)
TX_BLOCK_COLUMNS(tx_columns_vnni_q4_0, TX_VNNI, tx_vnni_block32, TX_Q4_0 TX_COMMA)
TX_BLOCK_COLUMNS(tx_columns_vnni_q4_k, TX_VNNI, tx_vnni_q4_k, )
TX_BLOCK_COLUMNS(tx_columns_vnni_q6_k, TX_VNNI, tx_vnni_q6_k, )
#define TX_COLUMNS_OF(vnni, type) ((vnni) ? tx_columns_vnni_##type : tx_columns_avx2_##type)
#else
#define TX_COLUMNS_OF(vnni, type) tx_columns_avx2_##type
#endif

/* y [count, n] = the rows times columns j .. j + n - 1, which are rows of the weights. */
static inline void tx_cpu_blocks_columns(const tx_block_matrix *w, int64_t j, int64_t n, const tx_cpu_rows8 *rows,
                                         float *y, int64_t ld)
{
    for (int64_t done = 0, now; done < n; done += now) {
        tx_dtype dtype;
        int64_t end;
        const uint8_t *b = tx_block_row(w, j + done, &dtype, &end);
        now = tx_least(n - done, end - (j + done));
        (dtype == TX_Q8_0   ? TX_COLUMNS_OF(rows->vnni, q8_0)
         : dtype == TX_Q4_0 ? TX_COLUMNS_OF(rows->vnni, q4_0)
         : dtype == TX_Q4_K
             ? TX_COLUMNS_OF(rows->vnni, q4_k)
             : TX_COLUMNS_OF(rows->vnni, q6_k))(b, now, rows, y + done, ld, tx_block_run(dtype, w->width));
    }
}
#endif

#endif
