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
        .key1 = word[TX_CONTROL_SEED_HI].u32,
        .sample = word[TX_CONTROL_SAMPLE].u32 + (uint32_t)sample,
        .site = (uint32_t)attrs->site,
        .threshold = tx_dropout_threshold(attrs->p),
        .keep = 1.0f / (1.0f - attrs->p),
    };
}

/* out[w][l]: word w of the block for column group block + l block_step and row + l row_step. */
static inline void tx_draw_lanes(const tx_site *site, uint32_t step, uint32_t plane, uint32_t row, uint32_t row_step,
                                 uint32_t block, uint32_t block_step, uint32_t out[4][TX_DRAW_LANES])
{
    TX_SIMD for (int l = 0; l < TX_DRAW_LANES; l++)
    {
        tx_random r = tx_draw(site->key0, site->key1, step, site->sample, site->site, plane,
                              row + (uint32_t)l * row_step, block + (uint32_t)l * block_step);
        out[0][l] = r.word[0];
        out[1][l] = r.word[1];
        out[2][l] = r.word[2];
        out[3][l] = r.word[3];
    }
}

#endif
