/* SPDX-License-Identifier: Apache-2.0
 * Assigns addresses to the tensors of a graph. tx_plan_create calls it after the passes. */
#ifndef TX_API_LAYOUT_H
#define TX_API_LAYOUT_H

#include "api/graph/graph.h"
#include "api/model/arena.h"

/* Memory of the tensors of a graph that are placed by lifetime (column PLACED of TX_ARENA_MAP). */
typedef struct tx_layout {
    tx_arena arena[TX_ARENA_COUNT]; /* sizes of the chunks; no buffers */
    int64_t exchanged;              /* the planner may not use lower addresses of EXCHANGE */
    int64_t shared;                 /* nor those of PLANNED, which states have */
    int64_t saved;                  /* bytes of PLANNED that the forward pass saves for the backward pass */
} tx_layout;

/* Assigns an address to every tensor of arenas PLACED that is not fixed. It computes lifetimes and reuses memory in
 * place if ops.def allows it. Then the largest tensors come first, each at the lowest free address (greedy by size:
 * Pisarchyk and Lee, Efficient memory management for deep neural net inference, 2020). No tensor is in two chunks. The
 * caller sets the span of chunks, `exchanged` and `shared` in `layout`. */
tx_status tx_plan_layout(tx_graph *graph, tx_layout *layout);

/* Whether the planner placed the tensor. */
bool tx_layout_places(const tx_tensor *tensor);

/* Returns the first node of the backward pass, or the number of nodes if there is none. */
int32_t tx_layout_backward(const tx_graph *graph);
/* Whether a planned tensor is produced before the backward pass, which starts at node `backward`, and read in it. */
bool tx_layout_is_saved(const tx_graph *graph, int32_t backward, const tx_tensor *tensor);

#endif
