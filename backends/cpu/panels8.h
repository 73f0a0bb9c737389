/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many rows in 8 bits (blocks.h) and weights in blocks, by AVX512_VNNI or AVX2. 256 values of 16 or 8
 * columns are unpacked to a panel in the L1 cache, whose lanes are columns, and all rows are multiplied by it. The
 * order of a sum depends only on its length.
 */
#ifndef TX_BACKENDS_CPU_PANELS8_H
#define TX_BACKENDS_CPU_PANELS8_H

#include "backends/cpu/blocks.h"

#if defined(__AVX512F__)
#define TX_MM(name) _mm512_##name
#define TX_PANEL_TARGET __attribute__((target("avx512vnni")))
#define TX_PANEL_COLUMNS 16
#define TX_PANEL_BIAS (-128) /* is added to the integers of rows */
#define TX_PANEL_UNROLL TX_PRAGMA(GCC unroll 8)
typedef __m512i tx_panel_bytes;
typedef __m512 tx_panel_floats;
#elif defined(__AVX2__)
#define TX_MM(name) _mm256_##name
#define TX_PANEL_TARGET
#define TX_PANEL_COLUMNS 8
#define TX_PANEL_BIAS 0
#define TX_PANEL_UNROLL TX_PRAGMA(GCC unroll 1) /* more would not leave the sums in registers */
typedef __m256i tx_panel_bytes;
typedef __m256 tx_panel_floats;
#endif

#if defined(__AVX2__)
#define TX_PANEL_INLINE static inline TX_PANEL_TARGET __attribute__((always_inline))
#define TX_PANEL_RUN 256 /* values of a column in a panel */
#define TX_PANEL_ROWS 4  /* rows that are multiplied at once by two panels */

/* Groups of 32 values, or 16 of Q6_K, have a scale and, in Q4_K, a minimum: x = scale w - minimum. Lane c of vector i
 * of w holds values 4 i .. 4 i + 3 of column c. */
typedef struct tx_panel8 {
    tx_panel_bytes w[TX_PANEL_RUN / 4];
    tx_panel_bytes start[TX_PANEL_RUN / 16]; /* TX_PANEL_BIAS times the sum of a group */
    tx_panel_floats scale[TX_PANEL_RUN / 16], minimum[TX_PANEL_RUN / 32];
    const uint8_t *column[TX_PANEL_COLUMNS]; /* the next values */
    const uint8_t *later;                    /* bytes of later columns */
} tx_panel8;

/* Fetches bytes of later columns into the L2 cache: as many as the panel consumes in blocks of `bytes` of each column.
 */
static inline void tx_panel_fetch(tx_panel8 *p, int64_t bytes)
{
    tx_blocks_fetch(p->later, TX_PANEL_COLUMNS * bytes);
    p->later += TX_PANEL_COLUMNS * bytes;
}

#if TX_PANEL_COLUMNS == 16
/* 16 bytes of columns i, 4 + i, 8 + i and 12 + i. */
TX_PANEL_INLINE __m512i tx_panel_row(const tx_panel8 *p, int64_t at, int i)
{
    const __m256i low = _mm256_set_m128i(TX_LOAD128(p->column[4 + i] + at), TX_LOAD128(p->column[i] + at)),
                  high = _mm256_set_m128i(TX_LOAD128(p->column[12 + i] + at), TX_LOAD128(p->column[8 + i] + at));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* The halves in the lower parts of lanes. */
TX_PANEL_INLINE __m512 tx_panel_half(__m512i lanes)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(lanes));
}

/* sum + the products of four bytes of a row and of w. */
TX_PANEL_INLINE __m512i tx_panel_dot(tx_dtype dtype, __m512i sum, __m512i row, __m512i w)
{
    (void)dtype;
    return _mm512_dpbusd_epi32(sum, row, w);
}

TX_PANEL_INLINE __m512i tx_panel_total(tx_dtype dtype, __m512i sum)
{
    (void)dtype;
    return sum;
}
#else
/* 16 bytes of columns i and 4 + i. */
TX_PANEL_INLINE __m256i tx_panel_row(const tx_panel8 *p, int64_t at, int i)
{
    return _mm256_set_m128i(TX_LOAD128(p->column[4 + i] + at), TX_LOAD128(p->column[i] + at));
}

TX_PANEL_INLINE __m256 tx_panel_half(__m256i lanes)
{
    const __m256i half = _mm256_blend_epi16(lanes, _mm256_setzero_si256(), 0xaa),
                  pairs = _mm256_packus_epi32(half, half);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 8)));
}

/* The sums of a group fit into 16 bits except in Q8_0: 8 products of at most 2 x 15 x 127, or 4 of 2 x 32 x 127. */
TX_PANEL_INLINE __m256i tx_panel_dot(tx_dtype dtype, __m256i sum, __m256i row, __m256i w)
{
    const __m256i pairs = dtype == TX_Q4_K ? _mm256_maddubs_epi16(w, row)
                                           : _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(row, w));
    sum = dtype == TX_Q8_0 ? _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
                           : _mm256_add_epi16(sum, pairs);
    __asm__ volatile("" : "+x"(sum)); /* keeps the order of additions, so that the sums stay in registers */
    return sum;
}

TX_PANEL_INLINE __m256i tx_panel_total(tx_dtype dtype, __m256i sum)
{
    return dtype == TX_Q8_0 ? sum : _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}
#endif

/* Reads 16 bytes of each column. The lanes of to[i] are the i-th four bytes. */
TX_PANEL_INLINE void tx_panel_read(const tx_panel8 *p, int64_t at, tx_panel_bytes to[4])
{
    tx_panel_bytes row[4], pair[4];
    for (int i = 0; i < 4; i++)
        row[i] = tx_panel_row(p, at, i);
    for (int i = 0; i < 2; i++) {
        pair[i] = TX_MM(unpacklo_epi32)(row[2 * i], row[2 * i + 1]);
        pair[2 + i] = TX_MM(unpackhi_epi32)(row[2 * i], row[2 * i + 1]);
    }
    for (int i = 0; i < 4; i += 2) {
        to[i] = TX_MM(unpacklo_epi64)(pair[i], pair[i + 1]);
        to[i + 1] = TX_MM(unpackhi_epi64)(pair[i], pair[i + 1]);
    }
}

/* The signed byte `i` of each lane, times d. */
TX_PANEL_INLINE tx_panel_floats tx_panel_byte(tx_panel_bytes lanes, int i, tx_panel_floats d)
{
    const tx_panel_bytes byte = TX_MM(srai_epi32)(TX_MM(slli_epi32)(lanes, (uint8_t)(24 - 8 * i)), 24);
    return TX_MM(mul_ps)(d, TX_MM(cvtepi32_ps)(byte));
}

TX_PANEL_INLINE tx_panel_bytes tx_panel_nibble(tx_panel_bytes w, int high)
{
    return (high ? TX_MM(srli_epi16)(w, 4) : w) & TX_MM(set1_epi8)(15);
}

TX_PANEL_INLINE void tx_panel_q8_0(int64_t groups, tx_panel8 *p)
{
    for (int64_t j = 0; j < groups; j++) {
        tx_panel_bytes d[4];
        tx_panel_fetch(p, 34);
        tx_panel_read(p, 34 * j, d);
        tx_panel_read(p, 34 * j + 2, p->w + 8 * j);
        tx_panel_read(p, 34 * j + 18, p->w + 8 * j + 4);
        p->scale[j] = tx_panel_half(d[0]);
    }
}

TX_PANEL_INLINE void tx_panel_q4_0(int64_t groups, tx_panel8 *p)
{
    for (int64_t j = 0; j < groups; j++) {
        tx_panel_bytes d[4], w[4];
        tx_panel_fetch(p, 18);
        tx_panel_read(p, 18 * j, d);
        tx_panel_read(p, 18 * j + 2, w);
        for (int i = 0; i < 8; i++)
            p->w[8 * j + i] = TX_MM(sub_epi8)(tx_panel_nibble(w[i % 4], i / 4), TX_MM(set1_epi8)(8));
        p->scale[j] = tx_panel_half(d[0]);
    }
}

/* Four scales or minima of 6 bits: the lower 4 in `low`, the others at the top of `high`. */
TX_PANEL_INLINE tx_panel_bytes tx_panel_six(tx_panel_bytes low, tx_panel_bytes high)
{
    return (low & TX_MM(set1_epi8)(15)) | (TX_MM(srli_epi32)(high, 2) & TX_MM(set1_epi8)(48));
}

TX_PANEL_INLINE void tx_panel_q4_k(tx_panel8 *p)
{
    tx_panel_bytes s[4], w[4];
    tx_panel_read(p, 0, s);
    for (int j = 0; j < 8; j++) { /* 16 bytes with 16 values of two groups */
        tx_panel_fetch(p, 18);
        tx_panel_read(p, 16 + 16 * j, w);
        for (int i = 0; i < 8; i++)
            p->w[j / 2 * 16 + j % 2 * 4 + i / 4 * 8 + i % 4] = tx_panel_nibble(w[i % 4], i / 4);
    }
    const tx_panel_floats d = tx_panel_half(s[0]), m = tx_panel_half(TX_MM(srli_epi32)(s[0], 16));
    const tx_panel_bytes six = TX_MM(set1_epi8)(63);
    const tx_panel_bytes scale[2] = {s[1] & six, tx_panel_six(s[3], s[1])};
    const tx_panel_bytes minimum[2] = {s[2] & six, tx_panel_six(TX_MM(srli_epi32)(s[3], 4), s[2])};
    for (int j = 0; j < 8; j++) {
        p->scale[j] = tx_panel_byte(scale[j / 4], j % 4, d);
        p->minimum[j] = tx_panel_byte(minimum[j / 4], j % 4, m);
    }
}

TX_PANEL_INLINE void tx_panel_q6_k(tx_panel8 *p)
{
    const tx_panel_bytes two_bits = TX_MM(set1_epi8)(3);
    tx_panel_bytes s[4], end[4];
    for (int j = 0; j < 4; j++) { /* 16 values in each quarter of 128 */
        tx_panel_bytes lower[2][4], upper[4];
        tx_panel_fetch(p, 53); /* a quarter of a block */
        tx_panel_read(p, j / 2 * 64 + j % 2 * 16, lower[0]);
        tx_panel_read(p, j / 2 * 64 + j % 2 * 16 + 32, lower[1]);
        tx_panel_read(p, 128 + j / 2 * 32 + j % 2 * 16, upper);
        for (int i = 0; i < 16; i++) {
            const tx_panel_bytes high = TX_MM(srli_epi16)(upper[i % 4], (uint8_t)(i / 4 * 2)) & two_bits;
            const tx_panel_bytes low = tx_panel_nibble(lower[i / 4 % 2][i % 4], i / 8);
            p->w[j / 2 * 32 + j % 2 * 4 + i / 4 * 8 + i % 4] =
                TX_MM(sub_epi8)(low | TX_MM(slli_epi16)(high, 4), TX_MM(set1_epi8)(32));
        }
    }
    tx_panel_read(p, 192, s);
    tx_panel_read(p, 194, end);
    const tx_panel_floats d = tx_panel_half(TX_MM(srli_epi32)(end[3], 16));
    for (int j = 0; j < 16; j++)
        p->scale[j] = tx_panel_byte(s[j / 4], j % 4, d);
}

/* Unpacks `groups` groups of 32 values of the columns. */
static inline TX_PANEL_TARGET void tx_panel_make(tx_dtype dtype, int64_t groups, tx_panel8 *p)
{
    const int64_t size = dtype == TX_Q6_K ? 4 : 8;
    if (dtype == TX_Q8_0)
        tx_panel_q8_0(groups, p);
    else if (dtype == TX_Q4_0)
        tx_panel_q4_0(groups, p);
    else if (dtype == TX_Q4_K)
        tx_panel_q4_k(p);
    else
        tx_panel_q6_k(p);
    for (int c = 0; c < TX_PANEL_COLUMNS; c++)
        p->column[c] += tx_block_run(dtype, groups * 32);
    for (int64_t j = 0; j < groups * 8 / size; j++) {
        p->start[j] = TX_MM(set1_epi32)(0);
        for (int64_t i = 0; i < size && TX_PANEL_BIAS != 0; i++)
            p->start[j] = tx_panel_dot(TX_Q8_0, p->start[j], TX_MM(set1_epi8)(TX_PANEL_BIAS), p->w[size * j + i]);
        p->start[j] = TX_MM(sub_epi32)(TX_MM(set1_epi32)(0), p->start[j]);
    }
}

/* sum[i][v] += row i times panel v. `rows` and `dtype` are constants. */
TX_PANEL_INLINE void tx_panel_add(int rows, tx_dtype dtype, const tx_panel8 p[2], int64_t groups,
                                  const tx_cpu_row8 *row, tx_panel_floats sum[][2])
{
    const int size = dtype == TX_Q6_K ? 4 : 8; /* vectors of a group */
    tx_panel_floats total[TX_PANEL_ROWS][2];
    for (int i = 0; i < 2 * rows; i++)
        total[i / 2][i % 2] = sum[i / 2][i % 2];
    for (int64_t j = 0; j < groups * 8 / size; j++) {
        tx_panel_bytes dots[TX_PANEL_ROWS][2];
        for (int i = 0; i < 2 * rows; i++)
            dots[i / 2][i % 2] = p[i % 2].start[j];
        TX_PANEL_UNROLL
        for (int k = 0; k < size; k++)
            for (int i = 0; i < rows; i++) {
                int32_t four;
                memcpy(&four, row[i].q + 4 * (size * j + k), sizeof four);
                const tx_panel_bytes a = TX_MM(set1_epi32)(four);
                dots[i][0] = tx_panel_dot(dtype, dots[i][0], a, p[0].w[size * j + k]);
                dots[i][1] = tx_panel_dot(dtype, dots[i][1], a, p[1].w[size * j + k]);
            }
        for (int i = 0; i < 2 * rows; i++) {
            const tx_panel_floats d = TX_MM(set1_ps)(row[i / 2].d[j * size / 8]),
                                  one = TX_MM(cvtepi32_ps)(tx_panel_total(dtype, dots[i / 2][i % 2]));
            total[i / 2][i % 2] = TX_MM(fmadd_ps)(TX_MM(mul_ps)(one, p[i % 2].scale[j]), d, total[i / 2][i % 2]);
        }
    }
    for (int64_t j = 0; j < groups && dtype == TX_Q4_K; j++)
        for (int i = 0; i < rows; i++) {
            const tx_panel_floats all =
                TX_MM(set1_ps)(row[i].d[j] * (float)(row[i].sums[2 * j] + row[i].sums[2 * j + 1]));
            total[i][0] = TX_MM(fnmadd_ps)(all, p[0].minimum[j], total[i][0]);
            total[i][1] = TX_MM(fnmadd_ps)(all, p[1].minimum[j], total[i][1]);
        }
    for (int i = 0; i < 2 * rows; i++)
        sum[i / 2][i % 2] = total[i / 2][i % 2];
}

/* sum[i] += row i, from value `at` on, times two panels. */
static TX_PANEL_TARGET void tx_panel_product(tx_dtype dtype, const tx_panel8 p[2], int64_t groups,
                                             const tx_cpu_rows8 *rows, int64_t at, tx_panel_floats sum[][2])
{
    for (int64_t i = 0, now; i < rows->count; i += now) {
        tx_cpu_row8 row[TX_PANEL_ROWS];
        now = rows->count - i < TX_PANEL_ROWS ? 1 : TX_PANEL_ROWS;
        for (int64_t r = 0; r < now; r++) {
            row[r] = tx_row8_of(rows, i + r);
            row[r] = (tx_cpu_row8){row[r].q + at, row[r].d + at / 32, row[r].sums + at / 16};
        }
#define X(name, number, values, bytes, lower)                \
    if (dtype == TX_##name && now == 1)                      \
        tx_panel_add(1, TX_##name, p, groups, row, sum + i); \
    else if (dtype == TX_##name)                             \
        tx_panel_add(TX_PANEL_ROWS, TX_##name, p, groups, row, sum + i);
        TX_BLOCK_MAP(X)
#undef X
    }
}

/* y [rows->count, ld] = the rows, at most TX_ROW8_MOST, times the n columns from column j on, at most two panels. */
static TX_PANEL_TARGET void tx_panels_columns(const tx_block_matrix *w, int64_t j, int64_t n, const tx_cpu_rows8 *rows,
                                              float *y, int64_t ld)
{
    tx_panel_floats sum[TX_ROW8_MOST][2];
    tx_panel8 p[2];
    for (int64_t done = 0, now; done < n; done += now) {
        tx_dtype dtype;
        int64_t end;
        const uint8_t *b = tx_block_row(w, j + done, &dtype, &end);
        now = tx_min(n - done, end - (j + done));
        for (int64_t c = 0; c < 2 * TX_PANEL_COLUMNS; c++) /* the last column stands for missing ones */
            p[c / TX_PANEL_COLUMNS].column[c % TX_PANEL_COLUMNS] =
                b + tx_min(c, now - 1) * tx_block_run(dtype, w->width);
        p[0].later = b + 2 * TX_PANEL_COLUMNS * tx_block_run(dtype, w->width);
        p[1].later = p[0].later + TX_PANEL_COLUMNS * tx_block_run(dtype, w->width);
        memset(sum, 0, (size_t)rows->count * sizeof sum[0]);
        for (int64_t at = 0; at < rows->k; at += TX_PANEL_RUN) {
            const int64_t groups = tx_min(rows->k - at, TX_PANEL_RUN) / 32;
            tx_panel_make(dtype, groups, &p[0]);
            tx_panel_make(dtype, groups, &p[1]);
            tx_panel_product(dtype, p, groups, rows, at, sum);
        }
        for (int64_t i = 0; i < rows->count; i++)
            memcpy(y + i * ld + done, sum[i], (size_t)now * sizeof *y);
    }
}
#endif

#endif
