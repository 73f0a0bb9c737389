/* SPDX-License-Identifier: Apache-2.0
 * The pass of gradient checkpointing (passes.def). */
#ifndef TX_API_CHECKPOINTING_H
#define TX_API_CHECKPOINTING_H

#include "api/graph/graph.h"

/* Gradient checkpointing as requested by tx_graph_checkpointing. Before the backward nodes of a segment it inserts
 * copies of the forward nodes whose results they read and that are not saved; their direction is RECOMPUTE. A result is
 * saved if another segment, or no segment, reads it, or if it depends on memory that does not persist. Results without
 * backward readers are not recomputed. It runs after tx_autodiff. */
tx_status tx_checkpoint(tx_graph *graph);

#endif
