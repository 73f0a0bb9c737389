/* SPDX-License-Identifier: Apache-2.0
 * Mixture-of-experts layers and the losses of their routers. */
#include "models/arch/experts.h"

static tx_tensor *add_up(tx_tensor *sum, tx_tensor *x)
{
    return sum ? tx_add(sum, x) : x;
}

/* Zeroes the rows of x [N, ..] that belong to padding, whose ids [N] are negative. */
static tx_tensor *without_padding(tx_stack *stack, tx_tensor *x, tx_tensor *ids)
{
    tx_tensor *ones = tx_fill(stack->graph, TX_SHAPE(stack->config->vocab_size, 1), 1.0f);
    tx_tensor *kept = tx_gather(ones, ids);
    if (!kept || !x)
        return NULL;
    kept = tx_reshape(kept, TX_SHAPE(tx_shape_count(tx_tensor_shape(ids))));
    return tx_mul(x, tx_tensor_shape(x)->rank == 1 ? kept : tx_broadcast(kept, *tx_tensor_shape(x), TX_AXIS_LAST));
}

/* Adds a layer to the sums that the router losses need, as far as they are requested. */
static void note_router(tx_stack *stack, const tx_experts *e, tx_tensor *logits, tx_tensor *probabilities,
                        tx_tensor *ids, const tx_routes *routes)
{
    stack->routers.rows += tx_tensor_shape(logits)->dim[0];
    if (stack->options->capacity > 0.0f) { /* dropped tokens gather rows of 0 */
        tx_tensor *ones = tx_fill(stack->graph, TX_SHAPE(tx_tensor_shape(logits)->dim[0], 1), 1.0f);
        stack->routers.kept =
            add_up(stack->routers.kept, tx_reduce(tx_gather(ones, routes->tokens), TX_REDUCE_SUM, TX_AXIS_ALL));
        stack->routers.all = add_up(stack->routers.all, tx_reduce(routes->counts, TX_REDUCE_SUM, TX_AXIS_ALL));
    }
    if (!stack->options->own_loss)
        return;
    if (e->balance) {
        tx_tensor *real = without_padding(stack, probabilities, ids);
        stack->routers.counts = add_up(stack->routers.counts, routes->counts);
        stack->routers.probabilities =
            add_up(stack->routers.probabilities, tx_reduce(real, TX_REDUCE_SUM, TX_AXIS_ROWS));
    }
    if (stack->options->z_loss > 0.0f) {
        tx_tensor *real = without_padding(stack, tx_log_sum_exp(logits), ids);
        stack->routers.squares = add_up(stack->routers.squares, tx_reduce(real, TX_REDUCE_SUMSQ, TX_AXIS_ALL));
    }
}

/* A product of the rows of each expert, plus its bias: a product of ones with the biases as matrices of one row. */
static tx_tensor *expert_linear(const tx_stack *stack, const tx_experts *e, tx_tensor *x, int32_t weight, int32_t bias,
                                tx_tensor *offsets)
{
    tx_tensor *y = tx_grouped_linear(x, tx_stack_weight(stack, weight), offsets, !(e->limit > 0.0f));
    tx_tensor *biases = y && tx_stack_has(stack, bias) ? tx_stack_weight(stack, bias) : NULL;
    if (!biases)
        return y;
    const tx_shape shape = *tx_tensor_shape(biases);
    tx_tensor *ones = tx_fill(stack->graph, TX_SHAPE(tx_tensor_shape(x)->dim[0], 1), 1.0f);
    biases = tx_reshape(biases, TX_SHAPE(shape.dim[0], 1, shape.dim[1]));
    return tx_add(y, tx_grouped_linear(ones, biases, offsets, false));
}

/* h [R, 2 F] has alternating gates and ups, or gates | ups. */
static tx_tensor *expert_activation(const tx_experts *e, tx_tensor *h)
{
    if (!h || !(e->limit > 0.0f))
        return tx_swiglu(h);
    const tx_shape shape = *tx_tensor_shape(h);
    tx_tensor *pairs = tx_transpose(tx_reshape(h, TX_SHAPE(shape.dim[0], shape.dim[1] / 2, 2, 1)));
    return tx_swiglu_clamped(tx_reshape(pairs, shape), e->alpha, e->limit);
}

tx_tensor *tx_stack_experts(tx_stack *stack, tx_tensor *x, const tx_experts *experts)
{
    if (x && tx_graph_sequence(stack->graph))
        tx_graph_fail(stack->graph,
                      tx_fail(TX_UNSUPPORTED, "sequence parallelism is not implemented for models with experts"));
    if (!x)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(x);
    const int64_t tokens = tx_shape_rows(&shape);
    tx_tensor *rows = tx_reshape(x, TX_SHAPE(tokens, tx_shape_last(&shape))), *choices = NULL;
    const int32_t of_bias = experts->router_bias;
    tx_tensor *router_bias = tx_stack_has(stack, of_bias) ? tx_stack_weight(stack, of_bias) : NULL;
    tx_tensor *logits = tx_linear_full(rows, tx_stack_weight(stack, experts->router), router_bias, true),
              *probabilities = tx_softmax(logits);
    /* The softmax of the chosen logits equals that of all logits, normalised to sum 1. */
    tx_tensor *scores = experts->normalise ? logits : probabilities;
    tx_tensor *weights = scores ? tx_top_k(scores, experts->chosen, &choices) : NULL;
    tx_routes routes;
    const float capacity = stack->options->capacity;
    tx_tensor *ids = tx_reshape(stack->tokens, TX_SHAPE(tokens));
    if (!weights || !ids || !tx_route(choices, ids, experts->count, capacity, &routes))
        return NULL;
    note_router(stack, experts, logits, probabilities, ids, &routes);
    /* Tensor-parallel ranks all compute the routing, and each a slice of every expert. Expert-parallel ranks own whole
     * experts and exchange tokens. */
    tx_tensor *h = tx_gather(tx_tp_input(rows), routes.tokens);
    tx_arrivals arrivals;
    h = tx_ep_dispatch(h, &routes, experts->chosen, capacity, &arrivals);
    h = expert_linear(stack, experts, h, experts->gate_up, experts->gate_up_bias, arrivals.offsets);
    h = expert_linear(stack, experts, expert_activation(experts, h), experts->down, experts->down_bias,
                      arrivals.offsets);
    h = tx_ep_collect(h, &routes, &arrivals);
    h = tx_combine(h, tx_tp_input(experts->normalise ? tx_softmax(weights) : weights), &routes);
    h = tx_tp_all_reduce(h);
    return h ? tx_reshape(h, shape) : NULL;
}

void tx_stack_router_loss(tx_stack *stack, const tx_experts *experts, double balance)
{
    const double rows = (double)stack->routers.rows;
    tx_tensor *loss = NULL;
    if (stack->routers.kept)
        tx_add_to_result(tx_add(stack->routers.all, tx_scale(stack->routers.kept, -1.0f)), TX_RESULT_DROPPED);
    if (!stack->options->own_loss)
        return;
    if (stack->routers.counts) {
        tx_tensor *products = tx_mul(stack->routers.probabilities, stack->routers.counts);
        const double factor = balance * (double)experts->count / (rows * rows);
        loss = tx_scale(tx_reduce(products, TX_REDUCE_SUM, TX_AXIS_ALL), (float)factor);
        loss = tx_mean_of_tokens(tx_mean_of_tokens(loss));
    }
    if (stack->routers.squares)
        loss = add_up(loss, tx_mean_of_tokens(tx_scale(stack->routers.squares, stack->options->z_loss / (float)rows)));
    *stack->options->own_loss = loss ? tx_share_loss(loss) : NULL;
}
