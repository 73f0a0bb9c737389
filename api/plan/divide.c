/* SPDX-License-Identifier: Apache-2.0
 * A model whose blocks are divided among devices of this process: a model each, of which every one knows the next, with
 * plans that are made, written and run together. A graph is recorded for the first; each of the others compiles a copy,
 * of which pass `stage` leaves what is its own. */
#include "api/plan/plan.h"

#include "api/base/needs.h"

#include <stdlib.h>

/* ---- Models -------------------------------------------------------------------------------------------- */

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

/* ---- Plans --------------------------------------------------------------------------------------------- */

tx_status tx_plan_follow(tx_plan *plan, tx_plan *following)
{
    int64_t most = 0;
    for (int32_t i = 0; plan->graph->gone[i]; i++)
        most = tx_tensor_bytes(plan->graph->gone[i]) > most ? tx_tensor_bytes(plan->graph->gone[i]) : most;
    plan->crossing = malloc((size_t)most + 1);
    if (!plan->crossing)
        return tx_fail(TX_MEMORY, "no memory for what goes from a device to the next");
    plan->following = following;
    return TX_OK;
}

tx_status tx_plan_hand_over(tx_plan *plan)
{
    tx_plan *next = plan->following;
    for (int32_t i = 0; plan->graph->gone[i]; i++) {
        tx_tensor *from = plan->graph->gone[i], *to = next->graph->come[i];
        const size_t bytes = (size_t)tx_tensor_bytes(from);
        TX_TRY(tx_plan_read_own(plan, from, plan->crossing, bytes));
        TX_TRY(tx_plan_write_own(next, to, plan->crossing, bytes));
    }
    return TX_OK;
}
