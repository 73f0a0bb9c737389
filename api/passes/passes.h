/* SPDX-License-Identifier: Apache-2.0
 * The core's passes over a graph. tx_pipeline runs them and those of the extensions (passes.def). */
#ifndef TX_API_PASSES_H
#define TX_API_PASSES_H

#include "api/graph/edit.h"

/* Applies mixed precision as tx_graph_autocast and column CAST of ops.def specify. It sets the types of forward
 * results. A tensor that is read in another type is cast once, before its first reader. 16-bit copies of parameters are
 * in arena HALF. Parameters stored in 16 bits are read directly or cast to fp32. It runs before tx_autodiff, which uses
 * the types. */
tx_status tx_autocast(tx_graph *graph);

/* Finds the residual stream of a forward graph as recorded: sets stream[i] (one element a tensor, initially false) if
 * tensor i is result 0 of an op that the stream consists of (residual.c). */
tx_status tx_residual_find(tx_edit *edit, const tx_graph *graph, bool *stream);

/* Appends the gradients of the sum of the losses given to tx_backward, in the order of back-propagation. */
tx_status tx_autodiff(tx_graph *graph);

/* A request for the gradient of an input. */
typedef struct tx_wanted {
    bool need;
    tx_dtype dtype; /* final type; a rule whose op can write it directly saves a cast */
} tx_wanted;

/* Calls the gradient rule of an op (grad.c). From `dout`, the gradients of the outputs of `node` (NULL means zero), it
 * appends those of the inputs in `want` and stores them in `din`. */
tx_status tx_op_grad(tx_graph *graph, const tx_node *node, tx_tensor *const dout[TX_MAX_OUT],
                     const tx_wanted want[TX_MAX_IN], tx_tensor *din[TX_MAX_IN]);

/* Runs all passes over a graph in order (passes.def). Does nothing if the graph has a plan. */
tx_status tx_pipeline(tx_graph *graph);

#endif
