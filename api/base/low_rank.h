/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of a weight and a product of small matrices, W + scale B A. Training for blocks and merging compute the same
 * bits: a sum over the rank starts at 0 and runs in order, then it is scaled and added. Nothing is contracted. */
#ifndef TX_LOW_RANK_H
#define TX_LOW_RANK_H

#include <stdbool.h>
#include <stdint.h>

/* The operands of weight += scale * left^T right. Element k of row i is left[i * row_step + k * left_step], element k
 * of column c is right[c * column_step + k * right_step]. */
typedef struct tx_low_rank {
    const float *left, *right;
    int64_t row_step, left_step, column_step, right_step, rank;
    float scale;
} tx_low_rank;

/* The product of A [rank, in] and B [out, rank], for a weight [out, in], or [in, out] if `inputs_first`. */
static inline tx_low_rank tx_low_rank_of(const float *a, const float *b, int64_t in, int64_t rank, float scale,
                                         bool inputs_first)
{
    return inputs_first ? (tx_low_rank){a, b, 1, in, rank, 1, rank, scale}
                        : (tx_low_rank){b, a, rank, 1, 1, in, rank, scale};
}

/* Adds the product to `count` elements of a row of the weight, from column `first` on, which `weight` points to. */
void tx_low_rank_add(const tx_low_rank *product, int64_t row, int64_t first, int64_t count, float *weight);

#endif
