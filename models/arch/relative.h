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

/* The row of a table for the distance of a key from a query, which is positive if the key is later. Keys at a distance
 * without a row, which is below 0, are masked. */
typedef int32_t tx_relative_bucket(const tx_config *config, int64_t distance);
/* The row in T5's tables of `buckets` rows (Raffel et al., T5, 2020): exact for near keys, logarithmic up to
 * `farthest`. With `later`, half of the rows are for keys after the query; otherwise these have no row. */
int32_t tx_relative_row(int64_t distance, bool later, int64_t buckets, int64_t farthest);

/* The rows of table [buckets, C] for the distances 1 - T .. T of a row's T positions: [2 T, C]. */
tx_tensor *tx_relative_rows(const tx_stack *stack, tx_tensor *table, tx_relative_bucket *bucket);
/* The biases of all pairs of the T positions of a row, [heads, T, T], from table [buckets, heads]. NULL on error. */
tx_tensor *tx_relative_bias(const tx_stack *stack, tx_tensor *table, tx_relative_bucket *bucket);
/* The mask of padding [B, T]: 0 for the positions of each row's tokens, TX_RELATIVE_MASKED for padding. NULL if there
 * is none. */
tx_tensor *tx_relative_mask(const tx_stack *stack);
/* The scores of `queries` queries of each row over S keys, [heads, B, queries, S]: biases [heads, queries, S] plus a
 * mask [B, S] of the keys. Either may be NULL. NULL if both are. */
tx_tensor *tx_relative_scores(const tx_stack *stack, int64_t heads, int64_t queries, tx_tensor *bias, tx_tensor *mask);
/* The scores of one query of each row over S keys, [heads, B, 1, S]. I32 rows [B, S] are rows of the table for each
 * key, or below 0 to mask it. */
tx_tensor *tx_relative_query(const tx_stack *stack, tx_tensor *table, tx_tensor *rows);
/* 1 for the positions of each row's tokens, 0 for padding: [B, T]. */
tx_tensor *tx_relative_used(const tx_stack *stack);

typedef struct tx_relative_options {
    int64_t heads;
    tx_tensor *scores;    /* of the functions above; or NULL */
    tx_tensor *distances; /* rows of distances [2 T, at least 2 * width], whose queries and keys contribute; or NULL */
    double scale;         /* of the products; 0 means 1 / sqrt(head size), or of three times it with distances */
    double dropout;
} tx_relative_options;

/* Attention with scores of distances: [B, T, width]. The operands are q [B, T, width], k and v [B, S, width]. With NULL
 * as v, k is k | v; with NULL as both, q is q | k | v. Ranks cannot divide the heads. */
tx_tensor *tx_relative_attention(tx_stack *stack, tx_tensor *q, tx_tensor *k, tx_tensor *v,
                                 const tx_relative_options *options);

#endif
