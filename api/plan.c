/* SPDX-License-Identifier: Apache-2.0
 * From graph to plan, and replaying it. */
#include "api/plan.h"

#include "api/parallel.h"
#include "api/passes/passes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static tx_operand place_of(const tx_model *model, tx_tensor *t)
{
    tx_operand o = {.dtype = TX_DTYPE_COUNT};
    if (!t)
        return o;
    tx_tensor *root = tx_tensor_root(t);
    const tx_arena *arena = &model->arena[root->arena];
    const int64_t address = tx_tensor_address(t);
    o.dtype = t->dtype;
    o.shape = t->shape;
    o.arena = root->arena;
    o.chunk = tx_arena_chunk(arena, address);
    o.offset = address % arena->chunk_bytes;
    return o;
}

static tx_command command_of(const tx_model *model, const tx_node *node)
{
    tx_command c = {.op = node->op, .direction = node->direction, .attrs = node->attrs};
    for (int k = 0; k < TX_MAX_IN; k++)
        c.in[k] = place_of(model, node->in[k]);
    for (int k = 0; k < TX_MAX_OUT; k++)
        c.out[k] = place_of(model, node->out[k]);
    return c;
}

static tx_status make_commands(tx_plan *plan)
{
    const tx_graph *graph = plan->graph;
    plan->commands = calloc((size_t)graph->nodes + 1, sizeof *plan->commands);
    plan->seconds = calloc((size_t)graph->nodes + 1, sizeof *plan->seconds);
    plan->cut = calloc((size_t)graph->nodes + 1, sizeof *plan->cut);
    if (!plan->commands || !plan->seconds || !plan->cut)
        return tx_fail(TX_MEMORY, "no memory for a plan");
    int32_t length = 0;
    for (int32_t i = 0; i < graph->nodes; i++) {
        const tx_node *n = &graph->node[i];
        if (tx_op_info_of(n->op)->op_class == TX_COLLECTIVE)
            plan->cut[plan->cuts++] = (tx_cut){length, command_of(plan->model, n)};
        else if (n->op < TX_OP_KERNELS)
            plan->commands[length++] = command_of(plan->model, n);
    }
    plan->program = (tx_program){.length = length, .commands = plan->commands};
    return TX_OK;
}

static int64_t input_bytes(const tx_graph *graph)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < graph->tensors; i++)
        if (graph->tensor[i]->is_input)
            bytes += (tx_tensor_bytes(graph->tensor[i]) + TX_ALIGNMENT - 1) / TX_ALIGNMENT * TX_ALIGNMENT;
    return bytes;
}

static tx_status compile(tx_plan *plan)
{
    tx_model *model = plan->model;
    tx_layout layout = {.planned.chunk_bytes = model->arena[TX_ARENA_PLANNED].chunk_bytes,
                        .exchange.chunk_bytes = model->arena[TX_ARENA_EXCHANGE].chunk_bytes};
    int64_t scratch = 0;
    tx_status status = tx_pipeline(plan->graph);
    layout.exchanged = model->parallel ? model->parallel->exchanged : 0;
    if (status == TX_OK)
        status = tx_plan_layout(plan->graph, &layout);
    if (status == TX_OK)
        status = make_commands(plan);
    if (status == TX_OK)
        status = model->engine->backend->prepare(model->engine->context, &plan->program, &plan->executable, &scratch);
    if (status != TX_OK)
        return status;
    tx_arena need = {.chunk_bytes = model->arena[TX_ARENA_SCRATCH].chunk_bytes};
    if (scratch > 0)
        status = tx_arena_use(&need, 0, scratch);
    if (status != TX_OK)
        return status;
    tx_arena_cover(&model->arena[TX_ARENA_SCRATCH], &need);
    tx_arena_cover(&model->arena[TX_ARENA_PLANNED], &layout.planned);
    tx_arena_cover(&model->arena[TX_ARENA_EXCHANGE], &layout.exchange);
    if (layout.saved > model->saved)
        model->saved = layout.saved;
    int64_t inputs = input_bytes(plan->graph);
    if (inputs > model->input_bytes)
        model->input_bytes = inputs;
    plan->next = model->plans;
    model->plans = plan;
    return TX_OK;
}

static tx_status create(tx_graph *graph, const char *name, bool owns_graph, tx_plan **plan)
{
    tx_plan *p = calloc(1, sizeof *p);
    if (!p) {
        if (owns_graph)
            tx_graph_free(graph);
        return tx_fail(TX_MEMORY, "no memory for a plan");
    }
    p->model = graph->model;
    p->graph = graph;
    p->owns_graph = owns_graph;
    p->name = strdup(name);
    tx_status status = p->name ? compile(p) : tx_fail(TX_MEMORY, "no memory for a plan");
    if (status != TX_OK) {
        status = tx_fail_in(status, "plan %s", name);
        tx_plan_free(p);
        return status;
    }
    *plan = p;
    return TX_OK;
}

tx_status tx_plan_create(tx_graph *graph, const char *name, tx_plan **plan)
{
    return create(graph, name, false, plan);
}

tx_status tx_plan_create_owned(tx_graph *graph, const char *name, tx_plan **plan)
{
    return create(graph, name, true, plan);
}

void tx_plan_free(tx_plan *plan)
{
    if (!plan)
        return;
    for (tx_plan **p = &plan->model->plans; *p; p = &(*p)->next) {
        if (*p == plan) {
            *p = plan->next;
            break;
        }
    }
    if (plan->executable)
        plan->model->engine->backend->destroy(plan->executable);
    if (plan->owns_graph)
        tx_graph_free(plan->graph);
    free(plan->commands);
    free(plan->cut);
    free(plan->seconds);
    free(plan->name);
    free(plan);
}

tx_status tx_plan_bind(tx_plan *plan)
{
    tx_bindings bindings;
    for (int i = 0; i < TX_ARENA_COUNT; i++)
        bindings.arena[i] = (tx_extent){plan->model->arena[i].chunks, plan->model->arena[i].buffer};
    return plan->model->engine->backend->bind(plan->executable, &bindings);
}

/* ---- running -------------------------------------------------------------------------------- */

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

tx_status tx_plan_write(tx_plan *plan, tx_tensor *input, const void *data, size_t bytes)
{
    tx_status status = check_transfer(plan, input, bytes, input && input->is_input, "input");
    if (status == TX_OK && input->dtype == TX_I32)
        status = check_indices(input, data, tx_shape_count(&input->shape));
    if (status == TX_OK)
        status = tx_model_ready(plan->model);
    if (status == TX_OK)
        status = tx_model_stage(plan->model, TX_ARENA_PLANNED, input->offset, data, (int64_t)bytes);
    return status;
}

static tx_status run_commands(tx_plan *plan, int32_t first, int32_t end)
{
    tx_model *model = plan->model;
    if (first == end)
        return TX_OK;
    return model->engine->backend->run(plan->executable, first, end - first, &model->controls,
                                       plan->profiling ? plan->seconds : NULL);
}

/* Gradients stay where they are until the last micro-batch of a step, but for those that find no room. */
static bool skips(const tx_parallel *parallel, const tx_cut *cut)
{
    return !parallel->synchronize && cut->command.op == TX_OP_REDUCE_GRADIENTS && parallel->options.zero_stage < 2;
}

/* The program is cut at the collectives: the device runs what lies between them. */
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
            status = tx_parallel_collective(model, &cut->command);
    }
    if (status == TX_OK)
        status = run_commands(plan, done, plan->program.length);
    return status == TX_OK && plan->cuts > 0 ? tx_parallel_flush(model) : status;
}

tx_status tx_plan_run(tx_plan *plan)
{
    tx_model *model = plan->model;
    tx_status status = tx_model_ready(model);
    if (status == TX_OK)
        status = tx_model_send_controls(model);
    if (status == TX_OK && plan->cuts == 0)
        status = tx_model_settle(model);
    if (status == TX_OK)
        status = run_cut(plan);
    return status == TX_OK ? TX_OK : tx_fail_in(status, "plan %s", plan->name);
}

tx_status tx_plan_read(tx_plan *plan, tx_tensor *output, void *data, size_t bytes)
{
    bool readable = output && (tx_tensor_root(output)->is_output || output->arena != TX_ARENA_PLANNED);
    tx_status status = check_transfer(plan, output, bytes, readable, "output (see tx_output)");
    if (status == TX_OK)
        status = tx_model_ready(plan->model);
    if (status != TX_OK)
        return status;
    tx_operand place = place_of(plan->model, output);
    const tx_engine *e = plan->model->engine;
    status = tx_model_settle(plan->model);
    if (status != TX_OK)
        return status;
    return e->backend->read(e->context, plan->model->arena[place.arena].buffer[place.chunk], place.offset, data,
                            (int64_t)bytes);
}

/* ---- profile -------------------------------------------------------------------------------- */

tx_status tx_plan_profile(tx_plan *plan, bool on)
{
    if (on && !plan->model->engine->profile)
        return tx_fail(TX_INVALID, "plan %s: the engine was not opened for profiling", plan->name);
    plan->profiling = on;
    memset(plan->seconds, 0, (size_t)plan->program.length * sizeof *plan->seconds);
    return TX_OK;
}

int32_t tx_plan_length(const tx_plan *plan)
{
    return plan->program.length;
}

tx_status tx_plan_profile_entry(const tx_plan *plan, int32_t index, tx_profile_entry *entry)
{
    if (index < 0 || index >= plan->program.length)
        return tx_fail(TX_INVALID, "plan %s has no operation %d", plan->name, index);
    const tx_command *c = &plan->commands[index];
    const tx_op_info *info = tx_op_info_of(c->op);
    tx_command_info run = plan->model->engine->backend->command_info(plan->executable, index);
    *entry = (tx_profile_entry){.op = info->name,
                                .variant = run.variant,
                                .op_class = info->op_class,
                                .direction = c->direction,
                                .seconds = plan->seconds[index]};
    tx_op_work(c, &entry->flops, &entry->bytes);
    return TX_OK;
}
