/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass autocast: mixed precision (Micikevicius et al., Mixed precision training, 2018). It decides which forward
 * results have 16 bits, and inserts casts for readers that need fp32. A product writes the type that its readers want,
 * and a norm writes 16 bits if only products read it. Most casts are thus part of an existing node. A result that is
 * needed in both types is cast once. Parameters have 16-bit copies that persist. The residual stream stays fp32, unless
 * tx_graph_residual_dtype narrows all of its ops. */
#include "api/passes/passes.h"

#include "api/graph/edit.h"
#include "api/model/model.h"

#include <stdlib.h>

typedef struct casting {
    tx_graph *graph;
    tx_edit *edit;
    bool *narrowed;   /* by tensor: recorded in fp32, now 16 bits */
    bool *stream;     /* by tensor: result 0 of an op of a residual stream that has 16 bits */
    tx_tensor **copy; /* by tensor: its cast to the other type, or NULL until it is needed */
} casting;

static bool is_in_stream(const casting *c, const tx_node *n)
{
    return n->out[0] && c->stream[n->out[0]->id];
}

/* In the stream, sums and scales read 16 bits, as products do. */
static tx_cast_rule own_rule(const casting *c, const tx_node *n)
{
    const tx_cast_rule rule = n->attrs.full ? TX_CAST_FULL : tx_op_info_of(n->op)->cast;
    return rule == TX_CAST_FULL && is_in_stream(c, n) ? TX_CAST_HALF : rule;
}

static bool takes_half(const tx_node *n, int32_t operand, tx_cast_rule rule)
{
    return operand < tx_op_info_of(n->op)->inputs_min && (rule == TX_CAST_HALF || rule == TX_CAST_ANY);
}

/* Whether `t` must stay fp32: the host reads it, it is a loss, or its memory is shared outside the graph. */
static bool is_kept(const casting *c, tx_tensor *t)
{
    const tx_tensor *root = tx_tensor_root(t);
    bool kept = root->is_output || root->arena != TX_ARENA_PLANNED || root->is_fixed;
    for (int32_t i = 0; i < c->graph->losses; i++)
        kept = kept || c->graph->loss[i] == t;
    return kept;
}

/* A sum with a product (tx_add_to_product) has 16 bits if the product would have them in its place. */
static tx_cast_rule rule_of(const casting *c, const tx_node *n)
{
    int32_t readers, half = 0;
    if (!n->attrs.as_product)
        return own_rule(c, n);
    const tx_use *use = tx_edit_readers(c->edit, n->out[0], &readers);
    for (int32_t i = 0; i < readers; i++) {
        const tx_node *reader = &c->graph->node[use[i].node];
        half += takes_half(reader, use[i].operand, own_rule(c, reader));
    }
    return half > 0 && !is_kept(c, n->out[0]) ? TX_CAST_ANY : TX_CAST_FULL;
}

static bool reads_half(const casting *c, const tx_node *n, int32_t operand)
{
    return takes_half(n, operand, rule_of(c, n));
}

/* Returns the type to request for a node's first result, if the op has a choice. */
static tx_dtype requested_type(const casting *c, const tx_node *n)
{
    const tx_tensor *y = n->out[0];
    const tx_cast_rule rule = rule_of(c, n);
    int32_t readers, half = 0;
    const tx_use *use = tx_edit_readers(c->edit, y, &readers);
    for (int32_t i = 0; i < readers; i++)
        half += reads_half(c, &c->graph->node[use[i].node], use[i].operand);
    const bool narrow = rule == TX_CAST_HALF ? half > 0 : rule == TX_CAST_ROUND && half > 0 && half == readers;
    return (narrow || is_in_stream(c, n)) && y->dtype == TX_F32 && !is_kept(c, n->out[0]) ? c->graph->autocast
                                                                                          : y->dtype;
}

static bool is_state(tx_tensor *t)
{
    return tx_arena_has_states(tx_tensor_root(t)->arena);
}

/* Whether the node reads a state that is stored in 16 bits. */
static bool reads_narrow_state(const casting *c, const tx_node *n)
{
    bool any = false;
    for (int k = 0; k < TX_MAX_IN; k++)
        any = any || (n->in[k] && is_state(n->in[k]) && c->narrowed[n->in[k]->id]);
    return any;
}

/* Whether the operand is read in the type that it has. */
static bool reads_any(tx_cast_rule rule, const tx_node *n, int k)
{
    return rule == TX_CAST_ANY ||
           (rule == TX_CAST_ROUND && k == 0 && tx_op_info_of(n->op)->op_class == TX_NORMALIZATION);
}

/* Finds types for a node's operands and results that the op supports. With `full` all are as recorded. */
static tx_status types_of(const casting *c, const tx_node *n, bool full, tx_operand in[TX_MAX_IN],
                          tx_operand out[TX_MAX_OUT])
{
    const tx_cast_rule rule = rule_of(c, n);
    const bool like_state = rule == TX_CAST_STORED && reads_narrow_state(c, n);
    for (int k = 0; k < TX_MAX_IN; k++) {
        const tx_tensor *t = n->in[k];
        in[k] = (tx_operand){.dtype = t ? t->dtype : TX_DTYPE_COUNT, .shape = t ? t->shape : (tx_shape){0}};
        if (!t || (t->dtype != TX_F32 && !c->narrowed[t->id]))
            continue; /* no tensor, or not recorded in fp32 */
        const bool half = !full && k < tx_op_info_of(n->op)->inputs_min &&
                          (rule == TX_CAST_HALF || (reads_any(rule, n, k) && c->narrowed[t->id]));
        const bool as_stored = rule == TX_CAST_STORED && (t->param >= 0 || is_state(n->in[k]));
        in[k].dtype = as_stored ? t->dtype : half || like_state ? c->graph->autocast : TX_F32;
    }
    for (int k = 0; k < TX_MAX_OUT; k++) {
        out[k] = (tx_operand){.dtype = TX_DTYPE_COUNT};
        if (n->out[k])
            out[k] = (tx_operand){.dtype = n->out[k]->dtype, .shape = n->out[k]->shape};
    }
    if (rule == TX_CAST_FULL)
        return TX_OK;
    const bool selectable = rule == TX_CAST_HALF || rule == TX_CAST_ROUND || is_in_stream(c, n);
    out[0].dtype = full || !selectable ? n->out[0]->dtype : requested_type(c, n);
    return tx_op_infer(n->op, &n->attrs, in, out);
}

/* Returns `t` in another type. The first reader's call inserts the cast before node `at`. */
static tx_tensor *copy_of(casting *c, tx_tensor *t, tx_dtype dtype, int32_t at)
{
    tx_graph *graph = c->graph;
    if (c->copy[t->id])
        return c->copy[t->id];
    tx_model *model = graph->model;
    tx_emit_args cast = {.op = TX_OP_CAST, .attrs = TX_PLAIN, .in = {t}, .dtype = &dtype};
    if (t->arena == TX_ARENA_WEIGHTS && t->dtype == TX_F32 &&
        (model->copies.dtype == TX_F32 || model->copies.dtype == dtype)) {
        const int64_t address = tx_model_half_address(model, t->offset);
        cast.op = TX_OP_COPY_OF_PARAM;
        cast.out[0] = tx_tensor_fixed(graph, dtype, t->shape, TX_ARENA_HALF, address);
        if (!cast.out[0])
            return NULL;
        model->copies.dtype = dtype;
        cast.out[0]->producer = graph->nodes;
        cast.out[0]->requires_grad = t->requires_grad;
    }
    c->copy[t->id] = tx_emit(graph, &cast);
    if (c->copy[t->id]) {
        graph->node[graph->nodes - 1].block = graph->node[at].block;
        tx_edit_move(c->edit, graph->nodes - 1, at);
    }
    return c->copy[t->id];
}

static tx_status cast_node(casting *c, int32_t at)
{
    tx_graph *graph = c->graph;
    tx_node n = graph->node[at]; /* a copy, because the array may be reallocated */
    tx_operand in[TX_MAX_IN], out[TX_MAX_OUT];
    tx_status status = types_of(c, &n, false, in, out);
    if (!status && n.out[0] && is_kept(c, n.out[0]) && out[0].dtype != n.out[0]->dtype)
        status = types_of(c, &n, true, in, out);
    for (int k = 0; k < TX_MAX_IN && !status; k++)
        if (n.in[k] && n.in[k]->dtype != in[k].dtype) {
            n.in[k] = copy_of(c, n.in[k], in[k].dtype, at);
            status = graph->status;
        }
    if (status)
        return status;
    graph->node[at] = n;
    for (int k = 0; k < TX_MAX_OUT; k++)
        if (n.out[k] && n.out[k]->dtype != out[k].dtype) {
            n.out[k]->dtype = out[k].dtype;
            c->narrowed[n.out[k]->id] = true;
        }
    tx_node_rename(&n);
    return TX_OK;
}

/* Changes parameters and states that are stored in 16 bits from the recorded fp32. Readers then request fp32. */
static void narrow_stored(casting *c)
{
    const tx_graph *graph = c->graph;
    const tx_model *model = graph->model;
    for (int32_t i = 0; i < graph->tensors; i++) {
        tx_tensor *t = graph->tensor[i];
        const tx_dtype stored = t->param >= 0                ? model->param[t->param].spec.dtype
                                : is_state(t) && !t->is_full ? model->stored
                                                             : TX_F32;
        if (t->dtype == TX_F32 && stored != TX_F32) {
            t->dtype = stored;
            c->narrowed[t->id] = true;
        }
    }
}

static tx_status change(tx_edit *edit, void *state)
{
    casting *c = state;
    const int32_t recorded = c->graph->nodes;
    const size_t tensors = (size_t)c->graph->tensors;
    c->edit = edit;
    c->stream = tx_edit_alloc(edit, tensors, sizeof *c->stream);
    c->narrowed = tx_edit_alloc(edit, tensors, sizeof *c->narrowed);
    c->copy = tx_edit_alloc(edit, tensors, sizeof *c->copy);
    TX_TRY(tx_edit_check(edit));
    if (c->graph->residual != TX_F32)
        TX_TRY(tx_residual_find(edit, c->graph, c->stream));
    narrow_stored(c);
    for (int32_t i = 0; i < recorded; i++)
        TX_TRY(cast_node(c, i));
    return TX_OK;
}

tx_status tx_autocast(tx_graph *graph)
{
    if (graph->residual != TX_F32 && graph->residual != graph->autocast)
        return tx_graph_fail(graph, tx_fail(TX_INVALID, "a residual stream in %s needs autocast with that type",
                                            tx_dtype_name(graph->residual)));
    if (graph->autocast == TX_F32 || graph->direction == TX_UPDATE)
        return TX_OK;
    return tx_edit_run(graph, change, &(casting){.graph = graph});
}
