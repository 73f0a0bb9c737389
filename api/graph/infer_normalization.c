/* SPDX-License-Identifier: Apache-2.0
 * Inference rules of normalisations: norms, cross-entropy, reductions. */
#include "api/graph/infer.h"

#include <float.h>
#include <inttypes.h>

/* x [.., C] at `x`, behind the gradient dy of any type where it is not the first; vectors [C] from input `first` to
 * `last`, [2 C] for heads of q and of k. A norm's summand is left to infer_summand. */
static tx_status check_norm(const tx_infer *c, int x, int first, int last)
{
    for (int i = 0; i < (x > 0 ? TX_MAX_IN : last + 1); i++)
        TX_TRY(i < x ? tx_want_float_type(c, i) : tx_want_dtype(c, i, TX_F32));
    const tx_shape *rows = &c->in[x].shape;
    const tx_shape channels = TX_SHAPE(tx_shape_last(rows) * (c->attrs->attention.heads ? 2 : 1));
    const int64_t heads = (int64_t)c->attrs->attention.heads + 2 * (int64_t)c->attrs->attention.kv_heads;
    if (c->attrs->attention.heads && (rows->rank < 2 || rows->dim[rows->rank - 2] != heads))
        return tx_fail(TX_INVALID, "%s: %s has not %" PRId64 " heads", tx_want_name(c), TX_TEXT(*rows), heads);
    for (int i = first; i <= last; i++)
        TX_TRY(tx_want_shape(c, i, &channels));
    return TX_OK;
}

/* Operand i, a summand of what is normalised, which dropout may come before, and where the sum goes. */
static tx_status infer_summand(const tx_infer *c, int i, int out)
{
    TX_TRY(out >= 0 && c->attrs->draw.p > 0.0f ? tx_want_float_type(c, i) : tx_want_dtype(c, i, TX_F32));
    if (!(c->attrs->draw.p >= 0.0f && c->attrs->draw.p < 1.0f))
        return tx_fail(TX_INVALID, "%s: dropout %g is not in [0, 1)", tx_want_name(c), (double)c->attrs->draw.p);
    TX_TRY(tx_want_shape(c, i, &c->in[0].shape));
    if (out >= 0 && tx_present(&c->in[i]))
        tx_give(c, out, TX_F32, c->in[0].shape);
    return TX_OK;
}

/* y, F32 where no type was asked for. */
static tx_status infer_normalized(const tx_infer *c)
{
    const tx_dtype asked = c->out[0].dtype;
    if (asked != TX_DTYPE_COUNT && !tx_is_float_type(asked))
        return tx_fail(TX_INVALID, "%s: the result cannot be %s", tx_want_name(c), tx_dtype_name(asked));
    tx_give(c, 0, asked != TX_DTYPE_COUNT ? asked : TX_F32, c->in[0].shape);
    return TX_OK;
}

tx_status tx_infer_layer_norm(const tx_infer *c)
{
    TX_TRY(check_norm(c, 0, 1, 2));
    TX_TRY(infer_summand(c, 3, 3));
    tx_shape rows = TX_SHAPE(tx_shape_rows(&c->in[0].shape));
    TX_TRY(infer_normalized(c));
    tx_give(c, 1, TX_F32, rows);
    tx_give(c, 2, TX_F32, rows);
    return TX_OK;
}

tx_status tx_infer_rms_norm(const tx_infer *c)
{
    TX_TRY(check_norm(c, 0, 1, 1));
    TX_TRY(infer_summand(c, 2, 2));
    TX_TRY(infer_normalized(c));
    tx_give(c, 1, TX_F32, TX_SHAPE(tx_shape_rows(&c->in[0].shape)));
    return TX_OK;
}

tx_status tx_infer_layer_norm_grad(const tx_infer *c)
{
    TX_TRY(check_norm(c, 1, 2, 2));
    const tx_shape *x = &c->in[1].shape;
    int64_t rows = tx_shape_rows(x), last = tx_shape_last(x);
    TX_TRY(tx_want_shape(c, 0, x));
    TX_TRY(tx_want_shape(c, 3, &TX_SHAPE(rows)));
    TX_TRY(tx_want_shape(c, 4, &TX_SHAPE(rows)));
    TX_TRY(infer_summand(c, 5, -1));
    tx_give(c, 0, TX_F32, *x);
    tx_give(c, 1, TX_F32, TX_SHAPE(last));
    tx_give(c, 2, TX_F32, TX_SHAPE(last));
    tx_give(c, 3, TX_F32, TX_SHAPE(tx_row_blocks(rows), 2, last));
    return TX_OK;
}

tx_status tx_infer_rms_norm_grad(const tx_infer *c)
{
    TX_TRY(check_norm(c, 1, 2, 2));
    const tx_shape *x = &c->in[1].shape;
    int64_t rows = tx_shape_rows(x), last = tx_shape_last(x);
    TX_TRY(tx_want_shape(c, 0, x));
    TX_TRY(tx_want_shape(c, 3, &TX_SHAPE(rows)));
    TX_TRY(infer_summand(c, 4, -1));
    tx_give(c, 0, TX_F32, *x);
    const int64_t channels = last * (c->attrs->attention.heads ? 2 : 1);
    tx_give(c, 1, TX_F32, TX_SHAPE(channels));
    tx_give(c, 2, TX_F32, TX_SHAPE(tx_row_blocks(rows), channels));
    return TX_OK;
}

static tx_status check_vocab(const tx_infer *c)
{
    int64_t columns = tx_shape_last(&c->in[0].shape);
    if (!(c->attrs->smoothing >= 0.0f && c->attrs->smoothing <= 1.0f))
        return tx_fail(TX_INVALID, "%s: smoothing %g must be from 0 to 1", tx_want_name(c),
                       (double)c->attrs->smoothing);
    if (c->attrs->rows && c->attrs->rows < c->attrs->vocab)
        return tx_fail(TX_INVALID, "%s: %" PRId64 " columns are more than all %" PRId64, tx_want_name(c),
                       c->attrs->vocab, c->attrs->rows);
    if (c->attrs->vocab >= 1 && c->attrs->vocab <= columns)
        return TX_OK;
    return tx_fail(TX_INVALID, "%s: a vocabulary of %" PRId64 " does not fit logits %s", tx_want_name(c),
                   c->attrs->vocab, TX_TEXT(c->in[0].shape));
}

tx_status tx_infer_cross_entropy(const tx_infer *c)
{
    tx_shape rows = tx_without_last(&c->in[0].shape);
    TX_TRY(tx_want_float_type(c, 0));
    TX_TRY(tx_want_dtype(c, 1, TX_I32));
    TX_TRY(tx_want_shape(c, 1, &rows));
    TX_TRY(check_vocab(c));
    tx_give(c, 0, TX_F32, rows);
    tx_give(c, 1, TX_F32, rows);
    return TX_OK;
}

tx_status tx_infer_part_loss(const tx_infer *c)
{
    TX_TRY(tx_infer_cross_entropy(c));
    for (int i = 2; i < 4; i++) {
        TX_TRY(tx_want_dtype(c, i, TX_F32));
        TX_TRY(tx_want_shape(c, i, &c->in[1].shape));
    }
    return TX_OK;
}

tx_status tx_infer_cross_entropy_grad(const tx_infer *c)
{
    tx_shape rows = tx_without_last(&c->in[0].shape);
    TX_TRY(tx_want_float_type(c, 0));
    for (int i = 1; i < 4; i++)
        TX_TRY(tx_want_dtype(c, i, i == 2 ? TX_I32 : TX_F32));
    for (int i = 1; i < 4; i++)
        TX_TRY(tx_want_shape(c, i, &rows));
    TX_TRY(check_vocab(c));
    tx_give(c, 0, c->in[0].dtype, c->in[0].shape);
    return TX_OK;
}

tx_status tx_infer_fused_classifier(const tx_infer *c)
{
    tx_shape rows = tx_without_last(&c->in[0].shape);
    TX_TRY(tx_want_float_type(c, 0));
    TX_TRY(tx_want_dtype(c, 1, TX_F32));
    TX_TRY(tx_want_dtype(c, 2, TX_I32));
    TX_TRY(tx_want_shape(c, 1, &rows));
    TX_TRY(tx_want_shape(c, 2, &rows));
    TX_TRY(check_vocab(c));
    tx_give(c, 0, c->in[0].dtype, c->in[0].shape);
    tx_give(c, 1, TX_F32, rows);
    return TX_OK;
}

static tx_status check_distillation(const tx_infer *c)
{
    if (!(c->attrs->scale > 0.0f && c->attrs->scale <= FLT_MAX && c->attrs->alpha >= 0.0f && c->attrs->alpha <= 1.0f))
        return tx_fail(TX_INVALID, "%s: temperature %g must be above 0, alpha %g from 0 to 1", tx_want_name(c),
                       (double)c->attrs->scale, (double)c->attrs->alpha);
    return check_vocab(c);
}

tx_status tx_infer_distillation(const tx_infer *c)
{
    tx_shape rows = tx_without_last(&c->in[0].shape);
    TX_TRY(tx_want_float_type(c, 0));
    TX_TRY(tx_want_dtype(c, 1, c->in[0].dtype));
    TX_TRY(tx_want_shape(c, 1, &c->in[0].shape));
    TX_TRY(tx_want_dtype(c, 2, TX_I32));
    TX_TRY(tx_want_shape(c, 2, &rows));
    TX_TRY(check_distillation(c));
    tx_give(c, 0, TX_F32, rows);
    return TX_OK;
}

tx_status tx_infer_distillation_grad(const tx_infer *c)
{
    tx_shape rows = tx_without_last(&c->in[0].shape);
    TX_TRY(tx_want_float_type(c, 0));
    TX_TRY(tx_want_dtype(c, 1, TX_F32));
    TX_TRY(tx_want_shape(c, 1, &rows));
    TX_TRY(tx_want_dtype(c, 2, c->in[0].dtype));
    TX_TRY(tx_want_shape(c, 2, &c->in[0].shape));
    TX_TRY(tx_want_dtype(c, 3, TX_I32));
    TX_TRY(tx_want_shape(c, 3, &rows));
    TX_TRY(check_distillation(c));
    tx_give(c, 0, c->in[0].dtype, c->in[0].shape);
    return TX_OK;
}

static tx_shape reduced(const tx_shape *x, tx_axis axis)
{
    if (axis == TX_AXIS_LAST)
        return tx_without_last(x);
    return axis == TX_AXIS_ROWS ? TX_SHAPE(tx_shape_last(x)) : TX_SHAPE(1);
}

tx_status tx_infer_reduce(const tx_infer *c)
{
    TX_TRY(tx_want_float_type(c, 0));
    const tx_shape *x = &c->in[0].shape;
    tx_give(c, 0, TX_F32, reduced(x, c->attrs->axis));
    tx_give(c, 1, TX_F32, TX_SHAPE(tx_reduce_work(c->attrs->axis, x)));
    return TX_OK;
}

tx_status tx_infer_broadcast(const tx_infer *c)
{
    TX_TRY(tx_want_f32(c));
    tx_shape small = reduced(&c->out[0].shape, c->attrs->axis);
    TX_TRY(tx_want_shape(c, 0, &small));
    c->out[0].dtype = TX_F32;
    return TX_OK;
}
