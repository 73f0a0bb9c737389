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

/* The rows of the table for `count` distances from `first` on. If their numbers are an arithmetic sequence it is one
 * gather, else the two halves are joined. */
static tx_tensor *by_distance(const tx_stack *stack, tx_tensor *table, tx_relative_bucket *bucket, int64_t first,
                              int64_t count)
{
    tx_graph *graph = stack->graph;
    const tx_config *c = stack->config;
    const int32_t row = bucket(c, first), step = count > 1 ? bucket(c, first + 1) - row : 0;
    int64_t same = 1;
    while (same < count && bucket(c, first + same) == row + step * (int32_t)same &&
           (bucket(c, first + same) < 0) == (row < 0))
        same++;
    if (same == count && row < 0)
        return tx_fill(graph, TX_SHAPE(count, tx_shape_last(tx_tensor_shape(table))), TX_RELATIVE_MASKED);
    if (same == count)
        return tx_gather(table, tx_range(graph, TX_SHAPE(count), row, step));
    const int64_t half = count / 2, others = count - half;
    tx_tensor *low = by_distance(stack, table, bucket, first, half),
              *high = by_distance(stack, table, bucket, first + half, others);
    return tx_add(tx_scatter_add(tx_range(graph, TX_SHAPE(half), 0, 1), low, count),
                  tx_scatter_add(tx_range(graph, TX_SHAPE(others), (int32_t)half, 1), high, count));
}

tx_tensor *tx_relative_rows(const tx_stack *stack, tx_tensor *table, tx_relative_bucket *bucket)
{
    const int64_t t = tx_tensor_shape(stack->tokens)->dim[1];
    return table ? by_distance(stack, table, bucket, 1 - t, 2 * t) : NULL;
}

/* Selects distance j - i for query i and key j: x [.., T, 2 T], by distances, -> [.., T, T] (Dai et al.,
 * Transformer-XL, 2019, appendix B). */
static tx_tensor *select_distances(tx_tensor *x, int64_t positions)
{
    return tx_shift_rows(x, positions, positions - 1, -1);
}

tx_tensor *tx_relative_bias(const tx_stack *stack, tx_tensor *table, tx_relative_bucket *bucket)
{
    if (!table)
        return NULL;
    const int64_t heads = tx_shape_last(tx_tensor_shape(table)), t = tx_tensor_shape(stack->tokens)->dim[1];
    tx_tensor *rows = tx_reshape(tx_relative_rows(stack, table, bucket), TX_SHAPE(2 * t, heads, 1));
    /* The same row for each query. */
    tx_tensor *ones = tx_fill(stack->graph, TX_SHAPE(heads, t, 1), 1.0f);
    rows = tx_matmul(ones, tx_reshape(tx_transpose(rows), TX_SHAPE(heads, 1, 2 * t)), false, false);
    return select_distances(rows, t);
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

tx_tensor *tx_relative_mask(const tx_stack *stack)
{
    if (!tx_find_input(stack->graph, "attention_lengths"))
        return NULL;
    return mask_unused(stack->graph, tx_relative_used(stack), *tx_tensor_shape(stack->tokens));
}

/* Repeats numbers of all pairs of rows and keys, in any shape, for each head: [heads, n]. */
static tx_tensor *for_heads(tx_tensor *x, int64_t heads)
{
    const int64_t n = x ? tx_shape_count(tx_tensor_shape(x)) : 0;
    return x ? tx_broadcast(tx_reshape(x, TX_SHAPE(n)), TX_SHAPE(heads, n), TX_AXIS_ROWS) : NULL;
}

tx_tensor *tx_relative_scores(const tx_stack *stack, int64_t heads, int64_t queries, tx_tensor *bias, tx_tensor *mask)
{
    if (!bias && !mask)
        return NULL;
    const int64_t rows = tx_tensor_shape(stack->tokens)->dim[0], t = queries;
    const int64_t s = tx_shape_last(tx_tensor_shape(bias ? bias : mask));
    const tx_shape all = TX_SHAPE(heads, rows, t, s);
    tx_tensor *same = NULL;
    if (bias) {
        tx_tensor *ones = tx_fill(stack->graph, TX_SHAPE(heads, rows, 1), 1.0f);
        same = tx_reshape(tx_matmul(ones, tx_reshape(bias, TX_SHAPE(heads, 1, t * s)), false, false), all);
    }
    if (!mask)
        return same;
    tx_tensor *ones = tx_fill(stack->graph, TX_SHAPE(rows, t, 1), 1.0f);
    mask = tx_matmul(ones, tx_reshape(mask, TX_SHAPE(rows, 1, s)), false, false);
    mask = tx_reshape(for_heads(mask, heads), all);
    return same ? tx_add(same, mask) : mask;
}

tx_tensor *tx_relative_query(const tx_stack *stack, tx_tensor *table, tx_tensor *rows)
{
    if (!table || !rows)
        return NULL;
    const int64_t heads = tx_shape_last(tx_tensor_shape(table)), buckets = tx_tensor_shape(table)->dim[0];
    const int64_t count = tx_tensor_shape(rows)->dim[0], s = tx_tensor_shape(rows)->dim[1];
    tx_tensor *used = tx_gather(tx_fill(stack->graph, TX_SHAPE(buckets, 1), 1.0f), rows);
    tx_tensor *mask = mask_unused(stack->graph, tx_reshape(used, TX_SHAPE(count, s)), TX_SHAPE(count, s));
    tx_tensor *bias = tx_transpose(tx_reshape(tx_gather(table, rows), TX_SHAPE(count * s, heads, 1)));
    bias = tx_add(tx_reshape(bias, TX_SHAPE(heads, count * s)), for_heads(mask, heads));
    return tx_reshape(bias, TX_SHAPE(heads, count, 1, s));
}

/* ---- Attention ----------------------------------------------------------------------------------------- */

/* x [R, sections * heads * size] -> [sections, heads * R * size] */
static tx_tensor *by_head(tx_tensor *x, int64_t heads, int64_t size)
{
    if (!x)
        return NULL;
    const int64_t width = tx_shape_last(tx_tensor_shape(x)), rows = tx_shape_rows(tx_tensor_shape(x));
    x = tx_transpose(tx_reshape(x, TX_SHAPE(rows, width / size, size)));
    return tx_reshape(x, TX_SHAPE(width / (heads * size), heads * rows * size));
}

/* A section of by_head: [heads, R, size]. */
static tx_tensor *section_of(tx_graph *graph, tx_tensor *x, int64_t section, int64_t heads, int64_t size)
{
    if (!x)
        return NULL;
    const int64_t rows = tx_shape_last(tx_tensor_shape(x)) / (heads * size);
    return tx_reshape(rows_of(graph, x, section, 1), TX_SHAPE(heads, rows, size));
}

/* The products of x [heads, B T, size] with rows by distance [heads, 2 T, size]: [heads B, T, T]. */
static tx_tensor *by_position(tx_tensor *x, tx_tensor *rows, int64_t t)
{
    if (!x)
        return NULL;
    const tx_shape *shape = tx_tensor_shape(x);
    const int64_t all = shape->dim[0] * shape->dim[1] / t;
    return select_distances(tx_reshape(tx_matmul(x, rows, false, true), TX_SHAPE(all, t, 2 * t)), t);
}

/* Scores of distances (He et al., DeBERTa, 2021, section 3.1): those of the query with the distance's key, and of the
 * key with the distance's query. */
static tx_tensor *distance_scores(tx_graph *graph, tx_tensor *distances, tx_tensor *query, tx_tensor *key, int64_t t)
{
    if (!query)
        return NULL;
    const int64_t heads = tx_tensor_shape(query)->dim[0], size = tx_shape_last(tx_tensor_shape(query));
    /* Keys see the queries at the negative distances. */
    tx_tensor *turned = tx_gather(distances, tx_range(graph, TX_SHAPE(2 * t), (int32_t)(2 * t - 2), -1));
    tx_tensor *queries = section_of(graph, by_head(turned, heads, size), 0, heads, size),
              *keys = section_of(graph, by_head(distances, heads, size), 1, heads, size);
    tx_tensor *of_keys = by_position(key, queries, t), *of_queries = by_position(query, keys, t);
    if (!of_queries)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(of_queries);
    of_keys = tx_transpose(tx_reshape(of_keys, TX_SHAPE(shape.dim[0], t, t, 1)));
    return tx_add(of_queries, tx_reshape(of_keys, shape));
}

/* Divides x [B, T, parts * heads * size] into parts of [heads, B T, size]. */
static void divide(tx_graph *graph, tx_tensor *x, int64_t heads, int64_t parts, tx_tensor **part)
{
    const int64_t size = tx_shape_last(tx_tensor_shape(x)) / (parts * heads);
    tx_tensor *all = by_head(x, heads, size);
    for (int64_t i = 0; i < parts; i++)
        part[i] = section_of(graph, all, i, heads, size);
}

tx_tensor *tx_relative_attention(tx_stack *stack, tx_tensor *q, tx_tensor *k, tx_tensor *v,
                                 const tx_relative_options *options)
{
    const tx_relative_options *o = options;
    if (!q)
        return NULL;
    int32_t chunk;
    if (stack->parts > 1 || tx_graph_cp_size(stack->graph, &chunk) > 1) {
        tx_graph_fail(stack->graph, tx_fail(TX_UNSUPPORTED, "%s: ranks cannot divide attention with relative positions",
                                            stack->config->architecture->type));
        return NULL;
    }
    tx_tensor *part[3];
    divide(stack->graph, q, o->heads, k ? 1 : 3, part);
    if (k)
        divide(stack->graph, k, o->heads, v ? 1 : 2, part + 1);
    if (v)
        divide(stack->graph, v, o->heads, 1, part + 2);
    if (!part[0] || !part[1] || !part[2])
        return NULL;
    const int64_t rows = tx_tensor_shape(q)->dim[0], t = tx_tensor_shape(q)->dim[1], all = o->heads * rows;
    const int64_t s = k ? tx_tensor_shape(k)->dim[1] : t, size = tx_shape_last(tx_tensor_shape(part[0]));
    const double usual = 1.0 / sqrt((double)size * (o->distances ? 3.0 : 1.0));
    tx_tensor *of_distances = o->distances ? distance_scores(stack->graph, o->distances, part[0], part[1], t) : NULL;
    for (int i = 0; i < 3; i++)
        part[i] = tx_reshape(part[i], TX_SHAPE(all, i == 0 ? t : s, size));
    tx_tensor *p = tx_matmul(part[0], part[1], false, true);
    p = tx_scale(o->distances ? tx_add(p, of_distances) : p, (float)(o->scale > 0 ? o->scale : usual));
    p = tx_softmax(o->scores ? tx_add(p, tx_reshape(o->scores, TX_SHAPE(all, t, s))) : p);
    tx_tensor *y = tx_matmul(tx_stack_dropout(stack, p, o->dropout), part[2], false, false);
    y = tx_transpose(tx_reshape(y, TX_SHAPE(o->heads, rows * t, size)));
    return tx_reshape(y, TX_SHAPE(rows, t, o->heads * size));
}
