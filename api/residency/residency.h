/* SPDX-License-Identifier: Apache-2.0
 * Functions of this extension that the core calls: passes that rows of passes.def name, and the place of states. */
#ifndef TX_API_RESIDENCY_H
#define TX_API_RESIDENCY_H

#include "api/graph/graph.h"

/* Where the optimizer's states, or the weights, lie outside the device's memory, nodes of updates work on planned
 * tensors: these are fetched while the node before runs, and put back while the next one does, so that what two nodes
 * need is on the device at a time. What other graphs read of weights themselves they read in arena KEPT. */
tx_status tx_offload(tx_graph *graph);

/* Activations of blocks lie in arena OFFLOADED between the passes (tx_graph_offload_activations): each is put there behind
 * its last reader of the forward pass, and is fetched into another tensor while the backward pass is one block behind.
 * Behind all that changes who reads what. */
tx_status tx_offload_activations(tx_graph *graph);

/* Parameters that lie in the host's memory or a file (tx_model_offload_params) come to planned tensors while the block
 * before is computed, which nodes read in their place. The last pass: nodes are in their order. */
tx_status tx_fetch_weights(tx_graph *graph);

/* Puts the optimizer's states outside the device's memory, as the options say. */
tx_status tx_model_offload_states(tx_model *model, const tx_optimizer_options *options);

#endif
