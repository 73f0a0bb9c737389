/* SPDX-License-Identifier: Apache-2.0
 * Functions of this extension that the core calls: the passes (passes.def) and the offload of optimizer states. */
#ifndef TX_API_RESIDENCY_H
#define TX_API_RESIDENCY_H

#include "api/graph/graph.h"

/* If optimizer states or weights are offloaded, nodes of updates use planned tensors instead. Each is fetched while the
 * node before runs and copied back while the next one runs, so that the device holds those of two nodes at a time.
 * Other graphs that read weights themselves read them in arena KEPT. */
tx_status tx_offload(tx_graph *graph);

/* Keeps activations of blocks in arena OFFLOADED between the passes (tx_graph_offload_activations). Each is copied
 * there after its last reader in the forward pass, and is fetched to another tensor while the backward pass computes
 * the block after it. It runs after all passes that change readers. */
tx_status tx_offload_activations(tx_graph *graph);

/* Fetches offloaded parameters (tx_model_offload_params) to planned tensors while the block before is computed, and
 * redirects their readers. It is the last pass, because it needs the final order of nodes. */
tx_status tx_fetch_weights(tx_graph *graph);

/* Offloads the optimizer's states to the place in the options. */
tx_status tx_model_offload_states(tx_model *model, const tx_optimizer_options *options);

#endif
