/* SPDX-License-Identifier: Apache-2.0
 * One gradient rule an op (the column `gradient` of ops.def). */
#include "api/passes/passes.h"

typedef struct grad {
    tx_graph *graph;
    const tx_node *node;    /* a copy: the array of nodes grows while a rule runs */
    tx_tensor *const *dout; /* gradients of outputs */
    const tx_wanted *want;  /* inputs whose gradient is wanted */
    tx_tensor **din;        /* gradients of inputs, set by the rule */
} grad;

/* The operand of the node, or the gradient of one, by its name in ops.def. */
#define IN(c, op, name) ((c)->node->in[TX_IN(op, name)])
#define OUT(c, op, name) ((c)->node->out[TX_OUT(op, name)])
#define WANT(c, op, name) ((c)->want[TX_IN(op, name)])
#define DIN(c, op, name) ((c)->din[TX_IN(op, name)])
/* Emits an op whose first `count` outputs are the gradients of the inputs of the same number. */
#define EMIT_ALL(c, NAME, attributes, count, ...) \
    emit_all(c, (tx_emit_args){.op = TX_OP_##NAME, .attrs = attributes, .in = {__VA_ARGS__}}, count)

static void emit_all(const grad *c, tx_emit_args args, int count)
{
    tx_emit(c->graph, &args);
    for (int i = 0; i < count; i++)
        c->din[i] = args.out[i];
}

static tx_tensor *as_shape(tx_tensor *t, const tx_shape *shape)
{
    return !t || tx_shape_equal(&t->shape, shape) ? t : tx_reshape(t, *shape);
}

static tx_tensor *as_dtype(tx_tensor *t, tx_dtype dtype)
{
    return !t || t->dtype == dtype ? t : tx_cast(t, dtype);
}

static tx_tensor *product(const grad *c, tx_tensor *a, bool trans_a, tx_tensor *b, bool trans_b, tx_dtype dtype)
{
    const tx_attrs attrs = TX_ATTRS(.trans_a = trans_a, .trans_b = trans_b, .flat = c->node->attrs.flat);
    return TX_EMIT_AS(a, MATMUL, attrs, &dtype, NULL, a, b);
}

/* In fp32, whatever x is. */
static tx_tensor *sum_rows(tx_tensor *x)
{
    return TX_EMIT(x, REDUCE, TX_ATTRS(.axis = TX_AXIS_ROWS), x);
}

/* The gradient of an operand of rank 2 that served a whole batch: the sum over the batch. */
static tx_tensor *of_operand(tx_tensor *d, const tx_shape *shape)
{
    if (!d || tx_shape_count(&d->shape) == tx_shape_count(shape))
        return as_shape(d, shape);
    int64_t count = tx_shape_count(shape);
    tx_tensor *rows = tx_reshape(d, TX_SHAPE(tx_shape_count(&d->shape) / count, count));
    return as_shape(sum_rows(rows), shape);
}

/* y = A B, A = op(a), B = op(b): dA = dy B^T, dB = A^T dy; transposed again where op transposes. */
static void grad_matmul(const grad *c)
{
    tx_tensor *a = IN(c, matmul, a), *b = IN(c, matmul, b), *dy = as_dtype(c->dout[0], a->dtype);
    const tx_wanted *want_a = &WANT(c, matmul, a), *want_b = &WANT(c, matmul, b);
    const tx_attrs *at = &c->node->attrs;
    if (want_b->need) { /* first, for the sums over ranks: they can begin while da is computed */
        tx_tensor *db = at->trans_b ? product(c, dy, true, a, at->trans_a, want_b->dtype)
                                    : product(c, a, !at->trans_a, dy, false, want_b->dtype);
        DIN(c, matmul, b) = of_operand(db, &b->shape);
    }
    if (WANT(c, matmul, bias).need)
        DIN(c, matmul, bias) = sum_rows(c->dout[0]);
    if (want_a->need) {
        tx_tensor *da = at->trans_a ? product(c, b, at->trans_b, dy, true, want_a->dtype)
                                    : product(c, dy, false, b, !at->trans_b, want_a->dtype);
        DIN(c, matmul, a) = of_operand(da, &a->shape);
    }
}

static void grad_grouped_matmul(const grad *c)
{
    tx_tensor *x = IN(c, grouped_matmul, x), *w = IN(c, grouped_matmul, w), *dy = as_dtype(c->dout[0], x->dtype);
    tx_tensor *offsets = IN(c, grouped_matmul, offsets);
    const bool is_turned = c->node->attrs.trans_b;
    const tx_wanted *want_x = &WANT(c, grouped_matmul, x);
    if (WANT(c, grouped_matmul, w).need)
        DIN(c, grouped_matmul, w) =
            TX_EMIT(dy, GROUPED_MATMUL_GRAD, TX_PLAIN, is_turned ? dy : x, is_turned ? x : dy, offsets);
    if (want_x->need)
        DIN(c, grouped_matmul, x) =
            TX_EMIT_AS(dy, GROUPED_MATMUL, TX_ATTRS(.trans_b = !is_turned), &want_x->dtype, NULL, dy, w, offsets);
}

static void grad_attention(const grad *c)
{
    DIN(c, attention, qkv) =
        TX_EMIT(c->dout[0], ATTENTION_GRAD, c->node->attrs, c->dout[0], IN(c, attention, qkv), OUT(c, attention, o),
                OUT(c, attention, lse), IN(c, attention, lengths), IN(c, attention, starts));
}

static void grad_layer_norm(const grad *c)
{
    EMIT_ALL(c, LAYER_NORM_GRAD, c->node->attrs, 3, c->dout[0], IN(c, layer_norm, x), IN(c, layer_norm, gamma),
             OUT(c, layer_norm, mean), OUT(c, layer_norm, rstd));
}

static void grad_rms_norm(const grad *c)
{
    EMIT_ALL(c, RMS_NORM_GRAD, c->node->attrs, 2, c->dout[0], IN(c, rms_norm, x), IN(c, rms_norm, gamma),
             OUT(c, rms_norm, rstd));
}

/* PART_LOSS has the same operands in the same places: logits, labels, and lse as its second output. */
static void grad_cross_entropy(const grad *c)
{
    DIN(c, cross_entropy, logits) =
        TX_EMIT(c->dout[0], CROSS_ENTROPY_GRAD, c->node->attrs, IN(c, cross_entropy, logits), c->dout[0],
                IN(c, cross_entropy, labels), OUT(c, cross_entropy, lse));
}

static void grad_distillation(const grad *c)
{
    DIN(c, distillation, logits) = TX_EMIT(c->dout[0], DISTILLATION_GRAD, c->node->attrs, IN(c, distillation, logits),
                                           c->dout[0], IN(c, distillation, teacher), IN(c, distillation, labels));
}

static tx_tensor *broadcast(tx_tensor *small, const tx_attrs *like, const tx_shape *shape)
{
    tx_attrs attrs = {.axis = like->axis, .control = like->control, .alpha = like->alpha};
    if (like->reduction == TX_REDUCE_MEAN)
        attrs.alpha *= (float)((double)tx_shape_count(&small->shape) / (double)tx_shape_count(shape));
    if (like->reduction == TX_REDUCE_SUMSQ)
        attrs.alpha *= 2.0f;
    return TX_EMIT_AS(small, BROADCAST, attrs, NULL, shape, small);
}

static void grad_reduce(const grad *c)
{
    tx_tensor *x = c->node->in[0];
    if (c->node->attrs.reduction == TX_REDUCE_MAX) {
        tx_graph_fail(c->graph, tx_fail(TX_UNSUPPORTED, "reduce: the maximum has no gradient here"));
        return;
    }
    tx_tensor *d = broadcast(c->dout[0], &c->node->attrs, &x->shape);
    c->din[0] = d && c->node->attrs.reduction == TX_REDUCE_SUMSQ ? tx_mul(d, x) : d;
}

/* Ops whose gradient is dy itself. */
static void grad_copy(const grad *c)
{
    c->din[0] = c->dout[0];
}

/* The gradient ops of rules of_input and of_output. */
/* clang-format off */
static const tx_op gradient_op[TX_OP_COUNT] = {
    [TX_OP_GELU] = TX_OP_GELU_GRAD,
    [TX_OP_SILU] = TX_OP_SILU_GRAD,
    [TX_OP_SWIGLU] = TX_OP_SWIGLU_GRAD,
    [TX_OP_TANH] = TX_OP_TANH_GRAD,
    [TX_OP_SOFTMAX] = TX_OP_SOFTMAX_GRAD,
};
/* clang-format on */

static void of_map(const grad *c, tx_tensor *other)
{
    emit_all(c, (tx_emit_args){.op = gradient_op[c->node->op], .attrs = c->node->attrs, .in = {c->dout[0], other}}, 1);
}

/* The gradient is an op of dy and x. */
static void grad_of_input(const grad *c)
{
    of_map(c, c->node->in[0]);
}

/* The gradient is an op of dy and y. */
static void grad_of_output(const grad *c)
{
    of_map(c, c->node->out[0]);
}

/* dy times -y^3 / 2. */
static void grad_rsqrt(const grad *c)
{
    tx_tensor *y = c->node->out[0];
    c->din[0] = tx_scale(tx_mul(c->dout[0], tx_mul(y, tx_mul(y, y))), -0.5f);
}

/* A sum along what was repeated. */
static void grad_broadcast(const grad *c)
{
    tx_attrs attrs = c->node->attrs;
    attrs.reduction = TX_REDUCE_SUM;
    c->din[0] = TX_EMIT(c->dout[0], REDUCE, attrs, c->dout[0]);
}

static void grad_add(const grad *c)
{
    c->din[0] = c->din[1] = c->dout[0];
}

static void grad_mul(const grad *c)
{
    for (int i = 0; i < 2; i++)
        if (c->want[i].need)
            c->din[i] = tx_mul(c->dout[0], c->node->in[1 - i]);
}

static void grad_scale(const grad *c)
{
    DIN(c, scale, x) = TX_EMIT(c->dout[0], SCALE, c->node->attrs, c->dout[0]);
}

/* The same draw, in the type that the gradient ends in. */
static void grad_dropout(const grad *c)
{
    DIN(c, dropout, x) = TX_EMIT_AS(c->dout[0], DROPOUT, c->node->attrs, &WANT(c, dropout, x).dtype, NULL, c->dout[0]);
}

static void grad_rotary(const grad *c)
{
    tx_attrs attrs = c->node->attrs;
    attrs.inverse = !attrs.inverse;
    DIN(c, rotary, x) = TX_EMIT(c->dout[0], ROTARY, attrs, c->dout[0], IN(c, rotary, positions));
}

static void grad_embedding(const grad *c)
{
    const bool of_positions = WANT(c, embedding, position_table).need;
    tx_tensor *positions = IN(c, embedding, positions), *position_table = IN(c, embedding, position_table);
    if (of_positions && positions && positions->shape.rank == 1) {
        tx_graph_fail(c->graph, tx_fail(TX_UNSUPPORTED, "embedding: no gradient of positions by the row"));
        return;
    }
    if (WANT(c, embedding, table).need) {
        tx_attrs attrs = c->node->attrs;
        attrs.rows = IN(c, embedding, table)->shape.dim[0];
        DIN(c, embedding, table) = TX_EMIT(c->dout[0], SCATTER_ADD, attrs, IN(c, embedding, tokens), c->dout[0]);
    }
    if (of_positions)
        DIN(c, embedding, position_table) =
            positions ? tx_scatter_add(positions, c->dout[0], position_table->shape.dim[0])
                      : TX_EMIT(c->dout[0], POSITION_GRAD, TX_ATTRS(.rows = position_table->shape.dim[0]), c->dout[0]);
}

static void grad_gather(const grad *c)
{
    DIN(c, gather, table) = tx_scatter_add(IN(c, gather, indices), c->dout[0], IN(c, gather, table)->shape.dim[0]);
}

static void grad_scatter_add(const grad *c)
{
    tx_tensor *src = IN(c, scatter_add, src);
    DIN(c, scatter_add, src) = as_shape(tx_gather(c->dout[0], IN(c, scatter_add, indices)), &src->shape);
}

static void grad_top_k(const grad *c)
{
    const tx_attrs attrs = TX_ATTRS(.rows = tx_shape_last(&IN(c, top_k, x)->shape));
    DIN(c, top_k, x) = TX_EMIT(c->dout[0], TOP_K_GRAD, attrs, c->dout[0], OUT(c, top_k, indices));
}

static void grad_combine(const grad *c)
{
    EMIT_ALL(c, COMBINE_GRAD, TX_PLAIN, 2, c->dout[0], IN(c, combine, x), IN(c, combine, weights),
             IN(c, combine, places), IN(c, combine, tokens));
}

static void grad_cast(const grad *c)
{
    c->din[0] = tx_cast(c->dout[0], c->node->in[0]->dtype);
}

static void grad_reshape(const grad *c)
{
    tx_tensor *d = c->node->attrs.summed ? tx_part_sum(as_dtype(c->dout[0], TX_F32)) : c->dout[0];
    c->din[0] = d ? tx_reshape(d, c->node->in[0]->shape) : NULL;
}

static void grad_part_scatter(const grad *c)
{
    c->din[0] = tx_part_gather(c->dout[0]);
}

static void grad_part_gather(const grad *c)
{
    c->din[0] = tx_part_scatter(as_dtype(c->dout[0], TX_F32));
}

/* Rows return in the type of x. */
static void grad_move_rows(const grad *c)
{
    const tx_op back = c->node->op == TX_OP_TO_EXPERTS ? TX_OP_FROM_EXPERTS : TX_OP_TO_EXPERTS;
    tx_tensor *x = c->node->in[0], *counts = c->node->in[1];
    c->din[0] = tx_move_rows(back, as_dtype(c->dout[0], x->dtype), counts, x->shape.dim[0]);
}

static void grad_none(const grad *c)
{
    tx_graph_fail(c->graph,
                  tx_fail(TX_UNSUPPORTED, "%s has no gradient, but the loss depends on a parameter through it",
                          tx_op_info_of(c->node->op)->name));
}

static void (*const rules[TX_OP_COUNT])(const grad *) = {
#define TX_OP(NAME, name, CLASS, CAST, min, n_in, n_out, in_place, adds, infer, rule, in, out) \
    [TX_OP_##NAME] = grad_##rule,
#include "ops.def"
};

tx_status tx_op_grad(tx_graph *graph, const tx_node *node, tx_tensor *const dout[TX_MAX_OUT],
                     const tx_wanted want[TX_MAX_IN], tx_tensor *din[TX_MAX_IN])
{
    tx_node copy = *node;
    rules[copy.op](&(grad){graph, &copy, dout, want, din});
    return graph->status;
}
