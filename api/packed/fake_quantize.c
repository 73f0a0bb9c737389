/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass fake_quantize: quantization-aware training (Jacob et al., Quantization and training of neural networks, 2018).
 * The forward pass reads weights as the exported file will hold them. The gradient of the rounded weight is that of the
 * fp32 weight, since autodiff looks through ops that keep values. If an adapter is added to a weight, the sum is
 * rounded. */
#include "api/packed/packed.h"

#include "api/graph/edit.h"

/* The sum with an adapter that reads `x` as its only reader, or NULL. */
static tx_tensor *sum_of(const tx_edit *edit, const tx_graph *graph, const tx_tensor *x)
{
    int32_t readers;
    const tx_use *use = tx_edit_readers(edit, x, &readers);
    const tx_node *n = readers == 1 ? &graph->node[use[0].node] : NULL;
    return n && n->op == TX_OP_ADD_LOW_RANK && use[0].operand == TX_IN(add_low_rank, w) ? n->out[0] : NULL;
}

static tx_status insert(tx_edit *edit, tx_graph *graph, tx_tensor *param)
{
    int32_t readers;
    tx_tensor *weight = param;
    for (tx_tensor *sum = param; sum; sum = sum_of(edit, graph, sum))
        weight = sum;
    const tx_use *use = tx_edit_readers(edit, weight, &readers);
    for (int32_t i = 0; i < readers; i++)
        if (graph->node[use[i].node].op == TX_OP_ADD_LOW_RANK)
            return tx_fail(TX_UNSUPPORTED, "%s: several layers read the weight, with different adapters", param->name);
    if (readers == 0)
        return TX_OK;
    tx_emit_args args = {.op = TX_OP_FAKE_QUANTIZE, .attrs = TX_PLAIN, .in = {weight}};
    args.attrs.rounding = graph->model->param[param->param].spec.rounding;
    tx_tensor *rounded = tx_emit(graph, &args);
    TX_TRY(graph->status);
    const int32_t node = graph->nodes - 1;
    graph->node[node].block = graph->node[use[0].node].block;
    tx_edit_move(edit, node, use[0].node);
    tx_edit_replace(edit, weight, rounded);
    return TX_OK;
}

static tx_status change(tx_edit *edit, void *state)
{
    tx_graph *graph = state;
    const int32_t recorded = graph->nodes;
    for (int32_t i = 0; i < recorded; i++) {
        tx_tensor *x = graph->node[i].op == TX_OP_PARAM ? graph->node[i].out[0] : NULL;
        if (x && graph->model->param[x->param].spec.rounding.parts > 0)
            TX_TRY(insert(edit, graph, x));
    }
    return TX_OK;
}

tx_status tx_fake_quantize(tx_graph *graph)
{
    return graph->direction == TX_UPDATE ? TX_OK : tx_edit_run(graph, change, graph);
}
