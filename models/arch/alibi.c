/* SPDX-License-Identifier: Apache-2.0
 * ALiBi as elements of q and k. */
#include "models/arch/alibi.h"

#include <math.h>

/* New elements of a head. Two are used: a number in fp32 is the sum of one that BF16 can hold, and the rest. With 8,
 * heads of 16-bit types keep their alignment to 16 bytes. */
enum { USED = 2, EXTRA = 8 };

/* The rows of `low`, then those of `high`. */
static tx_tensor *join(tx_graph *graph, tx_tensor *low, tx_tensor *high)
{
    if (!low || !high)
        return NULL;
    const int64_t first = tx_tensor_shape(low)->dim[0], rest = tx_tensor_shape(high)->dim[0];
    return tx_add(tx_scatter_add(tx_range(graph, TX_SHAPE(first), 0, 1), low, first + rest),
                  tx_scatter_add(tx_range(graph, TX_SHAPE(rest), (int32_t)first, 1), high, first + rest));
}

/* [0], [1], .. up to at least `count` rows. */
static tx_tensor *count_up(tx_graph *graph, int64_t count)
{
    tx_tensor *x = tx_fill(graph, TX_SHAPE(1, 1), 0.0f);
    for (int64_t n = 1; n < count; n *= 2)
        x = join(graph, x, tx_add(x, tx_fill(graph, TX_SHAPE(n, 1), (float)n)));
    return x;
}

tx_tensor *tx_powers(tx_graph *graph, double first, double ratio, int64_t count)
{
    tx_tensor *x = tx_fill(graph, TX_SHAPE(1, 1), (float)first);
    for (int64_t n = 1; n < count; n *= 2)
        x = join(graph, x, tx_scale(x, (float)pow(ratio, (double)n)));
    return x;
}

/* The slopes of heads first, .., first + count - 1: [count, 1]. If the number of heads is no power of two, the heads
 * after the greatest power have every second slope of twice as many heads. */
static tx_tensor *slopes(tx_graph *graph, const tx_alibi *a, int64_t first, int64_t count)
{
    int64_t whole = 1;
    while (2 * whole <= a->heads)
        whole *= 2;
    const double ratio = pow(2, -8 / (double)whole);
    tx_tensor *x = tx_powers(graph, ratio, ratio, whole);
    if (whole < a->heads)
        x = join(graph, x, tx_powers(graph, sqrt(ratio), ratio, a->heads - whole));
    return tx_gather(x, tx_range(graph, TX_SHAPE(count), (int32_t)first, 1));
}

static tx_tensor *rounded(tx_tensor *x)
{
    return tx_cast(tx_cast(x, TX_BF16), TX_F32);
}

/* The position of each token, [B, T, 1], as an embedding of positions whose tokens have zeros. */
static tx_tensor *positions_of(const tx_stack *stack)
{
    tx_tensor *zeros = tx_fill(stack->graph, TX_SHAPE(tx_arch_padded_vocab(stack->config), 1), 0.0f);
    return tx_embedding(stack->tokens, zeros, count_up(stack->graph, tx_stack_length(stack)), stack->positions);
}

/* [heads, columns]: row h is 1 in element `element` of the head of k with that number. */
static tx_tensor *into_keys(tx_graph *graph, int64_t heads, int64_t size, int64_t element)
{
    const int64_t columns = 3 * heads * size;
    tx_tensor *places = tx_range(graph, TX_SHAPE(heads), (int32_t)(heads * size + element), (int32_t)(columns + size));
    tx_tensor *ones = tx_scatter_add(places, tx_fill(graph, TX_SHAPE(heads, 1), 1.0f), heads * columns);
    return ones ? tx_reshape(ones, TX_SHAPE(heads, columns)) : NULL;
}

/* [columns]: `number` in the used elements of the heads of q. */
static tx_tensor *of_queries(tx_graph *graph, int64_t heads, int64_t size, float number)
{
    tx_tensor *sum = NULL;
    for (int64_t i = size - EXTRA; i < size - EXTRA + USED; i++) {
        tx_tensor *places = tx_range(graph, TX_SHAPE(heads), (int32_t)i, (int32_t)size);
        tx_tensor *part = tx_scatter_add(places, tx_fill(graph, TX_SHAPE(heads, 1), number), 3 * heads * size);
        sum = sum ? tx_add(sum, part) : part;
    }
    return sum ? tx_reshape(sum, TX_SHAPE(3 * heads * size)) : NULL;
}

tx_tensor *tx_alibi_elements(tx_stack *stack, const tx_alibi *a)
{
    tx_graph *graph = stack->graph;
    const int64_t heads = tx_stack_heads_per_rank(stack, a->heads, "num_attention_heads"), size = a->size + EXTRA;
    tx_tensor *slope = slopes(graph, a, stack->part * heads, heads), *position = positions_of(stack);
    if (a->rounded) {
        slope = rounded(slope);
        position = rounded(position);
    }
    tx_tensor *bias = tx_linear_full(position, slope, NULL, true), *high = rounded(bias);
    if (!high)
        return NULL;
    tx_tensor *x = tx_linear_full(high, into_keys(graph, heads, size, a->size), NULL, false);
    if (!a->rounded) {
        tx_tensor *low = tx_add(bias, tx_scale(high, -1.0f));
        x = tx_add(x, tx_linear_full(low, into_keys(graph, heads, size, a->size + 1), NULL, false));
    }
    if (!x)
        return NULL;
    tx_tensor *queries = of_queries(graph, heads, size, a->rounded ? 1.0f : (float)(1 / a->scale));
    return tx_detach(tx_add(x, tx_broadcast(queries, *tx_tensor_shape(x), TX_AXIS_ROWS)));
}

/* Changes the size of each head: cuts the end, or appends zeros. */
static tx_tensor *resize(tx_tensor *x, int64_t heads, int64_t from, int64_t to)
{
    if (!x)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(x);
    x = tx_shift_rows(tx_reshape(x, TX_SHAPE(shape.dim[0] * shape.dim[1], heads, from)), to, 0, 0);
    return x ? tx_reshape(x, TX_SHAPE(shape.dim[0], shape.dim[1], heads * to)) : NULL;
}

tx_tensor *tx_alibi_add(const tx_stack *stack, tx_tensor *qkv, int64_t heads, int64_t size)
{
    qkv = resize(qkv, 3 * heads, size, size + EXTRA);
    return qkv && stack->scores ? tx_add(qkv, stack->scores) : NULL;
}

tx_tensor *tx_alibi_remove(tx_tensor *x, int64_t heads, int64_t size)
{
    return resize(x, heads, size + EXTRA, size);
}
