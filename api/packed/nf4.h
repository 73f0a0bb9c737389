/* SPDX-License-Identifier: Apache-2.0
 * To and from the 4 bits of backends/nf4.h, on the host. */
#ifndef TX_API_NF4_H
#define TX_API_NF4_H

#include "backends/nf4.h"

#include <stdbool.h>

/* Elements that can be written by themselves: whole blocks, with double quantisation whole groups. */
static inline int64_t tx_nf4_unit(bool twice)
{
    return twice ? TX_NF4_BLOCK * TX_NF4_GROUP : TX_NF4_BLOCK;
}

/* Each takes `blocks` blocks. A code is that of the nearest value, of two that are as near the lower one. */
void tx_nf4_quantize(const float *x, int64_t blocks, uint8_t *codes, float *absmax);
void tx_nf4_dequantize(const uint8_t *codes, const float *absmax, int64_t blocks, float *x);

/* Double quantisation of the blocks' absmax: group by group less their mean, which is kept with their scale. */
void tx_nf4_compress(const float *absmax, int64_t blocks, uint8_t *codes, float *groups);
void tx_nf4_expand(const uint8_t *codes, const float *groups, const float map[TX_NF4_MAP], int64_t blocks,
                   float *absmax);
void tx_nf4_make_map(float map[TX_NF4_MAP]);

#endif
