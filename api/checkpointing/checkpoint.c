/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient checkpointing. A segment is a run of blocks. Of what its forward nodes make, the backward pass reads copies
 * that are made again from the segment's own beginning, or, of cheap ops alone, from what is kept within it. Ranks that
 * have chunks of the positions keep these alone, and gather them again. Random numbers depend on the place in the model
 * (rng.h), so a dropout that is computed again is the same dropout. */
#include "api/checkpointing/checkpointing.h"

#include "api/base/needs.h"
#include "api/graph/edit.h"
#include "api/model/model.h"

typedef enum keeping { KEEP_ALL, KEEP_CHUNKS, KEEP_DEAR, KEEP_NONE } keeping;

typedef struct checkpointing {
    tx_graph *graph;
    tx_edit *edit;
    int32_t blocks, segments;
    bool *kept;       /* by tensor that has storage: somebody outside its segment reads it */
    bool *saved;      /* by tensor that has storage: a backward node reads it */
    bool *again;      /* by node: its results can be computed again */
    bool *wanted;     /* by node: they are */
    tx_tensor **copy; /* by tensor: the one that is computed again */
} checkpointing;

/* ---- Segments ------------------------------------------------------------------------------------------ */

/* The segment that a forward node belongs to; -1: none. */
static int32_t segment_of(const checkpointing *c, int32_t node)
{
    const tx_node *n = &c->graph->node[node];
    if (n->direction != TX_FORWARD || n->block < 1)
        return -1;
    return (int32_t)((int64_t)(n->block - 1) * c->segments / c->blocks);
}

static keeping keeping_of(const checkpointing *c, int32_t segment)
{
    const tx_checkpointing *o = &c->graph->checkpointing;
    const keeping least = c->graph->model->mesh.sequence ? KEEP_CHUNKS : KEEP_ALL;
    return segment < o->whole ? KEEP_NONE : segment < o->cheap ? KEEP_DEAR : least;
}

/* Whether an op costs little beside the products: each result element takes a few operations. */
static bool is_cheap(const tx_node *n)
{
    const tx_op_info *info = tx_op_info_of(n->op);
    return info->op_class == TX_NORMALIZATION || (info->op_class == TX_ELEMENTWISE && info->inputs_min == 1) ||
           n->op == TX_OP_CAST || n->op == TX_OP_RESHAPE;
}

/* A collective that reads an operand of products: it gathers chunks of it. */
static bool is_gathering(const tx_node *n)
{
    return tx_op_info_of(n->op)->op_class == TX_COLLECTIVE && tx_op_info_of(n->op)->cast == TX_CAST_HALF;
}

/* What is gathered before a product, and made of a chunk for that. */
static bool is_of_chunks(const tx_node *n)
{
    return is_gathering(n) || n->op == TX_OP_LAYER_NORM || n->op == TX_OP_RMS_NORM || n->op == TX_OP_CAST ||
           n->op == TX_OP_RESHAPE;
}

/* A node that gives the same results whenever it runs, and does nothing else. */
static bool is_repeatable(const tx_node *n)
{
    for (int k = 0; k < TX_MAX_IN; k++)
        if (n->in[k] && !tx_tensor_lasts(n->in[k]))
            return false;
    for (int k = 0; k < TX_MAX_OUT; k++) {
        const tx_tensor *root = tx_tensor_root(n->out[k]);
        const bool in_window = root && root->arena == TX_ARENA_TP && is_gathering(n);
        if (root && ((root->arena != TX_ARENA_PLANNED && !in_window) || root->is_fixed))
            return false;
    }
    return n->attrs.accumulate == TX_STORE;
}

/* ---- What is kept, and what can be computed again ------------------------------------------------------- */

static void look_at_reader(checkpointing *c, int32_t node)
{
    const tx_node *n = &c->graph->node[node];
    for (int k = 0; k < TX_MAX_IN; k++) {
        const tx_tensor *root = tx_tensor_root(n->in[k]);
        if (!root)
            continue;
        if (n->direction == TX_BACKWARD)
            c->saved[root->id] = true;
        else if (root->producer < 0 || segment_of(c, root->producer) != segment_of(c, node))
            c->kept[root->id] = true;
    }
}

/* An operand is there, or can be had, when the backward pass comes. */
static bool is_there(const checkpointing *c, const tx_tensor *t, keeping level)
{
    const tx_tensor *root = tx_tensor_root((tx_tensor *)(uintptr_t)t);
    return level == KEEP_NONE || root->arena != TX_ARENA_PLANNED || c->saved[root->id] || root->is_input ||
           (root->producer >= 0 && c->again[root->producer]);
}

static void judge_node(checkpointing *c, int32_t node)
{
    const tx_node *n = &c->graph->node[node];
    const int32_t segment = segment_of(c, node);
    const keeping level = segment < 0 ? KEEP_ALL : keeping_of(c, segment);
    const bool may = level == KEEP_NONE || (level == KEEP_DEAR && is_cheap(n)) || is_of_chunks(n);
    bool again = level != KEEP_ALL && is_repeatable(n) && may;
    for (int k = 0; k < TX_MAX_IN; k++)
        again = again && (!n->in[k] || is_there(c, n->in[k], level));
    c->again[node] = again;
}

/* Whether readers are to get a copy of this tensor. */
static bool is_copied(const checkpointing *c, tx_tensor *t)
{
    const tx_tensor *root = tx_tensor_root(t);
    return root->producer >= 0 && c->again[root->producer] && !c->kept[root->id] && !root->is_output;
}

/* ---- Computing again -------------------------------------------------------------------------------------- */

/* The first backward node that reads a tensor; `none` where no one does. */
static int32_t first_backward(const checkpointing *c, const tx_tensor *t, int32_t none)
{
    int32_t count;
    const tx_use *use = tx_edit_readers(c->edit, t, &count);
    for (int32_t i = 0; i < count; i++)
        if (c->graph->node[use[i].node].direction == TX_BACKWARD)
            return use[i].node;
    return none;
}

/* Marks the nodes of a segment whose results are needed, and tells the first backward node that needs any. */
static int32_t find_wanted(checkpointing *c, int32_t segment, int32_t end)
{
    int32_t at = end;
    for (int32_t i = end - 1; i >= 0; i--) {
        const tx_node *n = &c->graph->node[i];
        if (segment_of(c, i) != segment)
            continue;
        for (int k = 0; k < TX_MAX_OUT; k++) {
            const int32_t reader = n->out[k] && is_copied(c, n->out[k]) ? first_backward(c, n->out[k], end) : end;
            c->wanted[i] = c->wanted[i] || reader < end;
            at = reader < at ? reader : at;
        }
        for (int k = 0; k < TX_MAX_IN && c->wanted[i]; k++)
            if (n->in[k] && is_copied(c, n->in[k]))
                c->wanted[n->in[k]->producer] = true;
    }
    return at;
}

/* A tensor like `t`, made by node `producer`. */
static tx_tensor *copy_of(checkpointing *c, tx_tensor *t, int32_t producer)
{
    tx_tensor *copy = tx_tensor_planned(c->graph, t->dtype, t->shape, t->arena);
    if (!copy)
        return NULL;
    copy->producer = producer;
    if (t->base) {
        copy->base = c->copy[t->base->id];
        copy->within = t->within;
    }
    c->copy[t->id] = copy;
    return copy;
}

/* Lets the backward pass read the copy. */
static void hand_over(const checkpointing *c, const tx_tensor *t)
{
    int32_t count;
    const tx_use *use = tx_edit_readers(c->edit, t, &count);
    for (int32_t i = 0; i < count; i++) {
        tx_node *n = &c->graph->node[use[i].node];
        if (n->direction == TX_BACKWARD)
            n->in[use[i].operand] = c->copy[t->id];
    }
}

static tx_status repeat(checkpointing *c, int32_t node, int32_t at)
{
    tx_graph *graph = c->graph;
    tx_node n = graph->node[node];
    n.direction = TX_RECOMPUTE;
    for (int k = 0; k < TX_MAX_IN; k++)
        if (n.in[k] && is_copied(c, n.in[k]))
            n.in[k] = c->copy[n.in[k]->id];
    for (int k = 0; k < TX_MAX_OUT; k++) {
        tx_tensor *t = n.out[k];
        n.out[k] = t ? copy_of(c, t, graph->nodes) : NULL;
        if (t && !n.out[k])
            return graph->status;
        if (t && is_copied(c, t))
            hand_over(c, t);
    }
    return tx_edit_insert(c->edit, at, &n, NULL);
}

/* ---- The pass ----------------------------------------------------------------------------------------------- */

static tx_status change(tx_edit *edit, void *state)
{
    checkpointing *c = state;
    const int32_t end = c->graph->nodes;
    const size_t tensors = (size_t)c->graph->tensors, nodes = (size_t)end;
    c->edit = edit;
    c->kept = tx_edit_alloc(edit, tensors, sizeof *c->kept);
    c->saved = tx_edit_alloc(edit, tensors, sizeof *c->saved);
    c->again = tx_edit_alloc(edit, nodes, sizeof *c->again);
    c->wanted = tx_edit_alloc(edit, nodes, sizeof *c->wanted);
    c->copy = tx_edit_alloc(edit, tensors, sizeof *c->copy);
    TX_TRY(tx_edit_check(edit));
    for (int32_t i = 0; i < end; i++)
        look_at_reader(c, i);
    for (int32_t i = 0; i < end; i++)
        judge_node(c, i);
    for (int32_t s = 0; s < c->segments; s++) {
        const int32_t at = find_wanted(c, s, end);
        for (int32_t i = 0; i < end; i++)
            if (c->wanted[i] && segment_of(c, i) == s)
                TX_TRY(repeat(c, i, at));
    }
    return TX_OK;
}

static tx_status count_blocks(checkpointing *c)
{
    const tx_graph *g = c->graph;
    for (int32_t i = 0; i < g->nodes; i++)
        c->blocks = g->node[i].block > c->blocks ? g->node[i].block : c->blocks;
    const int32_t asked = g->checkpointing.segments;
    c->segments = asked > 0 && asked < c->blocks ? asked : c->blocks;
    return c->blocks || !g->checkpointing.size
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "checkpointing: the model's graph does not say what its blocks are");
}

static bool has_backward(const tx_graph *g)
{
    return g->nodes > 0 && g->node[g->nodes - 1].direction == TX_BACKWARD;
}

tx_status tx_graph_checkpointing(tx_graph *graph, const tx_checkpointing *options)
{
    TX_NEEDS(graph && options, TX_INVALID);
    if (options->size != sizeof *options)
        return tx_fail(TX_INVALID, "checkpointing: the options' size field is %zu, expected %zu", options->size,
                       sizeof *options);
    if (options->segments < 0 || options->whole < 0 || options->cheap < 0)
        return tx_fail(TX_INVALID, "checkpointing: %d segments, %d and %d of them computed again: none may be below 0",
                       (int)options->segments, (int)options->whole, (int)options->cheap);
    TX_TRY(tx_graph_open(graph, "checkpointing"));
    graph->checkpointing = *options;
    return TX_OK;
}

tx_status tx_checkpoint(tx_graph *graph)
{
    const tx_checkpointing *o = &graph->checkpointing;
    checkpointing c = {.graph = graph};
    if ((o->whole == 0 && o->cheap == 0 && !graph->model->mesh.sequence) || !has_backward(graph))
        return TX_OK;
    TX_TRY(count_blocks(&c));
    return tx_edit_run(graph, change, &c);
}
