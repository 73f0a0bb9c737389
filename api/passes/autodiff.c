/* SPDX-License-Identifier: Apache-2.0
 *
 * Reverse-mode differentiation: walks the forward nodes backwards, asks each op's rule for the gradients of
 * its inputs, sums what comes from several uses in that fixed order, and lets the gradients of parameters be
 * written to (first use) and added to (later uses) their slices of arena GRADIENTS. */
#include "api/graph.h"
#include "api/model.h"
#include "api/passes/passes.h"

#include <stdlib.h>

typedef struct autodiff {
    tx_graph *graph;
    tx_tensor **gradient; /* of each tensor of the forward part, by id */
    bool *written;        /* parameters whose slice holds a contribution of this graph, by id */
} autodiff;

static const tx_attrs plain = {.control = -1, .alpha = 1.0f};

static tx_accumulate mode_of(const autodiff *a, const tx_tensor *param)
{
    return a->written[param->id] ? TX_ADD : TX_ADD_CONTROL;
}

/* Can the node that makes `d` write it straight to the slice of `param`? The node must be of the rule that just
 * ran (from `first` on), its op must be able to add, and every output that adds must go to a slice in the same way. */
static bool writes_directly(const autodiff *a, tx_tensor *const in[TX_MAX_IN], tx_tensor *const din[TX_MAX_IN], int i,
                            int32_t first)
{
    tx_tensor *root = tx_tensor_root(din[i]);
    if (root->producer < first || root->arena != TX_ARENA_PLANNED)
        return false;
    const tx_node *n = &a->graph->node[root->producer];
    uint32_t adds = tx_op_info_of(n->op)->adds;
    bool itself = false;
    for (int k = 0; k < TX_MAX_OUT; k++) {
        if (!(adds & (1u << k)))
            continue;
        bool to_slice = false;
        for (int j = 0; j < TX_MAX_IN; j++)
            to_slice |= in[j] && in[j]->is_param && din[j] && tx_tensor_root(din[j]) == n->out[k] &&
                        mode_of(a, in[j]) == mode_of(a, in[i]);
        if (!to_slice)
            return false;
        itself |= n->out[k] == root;
    }
    return itself;
}

/* Brings the gradient `d` of a parameter to its slice. */
static void to_slice(autodiff *a, tx_tensor *param, tx_tensor *d, bool directly)
{
    tx_accumulate mode = mode_of(a, param);
    if (directly) {
        tx_tensor *root = tx_tensor_root(d);
        a->graph->node[root->producer].attrs.accumulate = mode;
        root->arena = TX_ARENA_GRADIENTS;
        root->offset = param->offset;
    } else {
        tx_emit_args copy = {.op = TX_OP_COPY, .attrs = plain, .in = {d}};
        copy.attrs.accumulate = mode;
        copy.out[0] = tx_tensor_fixed(a->graph, TX_F32, param->shape, TX_ARENA_GRADIENTS, param->offset);
        if (copy.out[0])
            tx_emit(a->graph, &copy);
    }
}

static tx_status differentiate(autodiff *a, int32_t index)
{
    tx_graph *graph = a->graph;
    tx_node node = graph->node[index];
    tx_tensor *dout[TX_MAX_OUT] = {0}, *din[TX_MAX_IN] = {0};
    bool need[TX_MAX_IN] = {0}, any_out = false, any_in = false;
    for (int i = 0; i < TX_MAX_OUT; i++) {
        dout[i] = node.out[i] && node.out[i]->producer == index ? a->gradient[node.out[i]->id] : NULL;
        any_out |= dout[i] != NULL;
    }
    for (int i = 0; i < TX_MAX_IN; i++) {
        need[i] = node.in[i] && node.in[i]->requires_grad;
        any_in |= need[i];
    }
    if (!any_out || !any_in)
        return TX_OK;
    if (!dout[0])
        return tx_graph_fail(
            graph, tx_fail(TX_UNSUPPORTED, "%s: only its first output has a gradient", tx_op_info_of(node.op)->name));
    int32_t first = graph->nodes;
    tx_status status = tx_op_grad(graph, &node, dout, need, din);
    if (status != TX_OK)
        return status;
    bool directly[TX_MAX_IN] = {0};
    for (int i = 0; i < TX_MAX_IN; i++)
        directly[i] = need[i] && din[i] && node.in[i]->is_param && writes_directly(a, node.in, din, i, first);
    for (int i = 0; i < TX_MAX_IN; i++) {
        if (!need[i] || !din[i])
            continue;
        tx_tensor *x = node.in[i], *before = a->gradient[x->id];
        if (x->is_param) {
            to_slice(a, x, din[i], directly[i]);
            a->written[x->id] = true;
        } else {
            a->gradient[x->id] = before ? tx_add(before, din[i]) : din[i];
        }
    }
    return graph->status;
}

/* The gradient that the loss starts with: control LOSS_SCALE. */
static tx_tensor *seed(tx_graph *graph, const tx_tensor *loss)
{
    tx_attrs attrs = plain;
    attrs.control = TX_CONTROL_LOSS_SCALE;
    tx_tensor *one = tx_fill(graph, loss->shape, 1.0f);
    return one ? tx_emit(graph, &(tx_emit_args){.op = TX_OP_SCALE, .attrs = attrs, .in = {one}}) : NULL;
}

static tx_status add_to_result(tx_graph *graph, tx_tensor *loss)
{
    tx_emit_args copy = {
        .op = TX_OP_COPY, .attrs = plain, .in = {loss}, .out = {tx_tensor_result(graph, TX_RESULT_LOSS)}};
    copy.attrs.accumulate = TX_ADD_CONTROL;
    if (copy.out[0])
        tx_emit(graph, &copy);
    return graph->status;
}

tx_status tx_backward(tx_graph *graph, tx_tensor *loss)
{
    tx_status status = tx_graph_check(graph);
    if (status != TX_OK)
        return status;
    if (!loss || loss->graph != graph || tx_shape_count(&loss->shape) != 1 || loss->dtype != TX_F32)
        return tx_graph_fail(graph, tx_fail(TX_INVALID, "backward: the loss must be one F32 value of this graph"));
    if (!loss->requires_grad)
        return tx_graph_fail(graph, tx_fail(TX_INVALID, "backward: the loss depends on no parameter"));
    status = add_to_result(graph, loss);
    int32_t forward = graph->nodes;
    size_t tensors = (size_t)graph->tensors;
    autodiff a = {graph, calloc(tensors, sizeof(tx_tensor *)), calloc(tensors, sizeof(bool))};
    if (!a.gradient || !a.written)
        status = tx_graph_fail(graph, tx_fail(TX_MEMORY, "no memory to differentiate"));
    graph->direction = TX_BACKWARD;
    if (status == TX_OK) {
        a.gradient[loss->id] = seed(graph, loss);
        status = graph->status;
    }
    for (int32_t i = forward - 1; i >= 0 && status == TX_OK; i--)
        status = differentiate(&a, i);
    graph->direction = TX_FORWARD;
    graph->model->has_gradients = true;
    free(a.gradient);
    free(a.written);
    if (status != TX_OK)
        return status;
    status = tx_shard(graph);
    return status == TX_OK ? TX_OK : tx_graph_fail(graph, status);
}
