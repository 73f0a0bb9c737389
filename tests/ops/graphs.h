/* SPDX-License-Identifier: Apache-2.0
 * Internal header of the conformance suite: small graphs whose gradients are checked. */
#ifndef TX_TESTS_OPS_GRAPHS_H
#define TX_TESTS_OPS_GRAPHS_H

#include "tx.h"

#define TX_BUILDER_INPUTS 4

typedef struct tx_builder {
    tx_graph *graph;
    int32_t inputs;
    struct {
        tx_tensor *tensor;
        double lo, hi; /* range of its values; integers for I32 */
    } input[TX_BUILDER_INPUTS];
    tx_tensor *labels; /* the input in which every fifth value is TX_IGNORE_LABEL */
} tx_builder;

typedef struct tx_graph_case {
    const char *name;
    tx_tensor *(*build)(tx_builder *b); /* the tensor whose weighted sum is the loss */
    int32_t micro_batches;
} tx_graph_case;

const tx_graph_case *tx_graph_cases(int32_t *count);

#endif
