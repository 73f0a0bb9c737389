/* SPDX-License-Identifier: Apache-2.0
 * Memory planning: computes lifetimes, reuse in place and addresses. */
#include "api/plan/layout.h"

#include <inttypes.h>
#include <stdlib.h>

bool tx_layout_places(const tx_tensor *t)
{
    return !t->base && tx_arena_info_of(t->arena)->placed && !t->is_fixed && t->first >= 0;
}

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
        if (t->is_input) /* written before the group and kept for the next one */
            t->first = 0;
        if (t->is_output || t->is_input)
            t->last = graph->nodes;
    }
}

/* Whether output 0 of node `index` may reuse the storage of its input `in`. */
static bool can_reuse(const tx_graph *graph, int32_t index, int in)
{
    const tx_node *n = &graph->node[index];
    tx_tensor *x = n->in[in], *y = n->out[0];
    if (in < 0 || !x || !y || y->base || y->arena != TX_ARENA_PLANNED || y->is_output || y->producer != index)
        return false;
    tx_tensor *root = tx_tensor_root(x);
    if (root->arena != TX_ARENA_PLANNED || root->is_input || root->is_output || root->last != index ||
        tx_tensor_bytes(root) != tx_tensor_bytes(y))
        return false;
    for (int k = 0; k < TX_MAX_IN; k++) /* the node reads the storage twice, and the second read may see the result */
        if (k != in && n->in[k] && tx_tensor_root(n->in[k]) == root)
            return false;
    return true;
}

static void reuse_in_place(tx_graph *graph)
{
    for (int32_t i = 0; i < graph->nodes; i++) {
        const tx_node *n = &graph->node[i];
        int in = tx_op_info_of(n->op)->in_place;
        if (tx_op_is_virtual(n->op) || in < 0 || !can_reuse(graph, i, in))
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

static int earlier_first(const void *a, const void *b)
{
    const tx_tensor *x = *(tx_tensor *const *)a, *y = *(tx_tensor *const *)b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : (x->id > y->id) - (x->id < y->id);
}

static int64_t aligned(const tx_tensor *t)
{
    return tx_aligned(tx_tensor_bytes(t));
}

/* Inserts t into `by_address` (sorted, `count` long), at the lowest address from `lowest` on that no tensor alive at
 * the same time uses. */
static void place(tx_tensor **by_address, int32_t count, tx_tensor *t, int64_t lowest, int64_t chunk_bytes)
{
    int64_t bytes = aligned(t), address = tx_arena_fit(chunk_bytes, lowest, bytes);
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

static bool is_placed_in(const tx_tensor *t, tx_arena_id id)
{
    return t->arena == id && tx_layout_places(t);
}

int32_t tx_layout_backward(const tx_graph *graph)
{
    int32_t backward = 0;
    while (backward < graph->nodes && graph->node[backward].direction != TX_BACKWARD)
        backward++;
    return backward;
}

bool tx_layout_is_saved(const tx_graph *graph, int32_t backward, const tx_tensor *t)
{
    const bool in_forward = t->first < backward && graph->node[t->first].direction == TX_FORWARD;
    return in_forward && t->last < graph->nodes && graph->node[t->last].direction != TX_FORWARD;
}

static int64_t saved_bytes(const tx_graph *graph)
{
    const int32_t backward = tx_layout_backward(graph);
    int64_t saved = 0;
    for (int32_t i = 0; i < graph->tensors; i++) {
        const tx_tensor *t = graph->tensor[i];
        if (is_placed_in(t, TX_ARENA_PLANNED) && tx_layout_is_saved(graph, backward, t))
            saved += aligned(t);
    }
    return saved;
}

/* Returns how many tensors (sorted by first use) overlap as a group. The addresses of later tensors are independent of
 * them. */
static int32_t group_of(tx_tensor *const *tensor, int32_t count)
{
    int32_t last = tensor[0]->last, group = 1;
    for (; group < count && tensor[group]->first <= last; group++)
        last = tensor[group]->last > last ? tensor[group]->last : last;
    return group;
}

/* Places the tensors of one arena, the larger ones of each group first. */
static tx_status place_all(const tx_graph *graph, tx_arena_id id, int64_t lowest, tx_arena *arena)
{
    size_t room = (size_t)graph->tensors + 1;
    tx_tensor **planned = calloc(room, sizeof *planned), **by_address = calloc(room, sizeof *by_address);
    tx_status status = planned && by_address ? TX_OK : tx_fail(TX_MEMORY, "no memory to plan");
    int32_t count = 0;
    for (int32_t i = 0; status == TX_OK && i < graph->tensors; i++)
        if (is_placed_in(graph->tensor[i], id))
            planned[count++] = graph->tensor[i];
    if (count > 0)
        qsort(planned, (size_t)count, sizeof *planned, earlier_first);
    for (int32_t begin = 0, group; begin < count && status == TX_OK; begin += group) {
        tx_tensor **first = planned + begin;
        group = group_of(first, count - begin);
        qsort(first, (size_t)group, sizeof *first, larger_first);
        for (int32_t i = 0; i < group && status == TX_OK; i++) {
            place(by_address, i, first[i], lowest, arena->chunk_bytes);
            status = tx_arena_use(arena, first[i]->offset, aligned(first[i]));
        }
    }
    free(planned);
    free(by_address);
    return status;
}

tx_status tx_plan_layout(tx_graph *graph, tx_layout *layout)
{
    find_lifetimes(graph);
    reuse_in_place(graph);
    layout->saved = saved_bytes(graph);
    for (tx_arena_id i = 0; i < TX_ARENA_COUNT; i++)
        if (tx_arena_info_of(i)->placed)
            TX_TRY(place_all(graph, i,
                             i == TX_ARENA_EXCHANGE  ? layout->exchanged
                             : i == TX_ARENA_PLANNED ? layout->shared
                                                     : 0,
                             &layout->arena[i]));
    return TX_OK;
}
