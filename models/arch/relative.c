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

int32_t tx_relative_row(int64_t distance, bool later, int64_t buckets, int64_t farthest)
{
    const int64_t half = later ? buckets / 2 : buckets, exact = half / 2, side = later && distance > 0 ? half : 0;
    const int64_t far = distance < 0 ? -distance : distance;
    if (distance > 0 && !later)
        return -1;
    if (far < exact)
        return (int32_t)(side + far);
    const float scaled =
        logf((float)far / (float)exact) / (float)log((double)farthest / (double)exact) * (float)(half - exact);
    const int64_t found = exact + (int64_t)scaled;
    return (int32_t)(side + (found < half ? found : half - 1));
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
        for (end = at + 1; goes_on && end < all && bucket(c, end - zero) == first + step * (int32_t)(end - at) &&
                           (bucket(c, end - zero) < 0) == (first < 0);)
            end++;
        tx_tensor *part =
            first < 0 ? tx_fill(graph, TX_SHAPE(end - at, tx_shape_last(tx_tensor_shape(table))), TX_RELATIVE_MASKED)
                      : tx_gather(table, tx_range(graph, TX_SHAPE(end - at), first, goes_on ? step : 0));
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

/* 1 -> 0, 0 -> TX_RELATIVE_MASKED */
static tx_tensor *mask_unused(tx_graph *graph, tx_tensor *used, tx_shape shape)
{
    return tx_scale(tx_add(used, tx_fill(graph, shape, -1.0f)), -TX_RELATIVE_MASKED);
}

/* Repeats a mask [B, S] to [B, N, S]. */
static tx_tensor *spread(tx_graph *graph, tx_tensor *mask, int64_t rows, int64_t count, int64_t s)
{
    tx_tensor *ones = tx_fill(graph, TX_SHAPE(rows, count, 1), 1.0f);
    return tx_matmul(ones, tx_reshape(mask, TX_SHAPE(rows, 1, s)), false, false);
}

tx_tensor *tx_relative_mask(const tx_stack *stack)
{
    if (!tx_find_input(stack->graph, "attention_lengths"))
        return NULL;
    return mask_unused(stack->graph, tx_relative_used(stack), *tx_tensor_shape(stack->tokens));
}

tx_tensor *tx_relative_scores(const tx_stack *stack, tx_tensor *bias, tx_tensor *mask)
{
    if (!bias)
        return NULL;
    const tx_shape *shape = tx_tensor_shape(bias);
    const int64_t rows = tx_tensor_shape(stack->tokens)->dim[0], heads = shape->dim[0], t = shape->dim[1],
                  s = shape->dim[2];
    const tx_shape all = TX_SHAPE(rows, heads, t, s);
    tx_tensor *same = tx_reshape(bias, TX_SHAPE(heads * t * s));
    same = tx_reshape(tx_broadcast(same, TX_SHAPE(rows, heads * t * s), TX_AXIS_ROWS), all);
    if (!mask)
        return same;
    return tx_add(same, tx_reshape(spread(stack->graph, mask, rows, heads * t, s), all));
}

tx_tensor *tx_relative_query(const tx_stack *stack, tx_tensor *table, tx_tensor *rows)
{
    if (!table || !rows)
        return NULL;
    tx_graph *graph = stack->graph;
    const int64_t heads = tx_shape_last(tx_tensor_shape(table)), buckets = tx_tensor_shape(table)->dim[0];
    const int64_t count = tx_tensor_shape(rows)->dim[0], s = tx_tensor_shape(rows)->dim[1];
    tx_tensor *used = tx_reshape(tx_gather(tx_fill(graph, TX_SHAPE(buckets, 1), 1.0f), rows), TX_SHAPE(count, s));
    tx_tensor *mask = spread(graph, mask_unused(graph, used, TX_SHAPE(count, s)), count, heads, s);
    tx_tensor *bias = tx_transpose(tx_reshape(tx_gather(table, rows), TX_SHAPE(count, s, heads, 1)));
    bias = tx_reshape(bias, TX_SHAPE(count, heads, s));
    return tx_reshape(tx_add(bias, mask), TX_SHAPE(count, heads, 1, s));
}

/* ---- Attention ----------------------------------------------------------------------------------------- */

/* Divides x [B, T, parts * heads * size] into parts of [B heads, T, size]. */
static void divide(const tx_stack *stack, tx_tensor *x, int64_t heads, int32_t parts, tx_tensor **part)
{
    const tx_shape *shape = tx_tensor_shape(x);
    const int64_t rows = shape->dim[0], t = shape->dim[1], size = shape->dim[2] / (parts * heads);
    x = tx_transpose(tx_reshape(x, TX_SHAPE(rows, t, parts * heads, size)));
    if (parts > 1)
        x = tx_reshape(swap(x, rows, parts, heads * t * size), TX_SHAPE(parts, rows * heads * t * size));
    for (int32_t i = 0; i < parts; i++)
        part[i] = tx_reshape(parts > 1 ? rows_of(stack->graph, x, i, 1) : x, TX_SHAPE(rows * heads, t, size));
}

tx_tensor *tx_relative_attention(tx_stack *stack, tx_tensor *q, tx_tensor *k, tx_tensor *v, tx_tensor *scores,
                                 double scale, double dropout)
{
    if (!q || !scores)
        return NULL;
    if (stack->parts > 1) {
        tx_graph_fail(stack->graph, tx_fail(TX_UNSUPPORTED, "%s: ranks cannot divide attention with relative positions",
                                            stack->config->architecture->type));
        return NULL;
    }
    const tx_shape *shape = tx_tensor_shape(scores);
    const int64_t rows = shape->dim[0], heads = shape->dim[1], t = shape->dim[2], s = shape->dim[3];
    const int64_t size = tx_shape_last(tx_tensor_shape(q)) / ((k ? 1 : 3) * heads), whole = rows * heads;
    tx_tensor *part[3];
    divide(stack, q, heads, k ? 1 : 3, part);
    if (k)
        divide(stack, k, heads, v ? 1 : 2, part + 1);
    if (v)
        divide(stack, v, heads, 1, part + 2);
    tx_tensor *p = tx_matmul(part[0], part[1], false, true);
    p = tx_scale(p, (float)(scale > 0 ? scale : 1.0 / sqrt((double)size)));
    p = tx_softmax(tx_add(p, tx_reshape(scores, TX_SHAPE(whole, t, s))));
    tx_tensor *y = tx_matmul(tx_stack_dropout(stack, p, dropout), part[2], false, false);
    return tx_reshape(tx_transpose(tx_reshape(y, TX_SHAPE(rows, heads, t, size))), TX_SHAPE(rows, t, heads * size));
}
