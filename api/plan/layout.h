/* SPDX-License-Identifier: Apache-2.0
 * Where the tensors of a graph lie. */
#ifndef TX_API_LAYOUT_H
#define TX_API_LAYOUT_H

#include "api/graph/graph.h"
#include "api/model/arena.h"

/* The arenas of tensors that are placed by their lifetimes: PLANNED first, OFFLOADED, STAGING, EXCHANGE and TP. */
#define TX_LAYOUT_ARENAS 5
extern const tx_arena_id tx_layout_arena[TX_LAYOUT_ARENAS];

/* What these tensors of a graph take. */
typedef struct tx_layout {
    tx_arena arena[TX_LAYOUT_ARENAS]; /* sizes of the chunks; no buffers */
    int64_t exchanged;                /* what lies in EXCHANGE below this address is not the planner's */
    int64_t saved;                    /* bytes of PLANNED kept by the forward pass for the backward pass */
} tx_layout;

/* Gives every tensor of these arenas that is not fixed its address: lifetimes
 * first, in place where ops.def allows it, then the largest tensors at the lowest free address (greedy by size:
 * Pisarchyk and Lee, Efficient memory management for deep neural net inference, 2020). No tensor straddles a chunk,
 * whose spans the caller sets in `layout`, as `exchanged`. */
tx_status tx_plan_layout(tx_graph *graph, tx_layout *layout);

/* Whether the planner gave the tensor its place, in one of these arenas. */
bool tx_layout_places(const tx_tensor *tensor);

/* The first node of the backward pass; the number of nodes where there is none. */
int32_t tx_layout_backward(const tx_graph *graph);
/* Whether a tensor that the planner placed is made before the backward pass, which begins with node `backward`, and
 * read in it. */
bool tx_layout_is_saved(const tx_graph *graph, int32_t backward, const tx_tensor *tensor);

#endif
