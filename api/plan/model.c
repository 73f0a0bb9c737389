/* SPDX-License-Identifier: Apache-2.0
 * A model is made, divided among devices, freed. The division makes a model for each device, and each model knows
 * the next one: their plans are made, written and run together. A graph is recorded for the first; each of the others
 * compiles a copy, and pass `stage` keeps the nodes of its own stage. */
#include "api/parallel/buckets.h"
#include "api/plan/plan.h"

#include "api/base/needs.h"
#include "api/base/swap.h"

#include <stdlib.h>

tx_status tx_model_create(tx_engine *engine, tx_model **model)
{
    TX_NEEDS(engine && model, TX_INVALID);
    tx_model *m = calloc(1, sizeof *m);
    if (!m)
        return tx_fail(TX_MEMORY, "no memory for a model");
    int64_t most = engine->device.max_allocation;
    for (int i = 0; i < TX_ARENA_COUNT; i++) /* a span that any device's memory fits in when it names no limit */
        m->arena[i].chunk_bytes = most > 0 ? most / TX_ALIGNMENT * TX_ALIGNMENT : INT64_C(1) << 46;
    m->engine = engine;
    m->mesh = tx_mesh_whole();
    m->results.begin.value[TX_RESULT_LOSS_SCALE] = 1.0f;
    m->controls.word[TX_CONTROL_INVERSE_LABELS].f32 = 1.0f;
    m->controls.word[TX_CONTROL_POSITIONS_PER_TOKEN].f32 = 1.0f;
    m->controls.word[TX_CONTROL_NOISE].f32 = 1.0f;
    m->controls_changed = true;
    *model = m;
    return TX_OK;
}

void tx_model_only_plan(tx_model *model)
{
    TX_NEEDS(model, );
    for (; model; model = model->following)
        model->only_plans = true;
}

void tx_model_free(tx_model *model)
{
    if (!model)
        return;
    const tx_engine *e = model->engine;
    tx_model_free(model->following);
    e->backend->finish(e->context);
    tx_plan_free(model->copies.plan);
    tx_swap_free(model->swap); /* what moves, moves memory of these */
    for (int32_t i = 0; i < model->results.pending; i++)
        e->backend->forget(e->context, model->results.reading[(model->results.first + i) % TX_RESULTS_PENDING]);
    for (int i = 0; i < TX_ARENA_COUNT; i++)
        for (int32_t c = 0; c < TX_MAX_CHUNKS; c++)
            if (model->arena[i].buffer[c])
                e->backend->release(e->context, model->arena[i].buffer[c]);
    if (model->ring.buffer)
        e->backend->release(e->context, model->ring.buffer);
    if (model->results.buffer)
        e->backend->release(e->context, model->results.buffer);
    tx_parallel_free(model);
    tx_optimizer_free(model->optimizer);
    for (int32_t i = 0; i < model->params; i++)
        free(model->param[i].name);
    for (int32_t i = 0; i < model->states; i++)
        free(model->state[i].name);
    free(model->of_micro_batch);
    free(model->mesh.last_block);
    free(model->param);
    free(model->holding);
    free(model->state);
    free(model);
}

/* ---- division ------------------------------------------------------------------------------------------ */

static tx_status check(const tx_model *model, tx_engine *const *engines, const int32_t *blocks, int32_t count)
{
    if (model->params > 0 || model->parallel || model->mesh.stages > 1)
        return tx_fail(TX_INVALID, "divide: the model has parameters already, or was made parallel or divided before");
    if (count < 1 || engines[0] != model->engine)
        return tx_fail(TX_INVALID, "divide: the first of %d devices is to be the model's", (int)count);
    for (int32_t d = 0; d < count; d++)
        if (!engines[d] || blocks[d] < 1)
            return tx_fail(TX_INVALID, "divide: device %d of %d has %d blocks: it takes 1 or more", (int)d + 1,
                           (int)count, (int)blocks[d]);
    return TX_OK;
}

/* The first model has to be the first stage before any parameter is declared, so all are made here. */
tx_status tx_model_divide(tx_model *model, tx_engine *const *engines, const int32_t *blocks, int32_t count)
{
    TX_NEEDS(model && engines && blocks, TX_INVALID);
    TX_TRY(check(model, engines, blocks, count));
    tx_status status = TX_OK;
    tx_model *last = model;
    for (int32_t d = 0; d < count && count > 1 && !status; d++) {
        if (d > 0)
            status = tx_model_create(engines[d], &last->following);
        if (d > 0 && !status) {
            last = last->following;
            last->stored = model->stored;
            last->only_plans = model->only_plans;
        }
        TX_THEN(status, tx_model_set_stage(last, (tx_mesh_axis){.rank = d, .size = count}, count, blocks));
    }
    return status;
}
