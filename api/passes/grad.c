/* SPDX-License-Identifier: Apache-2.0
 * Gradient rules of the core's ops, and functions that all rules use. */
#include "api/passes/grad.h"

void tx_grad_all(const tx_grad *c, tx_emit_args args, int count)
{
    tx_emit(c->graph, &args);
    for (int i = 0; i < count; i++)
        c->din[i] = args.out[i];
}

static tx_tensor *as_shape(tx_tensor *t, const tx_shape *shape)
{
    return !t || tx_shape_equal(&t->shape, shape) ? t : tx_reshape(t, *shape);
}

tx_tensor *tx_grad_as(tx_tensor *t, tx_dtype dtype)
{
    return !t || t->dtype == dtype ? t : tx_cast(t, dtype);
}

/* Returns the product in `dtype`, or in fp32 if the operands are of another type. */
static tx_tensor *product(const tx_grad *c, tx_tensor *a, bool trans_a, tx_tensor *b, bool trans_b, tx_dtype dtype)
{
    if (a && dtype != a->dtype)
        dtype = TX_F32;
    const tx_attrs attrs = TX_ATTRS(.trans_a = trans_a, .trans_b = trans_b, .flat = c->node->attrs.flat);
    return TX_EMIT_AS(a, MATMUL, attrs, &dtype, NULL, a, b);
}

/* The sum is fp32 for every type of x. */
static tx_tensor *sum_rows(tx_tensor *x)
{
    return TX_EMIT(x, REDUCE, TX_ATTRS(.axis = TX_AXIS_ROWS), x);
}

/* Returns the gradient of an operand. If an operand of rank 2 was used for a whole batch, this is the sum over the
 * batch. */
static tx_tensor *of_operand(tx_tensor *d, const tx_shape *shape)
{
    if (!d || tx_shape_count(&d->shape) == tx_shape_count(shape))
        return as_shape(d, shape);
    int64_t count = tx_shape_count(shape);
    tx_tensor *rows = tx_reshape(d, TX_SHAPE(tx_shape_count(&d->shape) / count, count));
    return as_shape(sum_rows(rows), shape);
}

/* y = A B, A = op(a), B = op(b): dA = dy B^T, dB = A^T dy; transposed again if op transposes. */
void tx_grad_matmul(const tx_grad *c)
{
    tx_tensor *a = TX_NODE_IN(c, matmul, a), *b = TX_NODE_IN(c, matmul, b), *dy = tx_grad_as(c->dout[0], a->dtype);
    const tx_wanted *want_a = &TX_WANT(c, matmul, a), *want_b = &TX_WANT(c, matmul, b);
    const tx_attrs *at = &c->node->attrs;
    if (want_b->need) { /* first, so that the ranks can sum it while da is computed */
        tx_tensor *db = at->trans_b ? product(c, dy, true, a, at->trans_a, want_b->dtype)
                                    : product(c, a, !at->trans_a, dy, false, want_b->dtype);
        TX_DIN(c, matmul, b) = of_operand(db, &b->shape);
    }
    if (TX_WANT(c, matmul, bias).need)
        TX_DIN(c, matmul, bias) = sum_rows(c->dout[0]);
    if (want_a->need) {
        tx_tensor *da = at->trans_a ? product(c, b, at->trans_b, dy, true, want_a->dtype)
                                    : product(c, dy, false, b, !at->trans_b, want_a->dtype);
        TX_DIN(c, matmul, a) = of_operand(da, &a->shape);
    }
}

void tx_grad_attention(const tx_grad *c)
{
    tx_tensor *o = TX_NODE_OUT(c, attention, o), *d_o = tx_grad_as(c->dout[0], o->dtype);
    TX_DIN(c, attention, qkv) =
        TX_EMIT(d_o, ATTENTION_GRAD, c->node->attrs, d_o, TX_NODE_IN(c, attention, qkv), o,
                TX_NODE_OUT(c, attention, lse), TX_NODE_IN(c, attention, lengths), TX_NODE_IN(c, attention, starts));
    if (TX_WANT(c, attention, sinks).need)
        TX_DIN(c, attention, sinks) =
            sum_rows(TX_EMIT(d_o, ATTENTION_SINK_GRAD, TX_PLAIN, d_o, o, TX_NODE_OUT(c, attention, lse),
                             TX_NODE_IN(c, attention, sinks)));
}

/* Emits the gradient of a norm. Operand i, from gamma on, is sum i - 1 if it is trained. */
static void of_norm(const tx_grad *c, tx_emit_args args, int vectors)
{
    for (int i = 1; i <= vectors; i++)
        args.attrs.sums |= c->want[i].need ? 1u << (i - 1) : 0u;
    args.dtype = &c->want[0].dtype;
    tx_grad_all(c, args, 1 + vectors);
}

void tx_grad_layer_norm(const tx_grad *c)
{
    of_norm(c,
            (tx_emit_args){.op = TX_OP_LAYER_NORM_GRAD,
                           .attrs = c->node->attrs,
                           .in = {c->dout[0], TX_NODE_IN(c, layer_norm, x), TX_NODE_IN(c, layer_norm, gamma),
                                  TX_NODE_OUT(c, layer_norm, mean), TX_NODE_OUT(c, layer_norm, rstd)}},
            2);
}

void tx_grad_rms_norm(const tx_grad *c)
{
    of_norm(c,
            (tx_emit_args){.op = TX_OP_RMS_NORM_GRAD,
                           .attrs = c->node->attrs,
                           .in = {c->dout[0], TX_NODE_IN(c, rms_norm, x), TX_NODE_IN(c, rms_norm, gamma),
                                  TX_NODE_OUT(c, rms_norm, rstd)}},
            1);
}

/* Also for TP_CROSS_ENTROPY, whose operands have the same indices: logits, labels, and lse as second output. */
void tx_grad_cross_entropy(const tx_grad *c)
{
    TX_DIN(c, cross_entropy, logits) =
        TX_EMIT(c->dout[0], CROSS_ENTROPY_GRAD, c->node->attrs, TX_NODE_IN(c, cross_entropy, logits), c->dout[0],
                TX_NODE_IN(c, cross_entropy, labels), TX_NODE_OUT(c, cross_entropy, lse));
}

/* Only the entropy has a gradient. */
void tx_grad_token_statistics(const tx_grad *c)
{
    TX_DIN(c, token_statistics, logits) =
        TX_EMIT(c->dout[0], TOKEN_ENTROPY_GRAD, c->node->attrs, TX_NODE_IN(c, token_statistics, logits), c->dout[0],
                TX_NODE_IN(c, token_statistics, labels), TX_NODE_IN(c, token_statistics, lse),
                TX_NODE_OUT(c, token_statistics, entropy));
}

void tx_grad_distillation(const tx_grad *c)
{
    TX_DIN(c, distillation, logits) =
        TX_EMIT(c->dout[0], DISTILLATION_GRAD, c->node->attrs, TX_NODE_IN(c, distillation, logits), c->dout[0],
                TX_NODE_IN(c, distillation, teacher), TX_NODE_IN(c, distillation, labels));
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

void tx_grad_reduce(const tx_grad *c)
{
    tx_tensor *x = c->node->in[0];
    if (c->node->attrs.reduction == TX_REDUCE_MAX) {
        tx_graph_fail(c->graph, tx_fail(TX_UNSUPPORTED, "reduce: the gradient of the maximum is not implemented"));
        return;
    }
    tx_tensor *d = broadcast(c->dout[0], &c->node->attrs, &x->shape);
    c->din[0] = d && c->node->attrs.reduction == TX_REDUCE_SUMSQ ? tx_mul(d, x) : d;
}

/* The gradient is dy itself. */
void tx_grad_copy(const tx_grad *c)
{
    c->din[0] = c->dout[0];
}

/* Expands to op <NAME>_GRAD for rules of_input and of_output, otherwise to PARAM. */
#define GRADIENT_OP(rule, NAME) SECOND(RULE_##rule TX_OP_##NAME##_GRAD, TX_OP_PARAM, )
#define SECOND(...) SECOND_(__VA_ARGS__)
#define SECOND_(first, second, ...) second
#define RULE_of_input ,
#define RULE_of_output ,

static const tx_op gradient_op[TX_OP_COUNT] = {
#define TX_OP(NAME, name, CLASS, CAST, min, n_in, n_out, in_place, adds, infer, rule, in, out) \
    [TX_OP_##NAME] = GRADIENT_OP(rule, NAME),
#include "ops.def"
};

static void of_map(const tx_grad *c, tx_tensor *other)
{
    tx_grad_all(c, (tx_emit_args){.op = gradient_op[c->node->op], .attrs = c->node->attrs, .in = {c->dout[0], other}},
                1);
}

/* The gradient op reads dy and x. */
void tx_grad_of_input(const tx_grad *c)
{
    of_map(c, c->node->in[0]);
}

/* The gradient op reads dy and y. */
void tx_grad_of_output(const tx_grad *c)
{
    of_map(c, c->node->out[0]);
}

/* dx = dy times -y^3 / 2. */
void tx_grad_rsqrt(const tx_grad *c)
{
    tx_tensor *y = c->node->out[0];
    c->din[0] = tx_scale(tx_mul(c->dout[0], tx_mul(y, tx_mul(y, y))), -0.5f);
}

/* dx = dy y. */
void tx_grad_exponential(const tx_grad *c)
{
    c->din[0] = tx_mul(c->dout[0], c->node->out[0]);
}

/* dx = dy / x, where 1 / x = exp(-y). */
void tx_grad_logarithm(const tx_grad *c)
{
    c->din[0] = tx_mul(c->dout[0], tx_exponential(tx_scale(c->node->out[0], -1.0f)));
}

/* The gradient is the sum over the repeated dimensions. */
void tx_grad_broadcast(const tx_grad *c)
{
    tx_attrs attrs = c->node->attrs;
    attrs.reduction = TX_REDUCE_SUM;
    c->din[0] = TX_EMIT(c->dout[0], REDUCE, attrs, c->dout[0]);
}

void tx_grad_add(const tx_grad *c)
{
    c->din[0] = c->din[1] = c->dout[0];
}

void tx_grad_mul(const tx_grad *c)
{
    for (int i = 0; i < 2; i++)
        if (c->want[i].need)
            c->din[i] = tx_mul(c->dout[0], c->node->in[1 - i]);
}

void tx_grad_scale(const tx_grad *c)
{
    TX_DIN(c, scale, x) = TX_EMIT(c->dout[0], SCALE, c->node->attrs, c->dout[0]);
}

/* The same draw, in the requested type of the gradient. */
void tx_grad_dropout(const tx_grad *c)
{
    TX_DIN(c, dropout, x) =
        TX_EMIT_AS(c->dout[0], DROPOUT, c->node->attrs, &TX_WANT(c, dropout, x).dtype, NULL, c->dout[0]);
}

void tx_grad_rotary(const tx_grad *c)
{
    tx_attrs attrs = c->node->attrs;
    attrs.inverse = !attrs.inverse;
    TX_DIN(c, rotary, x) =
        TX_EMIT(c->dout[0], ROTARY, attrs, c->dout[0], TX_NODE_IN(c, rotary, positions), TX_NODE_IN(c, rotary, rates));
}

void tx_grad_embedding(const tx_grad *c)
{
    const bool of_positions = TX_WANT(c, embedding, position_table).need;
    tx_tensor *positions = TX_NODE_IN(c, embedding, positions),
              *position_table = TX_NODE_IN(c, embedding, position_table);
    if (of_positions && positions && positions->shape.rank == 1) {
        tx_graph_fail(c->graph, tx_fail(TX_UNSUPPORTED,
                                        "embedding: positions given by row have no gradient for the position table"));
        return;
    }
    if (TX_WANT(c, embedding, table).need) {
        tx_attrs attrs = c->node->attrs;
        attrs.rows = TX_NODE_IN(c, embedding, table)->shape.dim[0];
        TX_DIN(c, embedding, table) =
            TX_EMIT(c->dout[0], SCATTER_ADD, attrs, TX_NODE_IN(c, embedding, tokens), c->dout[0]);
    }
    if (of_positions)
        TX_DIN(c, embedding, position_table) =
            positions ? tx_scatter_add(positions, c->dout[0], position_table->shape.dim[0])
                      : TX_EMIT(c->dout[0], POSITION_GRAD, TX_ATTRS(.rows = position_table->shape.dim[0]), c->dout[0]);
}

void tx_grad_gather(const tx_grad *c)
{
    TX_DIN(c, gather, table) =
        tx_scatter_add(TX_NODE_IN(c, gather, indices), c->dout[0], TX_NODE_IN(c, gather, table)->shape.dim[0]);
}

void tx_grad_transpose(const tx_grad *c)
{
    TX_DIN(c, transpose, x) = tx_transpose(c->dout[0]);
}

void tx_grad_shift_rows(const tx_grad *c)
{
    const tx_attrs *attrs = &c->node->attrs;
    TX_DIN(c, shift_rows, x) =
        tx_shift_rows(c->dout[0], tx_shape_last(&TX_NODE_IN(c, shift_rows, x)->shape), -attrs->first, -attrs->step);
}

void tx_grad_mla_qkv(const tx_grad *c)
{
    tx_tensor *q = TX_NODE_IN(c, mla_qkv, q), *kv = TX_NODE_IN(c, mla_qkv, kv), *rope = TX_NODE_IN(c, mla_qkv, rope);
    tx_attrs attrs = c->node->attrs;
    attrs.rows =
        (tx_shape_last(&q->shape) - attrs.attention.heads * tx_shape_last(&rope->shape)) / attrs.attention.heads;
    attrs.vocab = tx_shape_last(&kv->shape) / attrs.attention.heads - attrs.rows;
    tx_emit_args args = {.op = TX_OP_MLA_QKV_GRAD, .attrs = attrs, .in = {tx_grad_as(c->dout[0], q->dtype)}};
    if (!args.in[0] || !tx_emit(c->graph, &args))
        return;
    TX_DIN(c, mla_qkv, q) = args.out[TX_OUT(mla_qkv_grad, dq)];
    TX_DIN(c, mla_qkv, kv) = args.out[TX_OUT(mla_qkv_grad, dkv)];
    TX_DIN(c, mla_qkv, rope) = tx_grad_as(args.out[TX_OUT(mla_qkv_grad, drope)], rope->dtype);
}

void tx_grad_place_rows(const tx_grad *c)
{
    TX_GRAD_ALL(c, PLACE_ROWS_GRAD, c->node->attrs, TX_PLACES, tx_grad_as(c->dout[0], TX_F32));
}

void tx_grad_scatter_add(const tx_grad *c)
{
    tx_tensor *src = TX_NODE_IN(c, scatter_add, src);
    TX_DIN(c, scatter_add, src) = as_shape(tx_gather(c->dout[0], TX_NODE_IN(c, scatter_add, indices)), &src->shape);
}

void tx_grad_cast(const tx_grad *c)
{
    c->din[0] = tx_grad_as(c->dout[0], c->node->in[0]->dtype);
}

void tx_grad_reshape(const tx_grad *c)
{
    tx_tensor *d = c->node->attrs.summed ? tx_tp_all_reduce(tx_grad_as(c->dout[0], TX_F32)) : c->dout[0];
    c->din[0] = d ? tx_reshape(d, c->node->in[0]->shape) : NULL;
}

void tx_grad_none(const tx_grad *c)
{
    tx_graph_fail(c->graph,
                  tx_fail(TX_UNSUPPORTED, "%s has no gradient, but the loss depends on a parameter through it",
                          tx_op_info_of(c->node->op)->name));
}
