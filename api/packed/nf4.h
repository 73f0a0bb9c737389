/* SPDX-License-Identifier: Apache-2.0
 * Conversions to and from the 4-bit types of backends/nf4.h, on the host. */
#ifndef TX_API_NF4_H
#define TX_API_NF4_H

#include "backends/nf4.h"

#include <stdbool.h>

/* Returns the elements that can be written separately: a whole block, or with double quantisation a whole group. */
static inline int64_t tx_nf4_unit(bool twice)
{
    return twice ? TX_NF4_BLOCK * TX_NF4_GROUP : TX_NF4_BLOCK;
}

/* Counts how many of the 15 midpoints between neighbouring values are below x; 0 for NaN. */
static inline int32_t tx_nf4_code(float x)
{
    int32_t code = 0;
    for (int i = 0; i < 15; i++)
        code += x > (tx_nf4_value[i] + tx_nf4_value[i + 1]) / 2.0f;
    return code;
}

/* Convert `blocks` blocks. A code is that of the nearest value, or of the lower of two equally near ones. */
void tx_nf4_quantize(const float *x, int64_t blocks, uint8_t *codes, float *absmax);
void tx_nf4_dequantize(const uint8_t *codes, const float *absmax, int64_t blocks, float *x);

/* Double quantisation of the blocks' absmax. Each group is stored relative to its mean, with a scale. */
void tx_nf4_compress(const float *absmax, int64_t blocks, uint8_t *codes, float *groups);
void tx_nf4_expand(const uint8_t *codes, const float *groups, const float map[TX_NF4_MAP], int64_t blocks,
                   float *absmax);
void tx_nf4_make_map(float map[TX_NF4_MAP]);

#endif
