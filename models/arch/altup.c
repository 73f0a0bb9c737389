/* SPDX-License-Identifier: Apache-2.0
 *
 * What Gemma 3n (2025) has instead of a plain residual stream, for llama_graph.c. Alternating updates (Baykal et al.,
 * Alternating updates for efficient transformers, 2023): a block predicts all streams, computes the first one anew, and
 * corrects all by its change. Residuals of low rank (Menghani et al., LAuReL, 2024). Gates of which only the greatest
 * are kept, by the mean and the deviation of their row (You et al., Spark Transformer, 2025). */
#include "models/arch/llama_family.h"

#include <math.h>

#define COUNT TX_LLAMA_STREAMS
#define LEAST_SQUARE 1e-5f /* of a stream, on average */
#define TINY 1e-30f        /* keeps the root of 0 finite */

/* A number of each row of x [.., C], at all its elements. */
static tx_tensor *at_elements(tx_tensor *of_rows, const tx_tensor *x)
{
    return x ? tx_broadcast(of_rows, *tx_tensor_shape(x), TX_AXIS_LAST) : NULL;
}

static tx_tensor *plus(const tx_stack *b, tx_tensor *x, float number)
{
    return x ? tx_add(x, tx_fill(b->graph, *tx_tensor_shape(x), number)) : NULL;
}

/* The root of numbers from 0 on. */
static tx_tensor *root(const tx_stack *b, tx_tensor *x)
{
    return tx_mul(x, tx_rsqrt(plus(b, x, TINY)));
}

/* The mean square of each row of x [.., C]. */
static tx_tensor *mean_square(tx_tensor *x)
{
    return x ? tx_scale(tx_reduce(x, TX_REDUCE_SUMSQ, TX_AXIS_LAST), 1.0f / (float)tx_shape_last(tx_tensor_shape(x)))
             : NULL;
}

/* x [B, T, n * C] as [B * T, n, C], or back. */
static tx_tensor *by_token(tx_tensor *x, int64_t n)
{
    const tx_shape *shape = x ? tx_tensor_shape(x) : NULL;
    return x ? tx_reshape(x, TX_SHAPE(shape->dim[0] * shape->dim[1], n, shape->dim[2] / n)) : NULL;
}

static tx_tensor *like(tx_tensor *x, const tx_tensor *other)
{
    return other ? tx_reshape(x, *tx_tensor_shape(other)) : NULL;
}

/* Scales the rows of x to a mean square whose root is that of `size`, a number for each row. */
static tx_tensor *resized(const tx_stack *b, tx_tensor *x, tx_tensor *size)
{
    tx_tensor *square = plus(b, tx_relu(plus(b, mean_square(x), -LEAST_SQUARE)), LEAST_SQUARE);
    return tx_mul(x, at_elements(tx_mul(size, tx_rsqrt(square)), x));
}

tx_tensor *tx_llama_open_streams(tx_stack *b, tx_tensor *x)
{
    tx_tensor *others = tx_stack_linear(b, x, STREAMS_IN, NO_BIAS);
    tx_tensor *size = root(b, mean_square(x)), *rows = by_token(others, COUNT - 1);
    if (!rows || !size)
        return NULL;
    const int64_t tokens = tx_tensor_shape(rows)->dim[0];
    size = tx_broadcast(tx_reshape(size, TX_SHAPE(tokens)), TX_SHAPE(tokens, COUNT - 1), TX_AXIS_LAST);
    return tx_llama_join((tx_tensor *const[]){x, like(resized(b, rows, size), others)}, 2);
}

tx_tensor *tx_llama_close_streams(tx_stack *b, tx_tensor *streams)
{
    const int64_t width = b->config->width;
    tx_tensor *sum = columns_of(streams, 0, width), *size = root(b, mean_square(sum));
    for (int32_t i = 1; i < COUNT; i++) {
        tx_tensor *x = tx_stack_linear(b, columns_of(streams, i * width, width), STREAM_OUT + i - 1, NO_BIAS);
        sum = tx_add(sum, resized(b, x, size));
    }
    return tx_scale(sum, 1.0f / COUNT);
}

/* Coefficients of each token, [B, T, n], from the stream x [B, T, C] by the matrix in a slot. They are few, and act on
 * all streams: they are computed in fp32. */
static tx_tensor *coefficients(tx_stack *b, tx_tensor *x, int32_t slot)
{
    const llama_config *c = llama_of(b->config);
    x = tx_rms_norm(x, tx_tp_param(tx_stack_weight(b, STREAM_NORM)), (float)c->norms.eps);
    x = tx_linear_full(x, tx_tp_param(tx_stack_weight(b, STREAM_ROUTER)), NULL, true);
    tx_tensor *weight = tx_tp_param(tx_stack_weight(b, slot));
    if (b->options->train)
        weight = tx_stack_clip(b, weight, c->streams.limit);
    return tx_linear_full(tx_tanh(tx_scale(x, 1.0f / (float)c->base.width)), weight, NULL, true);
}

tx_tensor *tx_llama_predict_streams(tx_stack *b, tx_tensor *streams)
{
    tx_tensor *mix = coefficients(b, columns_of(streams, 0, b->config->width), STREAM_PREDICTION);
    tx_tensor *change = tx_matmul(by_token(mix, COUNT), by_token(streams, COUNT), false, false);
    return tx_add(streams, like(change, streams));
}

tx_tensor *tx_llama_correct_streams(tx_stack *b, tx_tensor *streams, tx_tensor *first, tx_tensor *updated,
                                    int64_t layer)
{
    tx_tensor *factors = by_token(plus(b, coefficients(b, updated, STREAM_CORRECTION), 1.0f), COUNT);
    tx_tensor *change = tx_add(updated, tx_scale(first, -1.0f));
    change = tx_matmul(factors, by_token(change, 1), false, false);
    streams = tx_add(streams, like(change, streams));
    first = columns_of(streams, 0, b->config->width);
    if (!first)
        return NULL;
    first = tx_mul(first,
                   tx_broadcast(tx_tp_param(tx_stack_weight(b, STREAM_SCALE)), *tx_tensor_shape(first), TX_AXIS_ROWS));
    tx_tensor *input = by_token(tx_llama_layer_input(b, first, layer), 1);
    tx_tensor *others = tx_shift_rows(tx_fill(b->graph, TX_SHAPE(1, COUNT - 1), 1.0f), COUNT, -1, 0); /* 0, 1, 1, 1 */
    input = tx_matmul(tx_reshape(others, TX_SHAPE(COUNT, 1)), input, false, false);
    return tx_add(streams, like(input, streams));
}

tx_tensor *tx_llama_augment(tx_stack *b, tx_tensor *x, tx_tensor *normed)
{
    if (!tx_stack_has(b, LOW_RANK_IN))
        return x;
    tx_tensor *part = tx_stack_linear(b, tx_stack_linear(b, normed, LOW_RANK_IN, NO_BIAS), LOW_RANK_OUT, NO_BIAS);
    part = tx_rms_norm(part, tx_tp_param(tx_stack_weight(b, LOW_RANK_NORM)), (float)llama_of(b->config)->norms.eps);
    return tx_scale(tx_add(x, tx_add(normed, part)), sqrtf(0.5f));
}

/* The number that a part p of a normal distribution with mean 0 and deviation 1 is below; 0 < p < 1. */
static double quantile(double p)
{
    double low = -10, high = 10;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2)) / 2 < p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The mean over tensor-parallel ranks, each of which uses it. */
static tx_tensor *of_ranks(const tx_stack *b, tx_tensor *x)
{
    return b->parts > 1 ? tx_scale(tx_tp_input(tx_tp_all_reduce(x)), 1.0f / (float)b->parts) : x;
}

tx_tensor *tx_llama_sparse_gates(const tx_stack *b, tx_tensor *x)
{
    if (!x)
        return NULL;
    const int64_t inner = tx_shape_last(tx_tensor_shape(x)) / 2;
    const float deviations = (float)quantile((double)sparsity_of(llama_of(b->config), b->block));
    tx_tensor *gate = columns_of(x, 0, inner);
    tx_tensor *mean = of_ranks(b, tx_reduce(gate, TX_REDUCE_MEAN, TX_AXIS_LAST));
    gate = tx_add(gate, at_elements(tx_scale(mean, -1.0f), gate));
    tx_tensor *least = tx_scale(root(b, of_ranks(b, mean_square(gate))), deviations);
    gate = tx_relu(tx_add(gate, at_elements(tx_scale(least, -1.0f), gate)));
    return tx_mul(tx_gelu(gate, false), columns_of(x, inner, inner));
}
