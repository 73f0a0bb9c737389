/* SPDX-License-Identifier: Apache-2.0
 * Executes a plan: commands on the device, and host ops (cuts) between them. */
#include "api/base/needs.h"
#include "api/plan/host.h"
#include "api/plan/plan.h"

/* Casts the weights on the device that have changed. */
static tx_status renew_copies(tx_model *model)
{
    const tx_plan *plan = model->copies.plan;
    tx_copy_range *range = model->copies.range;
    tx_status status = TX_OK;
    if (!tx_model_keeps_copies(model) || tx_model_weights_offloaded(model))
        return TX_OK;
    for (int32_t i = 0; i < plan->program.length && status == TX_OK; i++) {
        if (model->copies.half_stale || (range && range[i].stale))
            status = model->engine->backend->run(plan->executable, i, 1, &model->controls, NULL);
        if (range)
            range[i].stale = false;
    }
    model->copies.half_stale = model->copies.half_stale && status != TX_OK;
    return status;
}

static tx_status run_commands(tx_plan *plan, int32_t first, int32_t end)
{
    tx_model *model = plan->model;
    if (first == end)
        return TX_OK;
    if (plan->reads_copies)
        TX_TRY(renew_copies(model));
    if (plan->watch)
        return plan->watch->run(plan, first, end);
    return model->engine->backend->run(plan->executable, first, end - first, &model->controls,
                                       plan->profiling ? plan->seconds : NULL);
}

static tx_status (*const host[TX_OP_COUNT])(tx_model *, const tx_command *) = {
    [TX_OP_MATMUL] = NULL, /* C does not allow an empty initializer */
#define TX_VIRTUAL(...)
#define TX_HOST(RUNS, function, NAME, ...) [TX_OP_##NAME] = tx_host_##function,
#include "ops.def"
};

/* The device runs the commands between the cuts. */
tx_status tx_plan_execute(tx_plan *plan)
{
    tx_model *model = plan->model;
    int32_t done = 0;
    for (int32_t i = 0; i < plan->cuts; i++) {
        const tx_cut *cut = &plan->cut[i];
        if (model->exchange.keeps_gradients && tx_op_info_of(cut->command.op)->place == TX_ON_HOST_LAST)
            continue;
        TX_TRY(run_commands(plan, done, cut->at));
        TX_TRY(host[cut->command.op](model, &cut->command));
        done = cut->at;
    }
    TX_TRY(run_commands(plan, done, plan->program.length));
    return model->hooks && plan->cuts > 0 ? model->hooks->flush(model) : TX_OK;
}

tx_status tx_model_wait(tx_model *model)
{
    TX_NEEDS(model, TX_INVALID);
    return model->hooks ? model->hooks->settle(model) : TX_OK;
}
