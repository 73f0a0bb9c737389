/* SPDX-License-Identifier: Apache-2.0
 * Memory planning: lifetimes, reuse in place, addresses. */
#include "api/passes/passes.h"

#include <inttypes.h>
#include <stdlib.h>

/* Extends the lifetime of a tensor's storage to node `at`. */
static void use(tx_tensor *t, int32_t at)
{
    if (!t)
        return;
    tx_tensor *root = tx_tensor_root(t);
    if (root->first < 0 || at < root->first)
        root->first = at;
    if (at > root->last)
        root->last = at;
}

static void find_lifetimes(tx_graph *graph)
{
    for (int32_t i = 0; i < graph->tensors; i++)
        graph->tensor[i]->first = graph->tensor[i]->last = -1;
    for (int32_t i = 0; i < graph->nodes; i++) {
        for (int k = 0; k < TX_MAX_IN; k++)
            use(graph->node[i].in[k], i);
        for (int k = 0; k < TX_MAX_OUT; k++)
            use(graph->node[i].out[k], i);
    }
    for (int32_t i = 0; i < graph->tensors; i++) {
        tx_tensor *t = graph->tensor[i];
        if (t->base)
            continue;
        if (t->is_input) /* written before the run, and kept for another */
            t->first = 0;
        if (t->is_output || t->is_input)
            t->last = graph->nodes;
    }
}

/* May output 0 of node `index` take over the storage of its input `op.in_place`? */
static bool can_take_over(const tx_graph *graph, int32_t index, int in)
{
    const tx_node *n = &graph->node[index];
    tx_tensor *x = n->in[in], *y = n->out[0];
    if (in < 0 || !x || !y || y->base || y->arena != TX_ARENA_PLANNED || y->is_output || y->producer != index)
        return false;
    tx_tensor *root = tx_tensor_root(x);
    if (root->arena != TX_ARENA_PLANNED || root->is_input || root->is_output || root->last != index ||
        tx_tensor_bytes(root) != tx_tensor_bytes(y))
        return false;
    for (int k = 0; k < TX_MAX_IN; k++) /* the same storage read twice: only ops that read it alike survive that */
        if (k != in && n->in[k] && tx_tensor_root(n->in[k]) == root)
            return false;
    return true;
}

static void reuse_in_place(tx_graph *graph)
{
    for (int32_t i = 0; i < graph->nodes; i++) {
        const tx_node *n = &graph->node[i];
        int in = tx_op_info_of(n->op)->in_place;
        if (n->op == TX_OP_RESHAPE || in < 0 || !can_take_over(graph, i, in))
            continue;
        tx_tensor *root = tx_tensor_root(n->in[in]), *y = n->out[0];
        y->base = root;
        root->last = y->last > root->last ? y->last : root->last;
    }
}

static int larger_first(const void *a, const void *b)
{
    const tx_tensor *x = *(tx_tensor *const *)a, *y = *(tx_tensor *const *)b;
    int64_t xb = tx_tensor_bytes(x), yb = tx_tensor_bytes(y);
    if (xb != yb)
        return xb > yb ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int64_t aligned(const tx_tensor *t)
{
    return (tx_tensor_bytes(t) + TX_ALIGNMENT - 1) / TX_ALIGNMENT * TX_ALIGNMENT;
}

/* Inserts t into `by_address` (sorted, `count` long), at the lowest address that none alive with t takes. */
static void place(tx_tensor **by_address, int32_t count, tx_tensor *t, int64_t chunk_bytes)
{
    int64_t bytes = aligned(t), address = 0;
    for (int32_t i = 0; i < count; i++) {
        const tx_tensor *o = by_address[i];
        if (o->last < t->first || o->first > t->last)
            continue;
        if (address + bytes <= o->offset)
            break;
        if (o->offset + aligned(o) > address)
            address = tx_arena_fit(chunk_bytes, o->offset + aligned(o), bytes);
    }
    t->offset = address;
    int32_t at = count;
    for (; at > 0 && by_address[at - 1]->offset > address; at--)
        by_address[at] = by_address[at - 1];
    by_address[at] = t;
}

/* Bytes made by a forward node, before the first backward node, and read by a backward node. */
static int64_t saved_bytes(const tx_graph *graph, tx_tensor *const *planned, int32_t count)
{
    int64_t saved = 0;
    int32_t backward = 0;
    while (backward < graph->nodes && graph->node[backward].direction != TX_BACKWARD)
        backward++;
    for (int32_t i = 0; i < count; i++) {
        const tx_tensor *t = planned[i];
        bool made_forward = t->first < backward && graph->node[t->first].direction == TX_FORWARD;
        bool read_backward = t->last < graph->nodes && graph->node[t->last].direction == TX_BACKWARD;
        if (made_forward && read_backward)
            saved += aligned(t);
    }
    return saved;
}

tx_status tx_plan_layout(tx_graph *graph, int64_t chunk_bytes, tx_layout *layout)
{
    find_lifetimes(graph);
    reuse_in_place(graph);
    size_t room = (size_t)graph->tensors + 1;
    tx_tensor **planned = calloc(room, sizeof *planned), **by_address = calloc(room, sizeof *by_address);
    tx_status status = planned && by_address ? TX_OK : tx_fail(TX_MEMORY, "no memory to plan");
    int32_t count = 0;
    for (int32_t i = 0; status == TX_OK && i < graph->tensors; i++) {
        tx_tensor *t = graph->tensor[i];
        if (!t->base && t->arena == TX_ARENA_PLANNED && t->first >= 0)
            planned[count++] = t;
    }
    *layout = (tx_layout){.arena = {.chunk_bytes = chunk_bytes}};
    if (status == TX_OK) {
        qsort(planned, (size_t)count, sizeof *planned, larger_first);
        for (int32_t i = 0; i < count && status == TX_OK; i++) {
            place(by_address, i, planned[i], chunk_bytes);
            status = tx_arena_use(&layout->arena, planned[i]->offset, aligned(planned[i]));
        }
        layout->saved = saved_bytes(graph, planned, count);
    }
    free(planned);
    free(by_address);
    return status;
}
