/* SPDX-License-Identifier: Apache-2.0
 * The passes over a graph. */
#ifndef TX_API_PASSES_H
#define TX_API_PASSES_H

#include "api/arena.h"
#include "api/graph.h"

/* What the tensors of a graph that are placed by their lifetimes take. */
typedef struct tx_layout {
    tx_arena planned, exchange; /* sizes of the chunks; no buffers */
    int64_t exchanged;          /* what lies in EXCHANGE below this address is not the planner's */
    int64_t saved;              /* bytes of `planned` kept by the forward pass for the backward pass */
} tx_layout;

/* Appends the gradients of the sum of the losses that tx_backward was given, in the order of back-propagation. */
tx_status tx_autodiff(tx_graph *graph);

/* Lets a classifier (x times a table, cross-entropy, and in a training graph the gradients of these) go by chunks of
 * rows whose logits take at most `bytes`, or are few, where nothing else reads the logits and their gradient and where
 * the gradient of the losses does not depend on the losses. dtable is the sum of the chunks' in their order. It wants
 * to see all readers. TX_CHUNK_BYTES (graph.h) is what plans are made with: 1,280 rows of GPT-2, so that dx, with few
 * columns, still has work for all of a large device; BENCHMARKS.md has what less would gain. */
tx_status tx_chunk(tx_graph *graph, int64_t bytes);

/* Products take over, as epilogues of op MATMUL, the GELU, slope of GELU or sum that reads their result, norms the sum
 * that they read, their gradients the sum that reads dx. The same bits where the backend does one after the other.
 * TX_FUSE=0 in the environment: nothing. Behind tx_chunk. */
tx_status tx_fuse(tx_graph *graph);

/* Gives every tensor of arenas PLANNED and EXCHANGE that is not fixed its address: lifetimes first, in place where
 * ops.def allows it, then the largest tensors at the lowest free address (greedy by size: Pisarchyk and Lee, Efficient
 * memory management for deep neural net inference, 2020). No tensor straddles a chunk, whose spans the caller sets in
 * `layout`, as `exchanged`. */
tx_status tx_plan_layout(tx_graph *graph, tx_layout *layout);

/* For a model that many ranks train: inserts collective nodes behind the nodes that fill a bucket of gradients, and
 * before those that first read a bucket of weights. With zero_stage 2 gradients are written to planned tensors, and
 * what the rank keeps of them is added to arena GRADIENTS. */
tx_status tx_shard(tx_graph *graph);

/* All passes over a graph, in their order (pipeline.c); nothing where it has a plan already. */
tx_status tx_pipeline(tx_graph *graph);

#endif
