/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention with a number for each pair of positions that is added to the scores, such as a learned bias of their
 * distance. It consists of matrix products and a softmax, because the op of attention has no such operand, so memory
 * grows with the square of the length. */
#ifndef TX_ARCH_RELATIVE_H
#define TX_ARCH_RELATIVE_H

#include "models/arch/stack.h"

/* The number that is added to masked scores. It is finite in all types. */
#define TX_RELATIVE_MASKED (-30000.0f)

/* The row of a table for the distance of a key from a query, which is positive if the key is later. */
typedef int32_t tx_relative_bucket(const tx_config *config, int64_t distance);

/* The biases of all pairs of the T positions of a row, [heads, T, T], from table [buckets, heads]. NULL on error. */
tx_tensor *tx_relative_bias(const tx_stack *stack, tx_tensor *table, tx_relative_bucket *bucket);
/* Adds the mask of padding to biases [heads, T, T]: [B, heads, T, T]. */
tx_tensor *tx_relative_scores(const tx_stack *stack, tx_tensor *bias);
/* 1 for the positions of each row's tokens, 0 for padding: [B, T]. */
tx_tensor *tx_relative_used(const tx_stack *stack);
/* Bidirectional attention over packed qkv [B, T, 3 * width], with scores from tx_relative_scores: [B, T, width]. Ranks
 * cannot divide the heads. */
tx_tensor *tx_relative_attention(tx_stack *stack, tx_tensor *qkv, tx_tensor *scores, double dropout);

#endif
