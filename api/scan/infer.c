/* SPDX-License-Identifier: Apache-2.0
 * Inference rules of the ops of recurrent layers, and their operations. */
#include "api/graph/infer.h"
#include "api/graph/work.h"
#include "backends/scan.h"

#include <inttypes.h>

/* Fails if an operand that has no 16-bit form is missing. */
static tx_status require_present(const tx_infer *c, int first, int last)
{
    for (int i = first; i <= last; i++)
        if (!tx_present(&c->in[i]))
            return tx_refuse(c, "input %d is missing", i);
    return TX_OK;
}

static tx_status require_starts(const tx_infer *c, int i, const tx_shape *x)
{
    TX_TRY(tx_require_dtype(c, i, TX_I32));
    return tx_require_shape(c, i, &TX_SHAPE(x->dim[0], x->dim[1]));
}

/* Sets outputs 1 and 2, sums over rows of this length that attrs.sums selects, and their partial sums. */
static tx_status set_sums(const tx_infer *c, tx_shape first, tx_shape second, int64_t rows, int64_t length)
{
    if (c->attrs->sums & 1u)
        tx_set_output(c, 1, TX_F32, first);
    if (c->attrs->sums & 2u)
        tx_set_output(c, 2, TX_F32, second);
    return c->attrs->sums ? tx_set_output(c, 3, TX_F32, TX_SHAPE(tx_row_blocks(rows), length)) : TX_OK;
}

/* Checks the states of `rows` rows of `columns` at input 3, and the spans of samples of x. */
static tx_status check_states(const tx_infer *c, int64_t rows, int64_t columns)
{
    const tx_shape *x = &c->in[0].shape, *state = &c->in[3].shape;
    TX_TRY(require_present(c, 3, 4));
    TX_TRY(tx_require_rank(c, 3, 3));
    TX_TRY(tx_require_shape(c, 3, &TX_SHAPE(state->dim[0], rows, columns)));
    TX_TRY(tx_require_shape(c, 4, &TX_SHAPE(x->dim[0], 3)));
    return tx_set_output(c, 1, TX_F32, *state);
}

/* ---- Short convolution --------------------------------------------------------------------------------- */

/* Checks x [B, T, c], w and bias from input `x` on. */
static tx_status check_conv(const tx_infer *c, int x)
{
    const tx_shape *shape = &c->in[x].shape, *w = &c->in[x + 1].shape;
    TX_TRY(require_present(c, x + 1, x + 1));
    TX_TRY(tx_require_rank(c, x, 3));
    TX_TRY(tx_require_rank(c, x + 1, 2));
    if (w->dim[0] != tx_shape_last(shape) || w->dim[1] > TX_CONV_TAPS)
        return tx_refuse(c, "the weights %s do not fit %s, or have more than %d taps", TX_TEXT(*w), TX_TEXT(*shape),
                         TX_CONV_TAPS);
    return tx_require_shape(c, x + 2, &TX_SHAPE(tx_shape_last(shape)));
}

tx_status tx_infer_short_conv(const tx_infer *c)
{
    TX_TRY(tx_require(c, "HFFI"));
    TX_TRY(check_conv(c, 0));
    TX_TRY(require_starts(c, 3, &c->in[0].shape));
    return tx_set_output(c, 0, c->in[0].dtype, c->in[0].shape);
}

tx_status tx_infer_short_conv_cached(const tx_infer *c)
{
    TX_TRY(tx_require(c, "HFFFI"));
    TX_TRY(check_conv(c, 0));
    const tx_shape *w = &c->in[1].shape;
    if (w->dim[1] < 2)
        return tx_refuse(c, "the weights %s have no tap before the last", TX_TEXT(*w));
    TX_TRY(check_states(c, w->dim[1] - 1, w->dim[0]));
    return tx_set_output(c, 0, c->in[0].dtype, c->in[0].shape);
}

tx_status tx_infer_short_conv_grad(const tx_infer *c)
{
    const tx_shape *x = &c->in[1].shape, *w = &c->in[2].shape;
    TX_TRY(tx_require(c, "H=FFI"));
    TX_TRY(check_conv(c, 1));
    TX_TRY(require_starts(c, 4, x));
    TX_TRY(tx_require_shape(c, 0, x));
    tx_set_output(c, 0, c->in[1].dtype, *x);
    return set_sums(c, *w, TX_SHAPE(w->dim[0]), tx_shape_rows(x), (w->dim[1] + 1) * w->dim[0]);
}

/* ---- Rates --------------------------------------------------------------------------------------------- */

/* Checks x, a_log and dt_bias from input `x` on, and returns the shape of the rates. */
static tx_status check_rates(const tx_infer *c, int x, tx_shape *rates)
{
    const tx_shape *shape = &c->in[x].shape;
    TX_TRY(require_present(c, x + 1, x + 2));
    TX_TRY(tx_require_rank(c, x, 3));
    TX_TRY(tx_require_rank(c, x + 1, 1));
    const int64_t heads = c->in[x + 1].shape.dim[0];
    if (tx_shape_last(shape) != (c->attrs->scan.delta ? 2 : 1) * heads || heads > TX_SCAN_RATES)
        return tx_refuse(c, "%s does not fit %" PRId64 " heads, of which at most %d are possible", TX_TEXT(*shape),
                         heads, TX_SCAN_RATES);
    if (!(c->attrs->scan.low >= 0.0f && c->attrs->scan.low <= c->attrs->scan.high))
        return tx_refuse(c, "a step from %g to %g is not possible", (double)c->attrs->scan.low,
                         (double)c->attrs->scan.high);
    *rates = tx_with_last(shape, 2 * heads);
    return tx_require_shape(c, x + 2, &c->in[x + 1].shape);
}

tx_status tx_infer_scan_rates(const tx_infer *c)
{
    tx_shape rates;
    TX_TRY(tx_require(c, "HFF"));
    TX_TRY(check_rates(c, 0, &rates));
    return tx_set_output(c, 0, TX_F32, rates);
}

tx_status tx_infer_scan_rates_grad(const tx_infer *c)
{
    tx_shape rates;
    TX_TRY(tx_require(c, "FHFF"));
    TX_TRY(check_rates(c, 1, &rates));
    TX_TRY(tx_require_shape(c, 0, &rates));
    tx_set_output(c, 0, c->in[1].dtype, c->in[1].shape);
    return set_sums(c, c->in[2].shape, c->in[2].shape, tx_shape_rows(&rates), tx_shape_last(&rates));
}

/* ---- Linear attention ------------------------------------------------------------------------------------ */

/* Checks qkv, rates and skip from input `x` on, and returns the shape of o. */
static tx_status check_scan(const tx_infer *c, int x, tx_shape *o)
{
    const tx_shape *qkv = &c->in[x].shape;
    const int64_t k_heads = c->attrs->scan.k_heads, v_heads = c->attrs->scan.v_heads, size = c->attrs->scan.k_size;
    TX_TRY(require_present(c, x + 1, x + 1));
    TX_TRY(tx_require_rank(c, x, 3));
    if (k_heads < 1 || v_heads < 1 || v_heads % k_heads != 0 || size < 1 || size > TX_SCAN_HEAD)
        return tx_refuse(c, "%" PRId64 " and %" PRId64 " heads, the first of %" PRId64 " elements, do not fit", k_heads,
                         v_heads, size);
    const int64_t values = qkv->dim[2] - 2 * k_heads * size;
    if (values < v_heads || values % v_heads != 0 || values / v_heads > TX_SCAN_HEAD)
        return tx_refuse(c, "%s does not divide into these heads of at most %d elements", TX_TEXT(*qkv), TX_SCAN_HEAD);
    TX_TRY(tx_require_shape(c, x + 1, &TX_SHAPE(qkv->dim[0], qkv->dim[1], 2 * v_heads)));
    TX_TRY(tx_require_shape(c, x + 2, &TX_SHAPE(v_heads)));
    *o = tx_with_last(qkv, values);
    return TX_OK;
}

tx_status tx_infer_linear_scan(const tx_infer *c)
{
    tx_shape o;
    TX_TRY(tx_require(c, "HFFI"));
    TX_TRY(check_scan(c, 0, &o));
    TX_TRY(require_starts(c, 3, &c->in[0].shape));
    return tx_set_output(c, 0, c->in[0].dtype, o);
}

tx_status tx_infer_linear_scan_cached(const tx_infer *c)
{
    tx_shape o;
    TX_TRY(tx_require(c, "HFFFI"));
    TX_TRY(check_scan(c, 0, &o));
    const tx_scan s = tx_scan_of(c->attrs, &c->in[0].shape);
    TX_TRY(check_states(c, s.v_heads * s.k_size, s.v_size));
    return tx_set_output(c, 0, c->in[0].dtype, o);
}

tx_status tx_infer_linear_scan_grad(const tx_infer *c)
{
    tx_shape o;
    TX_TRY(tx_require(c, "H=FFI"));
    TX_TRY(check_scan(c, 1, &o));
    TX_TRY(require_starts(c, 4, &c->in[1].shape));
    TX_TRY(tx_require_shape(c, 0, &o));
    const tx_scan s = tx_scan_of(c->attrs, &c->in[1].shape);
    tx_set_output(c, 0, c->in[1].dtype, c->in[1].shape);
    tx_set_output(c, 1, TX_F32, c->in[2].shape);
    if (c->attrs->sums & 1u)
        tx_set_output(c, 2, TX_F32, TX_SHAPE(s.v_heads));
    tx_set_output(c, 3, TX_F32, TX_SHAPE(tx_scan_states(&s)));
    return tx_set_output(c, 4, TX_F32, TX_SHAPE(tx_scan_work(&s)));
}

/* The operations for each token and value head: `kv` times k v, and `chunk` times the tokens of a chunk. */
static double flops_of(const tx_command *c, const tx_shape *qkv, double kv, double keys, double values)
{
    const tx_scan s = tx_scan_of(&c->attrs, qkv);
    const double k = (double)s.k_size, v = (double)s.v_size, chunk = TX_SCAN_CHUNK;
    return (double)(s.batch * s.time * s.v_heads) * (kv * k * v + keys * chunk * k + values * chunk * v);
}

double tx_flops_linear_scan(const tx_command *c)
{
    return c->attrs.scan.delta ? flops_of(c, &c->in[0].shape, 6, 4, 3) : flops_of(c, &c->in[0].shape, 4, 2, 1);
}

double tx_flops_linear_scan_grad(const tx_command *c)
{
    return c->attrs.scan.delta ? flops_of(c, &c->in[1].shape, 18, 12, 9) : flops_of(c, &c->in[1].shape, 10, 8, 5);
}
