/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass autodiff: reverse-mode differentiation. It walks the forward nodes backwards and calls each op's gradient rule.
 * Gradients from several uses are summed in this fixed order. The gradient of a parameter is written to its slice of
 * arena GRADIENTS at the first use and added at later ones. If an input is a cast to 16 bits, the rule computes the
 * gradient in the type of the source's and the cast is not differentiated.
 *
 * A gradient has the type of its tensor. In bf16 the residual stream is an exception: its gradient, which products and
 * norms read, has 16 bits, or with tx_graph_fp32_residual_gradient 32. */
#include "api/graph/graph.h"
#include "api/model/model.h"
#include "api/passes/passes.h"

#include <stdlib.h>

/* A tensor of the forward pass. */
typedef struct forward_tensor {
    tx_tensor *gradient;
    bool written;    /* a parameter: its slice has a contribution of this graph */
    int32_t readers; /* ops that contribute to the gradient */
    bool multiplied; /* a reader is a product */
    bool wide;       /* the gradient has the tensor's type, see type_of */
} forward_tensor;

typedef struct autodiff {
    tx_graph *graph;
    forward_tensor *of; /* by id */
} autodiff;

static tx_accumulate mode_of(const autodiff *a, const tx_tensor *param)
{
    return a->of[param->id].written ? TX_ADD : TX_ADD_CONTROL;
}

/* Returns the fp32 tensor of which `t` is a cast or the copy, otherwise `t`. Readers contribute to its gradient. */
static tx_tensor *source_of(const tx_graph *graph, tx_tensor *t)
{
    const tx_node *n = t && t->producer >= 0 ? &graph->node[t->producer] : NULL;
    const bool is_cast = n && tx_op_is_same(n->op) && !tx_op_renames(n->op);
    return is_cast && n->in[0]->dtype == TX_F32 ? n->in[0] : t;
}

static bool is_param(const tx_tensor *t)
{
    return t && t->param >= 0;
}

/* Whether the node that produces input i's gradient can write it directly to the parameter's slice. The node must
 * belong to the rule that just ran (from node `first` on), its op must be able to add, and every output that adds must
 * go to a slice in the same mode. */
static bool writes_directly(const autodiff *a, tx_tensor *const in[TX_MAX_IN], tx_tensor *const din[TX_MAX_IN], int i,
                            int32_t first)
{
    tx_tensor *root = tx_tensor_root(din[i]);
    for (int j = 0; j < TX_MAX_IN; j++) /* two outputs of one node would both be stored */
        if (j != i && in[j] == in[i] && din[j] && tx_tensor_root(din[j])->producer == root->producer)
            return false;
    if (root->producer < first || root->arena != TX_ARENA_PLANNED)
        return false;
    const tx_node *n = &a->graph->node[root->producer];
    uint32_t adds = tx_op_info_of(n->op)->adds;
    bool itself = false;
    for (int k = 0; k < TX_MAX_OUT; k++) {
        if (!(adds & (1u << k)) || !n->out[k])
            continue;
        bool to_slice = false;
        for (int j = 0; j < TX_MAX_IN; j++)
            to_slice |= is_param(in[j]) && din[j] && tx_tensor_root(din[j]) == n->out[k] &&
                        mode_of(a, in[j]) == mode_of(a, in[i]);
        if (!to_slice)
            return false;
        itself |= n->out[k] == root;
    }
    return itself;
}

/* Writes the gradient `d` of a parameter to its slice. */
static void to_slice(autodiff *a, tx_tensor *param, tx_tensor *d, bool directly)
{
    tx_accumulate mode = mode_of(a, param);
    if (directly) {
        tx_tensor *root = tx_tensor_root(d);
        a->graph->node[root->producer].attrs.accumulate = mode;
        root->arena = TX_ARENA_GRADIENTS;
        root->is_fixed = true;
        root->offset = param->offset;
    } else {
        tx_emit_args copy = {.op = TX_OP_COPY, .attrs = TX_PLAIN, .in = {d}};
        copy.attrs.accumulate = mode;
        copy.out[0] = tx_tensor_fixed(a->graph, TX_F32, param->shape, TX_ARENA_GRADIENTS, param->offset);
        if (copy.out[0])
            tx_emit(a->graph, &copy);
    }
}

/* Returns the node that writes the gradient of operand `i` to a slice, or INT32_MAX for a copy after all nodes. */
static int32_t time_of(tx_tensor *const din[TX_MAX_IN], const bool directly[TX_MAX_IN], int i)
{
    return din[i] && directly[i] ? tx_tensor_root(din[i])->producer : INT32_MAX;
}

/* Sorts the operands by the time at which their gradients are written. If a parameter is used twice, the first gradient
 * is stored and the second added. */
static void order_by_time(tx_tensor *const din[TX_MAX_IN], const bool directly[TX_MAX_IN], int order[TX_MAX_IN])
{
    for (int i = 0; i < TX_MAX_IN; i++) {
        int at = i;
        for (; at > 0 && time_of(din, directly, order[at - 1]) > time_of(din, directly, i); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* Accumulates the gradients of a node's inputs, which its rule created from node `first` on: in the slices of
 * parameters, or added to gradients from other uses. */
static void accumulate_gradients(autodiff *a, tx_tensor *const in[TX_MAX_IN], const tx_wanted want[TX_MAX_IN],
                                 tx_tensor *const din[TX_MAX_IN], int32_t first)
{
    bool directly[TX_MAX_IN] = {0};
    int order[TX_MAX_IN];
    for (int i = 0; i < TX_MAX_IN; i++)
        directly[i] = want[i].need && din[i] && is_param(in[i]) && writes_directly(a, in, din, i, first);
    order_by_time(din, directly, order);
    for (int k = 0; k < TX_MAX_IN; k++) {
        const int i = order[k];
        if (!want[i].need || !din[i])
            continue;
        if (is_param(in[i])) {
            to_slice(a, in[i], din[i], directly[i]);
            a->of[in[i]->id].written = true;
        } else {
            tx_tensor **sum = &a->of[in[i]->id].gradient;
            *sum = *sum ? tx_add(*sum, din[i]) : din[i];
        }
    }
}

/* Returns the type of a tensor's gradient. In 16 bits, results of these ops are the residual stream (residual.c). */
static tx_dtype type_of(const autodiff *a, const tx_tensor *t)
{
    const tx_graph *graph = a->graph;
    if (graph->fp32_residual_gradient && graph->residual != TX_F32 && t->dtype == graph->residual && t->producer >= 0 &&
        tx_op_is_residual(graph->node[t->producer].op))
        return TX_F32;
    return a->of[t->id].wide ? t->dtype : graph->autocast;
}

/* Notes that node `n` reads operand `k`. */
static void note_reader(autodiff *a, const tx_node *n, int k)
{
    const tx_op_class class = tx_op_info_of(n->op)->op_class;
    const tx_tensor *x = source_of(a->graph, n->in[k]);
    forward_tensor *of = &a->of[x->id];
    of->readers++;
    of->multiplied |= class == TX_CONTRACTION;
    of->wide |= !tx_op_narrows_gradient(n->op) || (k > 0 && n->op != TX_OP_ADD) ||
                (class != TX_CONTRACTION && class != TX_NORMALIZATION && type_of(a, n->out[0]) == TX_F32);
}

/* Finds the tensors whose gradients keep their type. Ops other than products and norms pass a gradient on in its type.
 * Products round before they add, so the sum of a product and other gradients is fp32. */
static void find_wide(autodiff *a, int32_t forward)
{
    const tx_graph *graph = a->graph;
    const bool all = graph->autocast != TX_BF16 || graph->fp32_residual_gradient;
    for (int32_t i = 0; i < graph->tensors; i++)
        a->of[i].wide = all || graph->tensor[i]->dtype != TX_F32 || graph->tensor[i]->arena != TX_ARENA_PLANNED;
    for (int32_t i = forward - 1; i >= 0 && !all; i--) {
        const tx_node *n = &graph->node[i];
        if (!n->out[0] || source_of(graph, n->out[0]) != n->out[0])
            continue; /* no result, or a cast, whose readers are those of its source */
        forward_tensor *y = &a->of[n->out[0]->id];
        y->wide |= !tx_op_narrows_gradient(n->op) || (y->multiplied && y->readers > 1);
        for (int k = 1; k < TX_MAX_OUT && n->out[k]; k++)
            a->of[n->out[k]->id].wide = true;
        for (int k = 0; k < TX_MAX_IN; k++)
            if (n->in[k] && n->in[k]->requires_grad)
                note_reader(a, n, k);
    }
}

static tx_status differentiate(autodiff *a, int32_t index)
{
    tx_graph *graph = a->graph;
    tx_node node = graph->node[index];
    tx_tensor *dout[TX_MAX_OUT] = {0}, *din[TX_MAX_IN] = {0}, *in[TX_MAX_IN];
    tx_wanted want[TX_MAX_IN] = {0};
    bool any_out = false, any_in = false;
    for (int i = 0; i < TX_MAX_OUT; i++) {
        dout[i] = node.out[i] && node.out[i]->producer == index ? a->of[node.out[i]->id].gradient : NULL;
        any_out |= dout[i] != NULL;
    }
    for (int i = 0; i < TX_MAX_IN; i++) {
        in[i] = source_of(graph, node.in[i]);
        want[i].need = in[i] && in[i]->requires_grad;
        want[i].dtype = in[i] ? type_of(a, in[i]) : TX_F32;
        any_in |= want[i].need;
    }
    if (!any_out || !any_in)
        return TX_OK;
    if (!dout[0])
        return tx_graph_fail(
            graph, tx_fail(TX_UNSUPPORTED, "%s: only its first output has a gradient", tx_op_info_of(node.op)->name));
    int32_t first = graph->nodes;
    graph->block = node.block;
    TX_TRY(tx_op_grad(graph, &node, dout, want, din));
    for (int i = 0; i < TX_MAX_IN; i++)
        if (want[i].need && din[i] && din[i]->dtype != want[i].dtype)
            din[i] = tx_cast(din[i], want[i].dtype);
    accumulate_gradients(a, in, want, din, first);
    return graph->status;
}

/* Returns the gradient of a loss: result LOSS_SCALE. */
static tx_tensor *seed(tx_graph *graph, const tx_tensor *loss)
{
    tx_emit_args args = {.op = TX_OP_BROADCAST, .attrs = TX_PLAIN, .shape = &loss->shape};
    args.attrs.axis = TX_AXIS_ALL;
    args.in[TX_IN(broadcast, x)] = tx_tensor_result(graph, TX_RESULT_LOSS_SCALE);
    return args.in[TX_IN(broadcast, x)] ? tx_emit(graph, &args) : NULL;
}

/* Adds a loss to result LOSS. */
static void add_to_result(tx_graph *graph, tx_tensor *loss, bool first)
{
    tx_emit_args copy = {
        .op = TX_OP_COPY, .attrs = TX_PLAIN, .in = {loss}, .out = {tx_tensor_result(graph, TX_RESULT_LOSS)}};
    copy.attrs.accumulate = first ? TX_ADD_CONTROL : TX_ADD;
    if (copy.out[0])
        tx_emit(graph, &copy);
}

/* Adds the initial gradient of a loss. A loss that was given twice, or that another loss depends on, has the sum. */
static void seed_loss(autodiff *a, const tx_tensor *loss)
{
    tx_tensor **sum = &a->of[loss->id].gradient, *one = seed(a->graph, loss);
    *sum = *sum ? tx_add(*sum, one) : one;
}

tx_status tx_autodiff(tx_graph *graph)
{
    if (graph->losses == 0)
        return TX_OK;
    graph->block = 0;
    for (int32_t i = 0; i < graph->losses; i++)
        add_to_result(graph, graph->loss[i], i == 0);
    const int32_t forward = graph->nodes;
    autodiff a = {graph, calloc((size_t)graph->tensors, sizeof *a.of)};
    if (!a.of)
        tx_graph_fail(graph, tx_fail(TX_MEMORY, "no memory to differentiate"));
    else
        find_wide(&a, forward);
    graph->direction = TX_BACKWARD;
    for (int32_t i = 0; i < graph->losses && graph->status == TX_OK; i++)
        seed_loss(&a, graph->loss[i]);
    for (int32_t i = forward - 1; i >= 0 && graph->status == TX_OK; i--)
        differentiate(&a, i);
    graph->direction = TX_FORWARD;
    graph->block = 0;
    graph->losses = 0; /* the gradients exist now */
    free(a.of);
    return graph->status;
}
