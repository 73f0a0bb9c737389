/* SPDX-License-Identifier: Apache-2.0
 * Copies a graph for another stage of its model. api/parallel calls it. */
#include "api/graph/graph.h"

#include "api/model/model.h"

#include <stdlib.h>
#include <string.h>

/* Returns the copy of a tensor. Tensors are copied in order, so that it exists. */
static tx_tensor *copied(const tx_graph *copy, const tx_tensor *t)
{
    return t ? copy->tensor[t->id] : NULL;
}

static tx_status copy_tensor(tx_graph *copy, const tx_tensor *t)
{
    const tx_model *model = copy->model;
    tx_tensor *made = tx_tensor_planned(copy, t->dtype, t->shape, t->arena);
    if (!made)
        return copy->status;
    const int32_t id = made->id;
    *made = *t;
    made->graph = copy;
    made->id = id;
    made->base = copied(copy, t->base);
    made->name = t->name ? strdup(t->name) : NULL;
    if (t->name && !made->name)
        return tx_fail(TX_MEMORY, "no memory for a name");
    if (t->param >= 0)
        made->offset = model->param[t->param].offset;
    else if (tx_arena_has_states(t->arena) && t->name)
        made->offset = tx_model_find_state(model, t->name)->offset;
    return TX_OK;
}

static tx_status copy_all(const tx_graph *graph, tx_graph *copy)
{
    for (int32_t i = 0; i < graph->tensors; i++)
        TX_TRY(copy_tensor(copy, graph->tensor[i]));
    for (int32_t i = 0; i < graph->nodes; i++) {
        tx_node node = graph->node[i];
        int32_t number;
        if (node.attrs.rope && !(node.attrs.rope = tx_graph_rope(copy, node.attrs.rope)))
            return copy->status;
        for (int k = 0; k < TX_MAX_IN; k++)
            node.in[k] = copied(copy, node.in[k]);
        for (int k = 0; k < TX_MAX_OUT; k++)
            node.out[k] = copied(copy, node.out[k]);
        TX_TRY(tx_graph_append(copy, &node, &number));
    }
    return TX_OK;
}

tx_status tx_graph_copy(const tx_graph *graph, tx_model *stage, tx_graph **copy)
{
    tx_graph *made = NULL;
    TX_TRY(tx_graph_check(graph));
    tx_status status = tx_graph_create(stage, &made);
    if (!status) {
        made->autocast = graph->autocast;
        made->residual = graph->residual;
        made->fp32_residual_gradient = graph->fp32_residual_gradient;
        made->checkpointing = graph->checkpointing;
        made->offloads = graph->offloads;
        made->chunk_bytes = graph->chunk_bytes;
        status = copy_all(graph, made);
    }
    if (status)
        tx_graph_free(made);
    else
        *copy = made;
    return status;
}
