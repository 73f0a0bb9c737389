/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass fake_quantize: quantization-aware training (Jacob et al., Quantization and training of neural networks, 2018).
 * The forward pass reads weights as the exported file will hold them. The gradient of the rounded weight is that of the
 * fp32 weight, since autodiff looks through ops that keep values. */
#include "api/packed/packed.h"

#include "api/graph/edit.h"

static tx_status insert(tx_edit *edit, tx_graph *graph, tx_tensor *param)
{
    int32_t readers;
    const tx_use *use = tx_edit_readers(edit, param, &readers);
    if (readers == 0)
        return TX_OK;
    tx_emit_args args = {.op = TX_OP_FAKE_QUANTIZE, .attrs = TX_PLAIN, .in = {param}};
    args.attrs.rounding = graph->model->param[param->param].spec.rounding;
    tx_tensor *rounded = tx_emit(graph, &args);
    TX_TRY(graph->status);
    const int32_t node = graph->nodes - 1;
    graph->node[node].block = graph->node[use[0].node].block;
    tx_edit_move(edit, node, use[0].node);
    tx_edit_replace(edit, param, rounded);
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
