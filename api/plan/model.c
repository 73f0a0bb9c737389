/* SPDX-License-Identifier: Apache-2.0
 * Creates and frees models. */
#include "api/plan/plan.h"

#include "api/base/needs.h"

#include <stdlib.h>

tx_status tx_model_create(tx_engine *engine, tx_model **model)
{
    TX_NEEDS(engine && model, TX_INVALID);
    tx_model *m = calloc(1, sizeof *m);
    if (!m)
        return tx_fail(TX_MEMORY, "no memory for a model");
    int64_t limit = engine->device.max_allocation;
    for (int i = 0; i < TX_ARENA_COUNT; i++) /* without a limit, a span that any device's memory fits in */
        m->arena[i].chunk_bytes = limit > 0 ? limit / TX_ALIGNMENT * TX_ALIGNMENT : INT64_C(1) << 46;
    m->engine = engine;
    m->mesh = tx_mesh_whole();
    m->exchange.weights = m->exchange.gradients_as = TX_ARENA_WEIGHTS;
    m->results.begin.value[TX_RESULT_LOSS_SCALE] = 1.0f;
    m->controls.word[TX_CONTROL_INVERSE_LABELS].f32 = 1.0f;
    m->controls.word[TX_CONTROL_POSITIONS_PER_TOKEN].f32 = 1.0f;
    m->controls.word[TX_CONTROL_NOISE].f32 = m->controls.word[TX_CONTROL_FAKE_QUANTIZE].f32 = 1.0f;
    m->later.changed = true;
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
    if (model->residency) /* before the memory of its transfers is released */
        model->residency->free(model);
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
    if (model->hooks)
        model->hooks->free(model);
    free(model->copies.range);
    tx_optimizer_free(model->optimizer);
    for (int32_t i = 0; i < model->params; i++)
        free(model->param[i].name);
    for (int32_t i = 0; i < model->states; i++)
        free(model->state[i].name);
    free(model->later.controls);
    free(model->param);
    free(model->holding);
    free(model->state);
    free(model);
}
