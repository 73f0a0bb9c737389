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

/* Where the optimizer's states, or the weights, lie outside the device's memory, nodes of updates work on planned
 * tensors: these are fetched while the node before runs, and put back while the next one does, so that what two nodes
 * need is on the device at a time. What other graphs read of weights themselves they read in arena KEPT. */
tx_status tx_offload(tx_graph *graph);

/* Activations of blocks lie in arena AWAY between the passes (tx_graph_offload_activations): each is put there behind
 * its last reader of the forward pass, and is fetched into another tensor while the backward pass is one block behind.
 * Behind all that changes who reads what. */
tx_status tx_offload_activations(tx_graph *graph);

/* Parameters that lie in the host's memory or a file (tx_model_offload_params) come to planned tensors while the block
 * before is computed, which nodes read in their place. The last pass: nodes are in their order. */
tx_status tx_fetch_weights(tx_graph *graph);

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
