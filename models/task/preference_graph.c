/* SPDX-License-Identifier: Apache-2.0
 * Parts of the graphs of losses of preferences. */
#include "models/task/preference.h"

/* The constant [left, right]. */
static tx_tensor *two(tx_graph *graph, float left, float right)
{
    tx_tensor *right_only =
        tx_gather(tx_fill(graph, TX_SHAPE(1, 1), right - left), tx_range(graph, TX_SHAPE(2), -1, 1));
    return tx_add(tx_reshape(right_only, TX_SHAPE(2)), tx_fill(graph, TX_SHAPE(2), left));
}

tx_tensor *tx_preference_mix(tx_graph *graph, tx_tensor *x, float left, float right)
{
    if (!x)
        return NULL;
    tx_tensor *weights = tx_broadcast(two(graph, left, right), *tx_tensor_shape(x), TX_AXIS_ROWS);
    return tx_reduce(tx_mul(x, weights), TX_REDUCE_SUM, TX_AXIS_LAST);
}

tx_tensor *tx_preference_plus(tx_graph *graph, tx_tensor *x, float number)
{
    return x ? tx_add(x, tx_fill(graph, *tx_tensor_shape(x), number)) : NULL;
}

/* The cross-entropy of the logits x and 0. */
tx_tensor *tx_preference_nls(tx_graph *graph, tx_tensor *x)
{
    if (!x)
        return NULL;
    const tx_shape shape = TX_SHAPE(tx_shape_count(tx_tensor_shape(x)), 2);
    tx_tensor *logits =
        tx_mul(tx_broadcast(x, shape, TX_AXIS_LAST), tx_broadcast(two(graph, 1, 0), shape, TX_AXIS_ROWS));
    return tx_cross_entropy(logits, tx_range(graph, *tx_tensor_shape(x), 0, 0), 2);
}

tx_tensor *tx_preference_sigmoid(tx_graph *graph, tx_tensor *x)
{
    return tx_preference_plus(graph, tx_scale(tx_tanh(tx_scale(x, 0.5f)), 0.5f), 0.5f);
}

tx_tensor *tx_preference_is_positive(tx_tensor *x)
{
    const float large = 1e30f;
    tx_tensor *sign = tx_tanh(tx_scale(tx_detach(x), large));
    return tx_detach(tx_scale(tx_add(tx_mul(sign, sign), sign), 0.5f));
}

tx_tensor *tx_preference_join(tx_graph *graph, tx_tensor *const *columns, int32_t count, tx_tensor *weight)
{
    if (!weight)
        return NULL;
    const int64_t n = tx_tensor_shape(weight)->dim[0];
    tx_tensor *sum = NULL;
    for (int32_t i = 0; i < count; i++) {
        tx_tensor *places = tx_range(graph, TX_SHAPE(n), i, count);
        tx_tensor *column = columns[i] ? tx_reshape(tx_detach(columns[i]), TX_SHAPE(n, 1)) : NULL;
        tx_tensor *spread = tx_scatter_add(places, column, n * count);
        sum = i ? tx_add(sum, spread) : spread;
    }
    return tx_mul(tx_reshape(sum, TX_SHAPE(n, count)), tx_broadcast(weight, TX_SHAPE(n, count), TX_AXIS_LAST));
}

tx_tensor *tx_preference_quotient(tx_graph *graph, tx_tensor *x, tx_tensor *y)
{
    const float tiny = 1e-30f;
    tx_tensor *root = tx_rsqrt(tx_preference_plus(graph, tx_reduce(y, TX_REDUCE_SUM, TX_AXIS_ALL), tiny));
    return tx_mul(tx_reduce(x, TX_REDUCE_SUM, TX_AXIS_ALL), tx_mul(root, root));
}

tx_tensor *tx_preference_sums(tx_tensor *tokens)
{
    tx_tensor *sums = tx_reduce(tokens, TX_REDUCE_SUM, TX_AXIS_LAST);
    return sums ? tx_reshape(sums, TX_SHAPE(tx_tensor_shape(tokens)->dim[0] / 2, 2)) : NULL;
}

tx_tensor *tx_preference_counts(tx_graph *graph, const char *input, int64_t vocab)
{
    tx_tensor *ids = tx_find_input(graph, input), *ones = tx_gather(tx_fill(graph, TX_SHAPE(vocab, 1), 1.0f), ids);
    return ones ? tx_preference_sums(tx_reshape(ones, *tx_tensor_shape(ids))) : NULL;
}

tx_tensor *tx_preference_token_mean(tx_graph *graph, tx_tensor *sums, tx_tensor *counts, float left, float right,
                                    tx_tensor *weight)
{
    if (!weight)
        return NULL;
    tx_tensor *tokens = tx_mul(tx_preference_mix(graph, counts, left, right), weight),
              *rows_per_token = tx_preference_quotient(graph, weight, tokens);
    return tx_mul(tx_mul(tx_preference_mix(graph, sums, left, right), weight),
                  tx_broadcast(rows_per_token, *tx_tensor_shape(weight), TX_AXIS_ALL));
}

tx_tensor *tx_preference_nll(const tx_preference_batch *b)
{
    return tx_scale(tx_preference_token_mean(b->graph, b->labels, b->counts, 1, 0, b->weight), -1.0f);
}
