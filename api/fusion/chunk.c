/* SPDX-License-Identifier: Apache-2.0
 *
 * The classifier in chunks of rows. Its logits, the product of all rows and a table, are by far the largest tensor of a
 * language model, and nobody but the cross-entropy and its gradient reads them. So a chunk's logits, losses, gradient
 * on the logits and what follows from that (rows of dx, a summand of dtable) are computed one after another, and the
 * logits of one chunk exist at a time. Backward nodes thereby stand before the loss is summed up, which is possible
 * because the gradient of the losses, for a mean, does not depend on them. A teacher's logits, which a
 * distillation reads beside the model's, go the same way. */
#include "api/fusion/fusion.h"

#include "api/graph/edit.h"
#include "api/model/model.h"

#include <stdlib.h>

/* Chunks have a multiple of so many rows: views then begin at multiples of TX_ALIGNMENT, whatever the width, and the
 * products stay efficient. */
#define ROWS_UNIT 256
#define MEMBERS 9
#define INNERS 7

#define IN(op, name) (1u << TX_IN(op, name))
#define OUT(op, name) (1u << TX_OUT(op, name))

/* A node that goes by chunks. */
typedef struct member {
    int32_t node;
    uint32_t in, out; /* bit i: of operand i, rows of the chunk; the others are whole */
    bool sums;        /* output 0 is a sum over the rows */
} member;

typedef struct classifier {
    tx_graph *graph;
    tx_edit *edit;
    member member[MEMBERS]; /* product, loss, gradient of the loss, products of that; in the graph's order */
    int32_t members;
    tx_tensor *inner[INNERS]; /* made for each chunk: logits and their gradient, as they are computed and as they are
                               * read, and what the gradient takes from the loss */
    int32_t inners;
    tx_tensor *lse; /* what the gradient takes from the loss; NULL: nothing */
    bool has_gradient;
    int32_t loss; /* the node CROSS_ENTROPY or DISTILLATION */
    bool split;
    int64_t rows;
    bool *early; /* by node: what else has to come before the first chunk */
} classifier;

/* ---- Finding ------------------------------------------------------------------------------------------ */

/* Adds the node; false where there are too many. */
static bool add_member(classifier *c, int32_t node, uint32_t in, uint32_t out, bool sums)
{
    if (c->members == MEMBERS)
        return false;
    c->member[c->members++] = (member){node, in, out, sums};
    return true;
}

/* A tensor that is replaced by one of each chunk; false where it cannot be. */
static bool add_inner(classifier *c, tx_tensor *t)
{
    if (c->inners == INNERS || t->arena != TX_ARENA_PLANNED || t->is_output)
        return false;
    c->inner[c->inners++] = t;
    return true;
}

/* Which inner tensor it is; -1: none. */
static int32_t inner_of(const classifier *c, const tx_tensor *t)
{
    for (int32_t i = 0; i < c->inners; i++)
        if (c->inner[i] == t)
            return i;
    return -1;
}

/* A product of two matrices. */
static bool is_product(const tx_node *n)
{
    return n->op == TX_OP_MATMUL &&
           (n->attrs.flat || (n->in[TX_IN(matmul, a)]->shape.rank == 2 && n->in[TX_IN(matmul, b)]->shape.rank == 2));
}

/* Adds a product of the logits' gradient `d`: d B gives rows, d^T A or A^T d is a sum over rows. */
static bool add_product(classifier *c, const tx_tensor *d, int32_t node)
{
    const tx_node *n = &c->graph->node[node];
    const tx_tensor *a = n->in[TX_IN(matmul, a)], *b = n->in[TX_IN(matmul, b)];
    if (!is_product(n) || n->in[TX_IN(matmul, bias)] || a == b)
        return false;
    const bool sums = n->attrs.trans_a && !n->attrs.trans_b, rows = !n->attrs.trans_a && a == d;
    return (sums || rows) &&
           add_member(c, node, sums ? IN(matmul, a) | IN(matmul, b) : IN(matmul, a), sums ? 0 : OUT(matmul, y), sums);
}

/* Adds what reads the logits' gradient `d`: products, or a cast whose result they read. */
static bool add_readers(classifier *c, tx_tensor *d)
{
    int32_t count;
    const tx_use *use = tx_edit_readers(c->edit, d, &count);
    for (int32_t i = 0; i < count; i++) {
        const tx_node *n = &c->graph->node[use[i].node];
        const bool added = n->op == TX_OP_CAST ? add_member(c, use[i].node, IN(cast, x), OUT(cast, y), false) &&
                                                     add_readers(c, n->out[0])
                                               : add_product(c, d, use[i].node);
        if (!added)
            return false;
    }
    return add_inner(c, d);
}

/* Adds the gradient of a distillation, which takes nothing else from the loss. */
static bool add_distillation_grad(classifier *c, const tx_node *loss, int32_t node)
{
    const tx_node *n = &c->graph->node[node];
    const uint32_t in = IN(distillation_grad, logits) | IN(distillation_grad, dlosses) |
                        IN(distillation_grad, teacher) | IN(distillation_grad, labels);
    if (n->op != TX_OP_DISTILLATION_GRAD || c->has_gradient ||
        n->in[TX_IN(distillation_grad, labels)] != loss->in[TX_IN(distillation, labels)] ||
        n->in[TX_IN(distillation_grad, teacher)] != loss->in[TX_IN(distillation, teacher)])
        return false;
    c->has_gradient = true;
    return add_member(c, node, in, OUT(distillation_grad, dlogits), false) && add_readers(c, n->out[0]);
}

/* Adds the gradient of the node `loss`, and what is made of it. */
static bool add_gradient(classifier *c, int32_t loss, int32_t node)
{
    const tx_node *n = &c->graph->node[node], *l = &c->graph->node[loss];
    if (l->op == TX_OP_DISTILLATION)
        return node > loss && add_distillation_grad(c, l, node);
    int32_t readers;
    tx_edit_readers(c->edit, c->lse, &readers);
    if (n->op != TX_OP_CROSS_ENTROPY_GRAD || c->has_gradient || node < loss ||
        n->in[TX_IN(cross_entropy_grad, labels)] != l->in[TX_IN(cross_entropy, labels)] ||
        n->in[TX_IN(cross_entropy_grad, lse)] != c->lse || readers > 1 || !add_inner(c, c->lse))
        return false;
    c->has_gradient = true;
    const uint32_t in = IN(cross_entropy_grad, logits) | IN(cross_entropy_grad, dlosses) |
                        IN(cross_entropy_grad, labels) | IN(cross_entropy_grad, lse);
    return add_member(c, node, in, OUT(cross_entropy_grad, dlogits), false) && add_readers(c, n->out[0]);
}

/* Adds the product that makes the logits, and the cast to fp32 behind it where there is one that alone reads it. */
static bool add_logits(classifier *c, tx_tensor *logits)
{
    const tx_graph *g = c->graph;
    const int32_t made = logits->producer;
    int32_t count;
    if (made < 0 || !add_inner(c, logits))
        return false;
    const tx_node *n = &g->node[made];
    if (n->op == TX_OP_CAST) {
        tx_edit_readers(c->edit, n->in[0], &count);
        return count == 1 && add_logits(c, n->in[0]) && add_member(c, made, IN(cast, x), OUT(cast, y), false);
    }
    return is_product(n) && !n->attrs.trans_a && add_member(c, made, IN(matmul, a), OUT(matmul, y), false);
}

static int by_node(const void *a, const void *b)
{
    const member *x = a, *y = b;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* Adds the teacher's product and the loss: the logits of both go by the same rows. */
static bool add_distillation(classifier *c, int32_t loss)
{
    tx_tensor *teacher = c->graph->node[loss].in[TX_IN(distillation, teacher)];
    int32_t count;
    const tx_use *use = tx_edit_readers(c->edit, teacher, &count);
    for (int32_t i = 0; i < count; i++)
        if (use[i].node != loss && c->graph->node[use[i].node].op != TX_OP_DISTILLATION_GRAD)
            return false;
    const uint32_t in = IN(distillation, logits) | IN(distillation, teacher) | IN(distillation, labels);
    return add_logits(c, teacher) && add_member(c, loss, in, OUT(distillation, losses), false);
}

/* Where ranks divide the columns: adds the node that joins what they have of them, which alone reads losses and lse;
 * else the losses are what the node `loss` gives. */
static bool add_join(classifier *c, int32_t loss, int32_t *join)
{
    tx_tensor *const *own = c->graph->node[loss].out;
    int32_t count;
    const tx_use *use = tx_edit_readers(c->edit, own[TX_OUT(cross_entropy, losses)], &count);
    *join = count > 0 ? use[0].node : -1;
    c->lse = own[TX_OUT(cross_entropy, lse)];
    if (*join < 0 || !tx_op_cuts(c->graph->node[*join].op)) {
        *join = -1;
        return true;
    }
    /* Its outputs are those of the loss, for all columns; all it reads has rows. */
    const uint32_t in = (1U << tx_op_info_of(c->graph->node[*join].op)->inputs) - 1;
    c->lse = c->graph->node[*join].out[TX_OUT(cross_entropy, lse)];
    return add_inner(c, own[TX_OUT(cross_entropy, losses)]) && add_inner(c, own[TX_OUT(cross_entropy, lse)]) &&
           add_member(c, *join, in, OUT(cross_entropy, losses) | OUT(cross_entropy, lse), false);
}

/* Finds the classifier that ends with the node `loss`, CROSS_ENTROPY or DISTILLATION; false where something else reads
 * its logits. */
static bool find_members(classifier *c, int32_t loss)
{
    const tx_graph *g = c->graph;
    tx_tensor *logits = g->node[loss].in[0];
    c->rows = tx_shape_rows(&logits->shape);
    const uint32_t in = IN(cross_entropy, logits) | IN(cross_entropy, labels),
                   out = OUT(cross_entropy, losses) | OUT(cross_entropy, lse);
    const bool hard = g->node[loss].op == TX_OP_CROSS_ENTROPY;
    int32_t count, join = -1;
    if (!add_logits(c, logits) || !(hard ? add_member(c, loss, in, out, false) : add_distillation(c, loss)) ||
        (hard && !add_join(c, loss, &join)))
        return false;
    const tx_use *use = tx_edit_readers(c->edit, logits, &count);
    for (int32_t i = 0; i < count; i++)
        if (use[i].node != loss && use[i].node != join && !add_gradient(c, loss, use[i].node))
            return false;
    qsort(c->member, (size_t)c->members, sizeof *c->member, by_node);
    return true;
}

/* Member of number `node`, or NULL. */
static const member *member_at(const classifier *c, int32_t node)
{
    for (int32_t i = 0; i < c->members; i++)
        if (c->member[i].node == node)
            return &c->member[i];
    return NULL;
}

/* Whether operand `k` of a member is made by a member for the same rows. */
static bool is_inner(const classifier *c, const tx_node *n, int k)
{
    return inner_of(c, n->in[k]) >= 0;
}

/* A node that can go before the chunks whatever they do: a parameter, memory that is taken or filled. */
static bool reads_nothing(const tx_node *n)
{
    return tx_op_info_of(n->op)->inputs == 0;
}

/* Can the other nodes between the first member and the last go before the chunks or behind them? Sums over ranks that
 * begin with what a member wrote can: behind them. */
static bool others_give_way(const classifier *c)
{
    const int32_t first = c->member[0].node, last = c->member[c->members - 1].node;
    for (int32_t i = first + 1; i < last; i++) {
        const tx_node *n = &c->graph->node[i];
        if (member_at(c, i) || tx_op_info_of(n->op)->place == TX_ON_HOST_LAST || reads_nothing(n))
            continue;
        if (tx_op_info_of(n->op)->op_class == TX_COLLECTIVE)
            return false;
        for (int k = 0; k < TX_MAX_OUT; k++) {
            tx_tensor *t = n->out[k];
            const tx_arena_id arena = t ? tx_tensor_root(t)->arena : TX_ARENA_RESULT;
            if (arena != TX_ARENA_RESULT && (arena != TX_ARENA_PLANNED || t->producer != i))
                return false;
        }
    }
    return true;
}

/* Finds what the members need from nodes behind the first of them; false where that needs a member itself. */
static bool find_early(classifier *c)
{
    const int32_t first = c->member[0].node, last = c->member[c->members - 1].node;
    for (int32_t i = last; i > first; i--) {
        const tx_node *n = &c->graph->node[i];
        const bool is_member = member_at(c, i) != NULL;
        c->early[i] = c->early[i] || reads_nothing(n);
        for (int k = 0; k < TX_MAX_IN; k++) {
            tx_tensor *t = n->in[k];
            if (!t || !(is_member || c->early[i]) || (is_member && is_inner(c, n, k)))
                continue;
            if (!tx_tensor_lasts(t) || member_at(c, t->producer))
                return false;
            if (t->producer > first)
                c->early[t->producer] = true;
        }
    }
    return true;
}

/* ---- Emitting ----------------------------------------------------------------------------------------- */

/* Rows first .. first + rows - 1, and the inner tensors made for them. */
typedef struct chunk {
    int64_t first, rows;
    tx_tensor *inner[INNERS];
} chunk;

/* The chunk's part of an operand of `n`. */
static tx_tensor *part_of(const classifier *c, const chunk *at, const tx_node *n, tx_tensor *t)
{
    if (inner_of(c, t) >= 0)
        return at->inner[inner_of(c, t)];
    if (at->rows == c->rows)
        return t;
    const int64_t width = tx_shape_count(&t->shape) / c->rows;
    return tx_tensor_view(t, at->first * width, n->op == TX_OP_MATMUL ? TX_SHAPE(at->rows, width) : TX_SHAPE(at->rows));
}

/* Appends what a member does for a chunk. */
static void emit_member(const classifier *c, const member *m, chunk *at)
{
    const tx_node n = c->graph->node[m->node]; /* a copy: the array grows */
    tx_emit_args args = {.op = n.op, .attrs = n.attrs, .dtype = &n.out[0]->dtype};
    for (int k = 0; k < TX_MAX_IN; k++)
        args.in[k] = n.in[k] && (m->in & (1u << k)) ? part_of(c, at, &n, n.in[k]) : n.in[k];
    for (int k = 0; k < TX_MAX_OUT; k++)
        args.out[k] = n.out[k] && (m->out & (1u << k)) ? part_of(c, at, &n, n.out[k]) : n.out[k];
    if (m->sums && at->first > 0)
        args.attrs.accumulate = TX_ADD;
    c->graph->direction = n.direction;
    tx_emit(c->graph, &args);
    for (int k = 0; k < TX_MAX_OUT; k++)
        if (n.out[k] && inner_of(c, n.out[k]) >= 0)
            at->inner[inner_of(c, n.out[k])] = args.out[k];
}

static tx_status emit_chunks(const classifier *c, int64_t most)
{
    const int64_t chunks = (c->rows + most - 1) / most, even = (c->rows + chunks - 1) / chunks;
    const int64_t rows = (even + ROWS_UNIT - 1) / ROWS_UNIT * ROWS_UNIT;
    for (int64_t first = 0; first < c->rows; first += rows) {
        chunk at = {first, c->rows - first < rows ? c->rows - first : rows, {0}};
        for (int32_t i = 0; i < c->members && c->graph->status == TX_OK; i++)
            emit_member(c, &c->member[i], &at);
    }
    c->graph->direction = TX_FORWARD;
    return c->graph->status;
}

/* Replaces the members by their chunks: in the place of the first stand what they need (early) and then the chunks. */
static tx_status split(const classifier *c, int64_t most)
{
    tx_graph *graph = c->graph;
    const int32_t first = c->member[0].node, chunks = graph->nodes;
    TX_TRY(emit_chunks(c, most));
    for (int32_t i = 0; i < c->members; i++) /* of what is whole, the last chunk's node */
        for (int k = 0; k < TX_MAX_OUT; k++) {
            tx_tensor *t = graph->node[c->member[i].node].out[k];
            if (t && inner_of(c, t) < 0 && t->producer >= 0)
                t->producer = graph->nodes - c->members + i;
        }
    for (int32_t i = first + 1; i < graph->nodes; i++)
        if (i >= chunks || c->early[i])
            tx_edit_move(c->edit, i, first);
    for (int32_t i = 0; i < c->members; i++)
        tx_edit_erase(c->edit, c->member[i].node);
    return TX_OK;
}

/* ---- The pass ----------------------------------------------------------------------------------------- */

/* Rows of a chunk, at most. */
static int64_t most_rows(const tx_graph *graph, const tx_tensor *logits)
{
    const int64_t bytes = graph->chunk_bytes;
    const int64_t chunk_bytes = graph->model->arena[TX_ARENA_PLANNED].chunk_bytes;
    const int64_t row = tx_shape_last(&logits->shape) * (int64_t)tx_dtype_size(logits->dtype);
    const int64_t rows = (bytes < chunk_bytes ? bytes : chunk_bytes) / row / ROWS_UNIT * ROWS_UNIT;
    return rows < ROWS_UNIT ? ROWS_UNIT : rows;
}

/* Whether the members stand one behind the other. */
static bool is_together(const classifier *c)
{
    return c->member[c->members - 1].node - c->member[0].node == c->members - 1;
}

/* Splits the classifier of node `loss` if its nodes and its size allow it. */
static tx_status chunk_one(tx_edit *edit, void *state)
{
    classifier *c = state;
    c->edit = edit;
    if (!find_members(c, c->loss) || !others_give_way(c))
        return TX_OK;
    const int64_t most = most_rows(c->graph, c->graph->node[c->loss].in[0]);
    /* One that fits into a chunk is brought together, so that loss and gradient can become one node (tx_fuse). */
    if (c->rows <= most && (!c->has_gradient || is_together(c)))
        return TX_OK;
    c->early = tx_edit_alloc(edit, (size_t)c->graph->nodes, sizeof *c->early);
    TX_TRY(tx_edit_check(edit));
    c->split = find_early(c);
    return c->split ? split(c, most) : TX_OK;
}

tx_status tx_chunk(tx_graph *graph)
{
    for (int32_t i = 0; i < graph->nodes; i++) {
        classifier c = {.graph = graph, .loss = i};
        if (graph->node[i].op != TX_OP_CROSS_ENTROPY && graph->node[i].op != TX_OP_DISTILLATION)
            continue;
        TX_TRY(tx_edit_run(graph, chunk_one, &c));
        if (c.split)
            i = -1; /* the nodes have new numbers */
    }
    return TX_OK;
}
