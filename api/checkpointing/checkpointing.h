/* SPDX-License-Identifier: Apache-2.0
 * The pass that a row of passes.def names. */
#ifndef TX_API_CHECKPOINTING_H
#define TX_API_CHECKPOINTING_H

#include "api/graph/graph.h"

/* Gradient checkpointing as tx_graph_checkpointing says: before the backward nodes of a segment of blocks stand copies
 * of the forward nodes whose results they read, of direction RECOMPUTE, as far as those are not kept. What another
 * segment or none reads is kept, and so is what follows from memory that does not last; what no backward node needs is
 * not computed again. Behind tx_autodiff, whose nodes it looks at. */
tx_status tx_checkpoint(tx_graph *graph);

#endif
