/* SPDX-License-Identifier: Apache-2.0
 * Inference rules of element-wise ops and of movement. */
#include "api/graph/infer.h"

#include "api/base/blocks.h"

#include <float.h>
#include <inttypes.h>

/* ---- element-wise -------------------------------------------------------------------------- */

tx_status tx_infer_same(const tx_infer *c)
{
    TX_TRY(tx_require(c, "F"));
    return tx_infer_copy(c);
}

tx_status tx_infer_copy(const tx_infer *c)
{
    return tx_set_output(c, 0, c->in[0].dtype, c->in[0].shape);
}

tx_status tx_infer_real(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H"));
    return tx_infer_copy(c);
}

tx_status tx_infer_noise(const tx_infer *c)
{
    if (!(c->attrs->scale >= 0.0f && c->attrs->scale <= FLT_MAX))
        return tx_refuse(c, "scale %g must be at least 0", (double)c->attrs->scale);
    return tx_infer_same(c);
}

tx_status tx_infer_dropout(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H"));
    if (!(c->attrs->draw.p >= 0.0f && c->attrs->draw.p < 1.0f))
        return tx_refuse(c, "%g is not in [0, 1)", (double)c->attrs->draw.p);
    return tx_set_output_as(c, TX_F32, c->in[0].shape);
}

/* One or two operands of the same type and shape. */
tx_status tx_infer_map(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H="));
    if (tx_present(&c->in[1]) && !tx_shape_equal(&c->in[0].shape, &c->in[1].shape))
        return tx_refuse(c, "shapes %s and %s differ", TX_TEXT(c->in[0].shape), TX_TEXT(c->in[1].shape));
    return tx_set_output(c, 0, c->in[0].dtype, c->in[0].shape);
}

tx_status tx_infer_same2(const tx_infer *c)
{
    TX_TRY(tx_require(c, "FF"));
    return tx_infer_map(c);
}

tx_status tx_infer_swiglu(const tx_infer *c)
{
    if (c->attrs->gate == TX_GATE_CLAMPED && !(c->attrs->scale > 0.0f))
        return tx_refuse(c, "limit %g must be above 0", (double)c->attrs->scale);
    TX_TRY(tx_require(c, "H"));
    int64_t last = tx_shape_last(&c->in[0].shape);
    if (last % 2 != 0)
        return tx_require_other_shape(c, 0, "an even last dimension (gate | up)");
    return tx_set_output(c, 0, c->in[0].dtype, tx_with_last(&c->in[0].shape, last / 2));
}

tx_status tx_infer_swiglu_grad(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H="));
    tx_shape half = tx_with_last(&c->in[1].shape, tx_shape_last(&c->in[1].shape) / 2);
    TX_TRY(tx_require_shape(c, 0, &half));
    return tx_set_output(c, 0, c->in[1].dtype, c->in[1].shape);
}

tx_status tx_infer_rotary(const tx_infer *c)
{
    const tx_attrs *a = c->attrs;
    TX_TRY(tx_require(c, "H3"));
    TX_TRY(tx_require_places(c, 1, c->in[0].shape.dim[0], c->in[0].shape.dim[1]));
    const int64_t last = tx_shape_last(&c->in[0].shape);
    const int32_t size = a->attention.head_size, rotated = a->rope && a->rope->rotated ? a->rope->rotated : size;
    if (!a->rope || size < 2 || size % 2 != 0 || last % size != 0 || a->attention.heads < 0 ||
        a->attention.heads > last / size || !(a->rope->theta > 0.0f) || !(a->rope->factor > 0.0f))
        return tx_refuse(c, "%d heads of size %d (even) with theta %g do not fit %s", a->attention.heads, size,
                         a->rope ? (double)a->rope->theta : 0.0, TX_TEXT(c->in[0].shape));
    if (rotated < 0 || rotated % 2 != 0 || rotated > size || rotated > TX_MAX_ROTARY)
        return tx_refuse(c, "%d rotated elements are not an even part of a head of size %d, of at most %d", rotated,
                         size, TX_MAX_ROTARY);
    TX_TRY(tx_require_dtype(c, 2, TX_F32));
    TX_TRY(tx_require_shape(c, 2, &TX_SHAPE(c->in[0].shape.dim[0], rotated / 2)));
    return tx_set_output(c, 0, c->in[0].dtype, c->in[0].shape);
}

/* ---- movement ------------------------------------------------------------------------------ */

tx_status tx_infer_embedding(const tx_infer *c)
{
    const bool blocks = tx_block_values(c->in[1].dtype) > 0;
    if (blocks) {
        TX_TRY(tx_require(c, "I2"));
        TX_TRY(tx_require_rank(c, 1, 2));
        TX_TRY(tx_require_dtype(c, 2, TX_F32));
        TX_TRY(tx_require_rank(c, 2, 2));
    } else {
        TX_TRY(tx_require(c, "I2H2=2"));
    }
    const tx_shape *tokens = &c->in[0].shape;
    TX_TRY(tx_require_places(c, 3, tokens->dim[0], tokens->dim[1]));
    int64_t channels = c->in[1].shape.dim[1];
    if (tx_present(&c->in[2]) && (c->in[2].shape.dim[1] != channels || c->in[2].shape.dim[0] < tokens->dim[1]))
        return tx_refuse(c, "positions %s do not fit tokens %s and table %s", TX_TEXT(c->in[2].shape), TX_TEXT(*tokens),
                         TX_TEXT(c->in[1].shape));
    if (c->attrs->padding > c->in[1].shape.dim[0])
        return tx_refuse(c, "padding row %" PRId64 " is not in the table %s", c->attrs->padding - 1,
                         TX_TEXT(c->in[1].shape));
    return tx_set_output_as(c, TX_F32, TX_SHAPE(tokens->dim[0], tokens->dim[1], channels));
}

tx_status tx_infer_token_positions(const tx_infer *c)
{
    TX_TRY(tx_require(c, "I2"));
    if (c->attrs->first < 0 || c->attrs->first > INT32_MAX - c->in[0].shape.dim[1])
        return tx_refuse(c, "positions of %" PRId64 " tokens from %" PRId64 " on do not fit 32 bits",
                         c->in[0].shape.dim[1], c->attrs->first);
    return tx_set_output(c, 0, TX_I32, c->in[0].shape);
}

tx_status tx_infer_position_grad(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H3"));
    if (c->attrs->rows < c->in[0].shape.dim[1])
        return tx_refuse(c, "%" PRId64 " rows are too few for %s", c->attrs->rows, TX_TEXT(c->in[0].shape));
    return tx_set_output(c, 0, TX_F32, TX_SHAPE(c->attrs->rows, c->in[0].shape.dim[2]));
}

tx_status tx_infer_gather(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H2I"));
    tx_shape y = c->in[1].shape;
    if (y.rank + 1 > TX_MAX_RANK)
        return tx_require_other_shape(c, 1, "a smaller rank");
    y.dim[y.rank++] = c->in[0].shape.dim[1];
    return tx_set_output(c, 0, c->in[0].dtype, y);
}

tx_status tx_infer_transpose(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H"));
    tx_shape y = c->in[0].shape;
    if (y.rank < 3)
        return tx_require_other_shape(c, 0, "at least three dimensions");
    y.dim[y.rank - 3] = c->in[0].shape.dim[y.rank - 2];
    y.dim[y.rank - 2] = c->in[0].shape.dim[y.rank - 3];
    return tx_set_output(c, 0, c->in[0].dtype, y);
}

tx_status tx_infer_shift_rows(const tx_infer *c)
{
    enum { MOST = 1 << 30 }; /* so that sums of offsets fit 64 bits */
    TX_TRY(tx_require(c, "H"));
    tx_shape y = c->in[0].shape;
    if (y.rank < 2)
        return tx_require_other_shape(c, 0, "at least two dimensions");
    if (c->attrs->rows < 1 || c->attrs->rows > MOST || c->attrs->first > MOST || c->attrs->first < -MOST ||
        y.dim[y.rank - 2] > MOST)
        return tx_refuse(c, "%" PRId64 " columns from %" PRId64 " on are out of range", c->attrs->rows,
                         c->attrs->first);
    y.dim[y.rank - 1] = c->attrs->rows;
    return tx_set_output(c, 0, c->in[0].dtype, y);
}

tx_status tx_require_row_places(const tx_infer *c)
{
    for (int i = 0; i < TX_PLACES; i++) {
        const int64_t first = c->attrs->place[i], end = first + c->attrs->placed[i];
        if (first < 0 || end < first || end > c->attrs->rows)
            return tx_refuse(c, "part %d has rows %" PRId64 " to %" PRId64 " of %" PRId64, i, first, end,
                             c->attrs->rows);
        for (int k = 0; k < i; k++)
            if (first < c->attrs->place[k] + (int64_t)c->attrs->placed[k] && c->attrs->place[k] < end)
                return tx_refuse(c, "parts %d and %d have a row in common", k, i);
    }
    return TX_OK;
}

tx_status tx_infer_place_rows(const tx_infer *c)
{
    int64_t parts = 0;
    TX_TRY(tx_require(c, "F2F2F2F2"));
    TX_TRY(tx_require_row_places(c));
    for (int i = 0; i < TX_PLACES; i++) {
        const tx_shape *x = &c->in[i].shape;
        const bool present = tx_present(&c->in[i]);
        if (c->attrs->placed[i] != (present ? x->dim[0] : 0) || (present && parts < i))
            return tx_refuse(c, "part %d does not have %d rows", i, (int)c->attrs->placed[i]);
        if (present && x->dim[1] != c->in[0].shape.dim[1])
            return tx_require_other_shape(c, i, "as many columns as the first matrix");
        parts += present;
    }
    if (c->attrs->step < 0)
        return tx_refuse(c, "the step is negative");
    return tx_set_output(c, 0, TX_F32, TX_SHAPE(c->attrs->rows, c->in[0].shape.dim[1] + (parts - 1) * c->attrs->step));
}

tx_status tx_infer_place_rows_grad(const tx_infer *c)
{
    int64_t parts = 0;
    TX_TRY(tx_require(c, "F2"));
    TX_TRY(tx_require_row_places(c));
    for (int i = 0; i < TX_PLACES; i++)
        parts += c->attrs->placed[i] > 0;
    const int64_t columns = c->in[0].shape.dim[1] - (parts - 1) * c->attrs->step;
    if (c->in[0].shape.dim[0] != c->attrs->rows || columns < 1 || c->attrs->placed[0] < 1)
        return tx_require_other_shape(c, 0, "the shape of the parts together");
    for (int i = 0; i < parts; i++)
        tx_set_output(c, i, TX_F32, TX_SHAPE(c->attrs->placed[i], columns));
    return TX_OK;
}

tx_status tx_infer_scatter_add(const tx_infer *c)
{
    TX_TRY(tx_require(c, "IH"));
    int64_t count = tx_shape_count(&c->in[0].shape);
    if (tx_shape_rows(&c->in[1].shape) != count)
        return tx_refuse(c, "indices %s do not fit %s", TX_TEXT(c->in[0].shape), TX_TEXT(c->in[1].shape));
    if (c->attrs->rows < 1)
        return tx_refuse(c, "the result has no rows");
    return tx_set_output(c, 0, TX_F32, TX_SHAPE(c->attrs->rows, tx_shape_last(&c->in[1].shape)));
}

tx_status tx_infer_cast(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H"));
    if (!tx_is_float_type(c->out[0].dtype))
        return tx_refuse(c, "%s cannot become %s", tx_dtype_name(c->in[0].dtype), tx_dtype_name(c->out[0].dtype));
    c->out[0].shape = c->in[0].shape;
    return TX_OK;
}

tx_status tx_infer_fill(const tx_infer *c)
{
    if (!tx_is_float_type(c->out[0].dtype))
        c->out[0].dtype = TX_F32;
    return TX_OK;
}

/* The last value must fit in 32 bits. */
tx_status tx_infer_range(const tx_infer *c)
{
    const int64_t last = tx_range_period(c->attrs, tx_shape_count(&c->out[0].shape)) - 1;
    int64_t distance, end;
    if (__builtin_mul_overflow(last, (int64_t)c->attrs->step, &distance) ||
        __builtin_add_overflow(distance, (int64_t)c->attrs->first, &end) ||
        __builtin_add_overflow(end, c->attrs->gap, &end) || end < INT32_MIN || end > INT32_MAX)
        return tx_refuse(c, "%s numbers from %" PRId64 " on, %d apart, do not fit 32 bits", TX_TEXT(c->out[0].shape),
                         c->attrs->first, c->attrs->step);
    c->out[0].dtype = TX_I32;
    return TX_OK;
}

tx_status tx_infer_reshape(const tx_infer *c)
{
    if (tx_shape_count(&c->out[0].shape) != tx_shape_count(&c->in[0].shape))
        return tx_refuse(c, "%s and %s have different counts", TX_TEXT(c->in[0].shape), TX_TEXT(c->out[0].shape));
    c->out[0].dtype = c->in[0].dtype;
    return TX_OK;
}
