/* SPDX-License-Identifier: Apache-2.0
 * The fusion passes (passes.def). */
#ifndef TX_API_FUSION_H
#define TX_API_FUSION_H

#include "api/graph/graph.h"

/* Splits a classifier into chunks of rows: x times a table, cross-entropy, and in a training graph their gradients. The
 * logits of a chunk have at most `chunk_bytes` of the graph, or the minimum number of rows. No other node may read the
 * logits or their gradient. If the gradient of the losses depends on the losses, the logits are computed twice. dtable
 * is the sum over the chunks in order. If all rows fit in one chunk, the nodes of loss and gradient are only moved
 * together. It must see all readers. The default is TX_CHUNK_BYTES (graph.h). That is 1,280 rows of GPT-2 in fp32, so
 * that dx, which has few columns, still occupies a large device. docs/benchmarks/memory.json has measurements of
 * smaller chunks. Each further chunk reads and writes dtable once more, so training on a GPU uses larger ones if they
 * fit (models/job/logits.c). */
tx_status tx_chunk(tx_graph *graph);

/* Fuses GELU, the derivative of GELU or a sum into the product that it reads (epilogues of op MATMUL). Sums are fused
 * into the norm that reads them, and into the gradients of norms that they read. The classifier's loss and gradient
 * become FUSED_CLASSIFIER. The bits are the same if the backend computes the fused ops one after the other. Environment
 * variable TX_FUSE=0 turns it off. It runs after tx_chunk. */
tx_status tx_fuse(tx_graph *graph);

#endif
