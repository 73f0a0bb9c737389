/* SPDX-License-Identifier: Apache-2.0
 * Addresses of a plan's tensors, its profile, and its release. */
#include "api/plan/plan.h"

#include "api/base/needs.h"

#include <stdlib.h>
#include <string.h>

tx_operand tx_plan_place(const tx_model *model, tx_tensor *t)
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

tx_status tx_plan_bind(tx_plan *plan)
{
    tx_bindings bindings;
    for (int i = 0; i < TX_ARENA_COUNT; i++) {
        const tx_arena *arena = &plan->model->arena[tx_arena_memory((tx_arena_id)i)];
        bindings.arena[i] =
            (tx_extent){arena->addresses || arena->space == TX_SPACE_FILE ? 0 : arena->chunks, arena->buffer};
    }
    return plan->model->engine->backend->bind(plan->executable, &bindings);
}

void tx_plan_free(tx_plan *plan)
{
    if (!plan)
        return;
    tx_plan_free(plan->following);
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
    if (plan->watch)
        plan->watch->free(plan->watch);
    free(plan->commands);
    free(plan->cut);
    free(plan->placed);
    free(plan->seconds);
    free(plan->crossing);
    free(plan->name);
    free(plan);
}

/* ---- Profile ------------------------------------------------------------------------------------------ */

tx_status tx_plan_profile(tx_plan *plan, bool on)
{
    TX_NEEDS(plan, TX_INVALID);
    if (on && !plan->model->engine->profile)
        return tx_fail(TX_INVALID, "plan %s: the engine was not opened for profiling", plan->name);
    if (plan->following)
        return tx_fail(TX_UNSUPPORTED, "plan %s runs on several devices: profile the model on one device", plan->name);
    plan->profiling = on;
    memset(plan->seconds, 0, (size_t)plan->program.length * sizeof *plan->seconds);
    return TX_OK;
}

int32_t tx_plan_length(const tx_plan *plan)
{
    TX_NEEDS(plan, 0);
    return plan->program.length;
}

tx_status tx_plan_profile_entry(const tx_plan *plan, int32_t index, tx_profile_entry *entry)
{
    TX_NEEDS(plan && entry, TX_INVALID);
    if (index < 0 || index >= plan->program.length)
        return tx_fail(TX_INVALID, "plan %s has no operation %d", plan->name, index);
    const tx_command *c = &plan->commands[index];
    const tx_op_info *info = tx_op_info_of(c->op);
    tx_command_info run = {.variant = ""}; /* default for dry-run plans */
    if (plan->executable)
        run = plan->model->engine->backend->command_info(plan->executable, index);
    *entry = (tx_profile_entry){.op = info->name,
                                .variant = run.variant,
                                .op_class = info->op_class,
                                .direction = c->direction,
                                .seconds = plan->seconds[index]};
    tx_op_work(c, &entry->flops, &entry->bytes);
    return TX_OK;
}
