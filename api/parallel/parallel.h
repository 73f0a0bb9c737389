/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of this extension that rows of the core's tables name: passes over a graph (passes.def). */
#ifndef TX_API_PARALLEL_H
#define TX_API_PARALLEL_H

#include "api/graph/graph.h"

/* With a pipeline leaves the nodes of this rank's stage, by their blocks, with messages where a tensor crosses to the
 * next one; UNSUPPORTED where more than one does. Behind tx_autodiff, whose nodes have their blocks. */
tx_status tx_stage(tx_graph *graph);

/* Where ranks have a chunk of each row's positions (tx_parallel_options.context): attention and its gradient become
 * series of those of pairs of chunks, with messages. UNSUPPORTED for attention that is not causal over whole rows.
 * Behind tx_checkpoint, so that attention which is computed again is one too. */
tx_status tx_ring_attention(tx_graph *graph);

/* With a pipeline repeats the nodes of a training graph for each micro-batch, in the order of the stage's timetable
 * (timetable.h). Behind all others. */
tx_status tx_repeat(tx_graph *graph);

/* Of parameters of which several ranks of a tensor group have the same (tx_param_spec.split), keys and values of fewer
 * heads than ranks, each makes a gradient by its own queries: inserts a sum over these ranks behind the last node that
 * writes it. What the product's input gets is a sum over the group anyway, of which each rank's share is of its own
 * queries alone. Before tx_shard, for which it is one more node that writes to a bucket. */
tx_status tx_sum_replicas(tx_graph *graph);

/* For a model that many ranks train: inserts collective nodes behind the nodes that fill a bucket of gradients, and
 * before those that first read a bucket of weights. With zero_stage 2 gradients are written to planned tensors, and
 * what the rank keeps of them is added to arena GRADIENTS. */
tx_status tx_shard(tx_graph *graph);

/* With zero_stage 3 every bucket of weights, frozen ones too, is gathered into a planned tensor before the nodes that
 * read it, the next one while these are computed, and goes behind them; where the same is read later it is gathered
 * again. Copies of 16 bits are gathered as such. Plans for evaluation gather alike. */
tx_status tx_gather_weights(tx_graph *graph);

#endif
