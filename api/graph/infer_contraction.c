/* SPDX-License-Identifier: Apache-2.0
 * Inference rules of contractions: matrix products and attention, with its caches. */
#include "api/graph/infer.h"

#include "api/base/blocks.h"

#include <inttypes.h>

/* Checks the epilogue. Output 0 is set. */
static tx_status infer_epilogue(const tx_infer *c)
{
    const tx_epilogue epilogue = c->attrs->epilogue;
    const bool reads = epilogue == TX_EPILOGUE_GELU_GRAD || epilogue == TX_EPILOGUE_ADD;
    if (tx_present(&c->in[3]) != reads)
        return tx_refuse(c, "operand 3 is %s", reads ? "missing" : "only for the epilogues GELU_GRAD and ADD");
    if (epilogue == TX_EPILOGUE_NONE)
        return TX_OK;
    if (c->attrs->accumulate != TX_STORE)
        return tx_refuse(c, "with an epilogue the result cannot be added");
    TX_TRY(tx_require_dtype(c, 3, c->out[0].dtype));
    TX_TRY(tx_require_shape(c, 3, &c->out[0].shape));
    if (epilogue == TX_EPILOGUE_GELU && c->attrs->keeps)
        return tx_set_output(c, 1, c->out[0].dtype, c->out[0].shape);
    return TX_OK;
}

/* A packed matrix applies to all rows of a, and its rows are whole blocks. */
static tx_status check_packed(const tx_infer *c)
{
    TX_TRY(tx_require_rank(c, 1, 2));
    if (!c->attrs->flat || c->attrs->trans_a)
        return tx_refuse(c, "%s operands need a flat product without trans_a", tx_dtype_name(c->in[1].dtype));
    if (tx_block_values(c->in[1].dtype) > 0 && !c->attrs->trans_b)
        return tx_refuse(c, "%s operands need a product with trans_b", tx_dtype_name(c->in[1].dtype));
    if (tx_shape_last(&c->in[1].shape) % tx_packed_unit(c->in[1].dtype) != 0)
        return tx_require_other_shape(c, 1, "rows of whole blocks");
    return TX_OK;
}

tx_status tx_infer_matmul(const tx_infer *c)
{
    const tx_shape *a = &c->in[0].shape, *b = &c->in[1].shape;
    TX_TRY(tx_require_float_type(c, 0));
    if (tx_dtype_packed(c->in[1].dtype))
        TX_TRY(check_packed(c));
    else
        TX_TRY(tx_require_dtype(c, 1, c->in[0].dtype));
    TX_TRY(tx_require_dtype(c, 2, TX_F32));
    tx_gemm g = tx_gemm_of(c->attrs, a, b);
    int64_t b_k = c->attrs->trans_b ? tx_shape_last(b) : tx_shape_count(b) / tx_shape_last(b);
    if (c->attrs->flat) {
        if (!c->attrs->trans_a)
            TX_TRY(tx_require_rank(c, 1, 2));
    } else {
        if (a->rank < 2 || b->rank < 2)
            return tx_require_other_shape(c, a->rank < 2 ? 0 : 1, "rank 2 or more");
        b_k = c->attrs->trans_b ? tx_shape_last(b) : b->dim[b->rank - 2];
        bool leading = a->rank == b->rank;
        for (int32_t i = 0; leading && i + 2 < a->rank; i++)
            leading = a->dim[i] == b->dim[i];
        if (!leading && a->rank != 2 && b->rank != 2)
            return tx_refuse(c, "leading dimensions of %s and %s differ", TX_TEXT(*a), TX_TEXT(*b));
    }
    if (g.k != b_k)
        return tx_refuse(c, "inner dimensions of %s%s and %s%s differ", TX_TEXT(*a),
                         c->attrs->trans_a ? " transposed" : "", TX_TEXT(*b), c->attrs->trans_b ? " transposed" : "");
    TX_TRY(tx_require_shape(c, 2, &TX_SHAPE(g.n)));
    tx_shape y = TX_SHAPE(g.m, g.n);
    if (c->attrs->flat && !c->attrs->trans_a) {
        y = tx_with_last(a, g.n);
    } else if (!c->attrs->flat) {
        y = a->rank >= b->rank ? *a : *b;
        y.dim[y.rank - 2] = g.m;
        y.dim[y.rank - 1] = g.n;
    }
    TX_TRY(tx_give_stored(c, c->in[0].dtype, c->in[0].dtype, y));
    return infer_epilogue(c);
}

tx_status tx_require_qkv(const tx_infer *c, int i, int64_t *head_size)
{
    const tx_attrs *a = c->attrs;
    TX_TRY(tx_require_rank(c, i, 3));
    if (a->attention.heads < 1 || a->attention.kv_heads < 1 || a->attention.heads % a->attention.kv_heads != 0)
        return tx_refuse(c, "%d heads cannot share %d key heads", a->attention.heads, a->attention.kv_heads);
    int64_t parts = a->attention.heads + 2 * (int64_t)a->attention.kv_heads, last = tx_shape_last(&c->in[i].shape);
    if (last % parts != 0)
        return tx_refuse(c, "the last dimension of %s is not a multiple of %" PRId64 " heads", TX_TEXT(c->in[i].shape),
                         parts);
    TX_TRY(tx_require_draw(c));
    if (a->attention.window < 0)
        return tx_refuse(c, "window %d is negative", a->attention.window);
    if (a->attention.chunked && a->attention.window < 1)
        return tx_refuse(c, "chunks have no size");
    if (!(a->attention.cap >= 0.0f))
        return tx_refuse(c, "cap %g is negative", (double)a->attention.cap);
    *head_size = last / parts;
    return TX_OK;
}

tx_status tx_require_sinks(const tx_infer *c, int i)
{
    TX_TRY(tx_require_dtype(c, i, TX_F32));
    return tx_require_shape(c, i, &TX_SHAPE(c->attrs->attention.heads));
}

/* Checks the bounds of the keys: operand `lengths`, the next operand (starts) and the window. */
static tx_status check_bounds(const tx_infer *c, int lengths, const tx_shape *qkv)
{
    const int starts = lengths + 1;
    TX_TRY(tx_require_shape(c, lengths, &TX_SHAPE(qkv->dim[0])));
    TX_TRY(tx_require_shape(c, starts, &TX_SHAPE(qkv->dim[0], qkv->dim[1])));
    if (!c->attrs->attention.causal && (c->attrs->attention.window > 0 || tx_present(&c->in[starts])))
        return tx_refuse(c, "a window or starts need causal attention");
    return TX_OK;
}

tx_status tx_infer_attention(const tx_infer *c)
{
    int64_t d = 0;
    TX_TRY(tx_require(c, "HII"));
    TX_TRY(tx_require_qkv(c, 0, &d));
    int64_t batch = c->in[0].shape.dim[0], time = c->in[0].shape.dim[1];
    TX_TRY(check_bounds(c, TX_IN(attention, lengths), &c->in[0].shape));
    TX_TRY(tx_require_sinks(c, TX_IN(attention, sinks)));
    tx_set_output(c, 0, c->in[0].dtype, TX_SHAPE(batch, time, c->attrs->attention.heads * d));
    return tx_set_output(c, 1, TX_F32, TX_SHAPE(batch, c->attrs->attention.heads, time));
}

tx_status tx_infer_mla_qkv(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H3=3=3"));
    const tx_shape *q = &c->in[0].shape, *kv = &c->in[1].shape, *rope = &c->in[2].shape;
    const int64_t heads = c->attrs->attention.heads, size = heads > 0 ? q->dim[2] / heads : 0,
                  plain = size - rope->dim[2], value = heads > 0 ? kv->dim[2] / heads - plain : 0;
    const bool same_rows = tx_shape_equal(&TX_SHAPE(q->dim[0], q->dim[1]), &TX_SHAPE(kv->dim[0], kv->dim[1])) &&
                           tx_shape_equal(&TX_SHAPE(q->dim[0], q->dim[1]), &TX_SHAPE(rope->dim[0], rope->dim[1]));
    if (!same_rows || heads < 1 || q->dim[2] % heads != 0 || kv->dim[2] % heads != 0 || plain < 1 || value < 1 ||
        value > size || rope->dim[2] % 2 != 0 || c->attrs->step < 1 || c->attrs->step > 2)
        return tx_refuse(c, "%s, %s and %s do not fit %" PRId64 " heads", TX_TEXT(*q), TX_TEXT(*kv), TX_TEXT(*rope),
                         heads);
    return tx_set_output(c, 0, c->in[0].dtype, TX_SHAPE(q->dim[0], q->dim[1], 3 * q->dim[2]));
}

tx_status tx_infer_mla_qkv_grad(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H3"));
    const tx_shape *d = &c->in[0].shape;
    const int64_t heads = c->attrs->attention.heads, plain = c->attrs->rows, value = c->attrs->vocab;
    if (heads < 1 || d->dim[2] % (3 * heads) != 0 || plain < 1 || plain >= d->dim[2] / 3 / heads || value < 1 ||
        value > d->dim[2] / 3 / heads || c->attrs->step < 1 || c->attrs->step > 2)
        return tx_refuse(c, "%s does not fit %" PRId64 " heads of %" PRId64 " and %" PRId64 " elements", TX_TEXT(*d),
                         heads, plain, value);
    tx_set_output(c, 0, c->in[0].dtype, TX_SHAPE(d->dim[0], d->dim[1], d->dim[2] / 3));
    tx_set_output(c, 1, c->in[0].dtype, TX_SHAPE(d->dim[0], d->dim[1], heads * (plain + value)));
    return tx_set_output(c, 2, TX_F32, TX_SHAPE(d->dim[0], d->dim[1], d->dim[2] / 3 / heads - plain));
}

tx_status tx_infer_attention_sink_grad(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H3=F3F1"));
    const tx_shape *o = &c->in[0].shape;
    const int64_t heads = tx_shape_count(&c->in[3].shape);
    TX_TRY(tx_require_shape(c, 1, o));
    if (o->dim[2] % heads != 0)
        return tx_refuse(c, "%" PRId64 " sinks do not fit %s", heads, TX_TEXT(*o));
    TX_TRY(tx_require_shape(c, 2, &TX_SHAPE(o->dim[0], heads, o->dim[1])));
    return tx_set_output(c, 0, TX_F32, TX_SHAPE(o->dim[0], o->dim[1], heads));
}

tx_status tx_infer_attention_grad(const tx_infer *c)
{
    int64_t d = 0;
    TX_TRY(tx_require(c, "H==FII"));
    TX_TRY(tx_require_qkv(c, 1, &d));
    int64_t batch = c->in[1].shape.dim[0], time = c->in[1].shape.dim[1];
    tx_shape o = TX_SHAPE(batch, time, c->attrs->attention.heads * d),
             lse = TX_SHAPE(batch, c->attrs->attention.heads, time);
    TX_TRY(tx_require_shape(c, 0, &o));
    TX_TRY(tx_require_shape(c, 2, &o));
    TX_TRY(tx_require_shape(c, 3, &lse));
    TX_TRY(check_bounds(c, TX_IN(attention_grad, lengths), &c->in[1].shape));
    tx_set_output(c, 0, c->in[1].dtype, c->in[1].shape);
    return tx_set_output(c, 1, TX_F32, lse);
}
