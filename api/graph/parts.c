/* SPDX-License-Identifier: Apache-2.0
 * What the ranks of a tensor group put together: sums, rows of tables that they divide, and the loss of logits whose
 * columns they divide (Shoeybi et al., Megatron-LM, 2019, section 3). */
#include "api/graph/graph.h"

#include "api/base/needs.h"
#include "api/model/model.h"

#include <inttypes.h>

static const tx_attrs plain = {.control = -1, .alpha = 1.0f};

int32_t tx_graph_parts(const tx_graph *graph, int32_t *part)
{
    TX_NEEDS(graph && part, 0);
    *part = graph->model->mesh.tensor.rank;
    return graph->model->mesh.tensor.size;
}

bool tx_graph_sequence(const tx_graph *graph)
{
    TX_NEEDS(graph, false);
    return graph->model->mesh.sequence;
}

int32_t tx_graph_contexts(const tx_graph *graph, int32_t *context)
{
    TX_NEEDS(graph && context, 0);
    *context = graph->model->mesh.context.rank;
    return graph->model->mesh.context.size;
}

tx_tensor *tx_part_input(tx_tensor *x)
{
    tx_emit_args args = {.op = TX_OP_RESHAPE, .attrs = plain, .in = {x}};
    args.attrs.summed = true;
    if (!x || x->graph->model->mesh.tensor.size == 1)
        return x;
    args.shape = &x->shape;
    return tx_emit(x->graph, &args);
}

tx_tensor *tx_part_sum(tx_tensor *x)
{
    if (!x || x->graph->model->mesh.tensor.size == 1)
        return x;
    tx_emit_args args = {.op = TX_OP_PART_SUM, .attrs = plain, .in = {x}};
    args.out[TX_OUT(part_sum, w)] = tx_tensor_planned(x->graph, x->dtype, x->shape, TX_ARENA_PARTS);
    return args.out[TX_OUT(part_sum, w)] ? tx_emit(x->graph, &args) : NULL;
}

/* What a rank has of `chunks` chunks, in the window. */
static tx_tensor *move_rows(tx_tensor *x, tx_op op, int64_t tokens)
{
    tx_graph *graph = x->graph;
    const tx_shape shape = TX_SHAPE(x->shape.dim[0], tokens, x->shape.dim[2]);
    const int64_t least = tokens < x->shape.dim[1] ? tokens : x->shape.dim[1], parts = graph->model->mesh.tensor.size;
    const int64_t blocks = tx_param_blocks(x->shape.dim[0] * least * x->shape.dim[2]);
    tx_emit_args args = {.op = op, .attrs = plain, .in = {x}, .shape = &shape};
    args.out[TX_OUT(part_scatter, w)] =
        tx_tensor_planned(graph, x->dtype, TX_SHAPE(parts * blocks * TX_PARAM_BLOCK), TX_ARENA_PARTS);
    return args.out[TX_OUT(part_scatter, w)] ? tx_emit(graph, &args) : NULL;
}

tx_tensor *tx_part_gather(tx_tensor *x)
{
    if (!x || !x->graph->model->mesh.sequence)
        return tx_part_input(x);
    return move_rows(x, TX_OP_PART_GATHER, x->shape.dim[1] * x->graph->model->mesh.tensor.size);
}

tx_tensor *tx_part_scatter(tx_tensor *x)
{
    if (!x || !x->graph->model->mesh.sequence)
        return tx_part_sum(x);
    const int64_t parts = x->graph->model->mesh.tensor.size;
    if (x->shape.rank == 3 && x->shape.dim[1] % parts == 0)
        return move_rows(x, TX_OP_PART_SCATTER, x->shape.dim[1] / parts);
    tx_graph_fail(x->graph,
                  tx_fail(TX_UNSUPPORTED,
                          "sequence parallelism: %" PRId64 " positions cannot be divided among %" PRId64 " ranks",
                          x->shape.dim[1], parts));
    return NULL;
}

tx_tensor *tx_part_param(tx_tensor *param)
{
    return param && param->graph->model->mesh.sequence ? tx_part_input(param) : param;
}

/* ---- Tables ------------------------------------------------------------------------------------------- */

/* The parameter of which `x` is this rank's rows; NULL: it is no such thing. */
static const tx_param_spec *divided_rows(const tx_tensor *x)
{
    const tx_model *model = x->graph->model;
    const tx_param_spec *whole = tx_model_splits(model, x->param) ? &model->param[x->param].whole : NULL;
    return whole && whole->split == 1 ? whole : NULL;
}

bool tx_parts_divide_rows(const tx_tensor *table)
{
    return divided_rows(table) != NULL;
}

/* Indices of rows of a parameter, of `all` rows, as this rank has them: what it has not is below 0. */
static tx_tensor *own_indices(tx_tensor *indices, const tx_param_spec *whole, int64_t all, bool labels,
                              tx_emit_args *args)
{
    const tx_model *model = indices->graph->model;
    *args = (tx_emit_args){.op = TX_OP_PART_INDICES, .attrs = plain, .in = {indices}};
    args->attrs.rows =
        tx_part_of(whole->logical.dim[0], model->mesh.tensor.rank, model->mesh.tensor.size, &args->attrs.first);
    args->attrs.vocab = all;
    args->attrs.keeps = labels;
    return tx_emit(indices->graph, args);
}

/* Adds rows of a table of positions, 0 and on or those that are named: x [B, T, C]. */
static tx_tensor *add_positions(tx_tensor *x, tx_tensor *table, tx_tensor *positions)
{
    if (x && table && positions && x->graph->model->mesh.sequence)
        tx_graph_fail(x->graph,
                      tx_fail(TX_UNSUPPORTED, "sequence parallelism: tokens that have positions of their own"));
    if (!x || !table || positions)
        return table ? tx_add(x, tx_embedding(positions, table, NULL, NULL)) : x;
    const int64_t rows = x->shape.dim[0], tokens = x->shape.dim[1], row = tokens * x->shape.dim[2];
    const tx_model *model = x->graph->model;
    const int32_t first = model->mesh.sequence ? model->mesh.tensor.rank * (int32_t)tokens : 0;
    tx_tensor *places =
        tx_embedding(tx_range(x->graph, TX_SHAPE(1, tokens), first, 1), tx_part_param(table), NULL, NULL);
    places = places ? tx_broadcast(tx_reshape(places, TX_SHAPE(row)), TX_SHAPE(rows, row), TX_AXIS_ROWS) : NULL;
    return tx_add(x, places ? tx_reshape(places, x->shape) : NULL);
}

tx_tensor *tx_parts_embedding(tx_tensor *tokens, tx_tensor *table, int64_t padding, tx_tensor *position_table,
                              tx_tensor *positions)
{
    const tx_param_spec *whole = divided_rows(table);
    tx_emit_args of_tokens, args = {.op = TX_OP_EMBEDDING, .attrs = plain};
    args.in[TX_IN(embedding, tokens)] = own_indices(tokens, whole, whole->shape.dim[0], false, &of_tokens);
    args.in[TX_IN(embedding, table)] = table;
    const int64_t own = padding - of_tokens.attrs.first;
    args.attrs.padding = own >= 0 && own < of_tokens.attrs.rows ? own + 1 : 0;
    tx_tensor *x = args.in[TX_IN(embedding, tokens)] ? tx_emit(tokens->graph, &args) : NULL;
    return add_positions(tx_part_scatter(x), position_table, positions);
}

/* ---- Losses -------------------------------------------------------------------------------------------- */

/* The parameter whose rows, of which this rank has a part, the columns of `x` are products with; NULL: none. */
static const tx_param_spec *divided_columns(const tx_tensor *x)
{
    const tx_node *n = x->producer >= 0 ? &x->graph->node[x->producer] : NULL;
    return n && n->op == TX_OP_MATMUL && n->attrs.trans_b ? divided_rows(n->in[TX_IN(matmul, b)]) : NULL;
}

bool tx_parts_divide_columns(const tx_tensor *x)
{
    return divided_columns(x) != NULL;
}

tx_tensor *tx_parts_cross_entropy(tx_tensor *logits, tx_tensor *labels, int64_t vocab, float smoothing)
{
    tx_graph *graph = logits->graph;
    const tx_param_spec *whole = divided_columns(logits);
    if (vocab != whole->logical.dim[0]) {
        tx_graph_fail(graph,
                      tx_fail(TX_INVALID, "cross_entropy: a vocabulary of %" PRId64 ", and ranks divide %" PRId64,
                              vocab, whole->logical.dim[0]));
        return NULL;
    }
    tx_emit_args of_labels, own = {.op = TX_OP_CROSS_ENTROPY, .attrs = plain};
    labels = own_indices(labels, whole, vocab, true, &of_labels);
    own.attrs.vocab = of_labels.attrs.rows;
    own.attrs.rows = vocab;
    own.attrs.smoothing = smoothing;
    own.in[TX_IN(cross_entropy, logits)] = logits;
    own.in[TX_IN(cross_entropy, labels)] = labels;
    if (!labels || !tx_emit(graph, &own))
        return NULL;
    tx_emit_args all = {.op = TX_OP_PART_LOSS, .attrs = own.attrs};
    const int64_t numbers = 2 * (int64_t)graph->model->mesh.tensor.size + 1;
    all.in[TX_IN(part_loss, logits)] = logits;
    all.in[TX_IN(part_loss, labels)] = labels;
    all.in[TX_IN(part_loss, losses)] = own.out[TX_OUT(cross_entropy, losses)];
    all.in[TX_IN(part_loss, lse)] = own.out[TX_OUT(cross_entropy, lse)];
    all.out[TX_OUT(part_loss, w)] =
        tx_tensor_planned(graph, TX_F32, TX_SHAPE(numbers * tx_shape_count(&labels->shape)), TX_ARENA_PARTS);
    return all.out[TX_OUT(part_loss, w)] ? tx_emit(graph, &all) : NULL;
}
