/* SPDX-License-Identifier: Apache-2.0
 * Short convolutions, and the rates of linear attention: references and cases. */
#include "backends/scan.h"
#include "tests/ops/case.h"

static const tx_dtype floats[] = {TX_F32, TX_BF16, TX_F16};

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* ---- Short convolution --------------------------------------------------------------------------------- */

/* The convolution of column c at row t before the activation, by operands from x on; *magnitude is the sum of the
 * absolute values. With `d`, adds dz times the slopes to the gradients of x, w and bias. */
static double convolve(tx_call *call, int x, int64_t row, int64_t c, double *magnitude, const double *dz)
{
    const tx_array *in = &call->in[x], *w = &call->in[x + 1], *bias = &call->in[x + 2], *starts = &call->in[x + 3];
    const int64_t time = in->shape.dim[1], columns = in->shape.dim[2], taps = w->shape.dim[1], t = row % time;
    const double start = tx_array_present(starts) ? fmin(fmax(starts->value[row], 0.0), (double)t) : 0.0;
    double z = tx_array_present(bias) ? bias->value[c] : 0.0;
    *magnitude = fabs(z);
    for (int64_t j = 0; j < taps; j++) {
        const int64_t from = t - taps + 1 + j, at = (row - t + from) * columns + c;
        if ((double)from < start || from < 0)
            continue;
        const double term = w->value[c * taps + j] * in->value[at];
        z += term;
        *magnitude += fabs(term);
        if (dz) {
            const double dx = dz[0] * w->value[c * taps + j], dw = dz[0] * in->value[at];
            tx_array_add(&call->out[0], at, dx, dz[1] * fabs(w->value[c * taps + j]));
            tx_array_add(&call->out[1], c * taps + j, dw, dz[1] * fabs(in->value[at]));
        }
    }
    if (dz)
        tx_array_add(&call->out[2], c, dz[0], dz[1]);
    return z;
}

static void conv_reference(tx_call *call)
{
    const int64_t columns = tx_array_last(&call->in[0]);
    for (int64_t i = 0; i < call->out[0].count; i++) {
        double magnitude;
        const double z = convolve(call, 0, i / columns, i % columns, &magnitude, NULL);
        tx_array_put(&call->out[0], i, call->attrs.scan.silu ? z * sigmoid(z) : z, 2.0 * magnitude);
    }
}

/* Row `t` of sample b of a convolution that continues earlier rows, which are in the tail. */
static double earlier(const tx_call *call, int64_t b, int64_t t, int64_t c)
{
    const tx_shape *x = &call->in[0].shape, *tail = &call->in[3].shape;
    const double *span = call->in[4].value + 3 * b;
    const int64_t row = (int64_t)fmin(span[0], (double)(tail->dim[0] - 1));
    if (t >= 0)
        return call->in[0].value[(b * x->dim[1] + t) * x->dim[2] + c];
    return span[1] <= 0.0 ? 0.0 : call->in[3].value[((row + 1) * tail->dim[1] + t) * x->dim[2] + c];
}

static void conv_cached_reference(tx_call *call)
{
    const tx_array *w = &call->in[1], *bias = &call->in[2];
    const int64_t columns = tx_array_last(&call->in[0]), time = call->in[0].shape.dim[1], taps = w->shape.dim[1];
    for (int64_t i = 0; i < call->out[0].count; i++) {
        const int64_t c = i % columns, b = i / columns / time, t = i / columns % time;
        double z = tx_array_present(bias) ? bias->value[c] : 0.0, magnitude = fabs(z);
        for (int64_t j = 0; j < taps; j++) {
            const double term = w->value[c * taps + j] * earlier(call, b, t - taps + 1 + j, c);
            z += term;
            magnitude += fabs(term);
        }
        tx_array_put(&call->out[0], i, call->attrs.scan.silu ? z * sigmoid(z) : z, 2.0 * magnitude);
    }
    for (int64_t i = 0; i < call->out[1].count; i++)
        tx_array_put(&call->out[1], i, call->in[3].value[i], 0.0);
    for (int64_t b = 0; b < call->in[0].shape.dim[0]; b++) {
        const double *span = call->in[4].value + 3 * b;
        const int64_t row = (int64_t)fmin(span[0], (double)(call->in[3].shape.dim[0] - 1)),
                      count = (int64_t)fmin(span[2], (double)time);
        for (int64_t i = 0; i < (taps - 1) * columns && count > 0; i++)
            tx_array_put(&call->out[1], row * (taps - 1) * columns + i,
                         earlier(call, b, count - taps + 1 + i / columns, i % columns), 0.0);
    }
}

static void conv_grad_reference(tx_call *call)
{
    const int64_t columns = tx_array_last(&call->in[1]);
    for (int o = 0; o < 3; o++)
        for (int64_t i = 0; i < call->out[o].count; i++)
            tx_array_put(&call->out[o], i, 0.0, 0.0);
    for (int64_t i = 0; i < call->in[1].count; i++) {
        double magnitude;
        const double z = convolve(call, 1, i / columns, i % columns, &magnitude, NULL), s = sigmoid(z);
        const double slope = call->attrs.scan.silu ? s * (1.0 + z * (1.0 - s)) : 1.0, dy = call->in[0].value[i];
        const double dz[] = {dy * slope, fabs(dy) * (1.0 + magnitude)};
        convolve(call, 1, i / columns, i % columns, &magnitude, dz);
    }
}

static void conv_cached_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = call->in[0].dtype, .shape = call->in[0].shape};
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = call->in[3].shape};
}

static void conv_grad_outputs(tx_call *call)
{
    const tx_shape *w = &call->in[2].shape;
    call->out[0] = (tx_array){.dtype = call->in[1].dtype, .shape = call->in[1].shape};
    if (call->attrs.sums & 1u)
        call->out[1] = (tx_array){.dtype = TX_F32, .shape = *w};
    if (call->attrs.sums & 2u)
        call->out[2] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(w->dim[0])};
    if (call->attrs.sums)
        call->out[3] =
            (tx_array){.dtype = TX_F32,
                       .shape = TX_SHAPE(tx_row_blocks(tx_array_rows(&call->in[1])), (w->dim[1] + 1) * w->dim[0])};
}

TX_LENGTH(conv_length, call->in[1].shape.dim[1])
TX_LENGTH(conv_grad_length, tx_array_rows(&call->in[1]))

/* Appends operands from input x on. */
static void add_convs(tx_cases *list, int x)
{
    static const int64_t sizes[][4] = {{1, 1, 1, 1},   {1, 2, 5, 4},    {2, 7, 3, 3},    {3, 16, 33, 4},
                                       {2, 65, 17, 8}, {2, 40, 700, 4}, {1, 300, 20, 2}, {2, 2048, 2048, 4}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int t = 0; t < 3; t++) {
            const int64_t *n = sizes[s];
            const bool big = n[1] == 2048, bias = (s + (size_t)t) % 2, starts = n[0] > 1 && t < 2 && !big;
            tx_case *c = tx_case_add(list, "%s [%lld, %lld, %lld], %lld taps%s%s", tx_dtype_name(floats[t]),
                                     (long long)n[0], (long long)n[1], (long long)n[2], (long long)n[3],
                                     bias ? ", bias" : "", starts ? ", starts" : "");
            for (int i = 0; i <= x; i++) {
                c->in[i] = tx_spec_real(TX_SHAPE(n[0], n[1], n[2]));
                c->in[i].dtype = floats[t];
            }
            c->in[x + 1] = tx_spec_real(TX_SHAPE(n[2], n[3]));
            if (bias)
                c->in[x + 2] = tx_spec_real(TX_SHAPE(n[2]));
            if (starts)
                c->in[x + 3] = tx_spec_of(TX_I32, TX_SHAPE(n[0], n[1]), TX_FILL_STARTS, 0.0, (double)n[1]);
            c->attrs.scan.silu = s % 4 != 2;
            if (x)
                c->attrs.sums = s == 4 ? (t == 1 ? 2u : (uint32_t)t / 2u) : bias ? 3u : 1u; /* s = 4: none, dbias, dw */
            c->flags = big ? TX_CASE_BENCH : 0u;
            if (x && s == 3 && bias)
                tx_case_accumulate(list);
        }
    tx_case_chunks(list);
}

static void conv_cases(tx_cases *list)
{
    add_convs(list, 0);
}

static void conv_cached_cases(tx_cases *list)
{
    static const int64_t sizes[][4] = {{1, 1, 1, 2},  {5, 1, 5, 4},   {3, 2, 33, 4},  {4, 3, 700, 3},
                                       {3, 7, 17, 8}, {2, 65, 40, 4}, {8, 1, 8192, 4}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int t = 0; t < 3; t++) {
            const int64_t *n = sizes[s];
            tx_case *c = tx_case_add(list, "%s [%lld, %lld, %lld], %lld taps", tx_dtype_name(floats[t]),
                                     (long long)n[0], (long long)n[1], (long long)n[2], (long long)n[3]);
            c->in[0] = tx_spec_real(TX_SHAPE(n[0], n[1], n[2]));
            c->in[0].dtype = floats[t];
            c->in[1] = tx_spec_real(TX_SHAPE(n[2], n[3]));
            if ((s + (size_t)t) % 2)
                c->in[2] = tx_spec_real(TX_SHAPE(n[2]));
            c->in[3] = tx_spec_real(TX_SHAPE(n[0] + 1, n[3] - 1, n[2]));
            c->in[3].arena = TX_ARENA_STATE;
            c->in[4] = tx_spec_of(TX_I32, TX_SHAPE(n[0], 3), TX_FILL_SPANS, 0.0, (double)n[1]);
            c->attrs.scan.silu = s % 4 != 2;
            c->flags = n[2] == 8192 ? TX_CASE_BENCH : 0u;
        }
    tx_case_chunks(list);
}

static void conv_grad_cases(tx_cases *list)
{
    add_convs(list, 1);
}

/* ---- Rates --------------------------------------------------------------------------------------------- */

/* One head of a row of SCAN_RATES. */
typedef struct rate {
    double input, step, clamped, factor, b;
    int64_t a_at, b_at;
} rate;

static rate rate_of(const tx_call *call, int x, int64_t row, int64_t h)
{
    const int64_t heads = call->in[x + 1].count, width = tx_array_last(&call->in[x]);
    const bool delta = call->attrs.scan.delta;
    rate r = {.a_at = row * width + (delta ? heads : 0) + h, .b_at = row * width + h};
    r.input = call->in[x].value[r.a_at] + call->in[x + 2].value[h];
    r.step = log1p(exp(r.input));
    r.clamped = delta ? r.step : fmin(fmax(r.step, (double)call->attrs.scan.low), (double)call->attrs.scan.high);
    r.factor = -exp(call->in[x + 1].value[h]);
    r.b = call->in[x].value[r.b_at];
    return r;
}

static void rates_reference(tx_call *call)
{
    const int64_t heads = call->in[1].count;
    for (int64_t i = 0; i < call->out[0].count / 2; i++) {
        const int64_t row = i / heads, h = i % heads, at = row * 2 * heads + h;
        const rate r = rate_of(call, 0, row, h);
        const double weight = call->attrs.scan.delta ? sigmoid(r.b) : r.clamped;
        tx_array_put(&call->out[0], at, r.factor * r.clamped, 2.0 * fabs(r.factor) * (r.clamped + 1.0));
        tx_array_put(&call->out[0], at + heads, weight, weight + 1.0);
    }
}

static void rates_grad_reference(tx_call *call)
{
    const int64_t heads = call->in[2].count;
    const bool delta = call->attrs.scan.delta;
    for (int o = 1; o < 3; o++)
        for (int64_t i = 0; i < call->out[o].count; i++)
            tx_array_put(&call->out[o], i, 0.0, 0.0);
    for (int64_t i = 0; i < call->in[0].count / 2; i++) {
        const int64_t row = i / heads, h = i % heads;
        const rate r = rate_of(call, 1, row, h);
        const double dg = call->in[0].value[row * 2 * heads + h], dw = call->in[0].value[row * 2 * heads + heads + h];
        const double dstep = r.clamped == r.step ? r.factor * dg + (delta ? 0.0 : dw) : 0.0;
        const double da = dstep * sigmoid(r.input), size = fabs(r.factor * dg) + fabs(dw);
        tx_array_put(&call->out[0], r.a_at, da, size);
        if (delta)
            tx_array_put(&call->out[0], r.b_at, dw * sigmoid(r.b) * sigmoid(-r.b), fabs(dw));
        tx_array_add(&call->out[1], h, dg * r.factor * r.clamped, fabs(dg * r.factor) * (r.clamped + 1.0));
        tx_array_add(&call->out[2], h, da, size);
    }
}

TX_OUTPUT(rates_outputs, TX_F32,
          TX_SHAPE(call->in[0].shape.dim[0], call->in[0].shape.dim[1], 2 * call->in[1].shape.dim[0]))

static void rates_grad_outputs(tx_call *call)
{
    const int64_t heads = call->in[2].count;
    call->out[0] = (tx_array){.dtype = call->in[1].dtype, .shape = call->in[1].shape};
    for (int o = 1; o < 3; o++)
        if (call->attrs.sums >> (o - 1) & 1u)
            call->out[o] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(heads)};
    if (call->attrs.sums)
        call->out[3] =
            (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(tx_row_blocks(tx_array_rows(&call->in[1])), 2 * heads)};
}

static void add_rates(tx_cases *list, int x)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {2, 5, 3}, {1, 70, 33}, {3, 64, 16}, {2, 4096, 32}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int t = 0; t < 6; t++) {
            const int64_t *n = sizes[s];
            const bool delta = t < 3;
            tx_case *c = tx_case_add(list, "%s [%lld, %lld] of %lld heads%s", tx_dtype_name(floats[t % 3]),
                                     (long long)n[0], (long long)n[1], (long long)n[2], delta ? ", delta" : "");
            c->in[x] = tx_spec_of(floats[t % 3], TX_SHAPE(n[0], n[1], (delta ? 2 : 1) * n[2]), TX_FILL_UNIFORM, -9.0,
                                  t == 5 ? 40.0 : 4.0);
            c->in[x + 1] = tx_spec_real(TX_SHAPE(n[2]));
            c->in[x + 2] = tx_spec_real(TX_SHAPE(n[2]));
            c->attrs.scan.delta = delta;
            c->attrs.scan.low = t == 4 ? 0.125f : 0.0f;
            c->attrs.scan.high = t == 4 ? 2.5f : INFINITY;
            c->flags = n[1] == 4096 ? TX_CASE_BENCH : t == 4 ? TX_CASE_ZEROS : 0u;
            if (x) {
                c->in[0] = tx_spec_real(TX_SHAPE(n[0], n[1], 2 * n[2]));
                c->attrs.sums = s == 1 ? (uint32_t)t % 3 : 3u;
                if (s == 2 && t == 0)
                    tx_case_accumulate(list);
            }
        }
    tx_case_chunks(list);
}

static void rates_cases(tx_cases *list)
{
    add_rates(list, 0);
}

static void rates_grad_cases(tx_cases *list)
{
    add_rates(list, 1);
}

#define OF_FORWARD .gradient = true, .source = {TX_FROM_DY, TX_FROM_IN(0), TX_FROM_IN(1), TX_FROM_IN(2), TX_FROM_IN(3)}

const tx_descriptor tx_descriptor_short_conv = {
    .cases = conv_cases, .reference = conv_reference, .length = conv_length};
const tx_descriptor tx_descriptor_short_conv_cached = {.cases = conv_cached_cases,
                                                       .outputs = conv_cached_outputs,
                                                       .reference = conv_cached_reference,
                                                       .length = conv_length,
                                                       .lies_on = {0, 4}};
const tx_descriptor tx_descriptor_short_conv_grad = {.cases = conv_grad_cases,
                                                     .outputs = conv_grad_outputs,
                                                     .reference = conv_grad_reference,
                                                     .length = conv_grad_length,
                                                     OF_FORWARD,
                                                     .forward = TX_OP_SHORT_CONV,
                                                     .gradient_of = {1, 2, 3},
                                                     .work = 8};
const tx_descriptor tx_descriptor_scan_rates = {
    .cases = rates_cases, .outputs = rates_outputs, .reference = rates_reference};
const tx_descriptor tx_descriptor_scan_rates_grad = {
    .cases = rates_grad_cases,
    .outputs = rates_grad_outputs,
    .reference = rates_grad_reference,
    .length = conv_grad_length,
    .gradient = true,
    .source = {TX_FROM_DY, TX_FROM_IN(0), TX_FROM_IN(1), TX_FROM_IN(2)},
    .forward = TX_OP_SCAN_RATES,
    .gradient_of = {1, 2, 3},
    .work = 8};
