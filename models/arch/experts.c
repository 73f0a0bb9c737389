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

/* The choices of each expert that the load-balancing loss counts: those of the greatest probabilities, whatever a bias
 * or groups select. */
static tx_tensor *greatest_counts(tx_stack *stack, const tx_experts *e, tx_tensor *probabilities, tx_tensor *ids,
                                  const tx_routes *routes)
{
    tx_tensor *choices;
    tx_routes greatest;
    if (!tx_stack_has(stack, e->choice_bias) && e->groups == 0)
        return routes->counts;
    return tx_top_k(probabilities, e->chosen, &choices) && tx_route(choices, ids, e->count, 0.0f, &greatest)
               ? greatest.counts
               : NULL;
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
        stack->routers.counts = add_up(stack->routers.counts, greatest_counts(stack, e, probabilities, ids, routes));
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
    tx_tensor *y = tx_stack_grouped(stack, x, weight, offsets, e->inputs_first);
    tx_tensor *biases = y && tx_stack_has(stack, bias) ? tx_stack_weight(stack, bias) : NULL;
    if (!biases)
        return y;
    const tx_shape shape = *tx_tensor_shape(biases);
    tx_tensor *ones = tx_fill(stack->graph, TX_SHAPE(tx_tensor_shape(x)->dim[0], 1), 1.0f);
    biases = tx_reshape(biases, TX_SHAPE(shape.dim[0], 1, shape.dim[1]));
    return tx_add(y, tx_grouped_linear(ones, biases, offsets, false));
}

/* h [R, 2 F] has alternating gates and ups, or gates | ups; or h [R, F] no gates. */
static tx_tensor *expert_activation(const tx_experts *e, tx_tensor *h)
{
    if (e->squares) {
        h = tx_relu(h);
        return tx_mul(h, h);
    }
    if (!h || !(e->limit > 0.0f))
        return e->gelu ? tx_geglu(h) : tx_swiglu(h);
    const tx_shape shape = *tx_tensor_shape(h);
    tx_tensor *pairs = tx_transpose(tx_reshape(h, TX_SHAPE(shape.dim[0], shape.dim[1] / 2, 2, 1)));
    return tx_swiglu_clamped(tx_reshape(pairs, shape), e->alpha, e->limit);
}

/* max(x, y) */
static tx_tensor *greater(tx_tensor *x, tx_tensor *y)
{
    return tx_add(y, tx_relu(tx_add(x, tx_scale(y, -1.0f))));
}

/* 1 where x is at least 0, else 0; for |x| above 1e-30. */
static tx_tensor *at_least_0(tx_stack *stack, tx_tensor *x)
{
    tx_tensor *one = x ? tx_fill(stack->graph, *tx_tensor_shape(x), 1.0f) : NULL;
    return tx_detach(tx_relu(tx_add(one, tx_scale(tx_relu(tx_scale(x, -1.0f)), -1e30f))));
}

/* The share of a choice, whose logit is `most` [N, 1], in the softmax over those logits that are near it, and that
 * `open` [N, E] has as 1. */
static tx_tensor *share_of_near(tx_stack *stack, const tx_experts *e, tx_tensor *logits, tx_tensor *most,
                                tx_tensor *open)
{
    const tx_shape shape = *tx_tensor_shape(logits), rows = TX_SHAPE(shape.dim[0]);
    most = most ? tx_broadcast(tx_reshape(most, rows), shape, TX_AXIS_LAST) : NULL;
    tx_tensor *below = tx_add(most, tx_scale(logits, -1.0f));
    tx_tensor *size = tx_add(tx_relu(logits), tx_relu(tx_scale(logits, -1.0f)));
    tx_tensor *near = at_least_0(stack, tx_add(tx_scale(greater(size, most), 2 * e->mixer), tx_scale(below, -1.0f)));
    tx_tensor *terms = tx_mul(tx_exponential(tx_scale(tx_relu(below), -1.0f)), open ? tx_mul(near, open) : near);
    tx_tensor *root = tx_rsqrt(tx_reduce(terms, TX_REDUCE_SUM, TX_AXIS_LAST));
    return root ? tx_reshape(tx_mul(root, root), TX_SHAPE(shape.dim[0], 1)) : NULL;
}

/* SparseMixer (Liu et al., GRIN, 2024) as in inference, without noise: the greatest logit, and the next one, which is
 * compared with all but the first. */
static tx_tensor *mix(tx_stack *stack, const tx_experts *e, tx_tensor *logits, tx_tensor **choices)
{
    tx_tensor *most = tx_top_k(logits, 2, choices);
    if (!most)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(logits);
    tx_tensor *ones = tx_fill(stack->graph, TX_SHAPE(e->count, 1), -1.0f);
    tx_tensor *best;
    if (!tx_top_k(logits, 1, &best))
        return NULL;
    tx_tensor *others = tx_gather(tx_shift_rows(ones, e->count, 0, -1), tx_reshape(best, TX_SHAPE(shape.dim[0])));
    others = tx_add(others, tx_fill(stack->graph, shape, 1.0f));
    tx_tensor *first = share_of_near(stack, e, logits, tx_shift_rows(most, 1, 0, 0), NULL);
    tx_tensor *second = share_of_near(stack, e, logits, tx_shift_rows(most, 1, 1, 0), others);
    return tx_add(tx_shift_rows(first, 2, 0, 0), tx_shift_rows(second, 2, -1, 0));
}

/* The weights of the experts of each token [N, k], and which these are, by the logits of the router [N, E]. */
static tx_tensor *choose(tx_stack *stack, const tx_experts *e, tx_tensor *logits, tx_tensor *probabilities,
                         tx_tensor **choices)
{
    const bool biased = tx_stack_has(stack, e->choice_bias), scaled = e->scale > 0.0f && e->scale != 1.0f;
    if (e->mixer > 0.0f)
        return mix(stack, e, logits, choices);
    /* The softmax of the chosen logits equals that of all logits, normalised to sum 1. */
    if (e->normalise && !e->sigmoid && !biased && e->groups == 0 && !scaled)
        return tx_softmax(tx_top_k(logits, e->chosen, choices));
    tx_expert_choice how = {.groups = e->groups, .kept = e->kept, .best = e->best, .normalize = e->normalise};
    how.bias = biased ? tx_stack_weight(stack, e->choice_bias) : NULL;
    how.bias = how.bias ? tx_reshape(how.bias, TX_SHAPE(e->count)) : NULL;
    how.eps = e->least;
    how.scale = scaled ? e->scale : 1.0f;
    tx_tensor *scores = e->sigmoid ? tx_sigmoid(logits) : probabilities;
    return scores ? tx_choose(scores, e->chosen, &how, choices) : NULL;
}

/* The weights [N, k] of choices times the factors of their experts, if there are any. */
static tx_tensor *times_factors(tx_stack *stack, const tx_experts *e, tx_tensor *weights, tx_tensor *choices)
{
    if (!weights || !tx_stack_has(stack, e->factors))
        return weights;
    const tx_shape shape = *tx_tensor_shape(weights);
    tx_tensor *column = tx_reshape(tx_stack_weight(stack, e->factors), TX_SHAPE(e->count, 1));
    tx_tensor *factors = tx_gather(column, tx_reshape(choices, TX_SHAPE(tx_shape_count(&shape))));
    return factors ? tx_mul(weights, tx_reshape(factors, shape)) : NULL;
}

/* The weights [N, k] of choices in the order of slots, at all elements of their rows of h. */
static tx_tensor *of_slots(const tx_routes *routes, tx_tensor *weights, const tx_tensor *h)
{
    const int64_t slots = tx_shape_count(tx_tensor_shape(weights));
    tx_tensor *sorted = tx_scatter_add(routes->places, tx_reshape(weights, TX_SHAPE(slots, 1)), slots);
    return h ? tx_broadcast(tx_reshape(sorted, TX_SHAPE(slots)), *tx_tensor_shape(h), TX_AXIS_LAST) : NULL;
}

/* The router's logits of all positions [N, E]. A rank computes those of its chunk. */
static tx_tensor *route_logits(const tx_stack *stack, const tx_experts *e, tx_tensor *x)
{
    tx_tensor *router = tx_tp_param(tx_stack_weight(stack, e->router));
    tx_tensor *bias = tx_stack_has(stack, e->router_bias) ? tx_tp_param(tx_stack_weight(stack, e->router_bias)) : NULL;
    tx_tensor *logits = tx_tp_replicate(tx_linear_full(x, router, bias, true));
    return logits ? tx_reshape(logits, TX_SHAPE(tx_shape_count(tx_tensor_shape(stack->tokens)), e->count)) : NULL;
}

tx_tensor *tx_stack_experts(tx_stack *stack, tx_tensor *x, const tx_experts *experts)
{
    tx_tensor *logits = route_logits(stack, experts, experts->scored ? experts->scored : x),
              *probabilities = tx_softmax(logits), *choices = NULL;
    tx_tensor *weights = logits ? choose(stack, experts, logits, probabilities, &choices) : NULL;
    weights = times_factors(stack, experts, weights, choices);
    const tx_shape rows = *tx_tensor_shape(stack->tokens);
    const int64_t tokens = tx_shape_count(&rows), width = stack->config->width;
    tx_routes routes;
    const float capacity = stack->options->capacity;
    tx_tensor *ids = tx_reshape(stack->tokens, TX_SHAPE(tokens));
    if (!weights || !ids || !tx_route(choices, ids, experts->count, capacity, &routes))
        return NULL;
    note_router(stack, experts, logits, probabilities, ids, &routes);
    /* Tensor-parallel ranks all compute the routing, and each a slice of every expert. Expert-parallel ranks own whole
     * experts and exchange tokens. */
    tx_tensor *h = tx_gather(tx_reshape(tx_tp_all_gather(x), TX_SHAPE(tokens, width)), routes.tokens);
    if (experts->scales_inputs) {
        h = tx_mul(h, of_slots(&routes, weights, h));
        weights = tx_fill(stack->graph, *tx_tensor_shape(weights), 1.0f);
    }
    tx_arrivals arrivals;
    h = tx_ep_dispatch(h, &routes, experts->chosen, capacity, &arrivals);
    h = expert_linear(stack, experts, h, experts->gate_up, experts->gate_up_bias, arrivals.offsets);
    h = expert_linear(stack, experts, expert_activation(experts, h), experts->down, experts->down_bias,
                      arrivals.offsets);
    h = tx_ep_collect(h, &routes, &arrivals);
    h = tx_combine(h, tx_tp_input(weights), &routes);
    return h ? tx_tp_reduce_scatter(tx_reshape(h, TX_SHAPE(rows.dim[0], rows.dim[1], width))) : NULL;
}

void tx_stack_router_loss(tx_stack *stack, const tx_experts *experts, double balance)
{
    const double rows = (double)stack->routers.rows;
    int32_t chunk;
    const int32_t chunks = tx_graph_cp_size(stack->graph, &chunk); /* of a row, with context parallelism */
    tx_tensor *loss = NULL;
    if (stack->routers.kept)
        tx_add_to_result(tx_add(stack->routers.all, tx_scale(stack->routers.kept, -1.0f)), TX_RESULT_DROPPED);
    if (!stack->options->own_loss)
        return;
    if (stack->routers.counts && chunks > 1)
        tx_graph_fail(stack->graph,
                      tx_fail(TX_UNSUPPORTED, "the routers' balance loss needs whole rows, which "
                                              "--context_parallel divides: set router_aux_loss_coef to 0"));
    if (stack->routers.counts) {
        tx_tensor *products = tx_mul(stack->routers.probabilities, stack->routers.counts);
        const double factor = balance * (double)experts->count / (rows * rows);
        loss = tx_scale(tx_reduce(products, TX_REDUCE_SUM, TX_AXIS_ALL), (float)factor);
        loss = tx_mean_of_tokens(tx_mean_of_tokens(loss));
    }
    if (stack->routers.squares)
        loss = add_up(
            loss, tx_mean_of_tokens(tx_scale(stack->routers.squares, stack->options->z_loss / (float)(rows * chunks))));
    *stack->options->own_loss = loss ? tx_share_loss(loss) : NULL;
}
