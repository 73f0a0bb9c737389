/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass fuse: fuses an element-wise op with the product that it reads, and sums with the norm before or after them. This
 * saves one pass through memory for each. If the backward pass needs the operand of a fused GELU, the product writes it
 * as a second output. The derivative of GELU, and a sum, read their other operand when the product is stored. A norm
 * computes the sum that it normalises, after dropout if there is one; its gradient adds other terms of dx, and sums dx
 * over rows for the bias of a product that was added. The classifier's loss and the gradient of its logits become one
 * pass over the logits. */
#include "api/fusion/fusion.h"

#include "api/graph/edit.h"

#include <stdlib.h>
#include <string.h>

typedef struct fusion {
    tx_graph *graph;
    tx_edit *edit;
} fusion;

/* Whether the op that produces `t` can be fused with node `reader`, which reads it. */
static bool can_fuse(const fusion *f, const tx_tensor *t, int32_t reader)
{
    return t && t->producer >= 0 && t->producer < reader && !t->is_output && t->arena == TX_ARENA_PLANNED &&
           !tx_edit_is_viewed(f->edit, t) && !tx_edit_is_erased(f->edit, t->producer);
}

/* Whether `t` keeps its value between two nodes. An op that reads other memory may not move. */
static bool is_stable(tx_tensor *t)
{
    return !t || tx_tensor_lasts(t);
}

static bool is_product(const fusion *f, const tx_tensor *t, int32_t reader)
{
    if (!can_fuse(f, t, reader))
        return false;
    const tx_node *n = &f->graph->node[t->producer];
    return n->op == TX_OP_MATMUL && n->out[0] == t && n->attrs.accumulate == TX_STORE &&
           n->attrs.epilogue == TX_EPILOGUE_NONE && is_stable(n->in[TX_IN(matmul, a)]) &&
           is_stable(n->in[TX_IN(matmul, b)]) && is_stable(n->in[TX_IN(matmul, bias)]);
}

static bool has_one_reader(const fusion *f, const tx_tensor *t)
{
    int32_t readers;
    tx_edit_readers(f->edit, t, &readers);
    return readers == 1;
}

/* Fuses GELU into the product, whose result other nodes may read. */
static void fuse_gelu(fusion *f, int32_t at)
{
    const tx_node *gelu = &f->graph->node[at];
    tx_tensor *t = gelu->in[0], *y = gelu->out[0];
    if (!is_product(f, t, at) || y->arena != TX_ARENA_PLANNED || tx_edit_is_viewed(f->edit, y) || y->producer != at)
        return;
    tx_node *product = &f->graph->node[t->producer];
    product->attrs.epilogue = TX_EPILOGUE_GELU;
    product->attrs.exact = gelu->attrs.exact;
    product->attrs.keeps = !has_one_reader(f, t);
    product->out[TX_OUT(matmul, y)] = y;
    product->out[TX_OUT(matmul, p)] = product->attrs.keeps ? t : NULL;
    y->producer = t->producer;
    tx_edit_erase(f->edit, at);
}

/* Moves the product to its only reader, and adds operand `z`. */
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

/* Fuses dropout into the norm that adds its result, which must be the only reader. */
static void fuse_dropout(fusion *f, int32_t at, size_t z)
{
    tx_node *norm = &f->graph->node[at];
    tx_tensor *t = norm->in[z];
    if (!can_fuse(f, t, at) || f->graph->node[t->producer].op != TX_OP_DROPOUT || !has_one_reader(f, t))
        return;
    const tx_node *dropout = &f->graph->node[t->producer];
    if (!is_stable(dropout->in[0]))
        return;
    norm->in[z] = dropout->in[0];
    norm->attrs.draw.p = dropout->attrs.draw.p;
    norm->attrs.draw.site = dropout->attrs.draw.site;
    norm->attrs.draw.row = dropout->attrs.draw.row;
    norm->attrs.gap = dropout->attrs.gap;
    tx_edit_erase(f->edit, t->producer);
    t->producer = -1;
}

/* Fuses a sum into the norm that reads it first. Operand `z` and output `sum` are those of ops.def. */
static void fuse_norm(fusion *f, int32_t at, size_t z, size_t sum)
{
    tx_node *norm = &f->graph->node[at];
    tx_tensor *t = norm->in[0];
    if (!can_fuse(f, t, at))
        return;
    const tx_node *add = &f->graph->node[t->producer];
    if (add->op != TX_OP_ADD || add->out[0] != t || !is_stable(add->in[TX_IN(add, a)]) ||
        !is_stable(add->in[TX_IN(add, b)]) || is_read_between(f, t, t->producer, at))
        return;
    norm->in[0] = add->in[TX_IN(add, a)];
    norm->in[z] = add->in[TX_IN(add, b)];
    norm->out[sum] = t;
    tx_edit_erase(f->edit, t->producer);
    t->producer = at;
    fuse_dropout(f, at, z);
}

static bool is_norm_gradient(const tx_node *n)
{
    return n->op == TX_OP_LAYER_NORM_GRAD || n->op == TX_OP_RMS_NORM_GRAD;
}

/* Fuses the sum of a norm's gradient `t` and `other` into the gradient op. The sum must be the only reader of `t`, and
 * `other` must exist before. */
static bool fuse_norm_gradient(fusion *f, int32_t at, tx_tensor *t, tx_tensor *other)
{
    tx_tensor *y = f->graph->node[at].out[0];
    /* Other nodes may write parts of a viewed tensor, so its producer does not determine when it is complete. */
    if (!can_fuse(f, t, at) || !has_one_reader(f, t) || !is_stable(other) || tx_edit_is_viewed(f->edit, other) ||
        other->producer > t->producer || y->arena != TX_ARENA_PLANNED || tx_edit_is_viewed(f->edit, y) ||
        y->producer != at)
        return false;
    tx_node *norm = &f->graph->node[t->producer];
    const size_t z = norm->op == TX_OP_LAYER_NORM_GRAD ? TX_IN(layer_norm_grad, z) : TX_IN(rms_norm_grad, z);
    if (!is_norm_gradient(norm) || norm->out[0] != t || norm->in[z])
        return false;
    norm->in[z] = other;
    norm->out[0] = y;
    y->producer = t->producer;
    t->producer = -1;
    tx_edit_erase(f->edit, at);
    return true;
}

/* Fuses a sum into the producer of one of its terms. */
static void fuse_sum(fusion *f, int32_t at, tx_tensor *a, tx_tensor *b)
{
    if (is_product(f, b, at) && has_one_reader(f, b))
        fuse_reader(f, at, b, a, TX_EPILOGUE_ADD);
    else if (is_product(f, a, at) && has_one_reader(f, a))
        fuse_reader(f, at, a, b, TX_EPILOGUE_ADD);
    else if (!fuse_norm_gradient(f, at, b, a))
        fuse_norm_gradient(f, at, a, b);
}

/* Whether both are the same slice of the gradients, or of a bucket. */
static bool is_same_slice(const tx_tensor *a, const tx_tensor *b)
{
    return a->base == b->base && (a->base ? a->within == b->within : a->arena == b->arena && a->offset == b->offset);
}

/* Whether node `norm` can write slice `bias` of the gradients before node `at` does. A bucket of ZeRO stages 2 and 3
 * exists only after its first gradient, so the node must already write to it. */
static bool can_write(const fusion *f, int32_t norm, const tx_tensor *bias, int32_t at)
{
    bool can = bias->arena == TX_ARENA_GRADIENTS && bias->is_fixed && !bias->base;
    for (int k = 1; k < TX_MAX_OUT; k++)
        can = can || (bias->base && f->graph->node[norm].out[k] && f->graph->node[norm].out[k]->base == bias->base);
    for (int32_t i = norm; i < at && can; i++)
        for (int k = 0; k < TX_MAX_OUT; k++)
            can = can && !(f->graph->node[i].out[k] && is_same_slice(f->graph->node[i].out[k], bias));
    return can;
}

/* Fuses the gradient of a bias, the sum over rows of a norm's dx, into the norm's gradient. The bias is that of the
 * product whose result was added to the norm's input. */
static void fuse_bias_gradient(fusion *f, int32_t at)
{
    const tx_node *sum = &f->graph->node[at];
    tx_tensor *dx = sum->in[0], *bias = sum->out[0];
    if (sum->attrs.axis != TX_AXIS_ROWS || sum->attrs.reduction != TX_REDUCE_SUM || sum->attrs.control >= 0 ||
        sum->attrs.alpha != 1.0f || !can_fuse(f, dx, at))
        return;
    tx_node *norm = &f->graph->node[dx->producer];
    const bool layer = norm->op == TX_OP_LAYER_NORM_GRAD;
    const size_t dbias = layer ? TX_OUT(layer_norm_grad, dbias) : TX_OUT(rms_norm_grad, dbias), work = dbias + 1;
    if (!is_norm_gradient(norm) || norm->out[0] != dx || norm->out[dbias] || norm->attrs.attention.heads ||
        (norm->attrs.sums && norm->attrs.accumulate != sum->attrs.accumulate) || !can_write(f, dx->producer, bias, at))
        return;
    const int64_t rows = tx_row_blocks(tx_shape_rows(&dx->shape));
    if (norm->out[work])
        norm->out[work]->shape.dim[1]++;
    else
        norm->out[work] =
            tx_tensor_planned(f->graph, TX_F32, TX_SHAPE(rows, 1, tx_shape_last(&dx->shape)), TX_ARENA_PLANNED);
    norm->attrs.sums |= 1u << (dbias - 1);
    norm->attrs.accumulate = sum->attrs.accumulate;
    norm->out[dbias] = bias;
    bias->producer = dx->producer;
    tx_edit_erase(f->edit, at);
}

/* Whether both are the same tensor or the same rows of one. */
static bool is_same(const tx_tensor *a, const tx_tensor *b)
{
    return a == b || (a->base && a->base == b->base && a->within == b->within);
}

/* Fuses loss and gradient of the logits into one node at the place of the loss. No other node may read the logits, and
 * the operands of the gradient must exist before. */
static void fuse_classifier(fusion *f, int32_t at)
{
    const tx_node gradient = f->graph->node[at];
    tx_tensor *logits = gradient.in[TX_IN(cross_entropy_grad, logits)],
              *dlosses = gradient.in[TX_IN(cross_entropy_grad, dlosses)],
              *lse = gradient.in[TX_IN(cross_entropy_grad, lse)], *dlogits = gradient.out[0];
    const int32_t first = lse->producer;
    int32_t readers;
    tx_edit_readers(f->edit, logits, &readers);
    if (first < 0 || first > at || !has_one_reader(f, lse) || lse->is_output || readers != 2 || logits->is_output ||
        tx_edit_is_viewed(f->edit, logits) || tx_tensor_root(dlosses)->producer >= first || !is_stable(dlosses) ||
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
        if (is_product(f, a, at) && has_one_reader(f, a))
            fuse_reader(f, at, a, b, TX_EPILOGUE_GELU_GRAD);
        break;
    case TX_OP_ADD:
        fuse_sum(f, at, a, b);
        break;
    case TX_OP_CROSS_ENTROPY_GRAD:
        fuse_classifier(f, at);
        break;
    case TX_OP_REDUCE:
        fuse_bias_gradient(f, at);
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
    const char *setting = getenv("TX_FUSE");
    return setting && strcmp(setting, "0") == 0 ? TX_OK : tx_edit_run(graph, change, &(fusion){.graph = graph});
}
