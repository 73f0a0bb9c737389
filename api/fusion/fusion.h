/* SPDX-License-Identifier: Apache-2.0
 * The passes that rows of passes.def name. */
#ifndef TX_API_FUSION_H
#define TX_API_FUSION_H

#include "api/graph/graph.h"

/* Lets a classifier (x times a table, cross-entropy, and in a training graph the gradients of these) go by chunks of
 * rows whose logits take at most `chunk_bytes` of the graph, or are few, where nothing else reads the logits and their
 * gradient and where the gradient of the losses does not depend on the losses. dtable is the sum of the chunks' in
 * their order. Of one that fits, loss and gradient are brought together alike. It wants to see all readers.
 * TX_CHUNK_BYTES (graph.h) is what plans are made with: 1,280 rows of GPT-2, so that dx, with few columns, still has
 * work for all of a large device; docs/benchmarks/memory.json has what less would gain. */
tx_status tx_chunk(tx_graph *graph);

/* Products take over, as epilogues of op MATMUL, the GELU, slope of GELU or sum that reads their result, norms the sum
 * that they read, their gradients the sum that reads dx; the classifier's loss and gradient become FUSED_CLASSIFIER.
 * The same bits where the backend does one after the other. TX_FUSE=0 in the environment: nothing. Behind tx_chunk. */
tx_status tx_fuse(tx_graph *graph);

#endif
