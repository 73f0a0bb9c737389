/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many rows in 8 bits (blocks.h) and weights in blocks, by AVX512_VNNI. 256 values of 16 columns are
 * unpacked to a panel in the L1 cache, whose lanes are columns, and all rows are multiplied by it. The order of a sum
 * depends only on its length.
 */
#ifndef TX_BACKENDS_CPU_PANELS8_H
#define TX_BACKENDS_CPU_PANELS8_H

#include "backends/cpu/blocks.h"

#if defined(__AVX512F__)
#define TX_VNNI __attribute__((target("avx512vnni")))
#define TX_VNNI_INLINE static inline TX_VNNI __attribute__((always_inline))
#define TX_PANEL_COLUMNS 16
#define TX_PANEL_RUN 256 /* values of a column in a panel */
#define TX_PANEL_ROWS 4  /* rows that are multiplied at once by two panels */

/* Groups of 32 values, or 16 of Q6_K, have a scale and, in Q4_K, a minimum: x = scale w - minimum. Lane c of vector i
 * of w holds values 4 i .. 4 i + 3 of column c. */
typedef struct tx_panel8 {
    __m512i w[TX_PANEL_RUN / 4];
    __m512i start[TX_PANEL_RUN / 16]; /* -128 times the sum of a group */
    __m512 scale[TX_PANEL_RUN / 16], minimum[TX_PANEL_RUN / 32];
    const uint8_t *column[TX_PANEL_COLUMNS]; /* the next values */
} tx_panel8;

/* Reads 16 bytes of each column. The lanes of to[i] are the i-th four bytes. */
TX_VNNI_INLINE void tx_panel_read(const tx_panel8 *p, int64_t at, __m512i to[4])
{
    __m512i row[4], pair[4];
    for (int i = 0; i < 4; i++) {
        const __m256i low = _mm256_set_m128i(TX_LOAD128(p->column[4 + i] + at), TX_LOAD128(p->column[i] + at)),
                      high = _mm256_set_m128i(TX_LOAD128(p->column[12 + i] + at), TX_LOAD128(p->column[8 + i] + at));
        row[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    for (int i = 0; i < 2; i++) {
        pair[i] = _mm512_unpacklo_epi32(row[2 * i], row[2 * i + 1]);
        pair[2 + i] = _mm512_unpackhi_epi32(row[2 * i], row[2 * i + 1]);
    }
    for (int i = 0; i < 4; i += 2) {
        to[i] = _mm512_unpacklo_epi64(pair[i], pair[i + 1]);
        to[i + 1] = _mm512_unpackhi_epi64(pair[i], pair[i + 1]);
    }
}

/* The halves in the lower parts of lanes. */
TX_VNNI_INLINE __m512 tx_panel_half(__m512i lanes)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(lanes));
}

/* The signed byte `i` of each lane, times d. */
TX_VNNI_INLINE __m512 tx_panel_byte(__m512i lanes, int i, __m512 d)
{
    const __m512i byte = _mm512_srai_epi32(_mm512_slli_epi32(lanes, (unsigned)(24 - 8 * i)), 24);
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(byte));
}

TX_VNNI_INLINE __m512i tx_panel_nibble(__m512i w, int high)
{
    return _mm512_and_si512(high ? _mm512_srli_epi16(w, 4) : w, _mm512_set1_epi8(15));
}

TX_VNNI_INLINE void tx_panel_q8_0(int64_t groups, tx_panel8 *p)
{
    for (int64_t j = 0; j < groups; j++) {
        __m512i d[4];
        tx_panel_read(p, 34 * j, d);
        tx_panel_read(p, 34 * j + 2, p->w + 8 * j);
        tx_panel_read(p, 34 * j + 18, p->w + 8 * j + 4);
        p->scale[j] = tx_panel_half(d[0]);
    }
}

TX_VNNI_INLINE void tx_panel_q4_0(int64_t groups, tx_panel8 *p)
{
    for (int64_t j = 0; j < groups; j++) {
        __m512i d[4], w[4];
        tx_panel_read(p, 18 * j, d);
        tx_panel_read(p, 18 * j + 2, w);
        for (int i = 0; i < 8; i++)
            p->w[8 * j + i] = _mm512_sub_epi8(tx_panel_nibble(w[i % 4], i / 4), _mm512_set1_epi8(8));
        p->scale[j] = tx_panel_half(d[0]);
    }
}

/* Four scales or minima of 6 bits: the lower 4 in `low`, the others at the top of `high`. */
TX_VNNI_INLINE __m512i tx_panel_six(__m512i low, __m512i high)
{
    return _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi8(15)),
                           _mm512_and_si512(_mm512_srli_epi32(high, 2), _mm512_set1_epi8(48)));
}

TX_VNNI_INLINE void tx_panel_q4_k(tx_panel8 *p)
{
    __m512i s[4], w[4];
    tx_panel_read(p, 0, s);
    for (int j = 0; j < 8; j++) { /* 16 bytes with 16 values of two groups */
        tx_panel_read(p, 16 + 16 * j, w);
        for (int i = 0; i < 8; i++)
            p->w[j / 2 * 16 + j % 2 * 4 + i / 4 * 8 + i % 4] = tx_panel_nibble(w[i % 4], i / 4);
    }
    const __m512 d = tx_panel_half(s[0]), m = tx_panel_half(_mm512_srli_epi32(s[0], 16));
    const __m512i six = _mm512_set1_epi8(63);
    const __m512i scale[2] = {_mm512_and_si512(s[1], six), tx_panel_six(s[3], s[1])};
    const __m512i minimum[2] = {_mm512_and_si512(s[2], six), tx_panel_six(_mm512_srli_epi32(s[3], 4), s[2])};
    for (int j = 0; j < 8; j++) {
        p->scale[j] = tx_panel_byte(scale[j / 4], j % 4, d);
        p->minimum[j] = tx_panel_byte(minimum[j / 4], j % 4, m);
    }
}

TX_VNNI_INLINE void tx_panel_q6_k(tx_panel8 *p)
{
    const __m512i two_bits = _mm512_set1_epi8(3);
    __m512i s[4], end[4];
    for (int j = 0; j < 4; j++) { /* 16 values in each quarter of 128 */
        __m512i lower[2][4], upper[4];
        tx_panel_read(p, j / 2 * 64 + j % 2 * 16, lower[0]);
        tx_panel_read(p, j / 2 * 64 + j % 2 * 16 + 32, lower[1]);
        tx_panel_read(p, 128 + j / 2 * 32 + j % 2 * 16, upper);
        for (int i = 0; i < 16; i++) {
            const __m512i high =
                _mm512_and_si512(_mm512_srlv_epi16(upper[i % 4], _mm512_set1_epi16((short)(i / 4 * 2))), two_bits);
            const __m512i low = tx_panel_nibble(lower[i / 4 % 2][i % 4], i / 8);
            p->w[j / 2 * 32 + j % 2 * 4 + i / 4 * 8 + i % 4] =
                _mm512_sub_epi8(_mm512_or_si512(low, _mm512_slli_epi16(high, 4)), _mm512_set1_epi8(32));
        }
    }
    tx_panel_read(p, 192, s);
    tx_panel_read(p, 194, end);
    const __m512 d = tx_panel_half(_mm512_srli_epi32(end[3], 16));
    for (int j = 0; j < 16; j++)
        p->scale[j] = tx_panel_byte(s[j / 4], j % 4, d);
}

/* Unpacks `groups` groups of 32 values of the columns. */
static inline TX_VNNI void tx_panel_make(tx_dtype dtype, int64_t groups, tx_panel8 *p)
{
    const int64_t size = dtype == TX_Q6_K ? 4 : 8;
    switch (dtype) {
    case TX_Q8_0:
        tx_panel_q8_0(groups, p);
        break;
    case TX_Q4_0:
        tx_panel_q4_0(groups, p);
        break;
    case TX_Q4_K:
        tx_panel_q4_k(p);
        break;
    default:
        tx_panel_q6_k(p);
        break;
    }
    for (int c = 0; c < TX_PANEL_COLUMNS; c++)
        p->column[c] += tx_block_run(dtype, groups * 32);
    for (int64_t j = 0; j < groups * 8 / size; j++) {
        __m512i sum = _mm512_setzero_si512();
        for (int64_t i = 0; i < size; i++)
            sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(-128), p->w[size * j + i]);
        p->start[j] = _mm512_sub_epi32(_mm512_setzero_si512(), sum);
    }
}

/* sum[i][v] += row i times panel v. `rows` and `size`, the fourth part of a group, are constants. The bytes of the rows
 * are 128 too great. */
TX_VNNI_INLINE void tx_panel_add(const int rows, const int size, const tx_panel8 p[2], int64_t groups, bool minima,
                                 const tx_cpu_row8 *row, __m512 sum[][2])
{
    __m512 total[TX_PANEL_ROWS][2];
    for (int i = 0; i < 2 * rows; i++)
        total[i / 2][i % 2] = sum[i / 2][i % 2];
    for (int64_t j = 0; j < groups * 8 / size; j++) {
        __m512i dots[TX_PANEL_ROWS][2];
        for (int i = 0; i < 2 * rows; i++)
            dots[i / 2][i % 2] = p[i % 2].start[j];
#pragma GCC unroll 8
        for (int k = 0; k < size; k++)
            for (int i = 0; i < rows; i++) {
                int32_t four;
                memcpy(&four, row[i].q + 4 * (size * j + k), sizeof four);
                const __m512i a = _mm512_set1_epi32(four);
                dots[i][0] = _mm512_dpbusd_epi32(dots[i][0], a, p[0].w[size * j + k]);
                dots[i][1] = _mm512_dpbusd_epi32(dots[i][1], a, p[1].w[size * j + k]);
            }
        for (int i = 0; i < 2 * rows; i++) {
            const __m512 d = _mm512_set1_ps(row[i / 2].d[j * size / 8]), one = _mm512_cvtepi32_ps(dots[i / 2][i % 2]);
            total[i / 2][i % 2] = _mm512_fmadd_ps(_mm512_mul_ps(one, p[i % 2].scale[j]), d, total[i / 2][i % 2]);
        }
    }
    for (int64_t j = 0; j < groups && minima; j++)
        for (int i = 0; i < rows; i++) {
            const __m512 all = _mm512_set1_ps(row[i].d[j] * (float)(row[i].sums[2 * j] + row[i].sums[2 * j + 1]));
            total[i][0] = _mm512_fnmadd_ps(all, p[0].minimum[j], total[i][0]);
            total[i][1] = _mm512_fnmadd_ps(all, p[1].minimum[j], total[i][1]);
        }
    for (int i = 0; i < 2 * rows; i++)
        sum[i / 2][i % 2] = total[i / 2][i % 2];
}

/* sum[i] += row i, from value `at` on, times two panels. */
static TX_VNNI void tx_panel_product(tx_dtype dtype, const tx_panel8 p[2], int64_t groups, const tx_cpu_rows8 *rows,
                                     int64_t at, __m512 sum[][2])
{
    const bool minima = dtype == TX_Q4_K, six = dtype == TX_Q6_K;
    for (int64_t i = 0, now; i < rows->count; i += now) {
        tx_cpu_row8 row[TX_PANEL_ROWS];
        now = rows->count - i < TX_PANEL_ROWS ? 1 : TX_PANEL_ROWS;
        for (int64_t r = 0; r < now; r++) {
            row[r] = tx_row8_of(rows, i + r);
            row[r] = (tx_cpu_row8){row[r].q + at, row[r].d + at / 32, row[r].sums + at / 16};
        }
        if (now == 1 && six)
            tx_panel_add(1, 4, p, groups, false, row, sum + i);
        else if (now == 1)
            tx_panel_add(1, 8, p, groups, minima, row, sum + i);
        else if (six)
            tx_panel_add(TX_PANEL_ROWS, 4, p, groups, false, row, sum + i);
        else
            tx_panel_add(TX_PANEL_ROWS, 8, p, groups, minima, row, sum + i);
    }
}

/* y [rows->count, ld] = the rows, at most TX_ROW8_MOST, times columns j .. j + n - 1, at most 32. */
static TX_VNNI void tx_panels_columns(const tx_block_matrix *w, int64_t j, int64_t n, const tx_cpu_rows8 *rows,
                                      float *y, int64_t ld)
{
    __m512 sum[TX_ROW8_MOST][2];
    tx_panel8 p[2];
    for (int64_t done = 0, now; done < n; done += now) {
        tx_dtype dtype;
        int64_t end;
        const uint8_t *b = tx_block_row(w, j + done, &dtype, &end);
        now = tx_least(n - done, end - (j + done));
        for (int64_t c = 0; c < 2 * TX_PANEL_COLUMNS; c++) /* the last column stands for missing ones */
            p[c / TX_PANEL_COLUMNS].column[c % TX_PANEL_COLUMNS] =
                b + tx_least(c, now - 1) * tx_block_run(dtype, w->width);
        memset(sum, 0, (size_t)rows->count * sizeof sum[0]);
        for (int64_t at = 0; at < rows->k; at += TX_PANEL_RUN) {
            const int64_t groups = tx_least(rows->k - at, TX_PANEL_RUN) / 32;
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
