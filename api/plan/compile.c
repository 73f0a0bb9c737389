/* SPDX-License-Identifier: Apache-2.0
 * Compiles a graph to a plan: passes, layout, commands and the backend's program. */
#include "api/base/needs.h"
#include "api/passes/passes.h"
#include "api/plan/layout.h"
#include "api/plan/plan.h"

#include <stdlib.h>
#include <string.h>

static tx_command command_of(const tx_model *model, const tx_node *node)
{
    tx_command c = {.op = node->op, .direction = node->direction, .attrs = node->attrs};
    for (int k = 0; k < TX_MAX_IN; k++)
        c.in[k] = tx_plan_place(model, node->in[k]);
    for (int k = 0; k < TX_MAX_OUT; k++)
        c.out[k] = tx_plan_place(model, node->out[k]);
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
    bool forward = true;
    plan->settles = true;
    for (int32_t i = 0; i < graph->nodes; i++) {
        const tx_node *n = &graph->node[i];
        for (int k = 0; k < TX_MAX_IN && graph->direction != TX_UPDATE; k++)
            plan->reads_copies = plan->reads_copies || (n->in[k] && tx_tensor_root(n->in[k])->arena == TX_ARENA_HALF);
        for (int k = 0; k < TX_MAX_IN && tx_model_weights_offloaded(plan->model); k++)
            plan->reads_kept = plan->reads_kept || (n->in[k] && tx_tensor_root(n->in[k])->arena == TX_ARENA_KEPT);
        const tx_op_place place = tx_op_info_of(n->op)->place;
        plan->settles = plan->settles && place != TX_ON_HOST && place != TX_ON_HOST_LAST;
        forward = forward && n->direction == TX_FORWARD;
        if (tx_op_cuts(n->op))
            plan->cut[plan->cuts++] = (tx_cut){length, command_of(plan->model, n)};
        else if (place == TX_ON_DEVICE)
            plan->commands[length++] = command_of(plan->model, n);
    }
    plan->program =
        (tx_program){.length = length, .commands = plan->commands, .whole = plan->cuts == 0, .forward = forward};
    return TX_OK;
}

static int64_t input_bytes(const tx_graph *graph)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < graph->tensors; i++)
        if (graph->tensor[i]->is_input)
            bytes += tx_aligned(tx_tensor_bytes(graph->tensor[i]));
    return bytes;
}

/* Whether a graph has states in the memory of other tensors. */
static bool reads_shared(const tx_graph *graph)
{
    for (int32_t i = 0; i < graph->tensors; i++)
        if (tx_arena_memory(graph->tensor[i]->arena) != graph->tensor[i]->arena)
            return true;
    return false;
}

static tx_status compile(tx_plan *plan)
{
    tx_model *model = plan->model;
    const tx_engine *e = model->engine;
    tx_layout layout = {0};
    int64_t scratch = 0;
    for (int i = 0; i < TX_ARENA_COUNT; i++)
        layout.arena[i].chunk_bytes = model->arena[i].chunk_bytes;
    TX_TRY(tx_pipeline(plan->graph));
    layout.exchanged = model->exchange.exchanged;
    if (reads_shared(plan->graph)) {
        const tx_arena *states = &model->arena[TX_ARENA_SHARED_STATE];
        layout.shared = tx_arena_end(states);
        tx_arena_cover(&layout.arena[TX_ARENA_PLANNED], states);
        model->shared = true;
    }
    TX_TRY(tx_plan_layout(plan->graph, &layout));
    TX_TRY(tx_plan_find_placed(plan));
    TX_TRY(make_commands(plan));
    if (!model->only_plans)
        TX_TRY(e->backend->prepare(e->context, &plan->program, &plan->executable, &scratch));
    tx_arena need = {.chunk_bytes = model->arena[TX_ARENA_SCRATCH].chunk_bytes};
    if (scratch > 0)
        TX_TRY(tx_arena_use(&need, 0, scratch));
    tx_arena_cover(&model->arena[TX_ARENA_SCRATCH], &need);
    for (int i = 0; i < TX_ARENA_COUNT; i++)
        tx_arena_cover(&model->arena[i], &layout.arena[i]);
    model->saved = tx_max(model->saved, layout.saved);
    model->input_bytes = tx_max(model->input_bytes, input_bytes(plan->graph));
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

/* Makes `following` the plan of the next stage; `plan` owns it then. */
static tx_status follow(tx_plan *plan, tx_plan *following)
{
    int64_t largest = 0;
    for (int32_t i = 0; plan->graph->sent[i]; i++)
        largest = tx_max(tx_tensor_bytes(plan->graph->sent[i]), largest);
    plan->crossing = malloc((size_t)largest + 1);
    if (!plan->crossing)
        return tx_fail(TX_MEMORY, "no memory for the tensors that devices exchange");
    plan->following = following;
    return TX_OK;
}

/* Creates plans on all devices that the model is divided among. Later devices compile copies of the recorded graph. */
static tx_status create_on_all(tx_graph *graph, const char *name, bool owns_graph, tx_plan **plan)
{
    tx_plan *made = NULL, *following = NULL;
    tx_status status = TX_OK;
    if (graph->model->following) {
        tx_graph *copy = NULL;
        status = tx_graph_copy(graph, graph->model->following, &copy);
        TX_THEN(status, create_on_all(copy, name, true, &following));
        if (status && owns_graph)
            tx_graph_free(graph);
    }
    TX_THEN(status, create(graph, name, owns_graph, &made));
    if (following)
        TX_THEN(status, follow(made, following));
    if (status) {
        tx_plan_free(following);
        tx_plan_free(made);
        return status;
    }
    *plan = made;
    return TX_OK;
}

tx_status tx_plan_create(tx_graph *graph, const char *name, tx_plan **plan)
{
    TX_NEEDS(graph && name && plan, TX_INVALID);
    return create_on_all(graph, name, false, plan);
}

tx_status tx_plan_create_owned(tx_graph *graph, const char *name, tx_plan **plan)
{
    return create(graph, name, true, plan);
}
