/* SPDX-License-Identifier: Apache-2.0
 *
 * Products take over the element-wise op that alone reads them, and norms the sums before and behind them: what passes
 * between goes through memory once less. GELU behind a product whose result the backward pass needs leaves that as a
 * second output; the slope of GELU, and a sum with something else, read their other operand when the product is stored.
 * A norm adds up what it normalises, after dropout where that comes before, its gradient what else comes to dx. The
 * classifier's loss and the gradient of its logits are one pass over these. */
#include "api/fusion/fusion.h"

#include "api/graph/edit.h"

#include <stdlib.h>
#include <string.h>

typedef struct fusion {
    tx_graph *graph;
    tx_edit *edit;
} fusion;

/* Can the op that makes `t`, which node `reader` reads, be fused with that one? */
static bool is_passing(const fusion *f, const tx_tensor *t, int32_t reader)
{
    return t && t->producer >= 0 && t->producer < reader && !t->is_output && t->arena == TX_ARENA_PLANNED &&
           !tx_edit_is_viewed(f->edit, t) && !tx_edit_is_erased(f->edit, t->producer);
}

/* What lies elsewhere may be written between two nodes, so that no op that reads it may move. */
static bool is_lasting(tx_tensor *t)
{
    return !t || tx_tensor_lasts(t);
}

static bool is_product(const fusion *f, const tx_tensor *t, int32_t reader)
{
    if (!is_passing(f, t, reader))
        return false;
    const tx_node *n = &f->graph->node[t->producer];
    return n->op == TX_OP_MATMUL && n->out[0] == t && n->attrs.accumulate == TX_STORE &&
           n->attrs.epilogue == TX_EPILOGUE_NONE && is_lasting(n->in[TX_IN(matmul, a)]) &&
           is_lasting(n->in[TX_IN(matmul, b)]) && is_lasting(n->in[TX_IN(matmul, bias)]);
}

static bool reads_alone(const fusion *f, const tx_tensor *t)
{
    int32_t readers;
    tx_edit_readers(f->edit, t, &readers);
    return readers == 1;
}

/* GELU moves to the product, whose result others may read. */
static void fuse_gelu(fusion *f, int32_t at)
{
    const tx_node *gelu = &f->graph->node[at];
    tx_tensor *t = gelu->in[0], *y = gelu->out[0];
    if (!is_product(f, t, at) || y->arena != TX_ARENA_PLANNED || tx_edit_is_viewed(f->edit, y) || y->producer != at)
        return;
    tx_node *product = &f->graph->node[t->producer];
    product->attrs.epilogue = TX_EPILOGUE_GELU;
    product->attrs.exact = gelu->attrs.exact;
    product->attrs.keeps = !reads_alone(f, t);
    product->out[TX_OUT(matmul, y)] = y;
    product->out[TX_OUT(matmul, p)] = product->attrs.keeps ? t : NULL;
    y->producer = t->producer;
    tx_edit_erase(f->edit, at);
}

/* The product moves to the node, its only reader, and reads `z` as well. */
static void fuse_reader(fusion *f, int32_t at, tx_tensor *t, tx_tensor *z, tx_epilogue epilogue)
{
    tx_node *reader = &f->graph->node[at], made = f->graph->node[t->producer];
    made.attrs.epilogue = epilogue;
    made.attrs.exact = reader->attrs.exact;
    made.in[TX_IN(matmul, z)] = z;
    memcpy(made.out, reader->out, sizeof made.out);
    *reader = made;
    tx_edit_erase(f->edit, t->producer);
    t->producer = -1;
}

/* Whether a node between two others reads `t`. */
static bool is_read_between(const fusion *f, const tx_tensor *t, int32_t first, int32_t end)
{
    for (int32_t i = first + 1; i < end; i++)
        for (int k = 0; k < TX_MAX_IN; k++)
            if (!tx_edit_is_erased(f->edit, i) && f->graph->node[i].in[k] == t)
                return true;
    return false;
}

/* Dropout moves to the norm that adds its result up, its only reader. */
static void fuse_dropout(fusion *f, int32_t at, size_t z)
{
    tx_node *norm = &f->graph->node[at];
    tx_tensor *t = norm->in[z];
    if (!is_passing(f, t, at) || f->graph->node[t->producer].op != TX_OP_DROPOUT || !reads_alone(f, t))
        return;
    const tx_node *dropout = &f->graph->node[t->producer];
    if (!is_lasting(dropout->in[0]))
        return;
    norm->in[z] = dropout->in[0];
    norm->attrs.draw.p = dropout->attrs.draw.p;
    norm->attrs.draw.site = dropout->attrs.draw.site;
    norm->attrs.draw.row = dropout->attrs.draw.row;
    norm->attrs.gap = dropout->attrs.gap;
    tx_edit_erase(f->edit, t->producer);
    t->producer = -1;
}

/* The sum moves to the norm, its first reader: operand `z` and output `sum` are those of ops.def. */
static void fuse_norm(fusion *f, int32_t at, size_t z, size_t sum)
{
    tx_node *norm = &f->graph->node[at];
    tx_tensor *t = norm->in[0];
    if (!is_passing(f, t, at))
        return;
    const tx_node *add = &f->graph->node[t->producer];
    if (add->op != TX_OP_ADD || add->out[0] != t || !is_lasting(add->in[TX_IN(add, a)]) ||
        !is_lasting(add->in[TX_IN(add, b)]) || is_read_between(f, t, t->producer, at))
        return;
    norm->in[0] = add->in[TX_IN(add, a)];
    norm->in[z] = add->in[TX_IN(add, b)];
    norm->out[sum] = t;
    tx_edit_erase(f->edit, t->producer);
    t->producer = at;
    fuse_dropout(f, at, z);
}

/* The gradient of a norm, `t`, adds `other`, which was there before, for the sum that alone reads it. */
static bool fuse_norm_gradient(fusion *f, int32_t at, tx_tensor *t, tx_tensor *other)
{
    tx_tensor *y = f->graph->node[at].out[0];
    /* What is viewed has parts that other nodes write: when it is whole its producer does not say. */
    if (!is_passing(f, t, at) || !reads_alone(f, t) || !is_lasting(other) || tx_edit_is_viewed(f->edit, other) ||
        other->producer > t->producer || y->arena != TX_ARENA_PLANNED || tx_edit_is_viewed(f->edit, y) ||
        y->producer != at)
        return false;
    tx_node *norm = &f->graph->node[t->producer];
    const size_t z = norm->op == TX_OP_LAYER_NORM_GRAD ? TX_IN(layer_norm_grad, z) : TX_IN(rms_norm_grad, z);
    if ((norm->op != TX_OP_LAYER_NORM_GRAD && norm->op != TX_OP_RMS_NORM_GRAD) || norm->out[0] != t || norm->in[z])
        return false;
    norm->in[z] = other;
    norm->out[0] = y;
    y->producer = t->producer;
    t->producer = -1;
    tx_edit_erase(f->edit, at);
    return true;
}

/* A sum goes to what makes one of its terms. */
static void fuse_sum(fusion *f, int32_t at, tx_tensor *a, tx_tensor *b)
{
    if (is_product(f, b, at) && reads_alone(f, b))
        fuse_reader(f, at, b, a, TX_EPILOGUE_ADD);
    else if (is_product(f, a, at) && reads_alone(f, a))
        fuse_reader(f, at, a, b, TX_EPILOGUE_ADD);
    else if (!fuse_norm_gradient(f, at, b, a))
        fuse_norm_gradient(f, at, a, b);
}

/* The same tensor, or the same rows of one. */
static bool is_same(const tx_tensor *a, const tx_tensor *b)
{
    return a == b || (a->base && a->base == b->base && a->within == b->within);
}

/* Loss and gradient of the logits become one node where the loss was, if nothing else reads the logits and what the
 * gradient is made from is there. */
static void fuse_classifier(fusion *f, int32_t at)
{
    const tx_node gradient = f->graph->node[at];
    tx_tensor *logits = gradient.in[TX_IN(cross_entropy_grad, logits)],
              *dlosses = gradient.in[TX_IN(cross_entropy_grad, dlosses)],
              *lse = gradient.in[TX_IN(cross_entropy_grad, lse)], *dlogits = gradient.out[0];
    const int32_t first = lse->producer;
    int32_t readers;
    tx_edit_readers(f->edit, logits, &readers);
    if (first < 0 || first > at || !reads_alone(f, lse) || lse->is_output || readers != 2 || logits->is_output ||
        tx_edit_is_viewed(f->edit, logits) || tx_tensor_root(dlosses)->producer >= first || !is_lasting(dlosses) ||
        dlogits->arena != TX_ARENA_PLANNED || tx_edit_is_viewed(f->edit, dlogits))
        return;
    tx_node *loss = &f->graph->node[first];
    if (loss->op != TX_OP_CROSS_ENTROPY || loss->in[TX_IN(cross_entropy, logits)] != logits ||
        !is_same(loss->in[TX_IN(cross_entropy, labels)], gradient.in[TX_IN(cross_entropy_grad, labels)]))
        return;
    tx_tensor *losses = loss->out[TX_OUT(cross_entropy, losses)];
    loss->op = TX_OP_FUSED_CLASSIFIER;
    memset(loss->out, 0, sizeof loss->out);
    loss->in[TX_IN(fused_classifier, dlosses)] = dlosses;
    loss->in[TX_IN(fused_classifier, labels)] = gradient.in[TX_IN(cross_entropy_grad, labels)];
    loss->out[TX_OUT(fused_classifier, dlogits)] = dlogits;
    loss->out[TX_OUT(fused_classifier, losses)] = losses;
    dlogits->producer = first;
    lse->producer = -1;
    tx_edit_erase(f->edit, at);
}

static void fuse_node(fusion *f, int32_t at)
{
    const tx_node *n = &f->graph->node[at];
    tx_tensor *a = n->in[0], *b = n->in[1];
    switch (n->op) {
    case TX_OP_GELU:
        fuse_gelu(f, at);
        break;
    case TX_OP_GELU_GRAD:
        if (is_product(f, a, at) && reads_alone(f, a))
            fuse_reader(f, at, a, b, TX_EPILOGUE_GELU_GRAD);
        break;
    case TX_OP_ADD:
        fuse_sum(f, at, a, b);
        break;
    case TX_OP_CROSS_ENTROPY_GRAD:
        fuse_classifier(f, at);
        break;
    case TX_OP_LAYER_NORM:
        fuse_norm(f, at, TX_IN(layer_norm, z), TX_OUT(layer_norm, sum));
        break;
    case TX_OP_RMS_NORM:
        fuse_norm(f, at, TX_IN(rms_norm, z), TX_OUT(rms_norm, sum));
        break;
    default:
        break;
    }
}

static tx_status change(tx_edit *edit, void *state)
{
    fusion *f = state;
    f->edit = edit;
    for (int32_t i = 0; i < f->graph->nodes; i++)
        fuse_node(f, i);
    return TX_OK;
}

tx_status tx_fuse(tx_graph *graph)
{
    const char *wish = getenv("TX_FUSE");
    return wish && strcmp(wish, "0") == 0 ? TX_OK : tx_edit_run(graph, change, &(fusion){.graph = graph});
}
