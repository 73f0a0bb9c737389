/* SPDX-License-Identifier: Apache-2.0
 * The update plan: global gradient norm, clip factor, and the optimizer over the flat arenas. */
#include "api/plan.h"

static const tx_attrs plain = {.control = -1, .alpha = 1.0f};

/* Chunk `c` of the parameters, seen in another arena as one vector. */
static tx_tensor *range(tx_graph *graph, tx_arena_id arena, int32_t chunk, int64_t bytes)
{
    int64_t address = chunk * graph->model->arena[TX_ARENA_WEIGHTS].chunk_bytes;
    return tx_tensor_fixed(graph, TX_F32, TX_SHAPE(bytes / (int64_t)sizeof(float)), arena, address);
}

/* Result GRAD_SUMSQ: chunk by chunk. */
static void add_sumsq(tx_graph *graph, int32_t chunk, int64_t bytes)
{
    tx_emit_args args = {.op = TX_OP_REDUCE, .attrs = plain};
    args.attrs.reduction = TX_REDUCE_SUMSQ;
    args.attrs.axis = TX_AXIS_ALL;
    args.attrs.accumulate = chunk == 0 ? TX_STORE : TX_ADD;
    args.in[0] = range(graph, TX_ARENA_GRADIENTS, chunk, bytes);
    args.out[0] = tx_tensor_result(graph, TX_RESULT_GRAD_SUMSQ);
    if (args.in[0] && args.out[0])
        tx_emit(graph, &args);
}

static void add_update(tx_graph *graph, const tx_optimizer_options *o, int32_t chunk, int64_t bytes,
                       int64_t group_address)
{
    const tx_model *model = graph->model;
    int32_t chunks = model->arena[TX_ARENA_WEIGHTS].chunks;
    tx_emit_args args = {.op = o->kind == TX_ADAMW ? TX_OP_ADAMW : TX_OP_SGD, .attrs = plain};
    args.attrs.beta1 = o->beta1;
    args.attrs.beta2 = o->beta2;
    args.attrs.eps = o->eps;
    args.attrs.momentum = o->momentum;
    args.attrs.weight_decay = o->weight_decay;
    args.in[0] = args.out[0] = range(graph, TX_ARENA_WEIGHTS, chunk, bytes);
    args.in[1] = range(graph, TX_ARENA_GRADIENTS, chunk, bytes);
    args.in[2] = tx_tensor_fixed(graph, TX_U8, TX_SHAPE(bytes / (TX_PARAM_BLOCK * (int64_t)sizeof(float))),
                                 TX_ARENA_STATE, group_address);
    for (int32_t k = 0; k < model->moments; k++)
        args.in[3 + k] = args.out[1 + k] = range(graph, TX_ARENA_OPTIMIZER, k * chunks + chunk, bytes);
    if (graph->status == TX_OK)
        tx_emit(graph, &args);
}

static tx_status check_options(const tx_optimizer_options *o)
{
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "optimizer options: size is %zu, wanted %zu", o->size, sizeof *o);
    bool betas = o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1 && o->eps >= 0;
    if (o->kind == TX_ADAMW && !betas)
        return tx_fail(TX_INVALID, "AdamW: betas must lie in [0, 1) and epsilon must not be negative");
    if (!(o->momentum >= 0) || !(o->weight_decay >= 0))
        return tx_fail(TX_INVALID, "optimizer: momentum and weight decay must not be negative");
    return TX_OK;
}

tx_status tx_optimizer_create(tx_model *model, const tx_optimizer_options *options, tx_plan **plan)
{
    tx_graph *graph = NULL;
    int64_t groups[TX_MAX_CHUNKS];
    tx_status status = check_options(options);
    if (status == TX_OK && !model->has_gradients)
        status = tx_fail(TX_INVALID, "the optimizer needs a graph with gradients first (tx_backward)");
    if (status == TX_OK && model->moments > 0)
        status = tx_fail(TX_INVALID, "the model has an optimizer already");
    if (status == TX_OK)
        status = tx_model_declare_groups(model, groups);
    if (status == TX_OK)
        status = tx_graph_create(model, &graph);
    if (status != TX_OK)
        return status;
    model->moments = options->kind == TX_ADAMW ? 2 : options->momentum > 0 ? 1 : 0;
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    graph->direction = TX_UPDATE;
    for (int32_t c = 0; c < weights->chunks; c++)
        add_sumsq(graph, c, weights->used[c]);
    tx_emit(graph, &(tx_emit_args){.op = TX_OP_CLIP_NORM, .attrs = plain});
    for (int32_t c = 0; c < weights->chunks; c++)
        add_update(graph, options, c, weights->used[c], groups[c]);
    return tx_plan_create_owned(graph, "update", plan);
}
