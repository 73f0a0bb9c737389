/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeping arena HALF true. The update writes the 16-bit copy of a weight beside the weight; where weights come from
 * elsewhere (files, other ranks, an optimizer whose kernel does not write copies) they are cast before the next program
 * runs, by a plan of one cast a bucket, or a chunk where no rank has shards. So a weight is cast once a step, however
 * many passes read it. */
#include "api/parallel/parallel.h"
#include "api/plan/plan.h"

static const tx_attrs plain = {.control = -1, .alpha = 1.0f};

/* The ranges are those of buckets where ranks gather these. */
static bool by_bucket(const tx_model *model)
{
    return tx_parallel_sharded(model->parallel) && model->parallel->buckets > 0;
}

static int32_t count_ranges(const tx_model *model)
{
    return by_bucket(model) ? model->parallel->buckets : model->arena[TX_ARENA_WEIGHTS].chunks;
}

static void add_cast(tx_graph *graph, int32_t range)
{
    const tx_model *model = graph->model;
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    const bool bucket = by_bucket(model);
    const int64_t address = bucket ? model->parallel->bucket[range].address : range * weights->chunk_bytes;
    const int64_t count = bucket ? model->parallel->bucket[range].count : weights->used[range] / (int64_t)sizeof(float);
    tx_emit_args cast = {.op = TX_OP_CAST, .attrs = plain, .dtype = &model->half};
    cast.in[0] = tx_tensor_fixed(graph, TX_F32, TX_SHAPE(count), TX_ARENA_WEIGHTS, address);
    cast.out[0] =
        tx_tensor_fixed(graph, model->half, TX_SHAPE(count), TX_ARENA_HALF, tx_model_half_address(model, address));
    if (cast.in[0] && cast.out[0])
        tx_emit(graph, &cast);
}

/* Whether the plan is of the weights as they are: parameters may have been declared since, or buckets made. */
static bool is_current(const tx_model *model)
{
    const tx_plan *plan = model->copies;
    int64_t weights = 0, copied = 0;
    for (int32_t c = 0; c < model->arena[TX_ARENA_WEIGHTS].chunks; c++)
        weights += model->arena[TX_ARENA_WEIGHTS].used[c] / (int64_t)sizeof(float);
    for (int32_t i = 0; plan && i < plan->program.length; i++)
        copied += tx_operand_count(&plan->commands[i].in[0]);
    return plan && plan->program.length == count_ranges(model) && copied == weights;
}

tx_status tx_copies_make(tx_model *model)
{
    tx_graph *graph = NULL;
    if (!tx_model_keeps_copies(model) || is_current(model))
        return TX_OK;
    tx_plan_free(model->copies);
    model->copies = NULL;
    model->half_stale = true;
    tx_status status = tx_graph_create(model, &graph);
    if (status != TX_OK)
        return status;
    graph->direction = TX_UPDATE;
    for (int32_t i = 0; i < count_ranges(model); i++)
        add_cast(graph, i);
    return tx_plan_create_owned(graph, "copies", &model->copies);
}

tx_status tx_copies_renew(tx_model *model)
{
    const tx_plan *plan = model->copies;
    tx_parallel *p = model->parallel;
    tx_status status = TX_OK;
    if (!tx_model_keeps_copies(model))
        return TX_OK;
    for (int32_t i = 0; i < plan->program.length && status == TX_OK; i++) {
        const bool gathered = by_bucket(model) && p->bucket[i].gathered;
        if (model->half_stale || gathered)
            status = model->engine->backend->run(plan->executable, i, 1, &model->controls, NULL);
        if (gathered)
            p->bucket[i].gathered = false;
    }
    model->half_stale = model->half_stale && status != TX_OK;
    return status;
}
