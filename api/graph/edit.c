/* SPDX-License-Identifier: Apache-2.0
 * Graph edits: a linked list of the nodes in their order, and the uses of each tensor. Passes call it through edit.h.
 */
#include "api/graph/edit.h"

#include "api/base/grow.h"

#include <stddef.h>
#include <stdlib.h>

/* A node's neighbours in the list; TX_EDIT_END at the ends. */
typedef struct link {
    int32_t previous, next;
    bool erased;
} link;

/* Memory allocated for the edit or its pass. */
typedef struct block {
    struct block *next;
    max_align_t data[];
} block;

struct tx_edit {
    tx_graph *graph;
    tx_status status; /* of the allocations */
    block *blocks;
    link *link;              /* by node */
    int32_t known, room;     /* nodes in the list; capacity of `link` */
    int32_t first, last;     /* of the list */
    int32_t found;           /* number of nodes when the edit was opened */
    int32_t tensors, *begin; /* index of each tensor's first use; the next tensor's uses follow */
    tx_use *use;
    bool *viewed;
};

/* ---- Memory --------------------------------------------------------------------------------------------- */

void *tx_edit_alloc(tx_edit *e, size_t count, size_t size)
{
    block *made = count <= (SIZE_MAX - sizeof *made) / size ? calloc(1, sizeof *made + count * size) : NULL;
    if (!made) {
        e->status = tx_fail(TX_MEMORY, "no memory to change a graph of %d nodes", (int)e->graph->nodes);
        return NULL;
    }
    made->next = e->blocks;
    e->blocks = made;
    return made->data;
}

tx_status tx_edit_check(const tx_edit *e)
{
    return e->status ? e->status : e->graph->status;
}

/* ---- The order --------------------------------------------------------------------------------------- */

static void unlink_node(tx_edit *e, int32_t node)
{
    const link *l = &e->link[node];
    *(l->previous == TX_EDIT_END ? &e->first : &e->link[l->previous].next) = l->next;
    *(l->next == TX_EDIT_END ? &e->last : &e->link[l->next].previous) = l->previous;
}

static void insert_before(tx_edit *e, int32_t node, int32_t at)
{
    link *l = &e->link[node];
    l->next = at;
    l->previous = at == TX_EDIT_END ? e->last : e->link[at].previous;
    *(l->previous == TX_EDIT_END ? &e->first : &e->link[l->previous].next) = node;
    *(at == TX_EDIT_END ? &e->last : &e->link[at].previous) = node;
}

/* Appends the nodes emitted since the last call. */
static tx_status append_new_nodes(tx_edit *e)
{
    const tx_graph *g = e->graph;
    if (g->nodes > e->room) {
        const int32_t room = 2 * g->nodes;
        link *grown = realloc(e->link, (size_t)room * sizeof *grown);
        if (!grown)
            return tx_fail(TX_MEMORY, "no memory to change a graph of %d nodes", (int)g->nodes);
        e->link = grown;
        e->room = room;
    }
    for (; e->known < g->nodes; e->known++) {
        e->link[e->known].erased = false;
        insert_before(e, e->known, TX_EDIT_END);
    }
    return TX_OK;
}

/* ---- Uses -------------------------------------------------------------------------------------------- */

static void count_uses(tx_edit *e)
{
    const tx_graph *g = e->graph;
    for (int32_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < TX_MAX_IN; k++)
            if (g->node[i].in[k])
                e->begin[g->node[i].in[k]->id + 1]++;
    for (int32_t t = 0; t < e->tensors; t++)
        e->begin[t + 1] += e->begin[t];
}

static tx_status find_uses(tx_edit *e)
{
    const tx_graph *g = e->graph;
    const size_t tensors = (size_t)e->tensors + 1;
    e->begin = tx_edit_alloc(e, tensors, sizeof *e->begin);
    e->viewed = tx_edit_alloc(e, tensors, sizeof *e->viewed);
    int32_t *filled = tx_edit_alloc(e, tensors, sizeof *filled);
    if (e->status)
        return e->status;
    count_uses(e);
    e->use = tx_edit_alloc(e, (size_t)e->begin[e->tensors], sizeof *e->use);
    if (e->status)
        return e->status;
    for (int32_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < TX_MAX_IN; k++)
            if (g->node[i].in[k]) {
                const int32_t t = g->node[i].in[k]->id;
                e->use[e->begin[t] + filled[t]++] = (tx_use){i, k};
            }
    for (int32_t t = 0; t < e->tensors; t++)
        if (g->tensor[t]->base)
            e->viewed[t] = e->viewed[g->tensor[t]->base->id] = true;
    return TX_OK;
}

const tx_use *tx_edit_readers(const tx_edit *e, const tx_tensor *tensor, int32_t *count)
{
    const int32_t t = tensor->id;
    *count = t < e->tensors ? e->begin[t + 1] - e->begin[t] : 0;
    return t < e->tensors ? &e->use[e->begin[t]] : NULL;
}

bool tx_edit_is_viewed(const tx_edit *e, const tx_tensor *tensor)
{
    return tensor->id < e->tensors ? e->viewed[tensor->id] : tensor->base != NULL;
}

bool tx_edit_is_erased(const tx_edit *e, int32_t node)
{
    return node < e->known && e->link[node].erased;
}

bool tx_edit_writes_gradient(const tx_node *node, int64_t address)
{
    bool writes = false;
    for (int k = 0; k < TX_MAX_OUT; k++) {
        const tx_tensor *t = tx_tensor_root(node->out[k]);
        writes = writes || (t && t->arena == TX_ARENA_GRADIENTS && t->offset == address);
    }
    return writes;
}

int32_t tx_edit_next(tx_edit *e, int32_t node)
{
    return node == TX_EDIT_END ? e->first : e->link[node].next;
}

/* ---- Opening and closing ------------------------------------------------------------------------------- */

tx_status tx_edit_open(tx_graph *graph, tx_edit **edit)
{
    tx_edit *e = calloc(1, sizeof *e);
    if (!e)
        return tx_fail(TX_MEMORY, "no memory to change a graph");
    *e = (tx_edit){
        .graph = graph, .first = TX_EDIT_END, .last = TX_EDIT_END, .found = graph->nodes, .tensors = graph->tensors};
    tx_status status = append_new_nodes(e);
    TX_THEN(status, find_uses(e));
    if (status) {
        tx_edit_discard(e);
        return status;
    }
    *edit = e;
    return TX_OK;
}

void tx_edit_discard(tx_edit *e)
{
    if (!e)
        return;
    free(e->link);
    for (block *next, *b = e->blocks; b; b = next) {
        next = b->next;
        free(b);
    }
    free(e);
}

tx_status tx_edit_commit(tx_edit *e)
{
    tx_graph *g = e->graph;
    tx_status status = append_new_nodes(e);
    int32_t *moved = tx_edit_alloc(e, (size_t)g->nodes + 1, sizeof *moved), count = 0;
    tx_node *nodes = malloc(tx_room(g->nodes) * sizeof *nodes);
    if (status || !moved || !nodes) {
        free(nodes);
        tx_edit_discard(e);
        return tx_fail(TX_MEMORY, "no memory to change a graph");
    }
    for (int32_t i = 0; i < g->nodes; i++)
        moved[i] = -1; /* erased unless the list has it */
    for (int32_t i = e->first; i != TX_EDIT_END; i = e->link[i].next) {
        moved[i] = count;
        nodes[count++] = g->node[i];
    }
    for (int32_t i = 0; i < g->tensors; i++)
        if (g->tensor[i]->producer >= 0)
            g->tensor[i]->producer = moved[g->tensor[i]->producer];
    free(g->node);
    g->node = nodes;
    g->nodes = count;
    tx_edit_discard(e);
    return TX_OK;
}

tx_status tx_edit_run(tx_graph *graph, tx_status (*change)(tx_edit *edit, void *state), void *state)
{
    tx_edit *edit = NULL;
    TX_TRY(tx_edit_open(graph, &edit));
    const tx_status status = change(edit, state);
    if (status == TX_OK)
        return tx_edit_commit(edit);
    tx_edit_discard(edit);
    return status;
}

/* ---- Changes --------------------------------------------------------------------------------------------- */

void tx_edit_replace(tx_edit *e, const tx_tensor *old, tx_tensor *new)
{
    int32_t count;
    const tx_use *use = tx_edit_readers(e, old, &count);
    for (int32_t i = 0; i < count; i++)
        if (e->graph->node[use[i].node].in[use[i].operand] == old)
            e->graph->node[use[i].node].in[use[i].operand] = new;
}

tx_status tx_edit_insert(tx_edit *e, int32_t at, const tx_node *node, int32_t *number)
{
    int32_t made;
    tx_status status = tx_graph_append(e->graph, node, &made);
    TX_THEN(status, append_new_nodes(e));
    if (status)
        return status;
    tx_edit_move(e, made, at == e->found ? TX_EDIT_END : at);
    if (number)
        *number = made;
    return TX_OK;
}

tx_status tx_edit_insert_op(tx_edit *e, int32_t at, int32_t like, tx_op op, tx_tensor *in, tx_tensor *out)
{
    const tx_node *of = &e->graph->node[like];
    const tx_node node = {
        .op = op, .direction = of->direction, .block = of->block, .attrs = TX_PLAIN, .in = {in}, .out = {out}};
    return tx_edit_insert(e, at, &node, out ? &out->producer : NULL);
}

void tx_edit_move(tx_edit *e, int32_t node, int32_t at)
{
    if (node == at || append_new_nodes(e) != TX_OK) /* tx_edit_commit reports the failure, as it occurs there again */
        return;
    unlink_node(e, node);
    insert_before(e, node, at);
}

void tx_edit_erase(tx_edit *e, int32_t node)
{
    if (e->link[node].erased)
        return;
    unlink_node(e, node);
    e->link[node].erased = true;
}
