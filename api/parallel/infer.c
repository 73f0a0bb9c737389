/* SPDX-License-Identifier: Apache-2.0
 * Inference rules of ops on divided tensors. */
#include "api/graph/infer.h"

#include <inttypes.h>

tx_status tx_infer_tp_indices(const tx_infer *c)
{
    const tx_attrs *a = c->attrs;
    TX_TRY(tx_require(c, "I"));
    if (a->first < 0 || a->rows < 1 || a->vocab > INT32_MAX || a->first > a->vocab - a->rows)
        return tx_refuse(c, "%" PRId64 " rows from %" PRId64 " on are outside the %" PRId64 " rows of the table",
                         a->rows, a->first, a->vocab);
    return tx_set_output(c, 0, TX_I32, c->in[0].shape);
}

tx_status tx_infer_tp_rows(const tx_infer *c)
{
    const tx_shape *x = &c->in[0].shape, *y = &c->out[0].shape;
    TX_TRY(tx_require(c, "H3"));
    if (y->rank != 3 || y->dim[0] != x->dim[0] || y->dim[1] < 1 || y->dim[2] != x->dim[2])
        return tx_refuse(c, "%s cannot be a chunk or gather of %s", TX_TEXT(*y), TX_TEXT(*x));
    if (tx_present(&c->out[1]))
        c->out[1].dtype = c->in[0].dtype;
    return tx_set_output(c, 0, c->in[0].dtype, *y);
}

/* Moves x [B, T, C] to [B, T times / parts, C parts / times]. */
static tx_status move(const tx_infer *c, int64_t times, int64_t parts)
{
    const tx_operand *x = &c->in[0];
    const int64_t ranks = c->attrs->rows, heads = c->attrs->attention.heads, kv = c->attrs->attention.kv_heads;
    TX_TRY(heads > 0 || x->dtype != TX_I32 ? tx_require(c, "H3") : tx_require_rank(c, 0, 3));
    const bool divides = ranks > 1 && heads >= 0 && kv >= 0 && heads % ranks == 0 && kv % ranks == 0;
    if (!divides || (heads > 0 && x->shape.dim[2] % ((heads + 2 * kv) * times / ranks) != 0) ||
        x->shape.dim[1] % (2 * parts) != 0)
        return tx_refuse(c, "%" PRId64 " ranks cannot divide %s of %" PRId64 " and %" PRId64 " heads", ranks,
                         TX_TEXT(x->shape), heads, kv);
    if (tx_present(&c->out[1]))
        c->out[1].dtype = x->dtype;
    return tx_set_output(c, 0, x->dtype,
                         TX_SHAPE(x->shape.dim[0], x->shape.dim[1] * times / parts,
                                  heads > 0 ? x->shape.dim[2] * parts / times : x->shape.dim[2]));
}

tx_status tx_infer_cp_move(const tx_infer *c)
{
    return move(c, c->attrs->rows, 1);
}

tx_status tx_infer_cp_back(const tx_infer *c)
{
    return move(c, 1, c->attrs->rows);
}

tx_status tx_infer_take_columns(const tx_infer *c)
{
    const int64_t first = c->attrs->first, count = c->attrs->rows, last = tx_shape_last(&c->in[0].shape);
    TX_TRY(tx_require(c, "H"));
    if (first < 0 || count < 1 || first > last - count)
        return tx_refuse(c, "%" PRId64 " columns from %" PRId64 " on are outside %s", count, first,
                         TX_TEXT(c->in[0].shape));
    return tx_set_output_as(c, TX_F32, tx_with_last(&c->in[0].shape, count));
}

tx_status tx_infer_join_columns(const tx_infer *c)
{
    const tx_shape *a = &c->in[0].shape, *b = &c->in[1].shape;
    const tx_shape expected = tx_with_last(b, tx_shape_last(a));
    TX_TRY(tx_require(c, "HH"));
    TX_TRY(tx_require_shape(c, 0, &expected));
    if (c->attrs->rows < 1 || c->attrs->rows > tx_shape_last(a))
        return tx_refuse(c, "%" PRId64 " columns are outside %s", c->attrs->rows, TX_TEXT(*a));
    return tx_set_output_as(c, c->in[0].dtype, tx_with_last(a, c->attrs->rows + tx_shape_last(b)));
}

tx_status tx_infer_attention_merge(const tx_infer *c)
{
    const tx_shape *a = &c->in[0].shape;
    TX_TRY(tx_require(c, "H3FHF"));
    if (c->attrs->attention.heads < 1 || a->dim[2] % c->attrs->attention.heads != 0)
        return tx_refuse(c, "%d heads do not divide %s", c->attrs->attention.heads, TX_TEXT(*a));
    const tx_shape lse = TX_SHAPE(a->dim[0], c->attrs->attention.heads, a->dim[1]);
    TX_TRY(tx_require_shape(c, 2, a));
    TX_TRY(tx_require_shape(c, 1, &lse));
    TX_TRY(tx_require_shape(c, 3, &lse));
    tx_set_output(c, 1, TX_F32, lse);
    return tx_set_output_as(c, TX_F32, *a);
}
