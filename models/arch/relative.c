/* SPDX-License-Identifier: Apache-2.0
 * Attention with biases of distances, composed of other ops. */
#include "models/arch/relative.h"

#include <math.h>

/* ---- Biases -------------------------------------------------------------------------------------------- */

/* Rows first, first + 1, .. of the first dimension. */
static tx_tensor *rows_of(tx_graph *graph, tx_tensor *x, int64_t first, int64_t count)
{
    return tx_gather(x, tx_range(graph, TX_SHAPE(count), (int32_t)first, 1));
}

/* Swaps the dimensions of x [a, b, c], which may have another shape with as many elements. */
static tx_tensor *swap(tx_tensor *x, int64_t a, int64_t b, int64_t c)
{
    return tx_transpose(tx_reshape(x, TX_SHAPE(a, b, c)));
}

/* The rows of the table for all distances, 1 - T .. T: [2 T, heads]. Neighbouring distances whose rows are equal, or go
 * up or down by one, are one gather. */
static tx_tensor *by_distance(const tx_stack *stack, tx_tensor *table, int64_t positions, tx_relative_bucket *bucket)
{
    tx_graph *graph = stack->graph;
    const tx_config *c = stack->config;
    const int64_t all = 2 * positions, zero = positions - 1;
    tx_tensor *sum = NULL;
    for (int64_t at = 0, end; at < all; at = end) {
        const int32_t first = bucket(c, at - zero), step = at + 1 < all ? bucket(c, at + 1 - zero) - first : 0;
        const bool goes_on = step >= -1 && step <= 1;
        for (end = at + 1; goes_on && end < all && bucket(c, end - zero) == first + step * (int32_t)(end - at);)
            end++;
        tx_tensor *part = tx_gather(table, tx_range(graph, TX_SHAPE(end - at), first, goes_on ? step : 0));
        part = tx_scatter_add(tx_range(graph, TX_SHAPE(end - at), (int32_t)at, 1), part, all);
        sum = sum ? tx_add(sum, part) : part;
    }
    return sum;
}

/* Selects distance j - i for query i and key j: x [N, T, 2 T], by distances, -> [N, T, T] (Dai et al., Transformer-XL,
 * 2019, appendix B). Element (i, j - i + T - 1) is element (i, j + T - 1) of the same numbers in rows of 2 T - 1. */
static tx_tensor *select_distances(tx_graph *graph, tx_tensor *x, int64_t count, int64_t positions)
{
    const int64_t t = positions, less = 2 * t - 1, rows = count * t;
    tx_tensor *y = tx_reshape(swap(x, count, 2 * t, t), TX_SHAPE(2 * t, rows));
    y = swap(rows_of(graph, y, 0, less), less, count, t); /* without the last T of each T * 2 T numbers */
    y = tx_reshape(swap(y, rows, less, 1), TX_SHAPE(less, rows));
    return tx_reshape(swap(rows_of(graph, y, t - 1, t), t, rows, 1), TX_SHAPE(count, t, t));
}

tx_tensor *tx_relative_bias(const tx_stack *stack, tx_tensor *table, tx_relative_bucket *bucket)
{
    if (!table)
        return NULL;
    tx_graph *graph = stack->graph;
    const int64_t heads = tx_shape_last(tx_tensor_shape(table)), t = tx_tensor_shape(stack->tokens)->dim[1];
    tx_tensor *by_head = swap(by_distance(stack, table, t, bucket), 2 * t, heads, 1);
    /* The same row for each query. */
    tx_tensor *ones = tx_fill(graph, TX_SHAPE(heads, t, 1), 1.0f);
    by_head = tx_matmul(ones, tx_reshape(by_head, TX_SHAPE(heads, 1, 2 * t)), false, false);
    return select_distances(graph, by_head, heads, t);
}

/* The op of attention gives 0 at padding and here 1 elsewhere. */
tx_tensor *tx_relative_used(const tx_stack *stack)
{
    enum { SIZE = 8 };
    const tx_attention_options options = {.size = sizeof options, .heads = 1, .kv_heads = 1};
    const int64_t rows = tx_tensor_shape(stack->tokens)->dim[0], t = tx_tensor_shape(stack->tokens)->dim[1];
    tx_tensor *lengths = tx_find_input(stack->graph, "attention_lengths");
    if (!lengths)
        return tx_fill(stack->graph, TX_SHAPE(rows, t), 1.0f);
    tx_tensor *ones = tx_fill(stack->graph, TX_SHAPE(rows, t, 3 * SIZE), 1.0f);
    return tx_detach(tx_reduce(tx_attention(ones, lengths, NULL, &options), TX_REDUCE_MEAN, TX_AXIS_LAST));
}

/* 0 for the positions of each row's tokens, TX_RELATIVE_MASKED for padding: [B, T]. NULL if there is none. */
static tx_tensor *mask_of(const tx_stack *stack, int64_t rows, int64_t t)
{
    if (!tx_find_input(stack->graph, "attention_lengths"))
        return NULL;
    tx_tensor *unused = tx_add(tx_relative_used(stack), tx_fill(stack->graph, TX_SHAPE(rows, t), -1.0f));
    return tx_scale(unused, -TX_RELATIVE_MASKED);
}

tx_tensor *tx_relative_scores(const tx_stack *stack, tx_tensor *bias)
{
    if (!bias)
        return NULL;
    const tx_shape *shape = tx_tensor_shape(bias);
    const int64_t rows = tx_tensor_shape(stack->tokens)->dim[0], heads = shape->dim[0], t = shape->dim[1];
    const tx_shape all = TX_SHAPE(rows, heads, t, t);
    tx_tensor *same = tx_reshape(bias, TX_SHAPE(heads * t * t)), *mask = mask_of(stack, rows, t);
    same = tx_reshape(tx_broadcast(same, TX_SHAPE(rows, heads * t * t), TX_AXIS_ROWS), all);
    if (!mask)
        return same;
    tx_tensor *ones = tx_fill(stack->graph, TX_SHAPE(rows, heads * t, 1), 1.0f);
    mask = tx_matmul(ones, tx_reshape(mask, TX_SHAPE(rows, 1, t)), false, false);
    return tx_add(same, tx_reshape(mask, all));
}

/* ---- Attention ----------------------------------------------------------------------------------------- */

tx_tensor *tx_relative_attention(tx_stack *stack, tx_tensor *qkv, tx_tensor *scores, double dropout)
{
    if (!qkv || !scores)
        return NULL;
    if (stack->parts > 1) {
        tx_graph_fail(stack->graph, tx_fail(TX_UNSUPPORTED, "%s: ranks cannot divide attention with relative positions",
                                            stack->config->architecture->type));
        return NULL;
    }
    const tx_shape *shape = tx_tensor_shape(qkv);
    const int64_t rows = shape->dim[0], t = shape->dim[1], heads = tx_tensor_shape(scores)->dim[1];
    const int64_t size = shape->dim[2] / (3 * heads), whole = rows * heads;
    /* [B, T, 3 heads, size] -> [3, B heads, T, size] */
    tx_tensor *part[3], *x = tx_transpose(tx_reshape(qkv, TX_SHAPE(rows, t, 3 * heads, size)));
    x = tx_reshape(swap(x, rows, 3, heads * t * size), TX_SHAPE(3, whole * t * size));
    for (int i = 0; i < 3; i++)
        part[i] = tx_reshape(rows_of(stack->graph, x, i, 1), TX_SHAPE(whole, t, size));
    tx_tensor *p = tx_scale(tx_matmul(part[0], part[1], false, true), (float)(1.0 / sqrt((double)size)));
    p = tx_softmax(tx_add(p, tx_reshape(scores, TX_SHAPE(whole, t, t))));
    tx_tensor *y = tx_matmul(tx_stack_dropout(stack, p, dropout), part[2], false, false);
    return tx_reshape(tx_transpose(tx_reshape(y, TX_SHAPE(rows, heads, t, size))), TX_SHAPE(rows, t, heads * size));
}
