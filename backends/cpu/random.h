/* SPDX-License-Identifier: Apache-2.0
 * The draws of rng.h, sixteen blocks at a time. */
#ifndef TX_BACKENDS_CPU_RANDOM_H
#define TX_BACKENDS_CPU_RANDOM_H

#include "backends/cpu/simd.h"
#include "backends/rng.h"

#define TX_DRAW_LANES 16

/* What is common to the draws of one site for one sample. */
typedef struct tx_site {
    uint32_t key0, key1, sample, site, threshold;
    float keep; /* what a kept element is multiplied with: 1 / (1 - p) */
} tx_site;

static inline tx_site tx_site_of(const tx_cpu_call *call, int64_t sample)
{
    const tx_word *word = call->controls->word;
    const tx_attrs *attrs = &call->command->attrs;
    return (tx_site){
        .key0 = word[TX_CONTROL_SEED_LO].u32,
        .key1 = word[TX_CONTROL_SEED_HI].u32 ^ (word[TX_CONTROL_STEP].u32 * 0x85EBCA6Bu), /* as tx_draw */
        .sample = word[TX_CONTROL_SAMPLE].u32 + (uint32_t)sample,
        .site = (uint32_t)attrs->site,
        .threshold = tx_dropout_threshold(attrs->p),
        .keep = 1.0f / (1.0f - attrs->p),
    };
}

/* out[w][l] is word w of tx_draw for row + l row_step and block + l block_step. The rounds are those of tx_philox with
 * a word in each half of 64 bits, which compilers turn into vector code that moves nothing between lanes. */
static inline void tx_draw_lanes(const tx_site *site, uint32_t plane, uint32_t row, uint32_t row_step, uint32_t block,
                                 uint32_t block_step, uint32_t out[4][TX_DRAW_LANES])
{
    const uint64_t low = 0xFFFFFFFFu;
    TX_SIMD for (int l = 0; l < TX_DRAW_LANES; l++)
    {
        uint64_t c0 = (block + (uint32_t)l * block_step) | plane << 20, c1 = row + (uint32_t)l * row_step;
        uint64_t c2 = site->sample, c3 = site->site;
        uint32_t k0 = site->key0, k1 = site->key1;
        TX_PRAGMA(GCC unroll 10)
        for (int round = 0; round < 10; round++) {
            const uint64_t p0 = 0xD2511F53u * c0, p1 = 0xCD9E8D57u * c2;
            c0 = p1 >> 32 ^ c1 ^ k0;
            c2 = p0 >> 32 ^ c3 ^ k1;
            c1 = p1 & low;
            c3 = p0 & low;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        out[0][l] = (uint32_t)c0;
        out[1][l] = (uint32_t)c1;
        out[2][l] = (uint32_t)c2;
        out[3][l] = (uint32_t)c3;
    }
}

#endif
