/* SPDX-License-Identifier: Apache-2.0
 * What inference rules share. */
#include "api/graph/infer.h"
#include "api/base/number.h"

#include <stdarg.h>
#include <stdio.h>

const char *tx_require_name(const tx_infer *c)
{
    return tx_op_info_of(c->op)->name;
}

tx_status tx_refuse(const tx_infer *c, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    tx_format_list(text, sizeof text, format, args);
    va_end(args);
    return tx_fail(TX_INVALID, "%s: %s", tx_require_name(c), text);
}

tx_status tx_require_other_shape(const tx_infer *c, int i, const char *want)
{
    return tx_refuse(c, "input %d has shape %s, wanted %s", i, TX_TEXT(c->in[i].shape), want);
}

tx_status tx_require_dtype(const tx_infer *c, int i, tx_dtype dtype)
{
    if (!tx_present(&c->in[i]) || c->in[i].dtype == dtype)
        return TX_OK;
    return tx_refuse(c, "input %d is %s, wanted %s", i, tx_dtype_name(c->in[i].dtype), tx_dtype_name(dtype));
}

bool tx_is_float_type(tx_dtype dtype)
{
    return dtype == TX_F32 || dtype == TX_BF16 || dtype == TX_F16;
}

tx_status tx_require_float_type(const tx_infer *c, int i)
{
    if (!tx_present(&c->in[i]) || tx_is_float_type(c->in[i].dtype))
        return TX_OK;
    return tx_refuse(c, "input %d is %s, wanted F32, BF16 or F16", i, tx_dtype_name(c->in[i].dtype));
}

tx_status tx_require(const tx_infer *c, const char *inputs)
{
    tx_dtype last = TX_DTYPE_COUNT;
    for (int i = 0; *inputs; i++) {
        const char type = *inputs++;
        if (type == 'H')
            TX_TRY(tx_require_float_type(c, i));
        else if (type != '-')
            TX_TRY(tx_require_dtype(c, i, type == 'F' ? TX_F32 : type == 'I' ? TX_I32 : type == 'U' ? TX_U8 : last));
        if (type == 'H')
            last = c->in[i].dtype;
        if (*inputs >= '1' && *inputs <= '9')
            TX_TRY(tx_require_rank(c, i, *inputs++ - '0'));
    }
    return TX_OK;
}

tx_status tx_require_draw(const tx_infer *c)
{
    if (c->attrs->draw.p >= 0.0f && c->attrs->draw.p < 1.0f)
        return TX_OK;
    return tx_refuse(c, "dropout %g is not in [0, 1)", (double)c->attrs->draw.p);
}

tx_status tx_require_shape(const tx_infer *c, int i, const tx_shape *shape)
{
    if (!tx_present(&c->in[i]) || tx_shape_equal(&c->in[i].shape, shape))
        return TX_OK;
    return tx_require_other_shape(c, i, TX_TEXT(*shape));
}

tx_status tx_require_rank(const tx_infer *c, int i, int32_t rank)
{
    if (!tx_present(&c->in[i]) || c->in[i].shape.rank == rank)
        return TX_OK;
    return tx_refuse(c, "input %d has shape %s, wanted rank %d", i, TX_TEXT(c->in[i].shape), rank);
}

tx_status tx_require_positions(const tx_infer *c, int i, int64_t batch)
{
    TX_TRY(tx_require_dtype(c, i, TX_I32));
    return tx_require_shape(c, i, &TX_SHAPE(batch));
}

tx_status tx_require_places(const tx_infer *c, int i, int64_t batch, int64_t time)
{
    if (c->in[i].shape.rank != 2)
        return tx_require_positions(c, i, batch);
    TX_TRY(tx_require_dtype(c, i, TX_I32));
    return tx_require_shape(c, i, &TX_SHAPE(batch, time));
}

tx_status tx_set_output(const tx_infer *c, int i, tx_dtype dtype, tx_shape shape)
{
    c->out[i].dtype = dtype;
    c->out[i].shape = shape;
    return TX_OK;
}

tx_status tx_set_output_as(const tx_infer *c, tx_dtype own, tx_shape shape)
{
    const tx_dtype requested = c->out[0].dtype != TX_DTYPE_COUNT ? c->out[0].dtype : own;
    if (!tx_is_float_type(requested))
        return tx_refuse(c, "the result cannot be %s", tx_dtype_name(requested));
    return tx_set_output(c, 0, requested, shape);
}

tx_status tx_give_stored(const tx_infer *c, tx_dtype stored, tx_dtype own, tx_shape shape)
{
    const tx_dtype requested = c->out[0].dtype != TX_DTYPE_COUNT ? c->out[0].dtype : own;
    if (requested != TX_F32 && requested != stored)
        return tx_refuse(c, "%s operands cannot produce %s", tx_dtype_name(stored), tx_dtype_name(requested));
    return tx_set_output(c, 0, requested, shape);
}

tx_shape tx_without_last(const tx_shape *shape)
{
    tx_shape s = *shape;
    if (s.rank > 1)
        s.rank--;
    else
        s = TX_SHAPE(1);
    return s;
}

tx_shape tx_with_last(const tx_shape *shape, int64_t last)
{
    tx_shape s = *shape;
    s.dim[s.rank - 1] = last;
    return s;
}

tx_status tx_infer_none(const tx_infer *c)
{
    (void)c;
    return TX_OK;
}
