/* SPDX-License-Identifier: Apache-2.0
 *
 * Muon's update of a matrix, as nodes. */
#ifndef TX_API_MUON_H
#define TX_API_MUON_H

#include "api/graph/graph.h"

/* Appends what updates args->in p by g and the one state, given as for any other update. Jordan et al., Muon: An
 * optimizer for hidden layers in neural networks, 2024; torch.optim.Muon. A failure is the graph's. */
void tx_emit_muon(tx_graph *graph, const tx_emit_args *args, const tx_optimizer_options *options);

#endif
