/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads weights in 8 bits (backends/q8.h). Included by files that are compiled once for each instruction set.
 */
#ifndef TX_BACKENDS_CPU_Q8_H
#define TX_BACKENDS_CPU_Q8_H

#include "api/base/half.h"
#include "backends/q8.h"
#include "tx_base.h"

typedef struct tx_cpu_q8 {
    const int8_t *codes;
    const uint16_t *scales;
    tx_dtype type; /* elements are rounded to this type */
} tx_cpu_q8;

/* Describes a matrix of `count` elements at `data`. Its elements are rounded to `type`. */
static inline tx_cpu_q8 tx_cpu_q8_of(const void *data, int64_t count, tx_dtype type)
{
    const int8_t *codes = data;
    return (tx_cpu_q8){codes, (const uint16_t *)(const void *)(codes + count), type};
}

/* Reads elements at .. at + count - 1, which are whole blocks, as fp32. */
static inline void tx_cpu_q8_run(const tx_cpu_q8 *w, int64_t at, int64_t count, float *restrict to)
{
    for (int64_t b = 0; b < count; b += TX_Q8_BLOCK) {
        const int8_t *codes = w->codes + at + b;
        const float scale = tx_f16_to_f32(w->scales[(at + b) / TX_Q8_BLOCK]);
        for (int i = 0; i < TX_Q8_BLOCK; i++)
            to[b + i] = (float)codes[i] * scale;
        for (int i = 0; i < TX_Q8_BLOCK && w->type == TX_BF16; i++)
            to[b + i] = tx_bf16_to_f32(tx_f32_to_bf16(to[b + i]));
        for (int i = 0; i < TX_Q8_BLOCK && w->type == TX_F16; i++)
            to[b + i] = tx_f16_to_f32(tx_f32_to_f16(to[b + i]));
    }
}

#endif
