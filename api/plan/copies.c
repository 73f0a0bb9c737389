/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps arena HALF up to date. The update writes a weight and its 16-bit copy. If weights are written in another manner
 * (from files, by other ranks, by an optimizer whose kernel does not write copies), a plan casts them before the next
 * program runs. It has one cast for each range (tx_weight_copies). A weight is thus cast once a step, even if several
 * passes read it. */
#include "api/plan/plan.h"

/* Returns the arena of the copied weights. */
static const tx_arena *arena_of(const tx_model *model)
{
    return &model->arena[model->exchange.weights];
}

int64_t tx_copies_elements(const tx_model *model)
{
    const int64_t all = arena_of(model)->chunk_bytes / (int64_t)sizeof(float),
                  piece = tx_offload_elements(model->optimizer);
    return tx_model_weights_offloaded(model) && piece < all ? piece : all;
}

bool tx_copies_range(const tx_model *model, int32_t number, tx_copy_range *r)
{
    const tx_arena *weights = arena_of(model);
    const int64_t limit = tx_copies_elements(model), word = (int64_t)sizeof(float);
    if (model->copies.range) {
        if (number < model->copies.ranges)
            *r = model->copies.range[number];
        return number < model->copies.ranges;
    }
    int64_t first = number * limit;
    for (int32_t c = 0; c < weights->chunks; c++) {
        const int64_t elements = weights->used[c] / word, left = elements - first;
        *r = (tx_copy_range){c * weights->chunk_bytes + first * word, tx_min(left, limit), false};
        if (left > 0)
            return true;
        first -= tx_round_up(elements, limit);
    }
    return false;
}

static void add_cast(tx_graph *graph, const tx_copy_range *r)
{
    const tx_model *model = graph->model;
    tx_tensor *weights = tx_tensor_fixed(graph, TX_F32, TX_SHAPE(r->count), model->exchange.weights, r->address);
    tx_tensor *copies = tx_tensor_fixed(graph, model->copies.dtype, TX_SHAPE(r->count), TX_ARENA_HALF,
                                        tx_model_half_address(model, r->address));
    tx_emit(graph,
            &(tx_emit_args){
                .op = TX_OP_CAST, .attrs = TX_PLAIN, .dtype = &model->copies.dtype, .in = {weights}, .out = {copies}});
}

/* Whether the plan matches the current weights. Parameters may have been declared since, or buckets created. */
static bool is_current(const tx_model *model)
{
    const tx_plan *plan = model->copies.plan;
    int32_t ranges = 0;
    bool same = plan != NULL;
    for (tx_copy_range r; same && tx_copies_range(model, ranges, &r); ranges++)
        same = ranges < plan->program.length && tx_operand_count(&plan->commands[ranges].in[0]) == r.count;
    return same && ranges == plan->program.length;
}

tx_status tx_copies_make(tx_model *model)
{
    tx_graph *graph = NULL;
    if (!tx_model_keeps_copies(model) || model->arena[TX_ARENA_HALF].space == TX_SPACE_FILE || is_current(model))
        return TX_OK;
    tx_plan_free(model->copies.plan);
    model->copies.plan = NULL;
    model->copies.half_stale = true;
    if (model->residency)
        TX_TRY(model->residency->prepare(model));
    TX_TRY(tx_graph_create(model, &graph));
    graph->direction = TX_UPDATE;
    tx_copy_range r;
    for (int32_t i = 0; tx_copies_range(model, i, &r); i++)
        if (model->residency)
            model->residency->cast(graph, i, &r);
        else
            add_cast(graph, &r);
    return tx_plan_create_owned(graph, "copies", &model->copies.plan);
}
