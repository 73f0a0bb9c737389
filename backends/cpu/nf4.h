/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads 4-bit weights (backends/nf4.h) block by block. The sixteen values that a block can hold are computed once,
 * and elements are looked up in that table. Included by files that are compiled once for each instruction set.
 */
#ifndef TX_BACKENDS_CPU_NF4_H
#define TX_BACKENDS_CPU_NF4_H

#include "backends/cpu/simd.h"
#include "backends/nf4.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef struct tx_cpu_nf4 {
    const uint8_t *codes;
    const float *absmax; /* NULL for NF4_DOUBLE, which uses the fields below */
    const float *map, *groups;
    const uint8_t *absmax_codes;
    const uint8_t *exponents; /* of MXFP4, else NULL */
    tx_dtype type;            /* elements are rounded to this type */
} tx_cpu_nf4;

/* Describes a matrix of `count` elements of type `stored` at `data`. Its elements are rounded to `type`. */
static inline tx_cpu_nf4 tx_cpu_nf4_of(const void *data, tx_dtype stored, int64_t count, tx_dtype type)
{
    const char *at = data;
    tx_cpu_nf4 w = {.codes = data, .type = type};
    if (stored == TX_MXFP4) {
        w.exponents = (const uint8_t *)(at + count / 2);
        return w;
    }
    if (stored == TX_NF4) {
        w.absmax = (const float *)(const void *)(at + tx_nf4_absmax_at(count));
        return w;
    }
    w.map = (const float *)(const void *)(at + tx_nf4_map_at(count));
    w.groups = (const float *)(const void *)(at + tx_nf4_groups_at(count));
    w.absmax_codes = (const uint8_t *)(at + tx_nf4_codes_at(count));
    return w;
}

static inline float tx_cpu_nf4_absmax(const tx_cpu_nf4 *w, int64_t block)
{
    if (w->exponents)
        return tx_float_of(TX_E2M1_SCALE(w->exponents[block]));
    if (w->absmax)
        return w->absmax[block];
    const float *group = w->groups + block / TX_NF4_GROUP * 2;
    return group[0] * w->map[w->absmax_codes[block]] + group[1];
}

/* Computes the value of each code in a block. */
static inline void tx_cpu_nf4_table(const tx_cpu_nf4 *w, int64_t block, float table[16])
{
    const float absmax = tx_cpu_nf4_absmax(w, block);
    const float *value = w->exponents ? tx_e2m1_value : tx_nf4_value;
    for (int i = 0; i < 16; i++)
        table[i] = value[i] * absmax;
    if (w->type == TX_BF16)
        for (int i = 0; i < 16; i++)
            table[i] = tx_bf16_to_f32(tx_f32_to_bf16(table[i]));
    else if (w->type == TX_F16)
        for (int i = 0; i < 16; i++)
            table[i] = tx_f16_to_f32(tx_f32_to_f16(table[i]));
}

/* Reads 32 elements of a block by its table. */
static inline void tx_cpu_nf4_some(const uint8_t *codes, const float table[16], float *restrict to)
{
#if defined(__AVX2__)
    const __m128i low = _mm_set1_epi8(15);
    const __m128i pairs = _mm_loadu_si128((const __m128i *)(const void *)codes);
    const __m128i first = _mm_and_si128(_mm_srli_epi16(pairs, 4), low), second = _mm_and_si128(pairs, low);
    const __m128i part[2] = {_mm_unpacklo_epi8(first, second), _mm_unpackhi_epi8(first, second)};
    for (int h = 0; h < 2; h++) {
#if defined(__AVX512F__)
        _mm512_storeu_ps(to + 16 * h, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(part[h]), _mm512_loadu_ps(table)));
#else
        const __m256 lower = _mm256_loadu_ps(table), upper = _mm256_loadu_ps(table + 8);
        for (int q = 0; q < 2; q++) { /* bit 3 of a code selects the half of the table */
            const __m256i code = _mm256_cvtepu8_epi32(q ? _mm_srli_si128(part[h], 8) : part[h]);
            const __m256 pick = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28));
            _mm256_storeu_ps(to + 16 * h + 8 * q, _mm256_blendv_ps(_mm256_permutevar8x32_ps(lower, code),
                                                                   _mm256_permutevar8x32_ps(upper, code), pick));
        }
#endif
    }
#else
    for (int i = 0; i < 16; i++) {
        to[2 * i] = table[codes[i] >> 4];
        to[2 * i + 1] = table[codes[i] & 15];
    }
#endif
}

/* Reads elements at .. at + count - 1, which are whole blocks, as fp32. */
static inline void tx_cpu_nf4_run(const tx_cpu_nf4 *w, int64_t at, int64_t count, float *restrict to)
{
    const int64_t block = w->exponents ? TX_E2M1_BLOCK : TX_NF4_BLOCK;
    float table[16];
    for (int64_t i = at; i < at + count; i += 32) {
        if (i % block == 0)
            tx_cpu_nf4_table(w, i / block, table);
        tx_cpu_nf4_some(w->codes + i / 2, table, to + i - at);
    }
}

#endif
