/* SPDX-License-Identifier: Apache-2.0
 * Storage of a graph: tensors, inputs, parameters and states. Builders and passes append nodes with tx_emit. */
#include "api/graph/graph.h"

#include "api/base/grow.h"
#include "api/base/needs.h"
#include "api/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_graph_create(tx_model *model, tx_graph **graph)
{
    TX_NEEDS(model && graph, TX_INVALID);
    tx_graph *g = calloc(1, sizeof *g);
    if (!g)
        return tx_fail(TX_MEMORY, "no memory for a graph");
    g->model = model;
    g->autocast = model->stored;
    g->chunk_bytes = TX_CHUNK_BYTES;
    *graph = g;
    return TX_OK;
}

void tx_graph_free(tx_graph *graph)
{
    if (!graph)
        return;
    for (int32_t i = 0; i < graph->tensors; i++) {
        free(graph->tensor[i]->name);
        free(graph->tensor[i]);
    }
    for (int32_t i = 0; i < graph->ropes; i++)
        free(graph->rope[i]);
    free(graph->rope);
    free(graph->tensor);
    free(graph->node);
    free(graph->loss);
    free(graph->repeated);
    free(graph);
}

tx_status tx_graph_open(const tx_graph *graph, const char *what)
{
    return graph->planned ? tx_fail(TX_INVALID, "%s: the graph has a plan, so it cannot change", what) : TX_OK;
}

tx_status tx_graph_autocast(tx_graph *graph, tx_dtype dtype)
{
    TX_NEEDS(graph, TX_INVALID);
    if (dtype != TX_F32 && dtype != TX_BF16 && dtype != TX_F16)
        return tx_fail(TX_INVALID, "autocast: a graph computes in F32, BF16 or F16, not in %s", tx_dtype_name(dtype));
    TX_TRY(tx_graph_open(graph, "autocast"));
    if (graph->model->stored != TX_F32 && dtype != graph->model->stored)
        return tx_fail(TX_INVALID,
                       "autocast: parameters are stored in %s, so the graph computes in that type, not in %s",
                       tx_dtype_name(graph->model->stored), tx_dtype_name(dtype));
    graph->autocast = dtype;
    return TX_OK;
}

tx_status tx_graph_limit_logits(tx_graph *graph, int64_t bytes)
{
    TX_NEEDS(graph && bytes > 0, TX_INVALID);
    TX_TRY(tx_graph_open(graph, "limit_logits"));
    graph->chunk_bytes = bytes;
    return TX_OK;
}

tx_status tx_graph_residual_dtype(tx_graph *graph, tx_dtype dtype)
{
    TX_NEEDS(graph, TX_INVALID);
    if (dtype != TX_F32 && dtype != TX_BF16)
        return tx_fail(TX_INVALID, "residual_dtype: the residual stream is stored in F32 or BF16, not in %s%s",
                       tx_dtype_name(dtype), dtype == TX_F16 ? ": it can exceed 65504, the largest number of F16" : "");
    TX_TRY(tx_graph_open(graph, "residual_dtype"));
    graph->residual = dtype;
    return TX_OK;
}

tx_status tx_graph_fp32_residual_gradient(tx_graph *graph)
{
    TX_NEEDS(graph, TX_INVALID);
    TX_TRY(tx_graph_open(graph, "fp32_residual_gradient"));
    graph->fp32_residual_gradient = true;
    return TX_OK;
}

void tx_graph_block(tx_graph *graph, int32_t block)
{
    TX_NEEDS(graph, );
    graph->block = block;
}

tx_status tx_graph_fail(tx_graph *graph, tx_status status)
{
    TX_NEEDS(graph, TX_INVALID);
    if (graph->status == TX_OK) {
        graph->status = status;
        snprintf(graph->message, sizeof graph->message, "%s", tx_error());
    }
    return status;
}

tx_status tx_graph_check(const tx_graph *graph)
{
    return graph->status == TX_OK ? TX_OK : tx_fail(graph->status, "%s", graph->message);
}

static tx_tensor *tensor_new(tx_graph *graph, tx_dtype dtype, tx_shape shape)
{
    tx_tensor *t = calloc(1, sizeof *t);
    tx_tensor **grown = tx_grown(graph->tensor, graph->tensors, sizeof(tx_tensor *));
    graph->tensor = grown ? grown : graph->tensor;
    if (!t || !grown) {
        free(t);
        return tx_graph_refuse(graph, tx_fail(TX_MEMORY, "no memory for a tensor"));
    }
    t->id = graph->tensors;
    graph->tensor[graph->tensors++] = t;
    t->graph = graph;
    t->dtype = dtype;
    t->shape = shape;
    t->arena = TX_ARENA_PLANNED;
    t->producer = t->param = -1;
    t->range = (tx_index_range){INT32_MIN, INT32_MAX, true};
    return t;
}

tx_tensor *tx_tensor_planned(tx_graph *graph, tx_dtype dtype, tx_shape shape, tx_arena_id arena)
{
    tx_tensor *t = tensor_new(graph, dtype, shape);
    if (t)
        t->arena = arena;
    return t;
}

tx_tensor *tx_tensor_fixed(tx_graph *graph, tx_dtype dtype, tx_shape shape, tx_arena_id arena, int64_t offset)
{
    tx_tensor *t = tx_tensor_planned(graph, dtype, shape, arena);
    if (t) {
        t->is_fixed = true;
        t->offset = offset;
    }
    return t;
}

tx_tensor *tx_tensor_view(tx_tensor *whole, int64_t first, tx_shape shape)
{
    tx_tensor *t = tensor_new(whole->graph, whole->dtype, shape);
    if (t) {
        t->arena = whole->arena;
        t->base = whole;
        t->within = first * (int64_t)tx_dtype_size(whole->dtype);
    }
    return t;
}

tx_tensor *tx_tensor_result(tx_graph *graph, tx_result result)
{
    return tx_tensor_fixed(graph, TX_F32, TX_SHAPE(1), TX_ARENA_RESULT, (int64_t)result * (int64_t)sizeof(float));
}

tx_rope *tx_graph_rope(tx_graph *graph, const tx_rope *rope)
{
    for (int32_t i = 0; i < graph->ropes; i++)
        if (memcmp(graph->rope[i], rope, sizeof *rope) == 0)
            return graph->rope[i];
    tx_rope **grown = tx_grown(graph->rope, graph->ropes, sizeof *grown), *made = malloc(sizeof *made);
    graph->rope = grown ? grown : graph->rope;
    if (!grown || !made) {
        free(made);
        return tx_graph_refuse(graph, tx_fail(TX_MEMORY, "no memory for rotary positions"));
    }
    *made = *rope;
    return graph->rope[graph->ropes++] = made;
}

static tx_tensor *tensor_named(tx_tensor *t, const char *name)
{
    if (!t)
        return NULL;
    t->name = strdup(name);
    if (t->name)
        return t;
    return tx_graph_refuse(t->graph, tx_fail(TX_MEMORY, "no memory for a name"));
}

const tx_shape *tx_tensor_shape(const tx_tensor *tensor)
{
    TX_NEEDS(tensor, NULL);
    return &tensor->shape;
}

tx_dtype tx_tensor_dtype(const tx_tensor *tensor)
{
    TX_NEEDS(tensor, TX_F32);
    return tensor->dtype;
}

/* ---- storage -------------------------------------------------------------------------------- */

static tx_status check_storage(const char *what, const char *name, tx_dtype dtype, const tx_shape *shape)
{
    char text[96];
    if ((unsigned)dtype >= TX_DTYPE_COUNT)
        return tx_fail(TX_INVALID, "%s %s: there is no data type number %d", what, name, (int)dtype);
    if (tx_dtype_packed(dtype) && strcmp(what, "parameter") != 0)
        return tx_fail(TX_INVALID, "%s %s: only a parameter can be stored in %s", what, name, tx_dtype_name(dtype));
    if (tx_shape_possible(shape))
        return TX_OK;
    return tx_fail(TX_INVALID, "%s %s has an impossible shape %s", what, name, tx_shape_text(shape, text, sizeof text));
}

tx_tensor *tx_input(tx_graph *graph, const char *name, tx_dtype dtype, tx_shape shape)
{
    TX_NEEDS(graph && name, NULL);
    if (graph->status != TX_OK)
        return NULL;
    tx_status status = check_storage("input", name, dtype, &shape);
    if (status != TX_OK)
        return tx_graph_refuse(graph, status);
    tx_tensor *t = tensor_named(tensor_new(graph, dtype, shape), name);
    if (t)
        t->is_input = true;
    return t;
}

tx_tensor *tx_find_input(const tx_graph *graph, const char *name)
{
    TX_NEEDS(graph && name, NULL);
    for (int32_t i = 0; i < graph->tensors; i++)
        if (graph->tensor[i]->is_input && strcmp(graph->tensor[i]->name, name) == 0)
            return graph->tensor[i];
    return NULL;
}

/* Returns the parameter's node, and creates it at the first use. */
static tx_tensor *param_node(tx_graph *graph, int32_t index)
{
    const tx_param_record *record = &graph->model->param[index];
    for (int32_t i = 0; i < graph->nodes; i++)
        if (graph->node[i].op == TX_OP_PARAM && graph->node[i].out[0]->param == index)
            return graph->node[i].out[0];
    const tx_dtype stored = record->spec.dtype;
    const bool narrowed = stored == graph->model->stored || (record->spec.frozen && stored == graph->autocast);
    const tx_dtype dtype = narrowed ? TX_F32 : stored; /* tx_autocast makes nodes read it in the stored type */
    tx_tensor *t =
        tensor_named(tx_tensor_fixed(graph, dtype, record->spec.shape, record->arena, record->offset), record->name);
    if (!t)
        return NULL;
    t->param = index;
    t->requires_grad = !record->spec.frozen;
    t->producer = graph->nodes;
    tx_emit_args args = {.op = TX_OP_PARAM, .dtype = &t->dtype, .shape = &t->shape, .out = {t}};
    return tx_emit(graph, &args);
}

tx_tensor *tx_param(tx_graph *graph, const char *name, const tx_param_spec *spec)
{
    TX_NEEDS(graph && name, NULL);
    if (graph->status != TX_OK)
        return NULL;
    int32_t index = -1;
    tx_status status = spec ? check_storage("parameter", name, spec->dtype, &spec->shape) : TX_OK;
    TX_THEN(status, tx_model_declare(graph->model, name, spec, &index));
    if (status != TX_OK)
        return tx_graph_refuse(graph, status);
    return param_node(graph, index);
}

/* Returns the graph's state of this name, or NULL. */
static tx_tensor *find_state(const tx_graph *graph, const char *name)
{
    for (int32_t i = 0; i < graph->tensors; i++) {
        tx_tensor *t = graph->tensor[i];
        if (t->name && tx_arena_has_states(t->arena) && strcmp(t->name, name) == 0)
            return t;
    }
    return NULL;
}

static tx_tensor *add_state(tx_graph *graph, const char *name, tx_dtype dtype, tx_dtype stored, tx_shape shape)
{
    if (graph->status != TX_OK)
        return NULL;
    int64_t offset = 0;
    tx_status status = check_storage("state", name, dtype, &shape);
    TX_THEN(status, tx_model_declare_state(graph->model, name, stored, &shape, graph->block, &offset));
    if (status != TX_OK)
        return tx_graph_refuse(graph, status);
    tx_tensor *t = find_state(graph, name);
    const tx_arena_id arena = tx_model_find_state(graph->model, name)->arena;
    return t ? t : tensor_named(tx_tensor_fixed(graph, dtype, shape, arena, offset), name);
}

tx_tensor *tx_state(tx_graph *graph, const char *name, tx_dtype dtype, tx_shape shape)
{
    TX_NEEDS(graph && name, NULL);
    return add_state(graph, name, dtype, dtype == TX_F32 ? graph->model->stored : dtype, shape);
}

tx_tensor *tx_state_full(tx_graph *graph, const char *name, tx_shape shape)
{
    TX_NEEDS(graph && name, NULL);
    tx_tensor *t = add_state(graph, name, TX_F32, TX_F32, shape);
    if (t)
        t->is_full = true;
    return t;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static tx_operand operand_of(const tx_tensor *t)
{
    return t ? (tx_operand){.dtype = t->dtype, .shape = t->shape} : (tx_operand){.dtype = TX_DTYPE_COUNT};
}

void tx_tensor_narrow(tx_tensor *t, int64_t low, int64_t high, bool ignore)
{
    if (!t)
        return;
    tx_index_range *r = &tx_tensor_root(t)->range;
    r->low = tx_max(low, r->low);
    r->high = tx_min(high, r->high);
    r->ignore = r->ignore && ignore;
}

/* Dimension `d` of an operand of node `n`. */
#define TX_DIM(op, name, d) n->in[TX_IN(op, name)]->shape.dim[d]

/* Returns the end of the positions that an embedding may read, which are given for each token or for the first token
 * of each row. */
static int64_t position_end(const tx_node *n)
{
    const tx_tensor *positions = n->in[TX_IN(embedding, positions)], *table = n->in[TX_IN(embedding, position_table)];
    const bool of_rows = positions && positions->shape.rank == 1;
    return !table ? INT32_MAX : table->shape.dim[0] - (of_rows ? TX_DIM(embedding, tokens, 1) - 1 : 0);
}

static void narrow_indices(const tx_node *n)
{
#define TX_INDEX(NAME, name, operand, low, high, also) \
    if (n->op == TX_OP_##NAME)                         \
        tx_tensor_narrow(n->in[TX_IN(name, operand)], low, high, also);
#include "ops.def"
}

static tx_node *node_new(tx_graph *graph)
{
    tx_node *grown = tx_grown(graph->node, graph->nodes, sizeof *grown);
    if (!grown)
        return tx_graph_refuse(graph, tx_fail(TX_MEMORY, "no memory for a node"));
    graph->node = grown;
    return &graph->node[graph->nodes];
}

/* Creates the node's output tensors, or checks those that the caller passed. */
static bool make_outputs(tx_graph *graph, tx_emit_args *args, const tx_operand out[TX_MAX_OUT])
{
    bool needs = false;
    for (int i = 0; i < TX_MAX_IN; i++)
        needs |= args->in[i] && args->in[i]->requires_grad;
    for (int i = 0; i < TX_MAX_OUT; i++) {
        if (!tx_present(&out[i]))
            continue;
        if (args->out[i]) {
            if (args->out[i]->dtype == out[i].dtype && tx_shape_equal(&args->out[i]->shape, &out[i].shape))
                continue;
            tx_graph_fail(graph, tx_fail(TX_INTERNAL, "%s: output %d has a different shape or type than the op",
                                         tx_op_info_of(args->op)->name, i));
            return false;
        }
        tx_tensor *t = tensor_new(graph, out[i].dtype, out[i].shape);
        if (!t)
            return false;
        t->requires_grad = needs && graph->direction == TX_FORWARD && out[i].dtype != TX_I32;
        t->producer = graph->nodes;
        args->out[i] = t;
    }
    return true;
}

tx_status tx_graph_append(tx_graph *graph, const tx_node *node, int32_t *number)
{
    tx_node *n = node_new(graph);
    if (!n)
        return graph->status;
    *n = *node;
    *number = graph->nodes++;
    return TX_OK;
}

tx_status tx_backward(tx_graph *graph, tx_tensor *loss)
{
    TX_NEEDS(graph, TX_INVALID);
    TX_TRY(tx_graph_check(graph));
    if (!loss || loss->graph != graph || tx_shape_count(&loss->shape) != 1 || loss->dtype != TX_F32)
        return tx_graph_fail(graph, tx_fail(TX_INVALID, "backward: the loss must be one F32 value of this graph"));
    if (!loss->requires_grad)
        return tx_graph_fail(graph, tx_fail(TX_INVALID, "backward: the loss depends on no parameter"));
    if (tx_graph_open(graph, "backward"))
        return tx_graph_fail(graph, TX_INVALID);
    if (graph->model->following)
        return tx_graph_fail(graph, tx_fail(TX_UNSUPPORTED, "backward: a model that is divided among devices of one "
                                                            "process is not trained: give each device a rank"));
    tx_tensor **grown = tx_grown(graph->loss, graph->losses, sizeof(tx_tensor *));
    if (!grown)
        return tx_graph_fail(graph, tx_fail(TX_MEMORY, "no memory for a loss"));
    graph->loss = grown;
    graph->loss[graph->losses++] = loss;
    graph->model->has_gradients = true;
    return TX_OK;
}

tx_tensor *tx_emit(tx_graph *graph, tx_emit_args *args)
{
    if (graph->status != TX_OK)
        return NULL;
    if (graph->planned)
        return tx_graph_refuse(graph, tx_fail(TX_INVALID, "%s: the graph has a plan, so it cannot change: make another",
                                              tx_op_info_of(args->op)->name));
    tx_operand in[TX_MAX_IN], out[TX_MAX_OUT];
    for (int i = 0; i < TX_MAX_IN; i++) {
        in[i] = operand_of(args->in[i]);
        if (args->in[i] && args->in[i]->graph != graph)
            return tx_graph_refuse(
                graph, tx_fail(TX_INVALID, "%s: input %d belongs to another graph", tx_op_info_of(args->op)->name, i));
    }
    for (int i = 0; i < TX_MAX_OUT; i++)
        out[i] = (tx_operand){.dtype = TX_DTYPE_COUNT, .shape = TX_SHAPE(1)};
    if (args->dtype)
        out[0].dtype = *args->dtype;
    if (args->shape)
        out[0].shape = *args->shape;
    tx_status status = tx_op_infer(args->op, &args->attrs, in, out);
    if (status != TX_OK)
        return tx_graph_refuse(graph, status);
    tx_node *n = node_new(graph);
    if (!n || !make_outputs(graph, args, out))
        return NULL;
    *n = (tx_node){.op = args->op, .direction = graph->direction, .block = graph->block, .attrs = args->attrs};
    memcpy(n->in, args->in, sizeof n->in);
    memcpy(n->out, args->out, sizeof n->out);
    tx_node_rename(n);
    narrow_indices(n);
    graph->nodes++;
    return n->out[0];
}
