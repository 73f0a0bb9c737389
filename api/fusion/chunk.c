/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass chunk: computes the classifier in chunks of rows. Its logits, the product of all rows and a table, are by far
 * the largest tensor of a language model, and only the cross-entropy and its gradient read them. For each chunk the
 * pass emits the logits, losses, gradient of the logits, rows of dx and the summand of dtable, so that the logits of
 * only one chunk exist at a time. Some backward nodes therefore precede the sum of the loss. This is possible if the
 * gradient of the losses, as for a mean, does not depend on them. If it does, as for the loss of a pair of completions,
 * there are two rounds of chunks: the losses, and later the logits again with their gradient. A teacher's logits in
 * distillation are chunked too. */
#include "api/fusion/fusion.h"

#include "api/graph/edit.h"
#include "api/model/model.h"

#include <stdlib.h>

/* Chunks have a multiple of this number of rows. Views then start at multiples of TX_ALIGNMENT for every width, and the
 * products stay efficient. */
#define ROWS_UNIT 256
#define MEMBERS 12
#define INNERS 9

#define IN(op, name) (1u << TX_IN(op, name))
#define OUT(op, name) (1u << TX_OUT(op, name))

/* A node that is executed in chunks. */
typedef struct member {
    int32_t node;
    uint32_t in, out; /* bit i: operand i has the rows of the chunk; others are whole */
    bool sums;        /* output 0 is a sum over the rows */
} member;

typedef struct classifier {
    tx_graph *graph;
    tx_edit *edit;
    member member[MEMBERS]; /* product, loss, gradient of the loss, its products; in the graph's order */
    int32_t members;
    /* Tensors created for each chunk: logits and their gradient, before and after casts, and the lse for the gradient.
     */
    tx_tensor *inner[INNERS];
    int32_t inners;
    tx_tensor *lse; /* log-sum-exp that the gradient reads; NULL if none */
    bool has_gradient;
    int32_t loss; /* the node CROSS_ENTROPY or DISTILLATION */
    bool split;
    int64_t rows;
    int32_t begin; /* members before this one are computed again and keep their places */
    bool *early;   /* by node: must precede the first chunk */
    int32_t nodes; /* number of elements of `early` */
} classifier;

/* ---- Finding ------------------------------------------------------------------------------------------ */

/* Adds the node. Returns false if there are too many. */
static bool add_member(classifier *c, int32_t node, uint32_t in, uint32_t out, bool sums)
{
    if (c->members == MEMBERS)
        return false;
    c->member[c->members++] = (member){node, in, out, sums};
    return true;
}

/* Adds a tensor that each chunk has separately. Returns false if that is impossible. */
static bool add_inner(classifier *c, tx_tensor *t)
{
    if (c->inners == INNERS || t->arena != TX_ARENA_PLANNED || t->is_output)
        return false;
    c->inner[c->inners++] = t;
    return true;
}

/* Returns the index of an inner tensor, or -1. */
static int32_t inner_of(const classifier *c, const tx_tensor *t)
{
    for (int32_t i = 0; i < c->inners; i++)
        if (c->inner[i] == t)
            return i;
    return -1;
}

/* Whether the node multiplies two matrices. */
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

static bool add_readers(classifier *c, tx_tensor *d);

static bool is_entropy_grad(const classifier *c, const tx_tensor *t)
{
    return t->producer >= 0 && c->graph->node[t->producer].op == TX_OP_TOKEN_ENTROPY_GRAD;
}

/* Adds the sum of the gradients of losses and of entropies. */
static bool add_sum(classifier *c, int32_t node)
{
    const tx_node *n = &c->graph->node[node];
    return is_entropy_grad(c, n->in[TX_IN(add, a)]) != is_entropy_grad(c, n->in[TX_IN(add, b)]) &&
           add_member(c, node, IN(add, a) | IN(add, b), OUT(add, y), false) && add_readers(c, n->out[0]);
}

/* Adds the readers of the logits' gradient `d`: products, a cast that products read, or a sum. */
static bool add_readers(classifier *c, tx_tensor *d)
{
    int32_t count;
    const tx_use *use = tx_edit_readers(c->edit, d, &count);
    for (int32_t i = 0; i < count; i++) {
        const tx_node *n = &c->graph->node[use[i].node];
        const bool added = n->op == TX_OP_CAST ? add_member(c, use[i].node, IN(cast, x), OUT(cast, y), false) &&
                                                     add_readers(c, n->out[0])
                           : n->op == TX_OP_ADD ? add_sum(c, use[i].node)
                                                : add_product(c, d, use[i].node);
        if (!added)
            return false;
    }
    return add_inner(c, d);
}

/* Adds the gradient of a distillation, which reads nothing else from the loss. */
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

/* Adds the statistics of the rows. */
static bool add_statistics(classifier *c, int32_t node)
{
    const uint32_t in = IN(token_statistics, logits) | IN(token_statistics, labels) | IN(token_statistics, lse),
                   out = OUT(token_statistics, entropy) | OUT(token_statistics, mean) | OUT(token_statistics, top) |
                         OUT(token_statistics, squares);
    return c->graph->node[node].in[TX_IN(token_statistics, lse)] == c->lse && add_member(c, node, in, out, false);
}

/* Adds the gradient of the entropies, which only the sum of the gradients reads. */
static bool add_entropy_grad(classifier *c, int32_t node)
{
    const tx_node *n = &c->graph->node[node];
    const uint32_t in = IN(token_entropy_grad, logits) | IN(token_entropy_grad, dentropy) |
                        IN(token_entropy_grad, labels) | IN(token_entropy_grad, lse) | IN(token_entropy_grad, entropy);
    int32_t count;
    const tx_use *use = tx_edit_readers(c->edit, n->out[0], &count);
    return count == 1 && c->graph->node[use[0].node].op == TX_OP_ADD &&
           n->in[TX_IN(token_entropy_grad, lse)] == c->lse &&
           add_member(c, node, in, OUT(token_entropy_grad, dlogits), false) && add_inner(c, n->out[0]);
}

/* Adds the gradient of node `loss` and its readers. */
static bool add_gradient(classifier *c, int32_t loss, int32_t node)
{
    const tx_node *n = &c->graph->node[node], *l = &c->graph->node[loss];
    if (n->op == TX_OP_TOKEN_STATISTICS)
        return add_statistics(c, node);
    if (n->op == TX_OP_TOKEN_ENTROPY_GRAD)
        return add_entropy_grad(c, node);
    if (l->op == TX_OP_DISTILLATION)
        return node > loss && add_distillation_grad(c, l, node);
    int32_t readers, statistics = 0;
    const tx_use *use = tx_edit_readers(c->edit, c->lse, &readers);
    for (int32_t i = 0; i < readers; i++)
        statistics += c->graph->node[use[i].node].op == TX_OP_TOKEN_STATISTICS ||
                      c->graph->node[use[i].node].op == TX_OP_TOKEN_ENTROPY_GRAD;
    if (n->op != TX_OP_CROSS_ENTROPY_GRAD || c->has_gradient || node < loss ||
        n->in[TX_IN(cross_entropy_grad, labels)] != l->in[TX_IN(cross_entropy, labels)] ||
        n->in[TX_IN(cross_entropy_grad, lse)] != c->lse || readers > 1 + statistics || !add_inner(c, c->lse))
        return false;
    c->has_gradient = true;
    const uint32_t in = IN(cross_entropy_grad, logits) | IN(cross_entropy_grad, dlosses) |
                        IN(cross_entropy_grad, labels) | IN(cross_entropy_grad, lse);
    return add_member(c, node, in, OUT(cross_entropy_grad, dlogits), false) && add_readers(c, n->out[0]);
}

/* Adds the product of the logits, and the cast to fp32 after it if that is its only reader. */
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

/* Adds the teacher's product and the loss. The logits of both have the same rows. */
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

/* If ranks divide the columns, adds the node that combines their losses and lse and is the only reader. Otherwise node
 * `loss` computes the final losses. */
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
    /* Its outputs are those of the loss over all columns; all operands have rows. */
    const uint32_t in = (1U << tx_op_info_of(c->graph->node[*join].op)->inputs) - 1;
    c->lse = c->graph->node[*join].out[TX_OUT(cross_entropy, lse)];
    return add_inner(c, own[TX_OUT(cross_entropy, losses)]) && add_inner(c, own[TX_OUT(cross_entropy, lse)]) &&
           add_member(c, *join, in, OUT(cross_entropy, losses) | OUT(cross_entropy, lse), false);
}

/* Finds the classifier that ends with node `loss`, CROSS_ENTROPY or DISTILLATION. Returns false if another node reads
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

/* Returns the member that is node `node`, or NULL. */
static const member *member_at(const classifier *c, int32_t node)
{
    for (int32_t i = 0; i < c->members; i++)
        if (c->member[i].node == node)
            return &c->member[i];
    return NULL;
}

/* Whether a member computes operand `k` of member `m` for the same rows. */
static bool is_of_rows(const classifier *c, const member *m, int k)
{
    const tx_tensor *t = c->graph->node[m->node].in[k];
    return inner_of(c, t) >= 0 || ((m->in & (1u << k)) && member_at(c, t->producer));
}

/* Whether a node can precede the chunks in any case: a parameter, or memory that is allocated or filled. */
static bool reads_nothing(const tx_node *n)
{
    return tx_op_info_of(n->op)->inputs == 0;
}

/* The node before which the chunks are inserted. */
static int32_t first_of(const classifier *c)
{
    return c->member[c->begin].node;
}

/* Whether the other nodes between the first and the last member can move before or after the chunks. Sums over ranks of
 * a member's result can move after them. */
static bool others_can_move(const classifier *c)
{
    const int32_t first = first_of(c), last = c->member[c->members - 1].node;
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

/* Marks the operands of members that are produced after the first member. Returns false if one needs a member, or if
 * memory runs out. */
static bool find_early(classifier *c)
{
    c->nodes = c->graph->nodes;
    c->early = tx_edit_alloc(c->edit, (size_t)c->nodes, sizeof *c->early);
    if (!c->early)
        return false;
    const int32_t first = first_of(c), last = c->member[c->members - 1].node;
    for (int32_t i = last; i > first; i--) {
        const tx_node *n = &c->graph->node[i];
        const member *m = member_at(c, i);
        c->early[i] = c->early[i] || reads_nothing(n);
        for (int k = 0; k < TX_MAX_IN; k++) {
            tx_tensor *t = n->in[k];
            if (!t || !(m || c->early[i]) || (m && is_of_rows(c, m, k)))
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

/* Rows first .. first + rows - 1, and their inner tensors. */
typedef struct chunk {
    int64_t first, rows;
    tx_tensor *inner[INNERS];
} chunk;

/* Returns the chunk's part of an operand of `n`. */
static tx_tensor *part_of(const classifier *c, const chunk *at, const tx_node *n, tx_tensor *t)
{
    if (inner_of(c, t) >= 0)
        return at->inner[inner_of(c, t)];
    if (at->rows == c->rows)
        return t;
    const int64_t width = tx_shape_count(&t->shape) / c->rows;
    return tx_tensor_view(t, at->first * width, n->op == TX_OP_MATMUL ? TX_SHAPE(at->rows, width) : TX_SHAPE(at->rows));
}

/* Emits a member for a chunk. */
static void emit_member(const classifier *c, const member *m, chunk *at)
{
    const tx_node n = c->graph->node[m->node]; /* a copy, because the array may be reallocated */
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

static tx_status emit_chunks(const classifier *c, int64_t limit)
{
    const int64_t chunks = tx_ceil_div(c->rows, limit), even = tx_ceil_div(c->rows, chunks);
    const int64_t rows = tx_round_up(even, ROWS_UNIT);
    for (int64_t first = 0; first < c->rows; first += rows) {
        chunk at = {first, c->rows - first < rows ? c->rows - first : rows, {0}};
        for (int32_t i = 0; i < c->members && c->graph->status == TX_OK; i++)
            emit_member(c, &c->member[i], &at);
    }
    c->graph->direction = TX_FORWARD;
    return c->graph->status;
}

/* Replaces the members by their chunks. The nodes marked `early`, then the chunks, are inserted at the first member. */
static tx_status split(const classifier *c, int64_t limit)
{
    tx_graph *graph = c->graph;
    const int32_t first = first_of(c), chunks = graph->nodes;
    TX_TRY(emit_chunks(c, limit));
    for (int32_t i = 0; i < c->members; i++) /* the last chunk produces whole outputs */
        for (int k = 0; k < TX_MAX_OUT; k++) {
            tx_tensor *t = graph->node[c->member[i].node].out[k];
            if (t && inner_of(c, t) < 0 && t->producer >= 0)
                t->producer = graph->nodes - c->members + i;
        }
    for (int32_t i = first + 1; i < graph->nodes; i++)
        if (i >= chunks || (i < c->nodes && c->early[i]))
            tx_edit_move(c->edit, i, first);
    for (int32_t i = c->begin; i < c->members; i++)
        tx_edit_erase(c->edit, c->member[i].node);
    return TX_OK;
}

/* ---- Two rounds --------------------------------------------------------------------------------------- */

/* The members of one round: up to the losses, or the product again with the gradient and its readers. A tensor that a
 * member of the round makes is separate for each chunk, except the lse, which the second round reads. */
static classifier round_of(const classifier *c, bool backward)
{
    classifier r = *c;
    r.members = r.inners = 0;
    r.early = NULL;
    for (int32_t i = 0; i < c->members; i++) {
        const tx_node *n = &c->graph->node[c->member[i].node];
        const bool is_backward = n->direction == TX_BACKWARD, logits = c->member[i].node < c->loss;
        if (backward && is_backward && !r.begin)
            r.begin = r.members;
        if (backward ? is_backward || logits : !is_backward)
            r.member[r.members++] = c->member[i];
    }
    for (int32_t i = 0; i < c->inners; i++)
        if (member_at(&r, c->inner[i]->producer) && c->inner[i] != c->lse)
            r.inner[r.inners++] = c->inner[i];
    return r;
}

/* Splits a classifier whose gradient of the losses depends on the losses. */
static tx_status split_twice(classifier *c, int64_t limit)
{
    classifier losses = round_of(c, false), gradient = round_of(c, true);
    if (!others_can_move(&losses) || !others_can_move(&gradient) || !find_early(&losses) || !find_early(&gradient))
        return tx_edit_check(c->edit);
    c->split = true;
    TX_TRY(split(&gradient, limit));
    return split(&losses, limit);
}

/* ---- The pass ----------------------------------------------------------------------------------------- */

/* Returns the most rows of a chunk. */
static int64_t row_limit(const tx_graph *graph, const tx_tensor *logits)
{
    const int64_t bytes = graph->chunk_bytes;
    const int64_t chunk_bytes = graph->model->arena[TX_ARENA_PLANNED].chunk_bytes;
    const int64_t row = tx_shape_last(&logits->shape) * (int64_t)tx_dtype_size(logits->dtype);
    const int64_t rows = tx_min(bytes, chunk_bytes) / row / ROWS_UNIT * ROWS_UNIT;
    return rows < ROWS_UNIT ? ROWS_UNIT : rows;
}

/* Whether the members are consecutive nodes. */
static bool is_consecutive(const classifier *c)
{
    return c->member[c->members - 1].node - c->member[0].node == c->members - 1;
}

/* Splits the classifier of node `loss` if its nodes and its size allow it. */
static tx_status chunk_one(tx_edit *edit, void *state)
{
    classifier *c = state;
    c->edit = edit;
    if (!find_members(c, c->loss))
        return TX_OK;
    const int64_t limit = row_limit(c->graph, c->graph->node[c->loss].in[0]);
    /* If all rows fit in a chunk, its nodes are moved together so that tx_fuse can fuse loss and gradient. */
    if (c->rows <= limit && (!c->has_gradient || is_consecutive(c)))
        return TX_OK;
    c->split = others_can_move(c) && find_early(c);
    TX_TRY(tx_edit_check(edit));
    if (c->split)
        return split(c, limit);
    return c->has_gradient && c->lse && c->rows > limit ? split_twice(c, limit) : TX_OK;
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
