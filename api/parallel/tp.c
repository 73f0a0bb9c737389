/* SPDX-License-Identifier: Apache-2.0
 * Builders for tensors that ranks divide. A tensor group has sums, embeddings of divided tables, and losses of logits
 * with divided columns (Shoeybi et al., Megatron-LM, 2019, section 3). Data-parallel ranks gather rows, and
 * context-parallel ranks have positions. */
#include "api/parallel/buckets.h"

#include "api/base/needs.h"

#include <inttypes.h>

int32_t tx_graph_tp_size(const tx_graph *graph, int32_t *rank)
{
    TX_NEEDS(graph && rank, 0);
    *rank = graph->model->mesh.tensor.rank;
    return graph->model->mesh.tensor.size;
}

int32_t tx_graph_dp_size(const tx_graph *graph, int32_t *rank)
{
    TX_NEEDS(graph && rank, 0);
    const tx_comm *peers = graph->model->mesh.peers;
    *rank = peers ? peers->rank : 0;
    return peers ? peers->size : 1;
}

bool tx_graph_sequence(const tx_graph *graph)
{
    TX_NEEDS(graph, false);
    return graph->model->mesh.sequence && !graph->whole_rows;
}

void tx_graph_set_sequence(tx_graph *graph, bool on)
{
    TX_NEEDS(graph, );
    graph->whole_rows = !on;
}

int32_t tx_graph_cp_size(const tx_graph *graph, int32_t *rank)
{
    TX_NEEDS(graph && rank, 0);
    *rank = graph->model->mesh.context.rank;
    return graph->model->mesh.context.size;
}

tx_tensor *tx_tp_input(tx_tensor *x)
{
    if (!x || x->graph->model->mesh.tensor.size == 1)
        return x;
    return TX_EMIT_AS(x, RESHAPE, TX_ATTRS(.summed = true), NULL, &x->shape, x);
}

/* Allocates a communication buffer of the type of x. */
static tx_tensor *window_of(const tx_tensor *x, tx_shape shape)
{
    return tx_tensor_planned(x->graph, x->dtype, shape, TX_ARENA_TP);
}

tx_tensor *tx_tp_all_reduce(tx_tensor *x)
{
    if (!x || x->graph->model->mesh.tensor.size == 1)
        return x;
    return tx_emit(x->graph, &(tx_emit_args){.op = TX_OP_TP_ALL_REDUCE,
                                             .attrs = TX_PLAIN,
                                             .in = {x},
                                             .out[TX_OUT(tp_all_reduce, w)] = window_of(x, x->shape)});
}

/* Exchanges rows through the window, which has one padded chunk for each rank. */
tx_tensor *tx_tp_move(tx_tensor *x, tx_op op)
{
    if (!x)
        return NULL;
    tx_graph *graph = x->graph;
    const int64_t parts = graph->model->mesh.tensor.size, tokens = x->shape.dim[1];
    const bool gathers = op == TX_OP_TP_ALL_GATHER;
    const tx_shape shape = TX_SHAPE(x->shape.dim[0], gathers ? tokens * parts : tokens / parts, x->shape.dim[2]);
    const int64_t shorter = tx_min(tokens, shape.dim[1]);
    const int64_t blocks = tx_param_blocks(x->shape.dim[0] * shorter * x->shape.dim[2]);
    tx_tensor *w = window_of(x, TX_SHAPE(parts * blocks * TX_PARAM_BLOCK));
    return tx_emit(
        graph, &(tx_emit_args){
                   .op = op, .attrs = TX_PLAIN, .in = {x}, .shape = &shape, .out[TX_OUT(tp_reduce_scatter, w)] = w});
}

tx_tensor *tx_tp_all_gather(tx_tensor *x)
{
    return x && tx_graph_sequence(x->graph) ? tx_tp_move(x, TX_OP_TP_ALL_GATHER) : tx_tp_input(x);
}

tx_tensor *tx_tp_reduce_scatter(tx_tensor *x)
{
    if (!x || !tx_graph_sequence(x->graph))
        return tx_tp_all_reduce(x);
    const int64_t parts = x->graph->model->mesh.tensor.size;
    if (x->shape.rank == 3 && x->shape.dim[1] % parts == 0)
        return tx_tp_move(x, TX_OP_TP_REDUCE_SCATTER);
    return tx_graph_refuse(x->graph, tx_fail(TX_UNSUPPORTED,
                                             "sequence parallelism: %" PRId64
                                             " positions cannot be divided among %" PRId64 " ranks",
                                             x->shape.dim[1], parts));
}

/* A sum of the chunks, each among zeros. Its gradient is that of all positions, of which a rank takes its own. */
tx_tensor *tx_tp_replicate(tx_tensor *x)
{
    if (!x || !tx_graph_sequence(x->graph))
        return x;
    const tx_mesh *mesh = &x->graph->model->mesh;
    const tx_shape shape = x->shape;
    const int64_t row = shape.dim[1] * shape.dim[2], size = mesh->tensor.size;
    tx_tensor *rows = tx_reshape(x, TX_SHAPE(shape.dim[0], row));
    rows = tx_tp_all_reduce(tx_shift_rows(rows, size * row, -mesh->tensor.rank * row, 0));
    return tx_reshape(rows, TX_SHAPE(shape.dim[0], size * shape.dim[1], shape.dim[2]));
}

tx_tensor *tx_tp_own_chunk(tx_tensor *x)
{
    if (!x || !tx_graph_sequence(x->graph))
        return x;
    const tx_mesh_axis *group = &x->graph->model->mesh.tensor;
    const tx_shape shape = x->shape;
    const int64_t tokens = shape.dim[1] / group->size, row = tokens * shape.dim[2];
    x = tx_reshape(x, TX_SHAPE(shape.dim[0], shape.dim[1] * shape.dim[2]));
    return tx_reshape(tx_shift_rows(x, row, group->rank * row, 0), TX_SHAPE(shape.dim[0], tokens, shape.dim[2]));
}

tx_tensor *tx_dp_all_reduce(tx_tensor *x)
{
    return x ? tx_emit(x->graph, &(tx_emit_args){.op = TX_OP_DP_ALL_REDUCE,
                                                 .attrs = TX_PLAIN,
                                                 .in = {x},
                                                 .out[TX_OUT(dp_all_reduce, w)] = tx_tensor_planned(
                                                     x->graph, x->dtype, x->shape, TX_ARENA_EXCHANGE)})
             : NULL;
}

/* The sum over the ranks of rows that are 0 except for a rank's own. */
tx_tensor *tx_dp_all_gather(tx_tensor *x)
{
    int32_t rank, size = x ? tx_graph_dp_size(x->graph, &rank) : 1;
    if (size == 1)
        return x;
    const int64_t rows = x->shape.dim[0];
    return tx_dp_all_reduce(
        tx_scatter_add(tx_range(x->graph, TX_SHAPE(rows), rank * (int32_t)rows, 1), x, size * rows));
}

tx_tensor *tx_tp_param(tx_tensor *param)
{
    return param && param->requires_grad && tx_graph_sequence(param->graph) ? tx_tp_input(param) : param;
}

/* ---- Positions ---------------------------------------------------------------------------------------- */

tx_tensor *tx_parallel_places(const tx_tensor *x)
{
    tx_graph *graph = x->graph;
    const tx_mesh *mesh = &graph->model->mesh;
    if (mesh->context.size == 1 || x->shape.rank < 2)
        return NULL;
    const int64_t length = x->shape.dim[1];
    const tx_shape shape = TX_SHAPE(x->shape.dim[0], length);
    tx_emit_args range = {.op = TX_OP_RANGE, .shape = &shape};
    range.attrs = TX_ATTRS(.first = mesh->context.rank * (length / 2), .step = 1, .rows = length,
                           .gap = tx_mesh_gap(mesh, length));
    if (!graph->places || !tx_shape_equal(&graph->places->shape, &shape))
        graph->places = tx_emit(graph, &range);
    return graph->places;
}

/* ---- Tables ------------------------------------------------------------------------------------------- */

/* Returns the parameter of which `x` is this rank's rows, or NULL. */
static const tx_param_spec *divided_rows(const tx_tensor *x)
{
    const tx_model *model = x->graph->model;
    const tx_param_spec *whole = tx_model_splits(model, x->param) ? &model->param[x->param].whole : NULL;
    return whole && whole->split == 1 ? whole : NULL;
}

/* Converts indices of a parameter of `all` rows to this rank's shard. Rows of other ranks become negative. */
static tx_tensor *own_indices(tx_tensor *indices, const tx_param_spec *whole, int64_t all, bool labels,
                              tx_emit_args *args)
{
    const tx_model *model = indices->graph->model;
    *args = (tx_emit_args){.op = TX_OP_TP_INDICES, .attrs = TX_PLAIN, .in = {indices}};
    args->attrs.rows =
        tx_own_rows(whole->logical.dim[0], model->mesh.tensor.rank, model->mesh.tensor.size, &args->attrs.first);
    args->attrs.vocab = all;
    args->attrs.keeps = labels;
    tx_tensor_narrow(indices, labels ? 0 : -1, all, labels);
    return tx_emit(indices->graph, args);
}

/* Adds position embeddings to x [B, T, C] from the given positions [B] on. A token of -1 has no embedding but that of
 * its position. */
static tx_tensor *add_positions_from(tx_tensor *x, tx_tensor *tokens, tx_tensor *table, tx_tensor *positions)
{
    tx_tensor *none = x ? tx_range(x->graph, TX_SHAPE(x->shape.dim[0], x->shape.dim[1]), -1, 0) : NULL;
    return tx_add(x, TX_EMIT(none, EMBEDDING, TX_PLAIN, none, tokens, table, positions));
}

/* Adds position embeddings to x [B, T, C]: the given positions, or those from 0 on. */
static tx_tensor *add_positions(tx_tensor *x, tx_tensor *table, tx_tensor *positions)
{
    if (!x || !table || positions)
        return table ? tx_add(x, tx_tp_own_chunk(tx_embedding(positions, tx_tp_param(table), NULL, NULL))) : x;
    const int64_t rows = x->shape.dim[0], tokens = x->shape.dim[1], row = tokens * x->shape.dim[2];
    const int32_t first = tx_graph_sequence(x->graph) ? x->graph->model->mesh.tensor.rank * (int32_t)tokens : 0;
    tx_tensor *range = tx_range(x->graph, TX_SHAPE(1, tokens), first, 1);
    tx_tensor *embedded = TX_EMIT(range, EMBEDDING, TX_PLAIN, range, tx_tp_param(table));
    embedded = tx_broadcast(tx_reshape(embedded, TX_SHAPE(row)), TX_SHAPE(rows, row), TX_AXIS_ROWS);
    return tx_add(x, tx_reshape(embedded, x->shape));
}

/* Each rank looks up its own rows, and the results are summed. */
tx_tensor *tx_parallel_embed(tx_tensor *tokens, tx_tensor *table, int64_t padding, tx_tensor *position_table,
                             tx_tensor *positions)
{
    const tx_param_spec *whole = divided_rows(table);
    tx_emit_args of_tokens;
    if (position_table && !positions)
        positions = tx_parallel_places(tokens);
    tx_tensor *indices = own_indices(tokens, whole, whole->shape.dim[0], false, &of_tokens);
    const int64_t own = padding - of_tokens.attrs.first;
    const tx_attrs attrs = TX_ATTRS(.padding = own >= 0 && own < of_tokens.attrs.rows ? own + 1 : 0);
    tx_tensor *x = tx_tp_reduce_scatter(TX_EMIT(indices, EMBEDDING, attrs, indices, table));
    return position_table && positions && positions->shape.rank == 1
               ? add_positions_from(x, table, position_table, positions)
               : add_positions(x, position_table, positions);
}

/* ---- Losses -------------------------------------------------------------------------------------------- */

static const tx_node *producer_of(const tx_tensor *x)
{
    return x->producer >= 0 ? &x->graph->node[x->producer] : NULL;
}

/* Returns the parameter whose divided rows give the columns of `x` in a product, perhaps capped, or NULL. */
static const tx_param_spec *divided_columns(const tx_tensor *x)
{
    const tx_node *n = producer_of(x);
    while (n && (n->op == TX_OP_SCALE || n->op == TX_OP_TANH))
        n = producer_of(n->in[0]);
    return n && n->op == TX_OP_MATMUL && n->attrs.trans_b ? divided_rows(n->in[TX_IN(matmul, b)]) : NULL;
}

bool tx_parallel_divides(const tx_tensor *x)
{
    return divided_rows(x) || divided_columns(x);
}

int64_t tx_tp_columns(const tx_tensor *x)
{
    TX_NEEDS(x, 0);
    const tx_param_spec *whole = divided_columns(x);
    return whole ? whole->logical.dim[0] : 0;
}

/* The logits of all columns on each rank: the sum of those of the ranks, which are 0 outside their own columns. Each
 * rank then computes the same loss, whose gradient it uses for its own columns. */
tx_tensor *tx_parallel_gather(tx_tensor *logits)
{
    const tx_mesh *mesh = &logits->graph->model->mesh;
    const tx_param_spec *whole = divided_columns(logits);
    int64_t first;
    const int64_t own = tx_own_rows(whole->logical.dim[0], mesh->tensor.rank, mesh->tensor.size, &first);
    return tx_tp_all_reduce(tx_shift_rows(tx_shift_rows(logits, own, 0, 0), whole->shape.dim[0], -first, 0));
}

/* Each rank computes the loss of its local columns; the ranks combine them to the loss of all columns. */
tx_tensor *tx_parallel_loss(tx_tensor *logits, tx_tensor *labels, int64_t vocab, float smoothing)
{
    tx_graph *graph = logits->graph;
    const tx_param_spec *whole = divided_columns(logits);
    const int64_t numbers = 2 * (int64_t)graph->model->mesh.tensor.size + 1;
    if (vocab != whole->logical.dim[0])
        return tx_graph_refuse(graph, tx_fail(TX_INVALID,
                                              "cross_entropy: a vocabulary of %" PRId64 " does not match the %" PRId64
                                              " that ranks divide",
                                              vocab, whole->logical.dim[0]));
    tx_emit_args of_labels;
    labels = own_indices(labels, whole, vocab, true, &of_labels);
    const tx_attrs attrs = TX_ATTRS(.vocab = of_labels.attrs.rows, .rows = vocab, .smoothing = smoothing);
    tx_emit_args own = {.op = TX_OP_CROSS_ENTROPY, .attrs = attrs, .in = {logits, labels}};
    if (!labels || !tx_emit(graph, &own))
        return NULL;
    tx_tensor *losses = own.out[TX_OUT(cross_entropy, losses)], *lse = own.out[TX_OUT(cross_entropy, lse)];
    tx_emit_args all = {.op = TX_OP_TP_CROSS_ENTROPY, .attrs = attrs, .in = {logits, labels, losses, lse}};
    all.out[TX_OUT(tp_cross_entropy, w)] = window_of(losses, TX_SHAPE(numbers * tx_shape_count(&labels->shape)));
    return tx_emit(graph, &all);
}
