/* SPDX-License-Identifier: Apache-2.0
 *
 * ALiBi (Press et al., Train short, test long, 2022): the position of a key times the head's slope is added to the
 * scores. Each head of q and k gets 8 more elements, whose products are these numbers, so that the op of attention and
 * its caches serve such models, too. */
#ifndef TX_ARCH_ALIBI_H
#define TX_ARCH_ALIBI_H

#include "models/arch/stack.h"

typedef struct tx_alibi {
    int64_t heads; /* of the model: of q, and as many of k */
    int64_t size;  /* of a head, without the new elements */
    double scale;  /* of the scores */
    /* Slopes, positions and their products are rounded to BF16, and the products are scaled like the scores. */
    bool rounded;
} tx_alibi;

/* The new elements of q | k | v for all positions, [B, T, 3 heads * (size + 8)], of this rank's heads; 0 elsewhere. The
 * caller stores it in stack->scores. NULL on error. */
tx_tensor *tx_alibi_elements(tx_stack *stack, const tx_alibi *alibi);
/* Adds the elements to qkv, of `heads` heads each of q, k and v: [B, T, 3 heads * (size + 8)]. */
tx_tensor *tx_alibi_add(const tx_stack *stack, tx_tensor *qkv, int64_t heads, int64_t size);
/* Removes the new elements of the result: [B, T, heads * size]. */
tx_tensor *tx_alibi_remove(tx_tensor *x, int64_t heads, int64_t size);
/* A geometric sequence of at least `count` rows [.., 1]. */
tx_tensor *tx_powers(tx_graph *graph, double first, double ratio, int64_t count);

#endif
