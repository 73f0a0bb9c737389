/* SPDX-License-Identifier: Apache-2.0
 * Replaying a plan: its inputs, its commands with the cuts between them, its outputs. */
#include "api/parallel/parallel.h"

#include "api/base/needs.h"
#include "api/base/swap.h"
#include "api/plan/layout.h"
#include "api/plan/ranges.h"

#include <inttypes.h>

static tx_status check_indices(const tx_tensor *t, const int32_t *data, int64_t count)
{
    const tx_index_range *r = &t->range;
    for (int64_t i = 0; i < count; i++) {
        bool inside = data[i] >= r->low && data[i] < r->high;
        if (!inside && !(r->ignore && data[i] == TX_IGNORE_LABEL))
            return tx_fail(TX_INVALID, "input %s: element %" PRId64 " is %d, outside %" PRId64 "..%" PRId64, t->name, i,
                           data[i], r->low, r->high - 1);
    }
    return TX_OK;
}

static tx_status check_transfer(const tx_plan *plan, const tx_tensor *t, size_t bytes, bool right_kind,
                                const char *what)
{
    if (!t || t->graph != plan->graph || !right_kind)
        return tx_fail(TX_INVALID, "plan %s: not an %s of its graph", plan->name, what);
    if ((int64_t)bytes != tx_tensor_bytes(t))
        return tx_fail(TX_INVALID, "plan %s: %zu bytes given for an %s of %" PRId64, plan->name, bytes, what,
                       tx_tensor_bytes(t));
    return TX_OK;
}

tx_status tx_plan_write_own(tx_plan *plan, tx_tensor *input, const void *data, size_t bytes)
{
    tx_status status = check_transfer(plan, input, bytes, input && input->is_input, "input");
    if (status == TX_OK && input->dtype == TX_I32)
        status = check_indices(input, data, tx_shape_count(&input->shape));
    if (status == TX_OK)
        status = tx_model_ready(plan->model);
    if (status == TX_OK)
        status = tx_model_send(plan->model, TX_ARENA_PLANNED, input->offset, data, (int64_t)bytes);
    return status;
}

tx_status tx_plan_write(tx_plan *plan, tx_tensor *input, const void *data, size_t bytes)
{
    TX_NEEDS(plan && data, TX_INVALID);
    TX_TRY(tx_plan_write_own(plan, input, data, bytes));
    for (tx_plan *p = plan->following; p; p = p->following)
        TX_TRY(tx_plan_write_own(p, p->graph->tensor[input->id], data, bytes));
    return TX_OK;
}

tx_tensor *tx_plan_input(const tx_plan *plan, tx_tensor *input, int32_t micro_batch)
{
    TX_NEEDS(plan && input, NULL);
    const tx_graph *graph = plan->graph;
    const int32_t count = graph->repeats ? graph->repeats : 1;
    if (input->graph != graph || !input->is_input || micro_batch < 0 || micro_batch >= count)
        return NULL;
    return micro_batch == 0 ? input : graph->repeated[micro_batch * graph->repeated_tensors + input->id];
}

static tx_status run_commands(tx_plan *plan, int32_t first, int32_t end)
{
    tx_model *model = plan->model;
    if (first == end)
        return TX_OK;
    tx_status status = plan->reads_copies ? tx_copies_renew(model) : TX_OK;
    if (status == TX_OK && plan->reads_kept)
        status = tx_kept_renew(model);
    if (status != TX_OK)
        return status;
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
    if (file->arena == TX_ARENA_HALF && !out) /* of weights that have been written from elsewhere */
        TX_TRY(tx_copies_renew(model));
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
    if (x->arena == TX_ARENA_HALF) /* of weights that have been written from elsewhere */
        TX_TRY(tx_copies_renew(model));
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
static tx_status run_cut(tx_plan *plan)
{
    tx_model *model = plan->model;
    tx_status status = TX_OK;
    int32_t done = 0;
    for (int32_t i = 0; i < plan->cuts && status == TX_OK; i++) {
        const tx_cut *cut = &plan->cut[i];
        if (skips(model->parallel, cut))
            continue;
        status = run_commands(plan, done, cut->at);
        done = cut->at;
        if (status == TX_OK)
            status = do_cut(model, &cut->command);
    }
    if (status == TX_OK)
        status = run_commands(plan, done, plan->program.length);
    return status == TX_OK && model->parallel && plan->cuts > 0 ? tx_parallel_flush(model) : status;
}

static tx_status run_own(tx_plan *plan)
{
    tx_model *model = plan->model;
    tx_status status = tx_model_ready(model);
    if (status == TX_OK)
        status = tx_model_send_controls(model);
    if (status == TX_OK && plan->settles)
        status = tx_model_settle(model);
    if (status == TX_OK)
        status = run_cut(plan);
    model->copies.half_stale = model->copies.half_stale || plan->leaves_copies;
    model->copies.kept_stale = model->copies.kept_stale || plan->changes_weights;
    return status == TX_OK ? TX_OK : tx_fail_in(status, "plan %s", plan->name);
}

tx_status tx_plan_run(tx_plan *plan)
{
    TX_NEEDS(plan, TX_INVALID);
    TX_TRY(run_own(plan));
    for (; plan->following; plan = plan->following) {
        TX_TRY(tx_plan_hand_over(plan));
        TX_TRY(run_own(plan->following));
    }
    return TX_OK;
}

tx_status tx_plan_read_own(tx_plan *plan, tx_tensor *output, void *data, size_t bytes)
{
    bool readable = output && (tx_tensor_root(output)->is_output || output->arena != TX_ARENA_PLANNED);
    tx_status status = check_transfer(plan, output, bytes, readable, "output (see tx_output)");
    if (status == TX_OK)
        status = tx_model_ready(plan->model);
    if (status != TX_OK)
        return status;
    status = tx_model_settle(plan->model);
    if (status != TX_OK)
        return status;
    return tx_model_read_at(plan->model, tx_tensor_root(output)->arena, tx_tensor_address(output), data,
                            (int64_t)bytes);
}

tx_status tx_plan_read(tx_plan *plan, tx_tensor *output, void *data, size_t bytes)
{
    TX_NEEDS(plan && data, TX_INVALID);
    if (!output || output->graph != plan->graph)
        return tx_plan_read_own(plan, output, data, bytes);
    const int32_t id = output->id;
    while (plan->following && !tx_layout_places(tx_tensor_root(plan->graph->tensor[id])))
        plan = plan->following; /* a later stage has it */
    return tx_plan_read_own(plan, plan->graph->tensor[id], data, bytes);
}
