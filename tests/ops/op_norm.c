/* SPDX-License-Identifier: Apache-2.0
 * Layer and RMS normalisation with their gradients: references and cases. */
#include "tests/ops/case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double norm_length(const tx_call *call)
{
    const tx_array *x = &call->in[call->op == TX_OP_LAYER_NORM || call->op == TX_OP_RMS_NORM ? 0 : 1];
    double rows = (double)tx_array_rows(x), last = (double)tx_array_last(x);
    return rows > last ? rows : last;
}

/* Returns the input of the normalization: x, or its sum with operand z, which is output `out`. */
static const double *normalised(tx_call *call, int z, int out)
{
    const tx_array *x = &call->in[0];
    if (!tx_array_present(&call->in[z]))
        return x->value;
    for (int64_t i = 0; i < x->count; i++) {
        /* as the contract has it: dropout's result is rounded, and the sum before it is normalised */
        const double other =
            tx_number_round(x->dtype, call->attrs.draw.p > 0.0f ? tx_call_dropped(call, z, i) : call->in[z].value[i]);
        tx_array_put(&call->out[out], i, tx_number_round(x->dtype, x->value[i] + other),
                     fabs(x->value[i]) + fabs(other));
    }
    return call->out[out].value;
}

/* Returns the magnitude of element i of the normalization's input, whose value is `value`. Dropout's factor is rounded
 * before the sum, in which values can cancel. */
static double size_of(const tx_call *call, int sum, int64_t i, double value)
{
    return call->attrs.draw.p > 0.0f ? call->out[sum].magnitude[i] : fabs(value);
}

static void give_sum(tx_call *call, int z, int out)
{
    if (tx_array_present(&call->in[z]))
        call->out[out] = (tx_array){.dtype = call->in[0].dtype, .shape = call->in[0].shape};
}

/* Output 0 is like input `x`, in fp32 unless the case requests another type. */
static void give_result_like(tx_call *call, int x)
{
    const tx_dtype asked = call->out[0].dtype;
    call->out[0] = (tx_array){.dtype = asked == TX_DTYPE_COUNT ? TX_F32 : asked, .shape = call->in[x].shape};
}

/* Adds operand z to dx, and sums the columns of dx, rounded as it is stored, to output `bias`. A dx at the middle of
 * two numbers may be rounded to either. */
static void finish_gradient(tx_call *call, int z, int bias)
{
    tx_array *dx = &call->out[0], *sum = &call->out[bias];
    const int64_t n = tx_array_last(dx);
    const double coarse = tx_number_epsilon(dx->dtype) / tx_number_epsilon(TX_F32);
    for (int64_t i = 0; i < n && tx_array_present(sum); i++)
        tx_array_put(sum, i, 0.0, 0.0);
    for (int64_t i = 0; i < dx->count; i++) {
        if (tx_array_present(&call->in[z]))
            tx_array_add(dx, i, call->in[z].value[i], fabs(call->in[z].value[i]));
        tx_array_add(sum, i % n, tx_number_round(dx->dtype, dx->value[i]), dx->magnitude[i] * coarse);
    }
}

/* The gradient of each vector that attrs.sums selects, of `count` elements, and work. */
static void gradient_outputs(tx_call *call, int64_t count, int sums)
{
    int64_t present = 0;
    give_result_like(call, 1);
    for (int i = 0; i < sums; i++)
        if (call->attrs.sums >> i & 1u) {
            call->out[1 + i] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(count)};
            present++;
        }
    if (present)
        call->out[1 + sums] =
            (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(tx_row_blocks(tx_array_rows(&call->in[1])), present, count)};
}

/* ---- Layer normalisation (Ba, Kiros, Hinton, 2016) --------------------------------------------- */

static void layer_norm_reference(tx_call *call)
{
    const tx_array *x = &call->in[0], *beta = &call->in[2];
    const double *rows = normalised(call, 3, 3);
    int64_t n = tx_array_last(x);
    for (int64_t r = 0; r < tx_array_rows(x); r++) {
        const double *row = rows + r * n;
        double mean = 0.0, variance = 0.0, size = 0.0;
        for (int64_t i = 0; i < n; i++) {
            mean += row[i] / (double)n;
            size += fabs(row[i]) / (double)n;
        }
        for (int64_t i = 0; i < n; i++)
            variance += (row[i] - mean) * (row[i] - mean) / (double)n;
        double rstd = 1.0 / sqrt(variance + (double)call->attrs.eps);
        /* A mean that errs by e moves a deviation by e: relative to rstd's own inputs this is size * rstd. */
        double grow = 1.0 + size * rstd;
        tx_array_put(&call->out[1], r, mean, size);
        tx_array_put(&call->out[2], r, rstd, rstd * grow);
        for (int64_t i = 0; i < n; i++) {
            double gamma = call->in[1].value[i], shift = tx_array_present(beta) ? beta->value[i] : 0.0;
            double y = (row[i] - mean) * rstd * gamma;
            double x_size = size_of(call, 3, r * n + i, row[i]);
            double magnitude = (x_size + size) * rstd * fabs(gamma) + fabs(y) * grow + fabs(shift);
            tx_array_put(&call->out[0], r * n + i, y + shift, magnitude);
        }
    }
}

static void layer_norm_outputs(tx_call *call)
{
    give_result_like(call, 0);
    call->out[1] = call->out[2] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(tx_array_rows(&call->in[0]))};
    give_sum(call, 3, 3);
}

/* With h = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - h mean(g h)). */
static void layer_norm_grad_reference(tx_call *call)
{
    const double *dy = call->in[0].value, *x = call->in[1].value, *gamma = call->in[2].value;
    int64_t n = tx_array_last(&call->in[1]);
    for (int o = 1; o <= 2; o++)
        for (int64_t i = 0; i < call->out[o].count; i++)
            tx_array_put(&call->out[o], i, 0.0, 0.0);
    for (int64_t r = 0; r < tx_array_rows(&call->in[1]); r++) {
        double mean = call->in[3].value[r], rstd = call->in[4].value[r];
        double sum = 0.0, sum_h = 0.0, size = 0.0, size_h = 0.0;
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            double g = dy[i] * gamma[i - r * n], h = (x[i] - mean) * rstd;
            double h_size = (fabs(x[i]) + fabs(mean)) * rstd;
            sum += g / (double)n;
            sum_h += g * h / (double)n;
            size += fabs(g) / (double)n;
            size_h += fabs(g) * h_size / (double)n;
            tx_array_add(&call->out[1], i - r * n, dy[i] * h, fabs(dy[i]) * h_size);
            tx_array_add(&call->out[2], i - r * n, dy[i], fabs(dy[i]));
        }
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            double g = dy[i] * gamma[i - r * n], h = (x[i] - mean) * rstd;
            double h_size = (fabs(x[i]) + fabs(mean)) * rstd;
            tx_array_put(&call->out[0], i, rstd * (g - sum - h * sum_h), rstd * (fabs(g) + size + h_size * size_h));
        }
    }
    finish_gradient(call, 5, 3);
}

static void layer_norm_grad_outputs(tx_call *call)
{
    gradient_outputs(call, tx_array_last(&call->in[1]), 3);
}

/* ---- RMS normalisation (Zhang, Sennrich, 2019) --------------------------------------------------- */

/* Where the gamma of row r begins: heads are q | k | v, of which v (-1) is not normalised. */
static int64_t gamma_at(const tx_attrs *attrs, int64_t r, int64_t n)
{
    const int64_t heads = attrs->attention.heads, of_kv = attrs->attention.kv_heads;
    if (heads == 0 || r % (heads + 2 * of_kv) < heads)
        return 0;
    return r % (heads + 2 * of_kv) < heads + of_kv ? n : -1;
}

static void rms_norm_reference(tx_call *call)
{
    const tx_array *x = &call->in[0];
    const double *rows = normalised(call, 2, 2);
    int64_t n = tx_array_last(x);
    for (int64_t r = 0; r < tx_array_rows(x); r++) {
        const int64_t gamma = gamma_at(&call->attrs, r, n);
        const double *row = rows + r * n;
        double square = 0.0;
        for (int64_t i = 0; i < n; i++)
            square += row[i] * row[i] / (double)n;
        double rstd = gamma < 0 ? 1.0 : 1.0 / sqrt(square + (double)call->attrs.eps);
        tx_array_put(&call->out[1], r, rstd, rstd);
        for (int64_t i = 0; i < n; i++) {
            const double factor = rstd * (gamma < 0 ? 1.0 : call->in[1].value[gamma + i]);
            const double size = size_of(call, 2, r * n + i, row[i]) * fabs(factor);
            tx_array_put(&call->out[0], r * n + i, row[i] * factor, size);
        }
    }
}

static void rms_norm_outputs(tx_call *call)
{
    give_result_like(call, 0);
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(tx_array_rows(&call->in[0]))};
    give_sum(call, 2, 2);
}

/* With h = x rstd and g = dy gamma: dx = rstd (g - h mean(g h)). */
static void rms_norm_grad_reference(tx_call *call)
{
    const double *dy = call->in[0].value, *x = call->in[1].value;
    int64_t n = tx_array_last(&call->in[1]);
    for (int64_t i = 0; i < call->out[1].count; i++)
        tx_array_put(&call->out[1], i, 0.0, 0.0);
    for (int64_t r = 0; r < tx_array_rows(&call->in[1]); r++) {
        const int64_t at = gamma_at(&call->attrs, r, n);
        const double *gamma = call->in[2].value + (at < 0 ? 0 : at);
        double rstd = call->in[3].value[r], sum = 0.0, size = 0.0;
        for (int64_t i = r * n; i < (r + 1) * n && at < 0; i++)
            tx_array_put(&call->out[0], i, dy[i], fabs(dy[i]));
        if (at < 0)
            continue;
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            double gh = dy[i] * gamma[i - r * n] * x[i] * rstd;
            sum += gh / (double)n;
            size += fabs(gh) / (double)n;
            tx_array_add(&call->out[1], at + i - r * n, dy[i] * x[i] * rstd, fabs(dy[i] * x[i]) * rstd);
        }
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            double g = dy[i] * gamma[i - r * n], h = x[i] * rstd;
            tx_array_put(&call->out[0], i, rstd * (g - h * sum), rstd * (fabs(g) + fabs(h) * size));
        }
    }
    finish_gradient(call, 4, 2);
}

static void rms_norm_grad_outputs(tx_call *call)
{
    gradient_outputs(call, tx_array_last(&call->in[2]), 2);
}

/* ---- Cases ------------------------------------------------------------------------------------ */

static const tx_shape shapes[] = {
    {2, {1, 2}},   {2, {3, 5}},      {1, {17}},      {2, {16, 16}},     {2, {17, 63}}, {3, {3, 5, 65}},
    {2, {33, 64}}, {3, {2, 65, 24}}, {2, {5, 1027}}, {4, {2, 3, 2, 9}}, {2, {300, 7}},
};
static const tx_shape big = {3, {8, 1024, 768}};

/* The other operands of the normalization of x [..., C]; gamma is not close to 0, and x is not centred. */
static tx_case *add_forward(tx_cases *list, tx_shape x, bool beta)
{
    char text[64];
    int64_t n = tx_shape_last(&x);
    tx_case *c = tx_case_add(list, "%s", tx_shape_text(&x, text, sizeof text));
    c->attrs.eps = 1e-5f;
    c->in[0] = tx_spec_of(TX_F32, x, TX_FILL_UNIFORM, -1.0, 3.0);
    c->in[1] = tx_spec_of(TX_F32, TX_SHAPE(n), TX_FILL_UNIFORM, 0.5, 1.5);
    c->in[1].arena = TX_ARENA_WEIGHTS;
    if (beta) {
        c->in[2] = tx_spec_real(TX_SHAPE(n));
        c->in[2].arena = TX_ARENA_WEIGHTS;
    }
    return c;
}

/* Turns the case's x into heads q | k | v, with a gamma for q and one for k. */
static void make_heads(tx_case *c, int32_t heads, int32_t kv_heads, int gamma)
{
    c->attrs.attention.heads = heads;
    c->attrs.attention.kv_heads = kv_heads;
    c->in[gamma].shape.dim[0] *= 2;
    snprintf(c->label + strlen(c->label), sizeof c->label - strlen(c->label), " %d heads, %d of keys", heads, kv_heads);
}

/* Appends copies of every third case with x, and a summand of its type, of 16 bits. Their dropout keeps one half: its
 * factor is exact, so that the reference rounds the same number. */
static void narrow_x(tx_cases *list, int x, int z)
{
    const int32_t count = list->count;
    for (int32_t n = 0; n < count; n += 3) {
        const tx_dtype type = n % 2 ? TX_F16 : TX_BF16;
        tx_case made = list->item[n];
        if (made.flags & TX_CASE_BENCH)
            continue;
        made.in[x].dtype = type;
        if (made.in[z].dtype == TX_F32)
            made.in[z].dtype = type;
        if (made.attrs.draw.p > 0.0f)
            made.attrs.draw.p = 0.5f;
        tx_case *c = tx_case_add(list, "%.70s, x %s", list->item[n].label, tx_dtype_name(type));
        memcpy(made.label, c->label, sizeof made.label);
        *c = made;
    }
}

static const struct {
    tx_shape x;
    int32_t heads, kv_heads;
} with_heads[] = {{{3, {7, 5, 6}}, 3, 1}, {{4, {2, 3, 12, 33}}, 4, 4}, {{3, {300, 8, 64}}, 4, 2}};

static void forward_cases(tx_cases *list, bool beta)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        add_forward(list, shapes[i], beta);
    tx_case_chunks(list);
    add_forward(list, shapes[4], beta)->attrs.eps = 0.1f;
    tx_case *c = add_forward(list, TX_SHAPE(1, 9), beta);
    c->in[0].fill = TX_FILL_NAN;
    c->flags |= TX_CASE_ZEROS;
    c = add_forward(list, TX_SHAPE(4, 33), beta); /* far off centre: the variance must not be E[x^2] - E[x]^2 */
    c->in[0].lo = 1000.0;
    c->in[0].hi = 1001.0;
    static const int with[] = {2, 5, 8};
    for (size_t i = 0; i < sizeof with / sizeof with[0]; i++) {
        c = add_forward(list, shapes[with[i]], beta);
        c->in[beta ? 3 : 2] = tx_spec_real(shapes[with[i]]);
        snprintf(c->label + strlen(c->label), sizeof c->label - strlen(c->label), " and a sum");
        c = tx_case_copy(list, " after dropout");
        c->attrs.draw.p = 0.3f;
        c->attrs.draw.site = 5;
        c->attrs.draw.row = (int64_t)i * 40;
        c->attrs.gap = (int64_t)i * 24;
        c->controls.word[TX_CONTROL_STEP].u32 = 9 + (uint32_t)i;
        tx_case_copy(list, " of 16 bits")->in[beta ? 3 : 2].dtype = i % 2 ? TX_F16 : TX_BF16;
    }
    tx_case_chunks(list);
    for (size_t i = 0; i < sizeof with_heads / sizeof with_heads[0] && !beta; i++)
        make_heads(add_forward(list, with_heads[i].x, beta), with_heads[i].heads, with_heads[i].kv_heads, 1);
    tx_case_half(list, 0, true);
    narrow_x(list, 0, beta ? 3 : 2);
    add_forward(list, big, beta)->flags |= TX_CASE_BENCH;
}

static void layer_norm_cases(tx_cases *list)
{
    forward_cases(list, true);
}

static void rms_norm_cases(tx_cases *list)
{
    forward_cases(list, false);
}

static tx_case *add_gradient(tx_cases *list, tx_shape x, int statistics)
{
    tx_case *c = add_forward(list, x, false);
    c->in[2] = c->in[1];
    c->in[1] = c->in[0];
    c->in[0] = tx_spec_real(x);
    c->in[3] = tx_spec_derived(TX_SHAPE(tx_shape_rows(&x)));
    if (statistics > 1)
        c->in[4] = c->in[3];
    c->attrs.sums = statistics > 1 ? 3 : 1;
    return c;
}

/* Appends a case with other sums over rows, named `text`, and with a summand if `z` is not 0. */
static void add_sums(tx_cases *list, tx_shape x, int statistics, uint32_t sums, const char *text, int z)
{
    tx_case *c = add_gradient(list, x, statistics);
    c->attrs.sums = sums;
    if (z)
        c->in[z] = tx_spec_real(x);
    snprintf(c->label + strlen(c->label), sizeof c->label - strlen(c->label), ", %s%s", text, z ? " and a sum" : "");
}

static void gradient_cases(tx_cases *list, int statistics)
{
    const int z = statistics > 1 ? 5 : 4;
    const uint32_t bias = statistics > 1 ? 4 : 2;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        add_gradient(list, shapes[i], statistics);
    tx_case_chunks(list);
    add_gradient(list, shapes[7], statistics);
    tx_case_accumulate(list);
    add_sums(list, TX_SHAPE(4100, 3), statistics, 2 * bias - 1, "all sums", 0); /* blocks longer than TX_ROW_BLOCK */
    tx_case_accumulate(list);
    add_sums(list, shapes[5], statistics, 0, "no sums", 0);
    add_sums(list, shapes[8], statistics, bias, "dbias", 0);
    add_sums(list, shapes[7], statistics, bias | 1u, "dgamma, dbias", z);
    add_sums(list, TX_SHAPE(19, 4100), statistics, 2 * bias - 1, "all sums", z); /* more than registers hold */
    add_gradient(list, shapes[5], statistics);
    tx_case *c = tx_case_copy(list, " and a sum");
    c->in[z] = tx_spec_real(shapes[5]);
    tx_case_chunks(list);
    for (size_t i = 0; i < sizeof with_heads / sizeof with_heads[0] && statistics == 1; i++)
        make_heads(add_gradient(list, with_heads[i].x, 1), with_heads[i].heads, with_heads[i].kv_heads, 2);
    if (statistics == 1)
        tx_case_accumulate(list);
    tx_case_half(list, 1u << z, true); /* dx, and the summand */
    tx_case_half(list, 1, false);      /* dy */
    narrow_x(list, 1, 1);
    add_gradient(list, big, statistics);
    list->item[list->count - 1].flags |= TX_CASE_BENCH;
}

static void layer_norm_grad_cases(tx_cases *list)
{
    gradient_cases(list, 2);
}

static void rms_norm_grad_cases(tx_cases *list)
{
    gradient_cases(list, 1);
}

const tx_descriptor tx_descriptor_layer_norm = {
    .cases = layer_norm_cases, .outputs = layer_norm_outputs, .reference = layer_norm_reference, .length = norm_length};
const tx_descriptor tx_descriptor_layer_norm_grad = {
    .cases = layer_norm_grad_cases,
    .outputs = layer_norm_grad_outputs,
    .reference = layer_norm_grad_reference,
    .length = norm_length,
    .gradient = true,
    .forward = TX_OP_LAYER_NORM,
    .source = {TX_FROM_DY, TX_FROM_IN(0), TX_FROM_IN(1), TX_FROM_OUT(1), TX_FROM_OUT(2), TX_FROM_NOWHERE},
    .gradient_of = {1, 2, 3},
    .work = 16,
};
const tx_descriptor tx_descriptor_rms_norm = {
    .cases = rms_norm_cases, .outputs = rms_norm_outputs, .reference = rms_norm_reference, .length = norm_length};
const tx_descriptor tx_descriptor_rms_norm_grad = {
    .cases = rms_norm_grad_cases,
    .outputs = rms_norm_grad_outputs,
    .reference = rms_norm_grad_reference,
    .length = norm_length,
    .gradient = true,
    .forward = TX_OP_RMS_NORM,
    .source = {TX_FROM_DY, TX_FROM_IN(0), TX_FROM_IN(1), TX_FROM_OUT(1), TX_FROM_NOWHERE},
    .gradient_of = {1, 2},
    .work = 8,
};
