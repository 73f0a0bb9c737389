/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass checkpoint: gradient checkpointing. A segment is a run of blocks. The backward pass reads recomputed copies of a
 * segment's activations. They are recomputed from the segment's input, or by cheap ops from activations saved within
 * it. With sequence parallelism, ranks save only chunks of the positions and gather them again. Random numbers
 * depend on the place in the model (rng.h), so a recomputed dropout is equal to the first. */
#include "api/checkpointing/checkpointing.h"

#include "api/base/needs.h"
#include "api/graph/edit.h"
#include "api/model/model.h"

typedef enum save_level { SAVE_ALL, SAVE_CHUNKS, SAVE_EXPENSIVE, SAVE_INPUT } save_level;

typedef struct checkpointing {
    tx_graph *graph;
    tx_edit *edit;
    int32_t blocks, segments;
    bool *kept;         /* by tensor with storage: read outside its segment */
    bool *saved;        /* by tensor with storage: read by a backward node */
    bool *recomputable; /* by node: its results can be recomputed */
    bool *wanted;       /* by node: they must be recomputed */
    tx_tensor **copy;   /* by tensor: the recomputed copy */
} checkpointing;

/* ---- Segments ------------------------------------------------------------------------------------------ */

/* Returns the segment of a forward node, or -1 if it has none. */
static int32_t segment_of(const checkpointing *c, int32_t node)
{
    const tx_node *n = &c->graph->node[node];
    if (n->direction != TX_FORWARD || n->block < 1)
        return -1;
    return (int32_t)((int64_t)(n->block - 1) * c->segments / c->blocks);
}

static save_level level_of(const checkpointing *c, int32_t segment)
{
    const tx_checkpointing *o = &c->graph->checkpointing;
    const save_level minimum = c->graph->model->mesh.sequence ? SAVE_CHUNKS : SAVE_ALL;
    return segment < o->whole ? SAVE_INPUT : segment < o->cheap ? SAVE_EXPENSIVE : minimum;
}

/* Whether an op is cheap compared with products: it takes a few operations for each result element. */
static bool is_cheap(const tx_node *n)
{
    const tx_op_info *info = tx_op_info_of(n->op);
    return info->op_class == TX_NORMALIZATION || (info->op_class == TX_ELEMENTWISE && info->inputs_min == 1) ||
           tx_op_is_same(n->op);
}

/* Whether the node is a collective that gathers chunks of an operand of products. */
static bool is_gathering(const tx_node *n)
{
    return tx_op_info_of(n->op)->op_class == TX_COLLECTIVE && tx_op_info_of(n->op)->cast == TX_CAST_HALF;
}

/* Whether the node moves a tensor between positions and heads, which all ranks repeat in the same order. */
static bool moves_positions(const tx_node *n)
{
    return n->op == TX_OP_CP_TO_HEADS || n->op == TX_OP_CP_TO_ROWS;
}

/* Whether the node gathers chunks for a product, or prepares a chunk for that. */
static bool is_of_chunks(const tx_node *n)
{
    return is_gathering(n) || n->op == TX_OP_LAYER_NORM || n->op == TX_OP_RMS_NORM || tx_op_is_same(n->op);
}

/* Whether the node gives the same results at each execution and has no other effect. */
static bool is_repeatable(const tx_node *n)
{
    for (int k = 0; k < TX_MAX_IN; k++)
        if (n->in[k] && !tx_tensor_lasts(n->in[k]))
            return false;
    for (int k = 0; k < TX_MAX_OUT; k++) {
        const tx_tensor *root = tx_tensor_root(n->out[k]);
        const bool in_buffer = root && ((root->arena == TX_ARENA_TP && is_gathering(n)) ||
                                        (root->arena == TX_ARENA_OFFLOADED && moves_positions(n)));
        if (root && ((root->arena != TX_ARENA_PLANNED && !in_buffer) || root->is_fixed))
            return false;
    }
    return n->attrs.accumulate == TX_STORE;
}

/* ---- Saved and recomputable tensors ------------------------------------------------------- */

static void mark_operands(checkpointing *c, int32_t node)
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

/* Whether an operand is available in the backward pass, or can be recomputed. */
static bool is_available(const checkpointing *c, const tx_tensor *t, save_level level)
{
    const tx_tensor *root = tx_tensor_root((tx_tensor *)(uintptr_t)t);
    return level == SAVE_INPUT || root->arena != TX_ARENA_PLANNED || c->saved[root->id] || root->is_input ||
           (root->producer >= 0 && c->recomputable[root->producer]);
}

static void judge_node(checkpointing *c, int32_t node)
{
    const tx_node *n = &c->graph->node[node];
    const int32_t segment = segment_of(c, node);
    const save_level level = segment < 0 ? SAVE_ALL : level_of(c, segment);
    const bool may = level == SAVE_INPUT || (level == SAVE_EXPENSIVE && is_cheap(n)) || is_of_chunks(n);
    bool recomputable = level != SAVE_ALL && is_repeatable(n) && may;
    for (int k = 0; k < TX_MAX_IN; k++)
        recomputable = recomputable && (!n->in[k] || is_available(c, n->in[k], level));
    c->recomputable[node] = recomputable;
}

/* Whether readers get a copy of this tensor. */
static bool is_copied(const checkpointing *c, tx_tensor *t)
{
    const tx_tensor *root = tx_tensor_root(t);
    return root->producer >= 0 && c->recomputable[root->producer] && !c->kept[root->id] && !root->is_output;
}

/* ---- Recomputation -------------------------------------------------------------------------------------- */

/* Returns the first backward node that reads a tensor, or `none`. */
static int32_t first_backward(const checkpointing *c, const tx_tensor *t, int32_t none)
{
    int32_t count;
    const tx_use *use = tx_edit_readers(c->edit, t, &count);
    for (int32_t i = 0; i < count; i++)
        if (c->graph->node[use[i].node].direction == TX_BACKWARD)
            return use[i].node;
    return none;
}

/* Marks the nodes of a segment whose results are needed. Returns the first backward node that needs one. */
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

/* Creates a tensor like `t`, produced by node `producer`. */
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

/* Redirects the backward pass to the copy. */
static void redirect_readers(const checkpointing *c, const tx_tensor *t)
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
            redirect_readers(c, t);
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
    c->recomputable = tx_edit_alloc(edit, nodes, sizeof *c->recomputable);
    c->wanted = tx_edit_alloc(edit, nodes, sizeof *c->wanted);
    c->copy = tx_edit_alloc(edit, tensors, sizeof *c->copy);
    TX_TRY(tx_edit_check(edit));
    for (int32_t i = 0; i < end; i++)
        mark_operands(c, i);
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
    const int32_t requested = g->checkpointing.segments;
    c->segments = requested > 0 && requested < c->blocks ? requested : c->blocks;
    return c->blocks || !g->checkpointing.size
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "checkpointing: the model's graph has no blocks (tx_graph_block)");
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
        return tx_fail(TX_INVALID, "checkpointing: segments %d, whole %d and cheap %d must be at least 0",
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
