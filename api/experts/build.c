/* SPDX-License-Identifier: Apache-2.0
 * Builders for experts: routing, grouped products, and all-to-alls that move rows to experts of other ranks and back
 * (Lepikhin et al., GShard, 2020). */
#include "api/experts/experts.h"

#include "api/base/needs.h"
#include "api/model/model.h"
#include "backends/experts.h"

tx_tensor *tx_choose(tx_tensor *x, int64_t k, const tx_expert_choice *how, tx_tensor **indices)
{
    TX_NEEDS(x && how && indices, NULL);
    tx_emit_args args = {
        .op = TX_OP_TOP_K,
        .attrs = TX_ATTRS(.rows = k, .eps = how->eps, .choice = {how->groups, how->kept, how->best, how->normalize}),
        .in = {x, how->bias}};
    args.attrs.alpha = how->scale;
    tx_tensor *y = tx_emit(x->graph, &args);
    *indices = y ? args.out[TX_OUT(top_k, indices)] : NULL;
    return y;
}

tx_tensor *tx_top_k(tx_tensor *x, int64_t k, tx_tensor **indices)
{
    return tx_choose(x, k, &(tx_expert_choice){.scale = 1.0f}, indices);
}

bool tx_route(tx_tensor *choices, tx_tensor *ids, int64_t experts, float capacity, tx_routes *routes)
{
    TX_NEEDS(choices && routes, false);
    const tx_attrs attrs = TX_ATTRS(.rows = experts, .scale = capacity);
    tx_emit_args args = {.op = TX_OP_ROUTE, .attrs = attrs, .in = {choices, ids}};
    if (!tx_emit(choices->graph, &args))
        return false;
    *routes = (tx_routes){args.out[TX_OUT(route, tokens)], args.out[TX_OUT(route, places)],
                          args.out[TX_OUT(route, offsets)], args.out[TX_OUT(route, counts)]};
    return true;
}

tx_tensor *tx_grouped_linear(tx_tensor *x, tx_tensor *w, tx_tensor *offsets, bool transpose)
{
    return TX_EMIT(x, GROUPED_MATMUL, TX_ATTRS(.trans_b = transpose), x, w, offsets);
}

tx_tensor *tx_grouped_sums(tx_tensor *x, tx_tensor *offsets)
{
    tx_tensor *ones = x ? tx_fill(x->graph, TX_SHAPE(x->shape.dim[0], 1), 1.0f) : NULL;
    tx_tensor *sums = TX_EMIT(ones, GROUPED_MATMUL_GRAD, TX_PLAIN, x, ones, offsets);
    return sums ? tx_reshape(sums, TX_SHAPE(sums->shape.dim[0], sums->shape.dim[1])) : NULL;
}

tx_tensor *tx_combine(tx_tensor *x, tx_tensor *weights, const tx_routes *routes)
{
    TX_NEEDS(routes, NULL);
    return TX_EMIT(x, COMBINE, TX_PLAIN, x, weights, routes->places, routes->tokens);
}

/* ---- Experts of other ranks -------------------------------------------------------------------------------- */

tx_tensor *tx_move_rows(tx_op op, tx_tensor *x, tx_tensor *counts, int64_t rows)
{
    if (!x || !counts)
        return NULL;
    /* The rows on the expert side are sorted by rank: y of EP_DISPATCH, x of EP_COLLECT. */
    const int64_t moved = op == TX_OP_EP_DISPATCH ? rows : x->shape.dim[0],
                  own = op == TX_OP_EP_DISPATCH ? x->shape.dim[0] : rows;
    const int64_t room = moved + (x->graph->model->engine->backend->host_memory ? 0 : own);
    tx_tensor *w = tx_tensor_planned(x->graph, x->dtype, TX_SHAPE(room, x->shape.dim[1]), TX_ARENA_EXCHANGE);
    return tx_emit(x->graph,
                   &(tx_emit_args){
                       .op = op, .attrs = TX_ATTRS(.rows = rows), .in = {x, counts}, .out[TX_OUT(ep_dispatch, w)] = w});
}

/* Sends the numbers of rows to the ranks of the group. */
static bool share_routes(const tx_routes *routes, int64_t own, tx_arrivals *arrivals)
{
    tx_graph *graph = routes->offsets->graph;
    tx_emit_args args = {.op = TX_OP_SHARE_ROUTES, .attrs = TX_ATTRS(.rows = own), .in = {routes->offsets}};
    arrivals->counts = tx_tensor_planned(graph, TX_I32, TX_SHAPE(3, routes->offsets->shape.dim[0]), TX_ARENA_EXCHANGE);
    args.out[TX_OUT(share_routes, counts)] = arrivals->counts;
    if (!arrivals->counts)
        return false;
    arrivals->counts->producer = graph->nodes;
    arrivals->offsets = tx_emit(graph, &args);
    return arrivals->offsets != NULL;
}

tx_tensor *tx_ep_dispatch(tx_tensor *x, const tx_routes *routes, int64_t chosen, float capacity, tx_arrivals *arrivals)
{
    TX_NEEDS(routes && arrivals && chosen > 0 && capacity >= 0.0f, NULL);
    if (!x)
        return NULL;
    const int64_t ranks = x->graph->model->mesh.expert.size, rows = x->shape.dim[0];
    *arrivals = (tx_arrivals){.offsets = routes->offsets, .rows = rows};
    if (ranks == 1)
        return x;
    const int64_t experts = routes->offsets->shape.dim[0] - 1, own = experts / ranks;
    const int64_t of_tokens = rows / chosen * tx_min(chosen, own);
    arrivals->rows = ranks * tx_min(of_tokens, own * tx_expert_capacity(capacity, rows, experts));
    return share_routes(routes, own, arrivals) ? tx_move_rows(TX_OP_EP_DISPATCH, x, arrivals->counts, arrivals->rows)
                                               : NULL;
}

tx_tensor *tx_ep_collect(tx_tensor *x, const tx_routes *routes, const tx_arrivals *arrivals)
{
    TX_NEEDS(routes && arrivals, NULL);
    if (!x || !arrivals->counts)
        return x;
    return tx_move_rows(TX_OP_EP_COLLECT, x, arrivals->counts, tx_shape_count(&routes->tokens->shape));
}
