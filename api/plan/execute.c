/* SPDX-License-Identifier: Apache-2.0
 * A plan's commands with the cuts between them. */
#include "api/parallel/parallel.h"

#include "api/base/swap.h"
#include "api/plan/ranges.h"

/* Casts the weights on the device that have changed, those of a bucket that has been gathered by themselves. */
static tx_status renew_copies(tx_model *model)
{
    const tx_plan *plan = model->copies.plan;
    tx_bucket *bucket = tx_parallel_gathers_updates(model->parallel) ? model->parallel->bucket : NULL;
    tx_status status = TX_OK;
    if (!tx_model_keeps_copies(model) || tx_model_weights_away(model))
        return TX_OK;
    for (int32_t i = 0; i < plan->program.length && status == TX_OK; i++) {
        const bool gathered = bucket && bucket[i].gathered;
        if (model->copies.half_stale || gathered)
            status = model->engine->backend->run(plan->executable, i, 1, &model->controls, NULL);
        if (gathered)
            bucket[i].gathered = false;
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
    if (plan->ranges)
        return tx_ranges_run(plan, first, end);
    return model->engine->backend->run(plan->executable, first, end - first, &model->controls,
                                       plan->profiling ? plan->seconds : NULL);
}

/* Gradients stay where they are until the last micro-batch of a step, but for those that find no room. */
static bool skips(const tx_parallel *parallel, const tx_cut *cut)
{
    const tx_op op = cut->command.op;
    return parallel && !parallel->synchronize && (op == TX_OP_REDUCE_GRADIENTS || op == TX_OP_SUM_REPLICAS) &&
           !tx_parallel_keeps_shards(parallel);
}

/* Begins a transfer between the file and host memory; that of arena STAGING when the device has copied what is there.
 */
static tx_status move_file(tx_model *model, const tx_command *c)
{
    const bool out = c->op == TX_OP_WRITE_FILE;
    const tx_engine *e = model->engine;
    const tx_operand *file = out ? &c->out[0] : &c->in[0], *memory = out ? &c->in[0] : &c->out[0];
    tx_event *copied = NULL;
    if (memory->arena == TX_ARENA_STAGING) {
        TX_TRY(e->backend->mark(e->context, TX_QUEUE_TRANSFER, &copied));
        TX_TRY(e->backend->wait(e->context, copied));
    }
    return tx_swap_begin(model->swap, out, model->arena[file->arena].filed[file->chunk] + file->offset,
                         tx_operand_host(model, memory), tx_operand_bytes(file));
}

/* Behind what was computed so far, beside what follows; of what comes from a file when that has been read. */
static tx_status copy_state(tx_model *model, const tx_command *c)
{
    const tx_engine *e = model->engine;
    const tx_operand *x = &c->in[0], *y = &c->out[0];
    tx_buffer *from = model->arena[x->arena].buffer[x->chunk], *to = model->arena[y->arena].buffer[y->chunk];
    if (x->arena == TX_ARENA_STAGING)
        TX_TRY(tx_swap_wait(model->swap, tx_operand_host(model, x), tx_operand_bytes(x)));
    TX_TRY(tx_order(e->backend, e->context, TX_QUEUE_COMPUTE, TX_QUEUE_TRANSFER));
    return e->backend->copy(e->context, TX_QUEUE_TRANSFER, from, x->offset, to, y->offset, tx_operand_bytes(x));
}

static tx_status do_cut(tx_model *model, const tx_command *c)
{
    const tx_engine *e = model->engine;
    switch (c->op) {
    case TX_OP_READ_FILE:
    case TX_OP_WRITE_FILE:
        return move_file(model, c);
    case TX_OP_WAIT_FILE:
        return tx_swap_wait(model->swap, tx_operand_host(model, &c->in[0]), tx_operand_bytes(&c->in[0]));
    case TX_OP_FETCH:
    case TX_OP_PUT_BACK:
        return copy_state(model, c);
    case TX_OP_WAIT_COPIES:
        return tx_order(e->backend, e->context, TX_QUEUE_TRANSFER, TX_QUEUE_COMPUTE);
    default:
        return tx_parallel_collective(model, c);
    }
}

/* The device runs what lies between the cuts. */
tx_status tx_plan_execute(tx_plan *plan)
{
    tx_model *model = plan->model;
    int32_t done = 0;
    for (int32_t i = 0; i < plan->cuts; i++) {
        const tx_cut *cut = &plan->cut[i];
        if (skips(model->parallel, cut))
            continue;
        TX_TRY(run_commands(plan, done, cut->at));
        TX_TRY(do_cut(model, &cut->command));
        done = cut->at;
    }
    TX_TRY(run_commands(plan, done, plan->program.length));
    return model->parallel && plan->cuts > 0 ? tx_parallel_flush(model) : TX_OK;
}
