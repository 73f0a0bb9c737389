/* SPDX-License-Identifier: Apache-2.0
 *
 * From what the user wrote to what is executed. Each pass is a function from graph to graph that edits it through
 * api/graph/edit.h; behind the last one api/plan/layout.c gives every tensor its place and compile.c makes the
 * commands.
 *
 *     record -> autocast -> autodiff -> stage -> checkpoint -> ring attention -> replicas -> shard -> gather
 *         -> offload -> chunk -> fuse -> repeat -> offload activations -> fetch weights -> layout -> commands
 */
#include "api/passes/passes.h"

static tx_status chunk(tx_graph *graph)
{
    return tx_chunk(graph, graph->chunk_bytes);
}

static tx_status (*const passes[])(tx_graph *graph) = {
    tx_autocast,            /* 16 bits where mixed precision has them */
    tx_autodiff,            /* gradients, down to the slices of the parameters */
    tx_stage,               /* of a pipeline's stage what its rank computes */
    tx_checkpoint,          /* what the backward pass computes again instead of keeping it */
    tx_ring_attention,      /* attention of which ranks have parts of the positions */
    tx_sum_replicas,        /* gradients of what several ranks of a tensor group have */
    tx_shard,               /* sums over the ranks, as soon as a bucket of gradients is full */
    tx_gather_weights,      /* weights of which each rank has its shard, before they are read */
    tx_offload,             /* optimizer states that lie outside the device's memory, around their updates */
    chunk,                  /* the classifier by rows */
    tx_fuse,                /* element-wise ops into the products and norms beside them */
    tx_repeat,              /* of a pipeline's stage the micro-batches of a step */
    tx_offload_activations, /* what blocks keep for the backward pass, to the host's memory and back */
    tx_fetch_weights,       /* parameters that lie in the host's memory, before they are read */
};

tx_status tx_pipeline(tx_graph *graph)
{
    tx_status status = tx_graph_check(graph);
    for (size_t i = 0; i < sizeof passes / sizeof passes[0] && !graph->planned && status == TX_OK; i++)
        status = passes[i](graph);
    graph->planned = true;
    return status == TX_OK ? TX_OK : tx_graph_fail(graph, status);
}
