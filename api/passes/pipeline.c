/* SPDX-License-Identifier: Apache-2.0
 * Runs all passes in order: converts the recorded graph to the executed graph. */
#include "api/checkpointing/checkpointing.h"
#include "api/fusion/fusion.h"
#include "api/packed/packed.h"
#include "api/parallel/parallel.h"
#include "api/passes/passes.h"
#include "api/residency/residency.h"

static tx_status (*const passes[])(tx_graph *graph) = {
#define TX_PASS(name) tx_##name,
#include "api/passes/passes.def"
};

tx_status tx_pipeline(tx_graph *graph)
{
    tx_status status = tx_graph_check(graph);
    for (size_t i = 0; i < sizeof passes / sizeof passes[0] && !graph->planned && status == TX_OK; i++)
        status = passes[i](graph);
    graph->planned = true;
    return status == TX_OK ? TX_OK : tx_graph_fail(graph, status);
}
