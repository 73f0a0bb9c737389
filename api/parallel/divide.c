/* SPDX-License-Identifier: Apache-2.0
 * Divides a model among devices of this process. Each device gets a model that points to the next one. Their plans are
 * created, written and run together. A graph is recorded for the first; each of the others compiles a copy, and pass
 * `stage` keeps the nodes of its own stage. */
#include "api/parallel/buckets.h"

#include "api/base/needs.h"

#include <stdlib.h>

tx_status tx_model_set_stage(tx_model *model, tx_mesh_axis axis, int32_t stages, const int32_t *blocks)
{
    model->mesh.last_block = calloc((size_t)stages, sizeof *model->mesh.last_block);
    if (!model->mesh.last_block)
        return tx_fail(TX_MEMORY, "no memory for a list of stages");
    for (int32_t s = 0; s < stages; s++)
        model->mesh.last_block[s] = (s > 0 ? model->mesh.last_block[s - 1] : 0) + blocks[s];
    model->mesh.pipeline = axis;
    model->mesh.stages = stages;
    model->hooks = &tx_parallel_table;
    return TX_OK;
}

static tx_status check(const tx_model *model, tx_engine *const *engines, const int32_t *blocks, int32_t count)
{
    if (model->params > 0 || model->parallel || model->mesh.stages > 1)
        return tx_fail(TX_INVALID, "divide: the model has parameters, or is parallel or divided already");
    if (count < 1 || engines[0] != model->engine)
        return tx_fail(TX_INVALID, "divide: the first of %d devices must be the model's", (int)count);
    for (int32_t d = 0; d < count; d++)
        if (!engines[d] || blocks[d] < 1)
            return tx_fail(TX_INVALID, "divide: device %d of %d has %d blocks: it needs 1 or more", (int)d + 1,
                           (int)count, (int)blocks[d]);
    return TX_OK;
}

/* Creates all models now, because the first model must be the first stage before any parameter is declared. */
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
