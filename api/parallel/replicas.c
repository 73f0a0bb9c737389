/* SPDX-License-Identifier: Apache-2.0
 * Pass sum_replicas: sums gradients of sections that several ranks of a tensor group share. */
#include "api/parallel/parallel.h"

#include "api/graph/edit.h"
#include "api/parallel/own.h"

/* Returns the last node that writes to the gradient of a parameter, or -1. */
static int32_t last_writer(const tx_graph *graph, const tx_param_record *r)
{
    int32_t last = -1;
    for (int32_t i = 0; i < graph->nodes; i++)
        last = tx_edit_writes_gradient(&graph->node[i], r->offset) ? i : last;
    return last;
}

/* Replicas are on neighbouring ranks, so that a rank's slot in the window follows from the ranks before it. */
static tx_status insert_sum(tx_graph *graph, tx_edit *edit, const tx_param_record *r, const tx_param_run *s)
{
    const int32_t at = last_writer(graph, r);
    if (at < 0)
        return TX_OK;
    const tx_model *model = graph->model;
    const int64_t places = model->mesh.tensor.size / s->replicas;
    tx_node node = {.op = TX_OP_SUM_REPLICAS,
                    .direction = TX_BACKWARD,
                    .block = graph->node[at].block,
                    .attrs = {.control = -1, .first = model->mesh.tensor.rank / s->replicas * s->count}};
    tx_tensor *x = tx_tensor_fixed(graph, model->stored, TX_SHAPE(s->count), TX_ARENA_GRADIENTS,
                                   r->offset + s->own * tx_model_element(model));
    tx_tensor *w = tx_tensor_planned(graph, model->stored, TX_SHAPE(places * s->count), TX_ARENA_TP);
    node.in[TX_IN(sum_replicas, x)] = node.out[TX_OUT(sum_replicas, y)] = x;
    node.out[TX_OUT(sum_replicas, w)] = w;
    return x && w ? tx_edit_insert(edit, at + 1, &node, NULL) : graph->status;
}

static tx_status sum_param(tx_graph *graph, tx_edit *edit, const tx_param_record *r)
{
    tx_param_run s;
    const bool trained = r->arena == TX_ARENA_WEIGHTS && !r->absent;
    for (int32_t run = 0; trained && tx_own_stretch(r, &run, &s);)
        if (s.replicas > 1)
            TX_TRY(insert_sum(graph, edit, r, &s));
    return TX_OK;
}

static tx_status change(tx_edit *edit, void *state)
{
    tx_graph *graph = state;
    const tx_model *model = graph->model;
    for (int32_t i = 0; i < model->params; i++)
        if (model->param[i].division.parts > 1)
            TX_TRY(sum_param(graph, edit, &model->param[i]));
    return TX_OK;
}

tx_status tx_sum_replicas(tx_graph *graph)
{
    if (graph->model->mesh.tensor.size == 1 || graph->direction == TX_UPDATE)
        return TX_OK;
    return tx_edit_run(graph, change, graph);
}
