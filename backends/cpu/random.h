/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectorized draws of rng.h, sixteen blocks at a time, for the kernels.
 */
#ifndef TX_BACKENDS_CPU_RANDOM_H
#define TX_BACKENDS_CPU_RANDOM_H

#include "backends/cpu/simd.h"
#include "backends/rng.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

#define TX_DRAW_LANES 16
#define TX_DRAW_COLUMNS (4 * TX_DRAW_LANES) /* columns of one group of draws */

/* The values that all draws of one site for one sample have in common. */
typedef struct tx_site {
    uint32_t key0, key1, sample, site, threshold;
    uint32_t row, block; /* of the first element */
    float keep;          /* factor of a kept element, 1 / (1 - p) */
    float scale;         /* of noise */
} tx_site;

static inline tx_site tx_site_of(const tx_cpu_call *call, int64_t sample)
{
    const tx_word *word = call->controls->word;
    const tx_attrs *attrs = &call->command->attrs;
    return (tx_site){
        .key0 = word[TX_CONTROL_SEED_LO].u32,
        .key1 = word[TX_CONTROL_SEED_HI].u32 ^ (word[TX_CONTROL_STEP].u32 * 0x85EBCA6Bu), /* as in tx_draw */
        .sample = word[TX_CONTROL_SAMPLE].u32 + (uint32_t)sample,
        .site = (uint32_t)attrs->draw.site,
        .threshold = tx_dropout_threshold(attrs->draw.p),
        .row = (uint32_t)attrs->draw.row,
        .block = (uint32_t)(attrs->draw.column / 4),
        .keep = 1.0f / (1.0f - attrs->draw.p),
        .scale = attrs->scale * word[TX_CONTROL_NOISE].f32,
    };
}

/* Returns the index, relative to the site's first row, of row `row` of an operand with `rows` rows in a sample. */
static inline uint32_t tx_drawn_row(const tx_cpu_call *call, int64_t row, int64_t rows)
{
    const int64_t index = row % rows;
    return (uint32_t)(index + (index < rows / 2 ? 0 : call->command->attrs.gap));
}

/* A vector register of 64-bit lanes, each with a word in its low half, and the product of the low halves. Compilers
 * do not reliably find this instruction in integer loops; otherwise they use three multiplications. */
#if defined __AVX512F__
#define TX_WORDS_BYTES 64
#define TX_WORDS_PRODUCT(a, b) ((tx_words)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#elif defined __AVX2__
#define TX_WORDS_BYTES 32
#define TX_WORDS_PRODUCT(a, b) ((tx_words)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#elif defined __SSE2__
#define TX_WORDS_BYTES 16
#define TX_WORDS_PRODUCT(a, b) ((tx_words)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#else
#define TX_WORDS_BYTES 16
#define TX_WORDS_PRODUCT(a, b) (((a)&0xFFFFFFFFu) * ((b)&0xFFFFFFFFu))
#endif
typedef uint64_t tx_words __attribute__((vector_size(TX_WORDS_BYTES)));

/* Runs the rounds of tx_philox on the low halves of two registers for each of the four words. Two registers hide
 * the latency of the products. The high halves between rounds are ignored. */
static inline void tx_draw_rounds(const tx_site *site, tx_words word[4][2])
{
    const tx_words zero = {0}, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    tx_words k0 = zero + site->key0, k1 = zero + site->key1;
    TX_PRAGMA(GCC unroll 10)
    for (int round = 0; round < 10; round++) {
        TX_PRAGMA(GCC unroll 2)
        for (int v = 0; v < 2; v++) {
            const tx_words p0 = TX_WORDS_PRODUCT(m0, word[0][v]), p1 = TX_WORDS_PRODUCT(m1, word[2][v]);
            word[0][v] = p1 >> 32 ^ word[1][v] ^ k0;
            word[2][v] = p0 >> 32 ^ word[3][v] ^ k1;
            word[1][v] = p1;
            word[3][v] = p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* out[w][l] is word w of tx_draw for row + l * row_step and block + l * block_step, relative to the site's first. */
static inline void tx_draw_lanes(const tx_site *site, uint32_t plane, uint32_t row, uint32_t row_step, uint32_t block,
                                 uint32_t block_step, uint32_t out[4][TX_DRAW_LANES])
{
    enum { AT_ONCE = 2 * TX_WORDS_BYTES / (int)sizeof(uint64_t) };
    uint64_t lane[4][TX_DRAW_LANES];
    TX_SIMD for (int l = 0; l < TX_DRAW_LANES; l++)
    {
        lane[0][l] = (site->block + block + (uint32_t)l * block_step) | plane << 20;
        lane[1][l] = site->row + row + (uint32_t)l * row_step;
        lane[2][l] = site->sample;
        lane[3][l] = site->site;
    }
    TX_PRAGMA(GCC unroll 8)
    for (int l = 0; l < TX_DRAW_LANES; l += AT_ONCE) {
        tx_words word[4][2];
        for (int w = 0; w < 4; w++)
            memcpy(word[w], lane[w] + l, sizeof word[w]);
        tx_draw_rounds(site, word);
        for (int w = 0; w < 4; w++)
            memcpy(lane[w] + l, word[w], sizeof word[w]);
    }
    for (int w = 0; w < 4; w++) {
        TX_SIMD for (int l = 0; l < TX_DRAW_LANES; l++) out[w][l] = (uint32_t)lane[w][l];
    }
}

/* Returns the rows of one sample, of which there are dim[0]. A vector is row 0 of sample 0. */
static inline int64_t tx_rows_per_sample(const tx_shape *shape)
{
    return shape->rank < 2 ? 1 : tx_shape_rows(shape) / shape->dim[0];
}

/* Draws for TX_DRAW_COLUMNS columns from `column` on, a multiple of 4. */
static inline void tx_draw_columns(const tx_site *site, uint32_t row, int64_t column, uint32_t draw[TX_DRAW_COLUMNS])
{
    uint32_t word[4][TX_DRAW_LANES];
    tx_draw_lanes(site, 0, row, 0, (uint32_t)(column / 4), 1, word);
    TX_SIMD for (int l = 0; l < TX_DRAW_LANES; l++)
    {
        draw[4 * l] = word[0][l];
        draw[4 * l + 1] = word[1][l];
        draw[4 * l + 2] = word[2][l];
        draw[4 * l + 3] = word[3][l];
    }
}

/* Applies dropout to at most TX_DRAW_COLUMNS columns of a row, from `column` on. */
static inline void tx_drop(const tx_site *site, uint32_t row, int64_t column, int64_t count, const float *x, float *y)
{
    const uint32_t threshold = site->threshold; /* a local copy: the compiler must assume that y aliases *site */
    const float keep = site->keep;
    uint32_t draw[TX_DRAW_COLUMNS];
    tx_draw_columns(site, row, column, draw);
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        const float kept = x[i] * keep;
        y[i] = draw[i] >= threshold ? kept : 0.0f;
    }
}

#endif
