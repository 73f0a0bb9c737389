/* SPDX-License-Identifier: Apache-2.0
 * Runs a plan: writes inputs, executes its commands, reads outputs and results. */
#include "api/base/needs.h"
#include "api/plan/layout.h"
#include "api/plan/plan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

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

static tx_status write_own(tx_plan *plan, tx_tensor *input, const void *data, size_t bytes)
{
    TX_TRY(check_transfer(plan, input, bytes, input && input->is_input, "input"));
    if (input->dtype == TX_I32)
        TX_TRY(check_indices(input, data, tx_shape_count(&input->shape)));
    TX_TRY(tx_model_ready(plan->model));
    return tx_model_send(plan->model, TX_ARENA_PLANNED, input->offset, data, (int64_t)bytes);
}

tx_status tx_plan_write(tx_plan *plan, tx_tensor *input, const void *data, size_t bytes)
{
    TX_NEEDS(plan && data, TX_INVALID);
    TX_TRY(write_own(plan, input, data, bytes));
    for (tx_plan *p = plan->following; p; p = p->following)
        TX_TRY(write_own(p, p->graph->tensor[input->id], data, bytes));
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

static tx_status run_own(tx_plan *plan)
{
    tx_model *model = plan->model;
    tx_status status = tx_model_ready(model);
    TX_THEN(status, tx_model_send_controls(model));
    if (plan->settles)
        TX_THEN(status, tx_model_wait(model));
    if (model->residency)
        TX_THEN(status, model->residency->renew(plan));
    TX_THEN(status, tx_plan_execute(plan));
    model->copies.half_stale = model->copies.half_stale || plan->leaves_copies;
    model->copies.kept_stale = model->copies.kept_stale || plan->changes_weights;
    return status == TX_OK ? TX_OK : tx_fail_in(status, "plan %s", plan->name);
}

static tx_status read_own(tx_plan *plan, tx_tensor *output, void *data, size_t bytes)
{
    bool readable = output && (tx_tensor_root(output)->is_output || output->arena != TX_ARENA_PLANNED);
    TX_TRY(check_transfer(plan, output, bytes, readable, "output (see tx_output)"));
    TX_TRY(tx_model_ready(plan->model));
    TX_TRY(tx_model_wait(plan->model));
    return tx_model_read_at(plan->model, tx_tensor_root(output)->arena, tx_tensor_address(output), data,
                            (int64_t)bytes);
}

/* Copies the tensors that the next device reads to its plan, after this plan has run. */
static tx_status pass_on(tx_plan *plan)
{
    tx_plan *next = plan->following;
    for (int32_t i = 0; plan->graph->sent[i]; i++) {
        tx_tensor *from = plan->graph->sent[i], *to = next->graph->received[i];
        const size_t bytes = (size_t)tx_tensor_bytes(from);
        TX_TRY(read_own(plan, from, plan->crossing, bytes));
        TX_TRY(write_own(next, to, plan->crossing, bytes));
    }
    return TX_OK;
}

tx_status tx_plan_run(tx_plan *plan)
{
    TX_NEEDS(plan, TX_INVALID);
    TX_TRY(run_own(plan));
    for (; plan->following; plan = plan->following) {
        TX_TRY(pass_on(plan));
        TX_TRY(run_own(plan->following));
    }
    return TX_OK;
}

tx_status tx_plan_read(tx_plan *plan, tx_tensor *output, void *data, size_t bytes)
{
    TX_NEEDS(plan && data, TX_INVALID);
    if (!output || output->graph != plan->graph)
        return read_own(plan, output, data, bytes);
    const int32_t id = output->id;
    while (plan->following && !tx_layout_places(tx_tensor_root(plan->graph->tensor[id])))
        plan = plan->following; /* a later stage has the output */
    return read_own(plan, plan->graph->tensor[id], data, bytes);
}

/* ---- results ---------------------------------------------------------------------------------- */

tx_status tx_model_fetch(tx_model *model)
{
    TX_NEEDS(model, TX_INVALID);
    const tx_engine *e = model->engine;
    TX_TRY(tx_model_ready(model));
    if (model->results.pending == TX_RESULTS_PENDING)
        return tx_fail(TX_INVALID, "%d copies of the results are outstanding: call tx_model_results first",
                       TX_RESULTS_PENDING);
    int32_t slot = (model->results.first + model->results.pending) % TX_RESULTS_PENDING;
    void *to = (char *)e->backend->map(model->results.buffer) + slot * tx_aligned(TX_RESULT_BYTES);
    TX_TRY(e->backend->read_begin(e->context, TX_QUEUE_COMPUTE, model->arena[TX_ARENA_RESULT].buffer[0], 0, to,
                                  TX_RESULT_BYTES, &model->results.reading[slot]));
    model->ring.mark[slot] = model->ring.taken;
    model->results.pending++;
    return TX_OK;
}

tx_status tx_model_results(tx_model *model, tx_results *results)
{
    TX_NEEDS(model && results, TX_INVALID);
    const tx_engine *e = model->engine;
    if (model->results.pending == 0)
        return tx_fail(TX_INVALID, "no copy of the results is outstanding: call tx_model_fetch first");
    int32_t slot = model->results.first;
    tx_status status = e->backend->wait(e->context, model->results.reading[slot]); /* always releases the event */
    model->results.first = (slot + 1) % TX_RESULTS_PENDING;
    model->results.pending--;
    TX_TRY(status);
    memcpy(results, (char *)e->backend->map(model->results.buffer) + slot * tx_aligned(TX_RESULT_BYTES),
           sizeof *results);
    if (model->ring.mark[slot] > model->ring.freed)
        model->ring.freed = model->ring.mark[slot];
    return TX_OK;
}

tx_status tx_model_restore(tx_model *model, const tx_results *results)
{
    TX_NEEDS(model && results, TX_INVALID);
    static const tx_result lasting[] = {TX_RESULT_UPDATES, TX_RESULT_SKIPPED, TX_RESULT_LOSS_SCALE,
                                        TX_RESULT_SCALE_STEPS};
    const float scale = results->value[TX_RESULT_LOSS_SCALE];
    if (!(scale >= 0.0f && isfinite(scale)))
        return tx_fail(TX_INVALID, "loss scale %g must be a finite number of at least 0", (double)scale);
    model->results.begin = (tx_results){{0}};
    for (size_t i = 0; i < sizeof lasting / sizeof lasting[0]; i++)
        model->results.begin.value[lasting[i]] = results->value[lasting[i]];
    if (scale == 0.0f)
        model->results.begin.value[TX_RESULT_LOSS_SCALE] = 1.0f;
    model->results.written = false;
    return TX_OK;
}
