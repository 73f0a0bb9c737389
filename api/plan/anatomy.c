/* SPDX-License-Identifier: Apache-2.0
 * Inspects a plan: the tensors in its memory, its nodes and the operations of a run. txmem and the profiler use it. */
#include "api/base/needs.h"
#include "api/plan/layout.h"
#include "api/plan/plan.h"

#include <stdlib.h>

tx_status tx_plan_find_placed(tx_plan *plan)
{
    const tx_graph *g = plan->graph;
    plan->placed = calloc((size_t)g->tensors + 1, sizeof *plan->placed);
    if (!plan->placed)
        return tx_fail(TX_MEMORY, "no memory for a plan");
    for (int32_t i = 0; i < g->tensors; i++)
        if (tx_layout_places(g->tensor[i]) && tx_arena_info_of(g->tensor[i]->arena)->kind != TX_MEMORY_OFFLOADED)
            plan->placed[plan->placed_count++] = i;
    return TX_OK;
}

double tx_plan_flops(const tx_plan *plan, tx_direction direction)
{
    TX_NEEDS(plan, 0.0);
    double sum = 0.0, flops, bytes;
    for (int32_t i = 0; i < plan->program.length; i++) {
        tx_op_work(&plan->commands[i], &flops, &bytes);
        sum += plan->commands[i].direction == direction ? flops : 0.0;
    }
    return sum;
}

void tx_plan_work(const tx_plan *plan, double *product_flops, double *other_bytes)
{
    TX_NEEDS(plan && product_flops && other_bytes, );
    double flops, bytes;
    *product_flops = *other_bytes = 0.0;
    for (int32_t i = 0; i < plan->program.length; i++) {
        tx_op_work(&plan->commands[i], &flops, &bytes);
        if (tx_op_info_of(plan->commands[i].op)->op_class == TX_CONTRACTION)
            *product_flops += flops;
        else
            *other_bytes += bytes;
    }
}

int32_t tx_plan_node_count(const tx_plan *plan)
{
    TX_NEEDS(plan, 0);
    return plan->graph->nodes;
}

tx_status tx_plan_node_at(const tx_plan *plan, int32_t index, tx_plan_node *node)
{
    TX_NEEDS(plan && node, TX_INVALID);
    if (index < 0 || index >= plan->graph->nodes)
        return tx_fail(TX_INVALID, "plan %s has no node %d", plan->name, (int)index);
    const tx_node *n = &plan->graph->node[index];
    *node = (tx_plan_node){tx_op_info_of(n->op)->name, n->direction, n->block};
    return TX_OK;
}

int32_t tx_plan_tensor_count(const tx_plan *plan)
{
    TX_NEEDS(plan, 0);
    return plan->placed_count;
}

static tx_memory_kind kind_of(const tx_graph *g, const tx_tensor *t)
{
    if (tx_arena_info_of(t->arena)->kind == TX_MEMORY_EXCHANGE)
        return TX_MEMORY_EXCHANGE;
    return tx_layout_is_saved(g, tx_layout_backward(g), t) ? TX_MEMORY_ACTIVATIONS : TX_MEMORY_TEMPORARY;
}

tx_status tx_plan_tensor_at(const tx_plan *plan, int32_t index, tx_plan_tensor *tensor)
{
    TX_NEEDS(plan && tensor, TX_INVALID);
    if (index < 0 || index >= plan->placed_count)
        return tx_fail(TX_INVALID, "plan %s has no tensor %d", plan->name, (int)index);
    const tx_graph *g = plan->graph;
    const tx_tensor *t = g->tensor[plan->placed[index]];
    /* If several nodes write parts of a tensor, the first node counts. */
    const int32_t node = t->is_input ? -1 : t->producer >= 0 ? t->producer : t->first;
    *tensor = (tx_plan_tensor){.name = t->name    ? t->name
                                       : node < 0 ? ""
                                                  : tx_op_info_of(g->node[node].op)->name,
                               .node = node,
                               .kind = kind_of(g, t),
                               .dtype = t->dtype,
                               .shape = t->shape,
                               .bytes = tx_aligned(tx_tensor_bytes(t)),
                               .first = t->first,
                               .last = t->last};
    return TX_OK;
}
