/* SPDX-License-Identifier: Apache-2.0
 * The passes over a graph. */
#ifndef TX_API_PASSES_H
#define TX_API_PASSES_H

#include "api/graph/graph.h"

/* Mixed precision as tx_graph_autocast and column CAST of ops.def say: gives the results of forward nodes their types
 * and casts what is read in another one, a tensor once, before its first reader. The copies of parameters lie in arena
 * HALF; those that are stored in 16 bits themselves are read where they lie, or cast to fp32. Before tx_autodiff, which
 * takes the types over. */
tx_status tx_autocast(tx_graph *graph);

/* Appends the gradients of the sum of the losses that tx_backward was given, in the order of back-propagation. */
tx_status tx_autodiff(tx_graph *graph);

/* The gradient of an input that a rule is asked for. */
typedef struct tx_wanted {
    bool need;
    tx_dtype dtype; /* what it ends in: a rule whose op can write it so saves a cast */
} tx_wanted;

/* What tx_autodiff asks of an op (grad.c): appends the gradient of node `n`; from the gradients `dout` of its outputs
 * (NULL: zero) those of its inputs that are wanted, into `din`. */
tx_status tx_op_grad(tx_graph *graph, const tx_node *node, tx_tensor *const dout[TX_MAX_OUT],
                     const tx_wanted want[TX_MAX_IN], tx_tensor *din[TX_MAX_IN]);

/* All passes over a graph, in their order (passes.def); nothing where it has a plan already. */
tx_status tx_pipeline(tx_graph *graph);

#endif
