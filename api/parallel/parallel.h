/* SPDX-License-Identifier: Apache-2.0
 *
 * The passes of this extension (passes.def). */
#ifndef TX_API_PARALLEL_H
#define TX_API_PARALLEL_H

#include "api/graph/graph.h"

/* With a pipeline, keeps the nodes of this rank's stage, by their blocks. Tensors that cross to the next stage are sent
 * as messages. Returns TX_UNSUPPORTED if more than one crosses. It runs after tx_autodiff, whose nodes have blocks. */
tx_status tx_stage(tx_graph *graph);

/* With context parallelism (tx_parallel_options.context), replaces attention and its gradient by series of attention
 * between pairs of chunks, with messages, unless heads.c divides its heads. It runs after tx_checkpoint, so that
 * recomputed attention is replaced too. */
tx_status tx_ring_attention(tx_graph *graph);

/* With a pipeline, repeats the nodes of a training graph for each micro-batch, in the order of the stage's timetable
 * (timetable.h). It runs after all other passes except those of offloading. */
tx_status tx_repeat(tx_graph *graph);

/* Sums gradients of replicated sections in a tensor group (tx_param_spec.split): keys and values with fewer heads than
 * ranks. Each rank computes their gradient from its own queries, so the pass inserts a sum over these ranks after the
 * last node that writes it. The gradient of the product's input is summed over the group in any case. It runs before
 * tx_shard, for which the sum is one more node that writes to a bucket. */
tx_status tx_sum_replicas(tx_graph *graph);

/* With data parallelism, inserts collectives after the nodes that fill a bucket of gradients, and before the first
 * readers of a bucket of weights. With zero_stage 2 gradients are written to planned tensors, and the rank's shard is
 * added to arena GRADIENTS. */
tx_status tx_shard(tx_graph *graph);

/* With zero_stage 3, all-gathers every bucket of weights, also frozen ones, to a planned tensor before the nodes that
 * read it. The next bucket is gathered while these nodes are computed. The tensor is freed after its last reader; later
 * readers gather it again. 16-bit copies are gathered in 16 bits. Plans for evaluation do the same. */
tx_status tx_gather_weights(tx_graph *graph);

#endif
