/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the Llama graph that treat the heads of q, k and v differently: norms with weights for each head, groups of
 * heads in files, and queries that are scaled by their position. Also the refusal of tensor parallelism. Called by
 * llama_graph.c and layer_attention.c. */
#include "models/arch/llama_family.h"

#include <math.h>

void tx_llama_one_rank(tx_stack *b, const char *what)
{
    if (b->parts > 1)
        tx_graph_fail(b->graph, tx_fail(TX_UNSUPPORTED, "%s: tensor parallelism is not implemented for %s",
                                        b->config->architecture->type, what));
}

tx_tensor *tx_llama_join(tx_tensor *const *part, int32_t count)
{
    int64_t width = 0, at = 0;
    tx_tensor *sum = NULL;
    for (int32_t i = 0; i < count; i++) {
        if (!part[i])
            return NULL;
        width += tx_shape_last(tx_tensor_shape(part[i]));
    }
    for (int32_t i = 0; i < count; i++) {
        tx_tensor *wide = tx_shift_rows(part[i], width, -at, 0);
        at += tx_shape_last(tx_tensor_shape(part[i]));
        sum = sum ? tx_add(sum, wide) : wide;
    }
    return sum;
}

tx_tensor *tx_llama_scale_columns(tx_graph *graph, tx_tensor *x, int32_t count, const int64_t *sizes,
                                  const double *multipliers)
{
    tx_tensor *part[TX_LLAMA_MULTIPLIERS];
    if (!x || !(multipliers[0] > 0))
        return x;
    for (int32_t i = 0; i < count; i++)
        part[i] = tx_fill(graph, TX_SHAPE(1, sizes[i]), (float)multipliers[i]);
    tx_tensor *row = tx_llama_join(part, count);
    row = row ? tx_reshape(row, TX_SHAPE(tx_shape_last(tx_tensor_shape(row)))) : NULL;
    return tx_mul(x, tx_broadcast(row, *tx_tensor_shape(x), TX_AXIS_ROWS));
}

tx_tensor *tx_llama_ungroup(tx_tensor *qkv, int64_t heads, int64_t of_kv, int64_t size)
{
    if (!qkv)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(qkv);
    const int64_t rows = tx_shape_rows(&shape), each = heads / of_kv * size;
    tx_tensor *groups = tx_reshape(qkv, TX_SHAPE(rows * of_kv, each + 2 * size));
    tx_tensor *const part[] = {tx_reshape(columns_of(groups, 0, each), TX_SHAPE(rows, heads * size)),
                               tx_reshape(columns_of(groups, each, size), TX_SHAPE(rows, of_kv * size)),
                               tx_reshape(columns_of(groups, each + size, size), TX_SHAPE(rows, of_kv * size))};
    return tx_reshape(tx_llama_join(part, 3), shape);
}

tx_tensor *tx_llama_swap_halves(tx_tensor *x, int64_t heads, int64_t size)
{
    if (!x)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(x);
    x = tx_reshape(x, TX_SHAPE(tx_shape_rows(&shape) * heads, size));
    return tx_reshape(tx_add(tx_shift_rows(x, size, size / 2, 0), tx_shift_rows(x, size, -size / 2, 0)), shape);
}

/* A layer norm of each head of x [.., heads * size], with the weights in a slot: [size] for all heads, or [heads,
 * size]. The bias is in the next slot. */
static tx_tensor *norm_each(const tx_stack *b, tx_tensor *x, int32_t slot, int64_t heads, int64_t size)
{
    const float eps = (float)llama_of(b->config)->norms.eps;
    tx_tensor *gamma = tx_stack_weight(b, slot), *zeros = tx_fill(b->graph, TX_SHAPE(size), 0.0f);
    if (!x || !gamma)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(x);
    const bool own = tx_tensor_shape(gamma)->rank > 1;
    tx_tensor *beta = tx_stack_has(b, slot + 1) ? tx_stack_weight(b, slot + 1) : zeros;
    tx_tensor *y = tx_reshape(x, TX_SHAPE(tx_shape_rows(&shape) * heads, size));
    y = tx_reshape(tx_layer_norm(y, own ? tx_fill(b->graph, TX_SHAPE(size), 1.0f) : gamma, beta, eps), shape);
    return own ? tx_mul(y, tx_broadcast(tx_reshape(gamma, TX_SHAPE(heads * size)), shape, TX_AXIS_ROWS)) : y;
}

tx_tensor *tx_llama_norm_each(const tx_stack *b, tx_tensor *qkv, int64_t heads, int64_t of_kv, int64_t size)
{
    const int64_t q = heads * size, kv = of_kv * size;
    tx_tensor *const part[] = {norm_each(b, columns_of(qkv, 0, q), Q_NORM, heads, size),
                               norm_each(b, columns_of(qkv, q, kv), K_NORM, of_kv, size), columns_of(qkv, q + kv, kv)};
    return tx_llama_join(part, 3);
}

/* The positions with the same scale. */
static int64_t step_of(const llama_config *c)
{
    return c->attention.scale_step ? c->attention.scale_step : (int64_t)c->positions.rope.original;
}

/* The scales of positions 0, 1, .. up to at least `longest` rows: [n, 1]. */
static tx_tensor *scales_of(tx_graph *graph, const llama_config *c, int64_t longest)
{
    const int64_t step = step_of(c), steps = tx_ceil_div(longest + 1, step), first = c->attention.scale_step > 0;
    tx_tensor *table = NULL;
    for (int64_t i = 0; i < steps; i++) {
        const float scale = (float)(1 + c->attention.scale_growth * log1p((double)i));
        tx_tensor *one =
            tx_scatter_add(tx_range(graph, TX_SHAPE(1), (int32_t)i, 1), tx_fill(graph, TX_SHAPE(1, 1), scale), steps);
        table = table ? tx_add(table, one) : one;
    }
    table = table ? tx_broadcast(tx_reshape(table, TX_SHAPE(steps)), TX_SHAPE(steps, step), TX_AXIS_LAST) : NULL;
    table = table ? tx_shift_rows(tx_reshape(table, TX_SHAPE(1, steps * step)), longest, first, 0) : NULL;
    return table ? tx_reshape(table, TX_SHAPE(longest, 1)) : NULL;
}

tx_tensor *tx_llama_scale_queries(tx_stack *b, tx_tensor *qkv, int64_t heads, int64_t size, int64_t longest)
{
    const llama_config *c = llama_of(b->config);
    if (!qkv || !(c->attention.scale_growth > 0) || longest < step_of(c))
        return qkv;
    const tx_shape shape = *tx_tensor_shape(qkv);
    const int64_t q = heads * size;
    if (!b->scores) { /* the same for all layers: a position embedding of tokens that have zeros */
        tx_tensor *zeros = tx_fill(b->graph, TX_SHAPE(tx_arch_padded_vocab(b->config), 1), 0.0f);
        b->scores = tx_embedding(b->tokens, zeros, scales_of(b->graph, c, longest), b->positions);
    }
    if (!b->scores)
        return NULL;
    tx_tensor *queries = columns_of(qkv, 0, q);
    tx_tensor *scale = tx_broadcast(tx_reshape(b->scores, TX_SHAPE(shape.dim[0], shape.dim[1])),
                                    TX_SHAPE(shape.dim[0], shape.dim[1], q), TX_AXIS_LAST);
    tx_tensor *const part[] = {tx_mul(queries, tx_detach(scale)), columns_of(qkv, q, (shape.dim[2] - q) / 2),
                               columns_of(qkv, q + (shape.dim[2] - q) / 2, (shape.dim[2] - q) / 2)};
    return tx_llama_join(part, 3);
}
