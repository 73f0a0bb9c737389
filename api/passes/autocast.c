/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixed precision (Micikevicius et al., Mixed precision training, 2018): which forward results are of 16 bits, and
 * casts between them and what reads them in fp32. A product writes the type that its readers want, a norm 16 bits where
 * products alone read it, so that most casts are part of a node that is there anyway. What is left is cast once a
 * tensor: results that are read both ways. Of parameters there are copies, which are kept beside them. */
#include "api/passes/passes.h"

#include "api/graph/edit.h"
#include "api/model/model.h"

#include <stdlib.h>

typedef struct casting {
    tx_graph *graph;
    tx_edit *edit;
    bool *narrowed;   /* by tensor: recorded in fp32, now of 16 bits */
    tx_tensor **copy; /* by tensor: the same in the other type, once it is made */
} casting;

static tx_cast_rule rule_of(const tx_node *n)
{
    return n->attrs.full ? TX_CAST_FULL : tx_op_info_of(n->op)->cast;
}

static bool reads_half(const tx_node *n, int32_t operand)
{
    const tx_cast_rule rule = rule_of(n);
    return operand < tx_op_info_of(n->op)->inputs_min && (rule == TX_CAST_HALF || rule == TX_CAST_ANY);
}

/* Whether `t` has to stay fp32: the host reads it, it is a loss, or it lies in memory that others know. */
static bool is_kept(const casting *c, tx_tensor *t)
{
    const tx_tensor *root = tx_tensor_root(t);
    bool kept = root->is_output || root->arena != TX_ARENA_PLANNED || root->is_fixed;
    for (int32_t i = 0; i < c->graph->losses; i++)
        kept = kept || c->graph->loss[i] == t;
    return kept;
}

/* The type that a node is asked to give its first result, where it has a choice. */
static tx_dtype asked_of(const casting *c, const tx_node *n)
{
    const tx_tensor *y = n->out[0];
    const tx_cast_rule rule = rule_of(n);
    int32_t readers, half = 0;
    const tx_use *use = tx_edit_readers(c->edit, y, &readers);
    for (int32_t i = 0; i < readers; i++)
        half += reads_half(&c->graph->node[use[i].node], use[i].operand);
    const bool narrow = rule == TX_CAST_HALF ? half > 0 : rule == TX_CAST_ROUND && half > 0 && half == readers;
    return narrow && y->dtype == TX_F32 && !is_kept(c, n->out[0]) ? c->graph->autocast : y->dtype;
}

static bool is_state(tx_tensor *t)
{
    return tx_tensor_root(t)->arena == TX_ARENA_STATE;
}

/* Whether it reads a state that is stored in 16 bits. */
static bool reads_narrow_state(const casting *c, const tx_node *n)
{
    bool any = false;
    for (int k = 0; k < TX_MAX_IN; k++)
        any = any || (n->in[k] && is_state(n->in[k]) && c->narrowed[n->in[k]->id]);
    return any;
}

/* Types that a node reads and writes, which it can have. With `full` all are as recorded. */
static tx_status types_of(const casting *c, const tx_node *n, bool full, tx_operand in[TX_MAX_IN],
                          tx_operand out[TX_MAX_OUT])
{
    const tx_cast_rule rule = rule_of(n);
    const bool beside = rule == TX_CAST_STORED && reads_narrow_state(c, n);
    for (int k = 0; k < TX_MAX_IN; k++) {
        const tx_tensor *t = n->in[k];
        in[k] = (tx_operand){.dtype = t ? t->dtype : TX_DTYPE_COUNT, .shape = t ? t->shape : (tx_shape){0}};
        if (!t || (t->dtype != TX_F32 && !c->narrowed[t->id]))
            continue; /* no tensor, or one that was not recorded in fp32 */
        const bool half = !full && k < tx_op_info_of(n->op)->inputs_min &&
                          (rule == TX_CAST_HALF || (rule == TX_CAST_ANY && c->narrowed[t->id]));
        const bool as_stored = rule == TX_CAST_STORED && (t->param >= 0 || is_state(n->in[k]));
        in[k].dtype = as_stored ? t->dtype : half || beside ? c->graph->autocast : TX_F32;
    }
    for (int k = 0; k < TX_MAX_OUT; k++) {
        out[k] = (tx_operand){.dtype = TX_DTYPE_COUNT};
        if (n->out[k])
            out[k] = (tx_operand){.dtype = n->out[k]->dtype, .shape = n->out[k]->shape};
    }
    if (rule == TX_CAST_FULL)
        return TX_OK;
    const bool asked = rule == TX_CAST_HALF || rule == TX_CAST_ROUND;
    out[0].dtype = full || !asked ? n->out[0]->dtype : asked_of(c, n);
    return tx_op_infer(n->op, &n->attrs, in, out);
}

/* `t` in another type, cast before node `at` where that has not been done for an earlier reader. */
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
    tx_node n = graph->node[at]; /* a copy: the array grows */
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
    if (n.op == TX_OP_RESHAPE)
        n.out[0]->base = n.in[0];
    return TX_OK;
}

/* Parameters and states that are stored in 16 bits were recorded in fp32, which their readers then have to ask for. */
static void narrow_stored(casting *c)
{
    const tx_graph *graph = c->graph;
    const tx_model *model = graph->model;
    for (int32_t i = 0; i < graph->tensors; i++) {
        tx_tensor *t = graph->tensor[i];
        const tx_dtype stored = t->param >= 0 ? model->param[t->param].spec.dtype
                                : is_state(t) ? model->stored
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
    c->narrowed = tx_edit_alloc(edit, tensors, sizeof *c->narrowed);
    c->copy = tx_edit_alloc(edit, tensors, sizeof *c->copy);
    TX_TRY(tx_edit_check(edit));
    narrow_stored(c);
    for (int32_t i = 0; i < recorded; i++)
        TX_TRY(cast_node(c, i));
    return TX_OK;
}

tx_status tx_autocast(tx_graph *graph)
{
    if (graph->autocast == TX_F32 || graph->direction == TX_UPDATE)
        return TX_OK;
    return tx_edit_run(graph, change, &(casting){.graph = graph});
}
