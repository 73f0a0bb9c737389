/* SPDX-License-Identifier: Apache-2.0
 * Softmax, cross entropy and their gradients: references and cases. */
#include "tests/ops/case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

TX_LENGTH(last_length, tx_array_last(&call->in[0]))

/* Log-sum-exp of the first n elements of a row; -inf for a row of -inf. */
static double log_sum_exp(const double *row, int64_t n)
{
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        top = row[i] > top || isnan(row[i]) ? row[i] : top;
    if (isinf(top))
        return top;
    for (int64_t i = 0; i < n; i++)
        sum += exp(row[i] - top);
    return top + log(sum);
}

/* ---- Softmax ------------------------------------------------------------------------------------ */

static void softmax_reference(tx_call *call)
{
    const tx_array *x = &call->in[0];
    int64_t n = tx_array_last(x);
    for (int64_t r = 0; r < tx_array_rows(x); r++) {
        double lse = log_sum_exp(x->value + r * n, n);
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            double p = isinf(lse) ? (double)NAN : exp(x->value[i] - lse);
            tx_array_put(&call->out[0], i, p, p > 0.0 ? p * (1.0 + fabs(x->value[i]) + fabs(lse)) : 0.0);
        }
    }
}

static void softmax_cases(tx_cases *list)
{
    const tx_shape *shapes;
    int32_t count = tx_shapes_plain(&shapes);
    char text[64];
    for (int32_t i = 0; i < count; i++) {
        tx_case *c = tx_case_add(list, "%s", tx_shape_text(&shapes[i], text, sizeof text));
        c->in[0] = tx_spec_of(TX_F32, shapes[i], TX_FILL_UNIFORM, -8.0, 8.0);
        c->flags = tx_shape_last(&shapes[i]) == 1 ? TX_CASE_ZEROS : 0u;
    }
    tx_case_chunks(list);
    tx_case *c = tx_case_add(list, "large [9, 33]"); /* overflows without the maximum */
    c->in[0] = tx_spec_of(TX_F32, TX_SHAPE(9, 33), TX_FILL_UNIFORM, 995.0, 1005.0);
    c = tx_case_add(list, "-inf [5, 19]");
    c->in[0] = tx_spec_of(TX_F32, TX_SHAPE(5, 19), TX_FILL_HOLES, -2.0, 2.0);
    c = tx_case_add(list, "NaN [3, 9]");
    c->in[0] = tx_spec_of(TX_F32, TX_SHAPE(3, 9), TX_FILL_NAN, -2.0, 2.0);
    c = tx_case_add(list, "big");
    c->in[0] = tx_spec_real(TX_SHAPE(8192, 1024));
    c->flags = TX_CASE_BENCH;
}

static void softmax_grad_reference(tx_call *call)
{
    const double *dy = call->in[0].value, *y = call->in[1].value;
    int64_t n = tx_array_last(&call->in[0]);
    for (int64_t r = 0; r < tx_array_rows(&call->in[0]); r++) {
        double sum = 0.0, size = 0.0;
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            sum += dy[i] * y[i];
            size += fabs(dy[i] * y[i]);
        }
        for (int64_t i = r * n; i < (r + 1) * n; i++)
            tx_array_put(&call->out[0], i, y[i] * (dy[i] - sum), fabs(y[i]) * (fabs(dy[i]) + size));
    }
}

static void softmax_grad_cases(tx_cases *list)
{
    const tx_shape *shapes;
    int32_t count = tx_shapes_plain(&shapes);
    char text[64];
    for (int32_t i = 0; i <= count; i++) {
        tx_shape shape = i < count ? shapes[i] : TX_SHAPE(8192, 1024);
        tx_case *c = tx_case_add(list, "%s", tx_shape_text(&shape, text, sizeof text));
        c->in[0] = tx_spec_real(shape);
        c->in[1] = tx_spec_of(TX_F32, shape, TX_FILL_UNIFORM, 0.0, 2.0 / (double)tx_shape_last(&shape));
        c->flags = i == count ? TX_CASE_BENCH : 0u;
    }
}

/* ---- Cross entropy ----------------------------------------------------------------------------- */

static double all_columns(const tx_call *call)
{
    return (double)(call->attrs.rows ? call->attrs.rows : call->attrs.vocab);
}

/* Loss of row r and its log-sum-exp; *size: magnitude of these. */
static double loss_of_row(const tx_call *call, int64_t r, double label, double *lse, double *size)
{
    const tx_array *x = &call->in[0];
    const int64_t vocab = call->attrs.vocab;
    const double *row = x->value + r * tx_array_last(x), p = (double)call->attrs.smoothing;
    double mean = 0.0, sizes = 0.0;
    *lse = log_sum_exp(row, vocab);
    for (int64_t i = 0; i < vocab; i++) {
        mean += row[i] / all_columns(call);
        sizes += fabs(row[i]) / all_columns(call);
    }
    const double logit = label < 0.0 ? 0.0 : row[(int64_t)label]; /* ignored, or none of these columns */
    *size = 1.0 + fabs(*lse) + fabs(logit) + p * sizes;
    return *lse - (1.0 - p) * logit - (p > 0.0 ? p * mean : 0.0);
}

static void cross_entropy_reference(tx_call *call)
{
    for (int64_t r = 0; r < tx_array_rows(&call->in[0]); r++) {
        double label = call->in[1].value[r], lse, size, loss = loss_of_row(call, r, label, &lse, &size);
        bool ignored = label == TX_IGNORE_LABEL;
        tx_array_put(&call->out[0], r, ignored ? 0.0 : loss, ignored ? 0.0 : size);
        tx_array_put(&call->out[1], r, lse, ignored ? (double)INFINITY : size); /* open where ignored */
    }
}

static tx_shape without_last(const tx_shape *shape)
{
    tx_shape s = *shape;
    s.rank--;
    s.dim[s.rank] = 0;
    return s;
}

static void cross_entropy_outputs(tx_call *call)
{
    call->out[0] = call->out[1] = (tx_array){.dtype = TX_F32, .shape = call->in[1].shape};
}

/* Element i of output 0, in a row of this label, log-sum-exp and gradient of the loss. */
static void put_gradient(tx_call *call, int64_t i, double label, double lse, double dloss)
{
    const tx_array *x = &call->in[0];
    const int64_t column = i % tx_array_last(x);
    if (label == TX_IGNORE_LABEL || column >= call->attrs.vocab) {
        tx_array_put(&call->out[0], i, 0.0, 0.0);
        return;
    }
    double p = exp(x->value[i] - lse), smoothing = (double)call->attrs.smoothing;
    double hot = ((double)column == label ? 1.0 - smoothing : 0.0) + smoothing / all_columns(call);
    tx_array_put(&call->out[0], i, (p - hot) * dloss, (p * (1.0 + fabs(x->value[i]) + fabs(lse)) + hot) * fabs(dloss));
}

static void cross_entropy_grad_reference(tx_call *call)
{
    const int64_t columns = tx_array_last(&call->in[0]);
    for (int64_t i = 0; i < call->in[0].count; i++) {
        const int64_t r = i / columns;
        put_gradient(call, i, call->in[2].value[r], call->in[3].value[r], call->in[1].value[r]);
    }
}

static void fused_classifier_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = call->in[0].dtype, .shape = call->in[0].shape};
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = call->in[2].shape};
}

static void fused_classifier_reference(tx_call *call)
{
    const int64_t columns = tx_array_last(&call->in[0]);
    for (int64_t r = 0; r < tx_array_rows(&call->in[0]); r++) {
        double label = call->in[2].value[r], lse, size, loss = loss_of_row(call, r, label, &lse, &size);
        bool ignored = label == TX_IGNORE_LABEL;
        tx_array_put(&call->out[1], r, ignored ? 0.0 : loss, ignored ? 0.0 : size);
        for (int64_t i = r * columns; i < (r + 1) * columns; i++)
            put_gradient(call, i, label, lse, call->in[1].value[r]);
    }
}

static const struct {
    tx_shape logits;
    int64_t vocab;
} losses[] = {
    {{2, {1, 1}}, 1},       {{2, {3, 5}}, 5},      {{3, {2, 7, 17}}, 17},  {{2, {16, 64}}, 50},
    {{3, {3, 5, 65}}, 64},  {{2, {33, 129}}, 127}, {{2, {6, 1027}}, 1000}, {{2, {4, 5000}}, 5000},
    {{2, {9, 3088}}, 3078}, {{2, {5, 12}}, 12},    {{2, {7, 2056}}, 2050}, {{3, {2, 128, 50304}}, 50257},
};

static tx_case *add_loss(tx_cases *list, size_t i)
{
    char text[64];
    tx_shape rows = without_last(&losses[i].logits);
    tx_case *c = tx_case_add(list, "%s vocab %lld", tx_shape_text(&losses[i].logits, text, sizeof text),
                             (long long)losses[i].vocab);
    c->attrs.vocab = losses[i].vocab;
    c->attrs.smoothing = i / 2 % 2 ? 0.1f : 0.0f; /* of each type of logits, every other one is smoothed */
    c->in[0] = tx_spec_of(TX_F32, losses[i].logits, TX_FILL_PADDED, -6.0, 6.0);
    c->in[1] = tx_spec_of(TX_I32, rows, TX_FILL_LABELS, 0.0, (double)losses[i].vocab);
    if (tx_shape_count(&losses[i].logits) > 1000000)
        c->flags = TX_CASE_BENCH;
    if (losses[i].vocab == 1)
        c->flags = TX_CASE_ZEROS;
    return c;
}

static tx_case *add_gradient(tx_cases *list, size_t i)
{
    tx_case *c = add_loss(list, i);
    c->in[2] = c->in[1];
    c->in[1] = tx_spec_real(c->in[2].shape);
    c->in[3] = tx_spec_derived(c->in[2].shape);
    if (losses[i].vocab < tx_shape_last(&losses[i].logits))
        c->flags |= TX_CASE_ZEROS;
    return c;
}

/* All of them, and again with columns that are some of three times as many, and labels that are others. */
static void add_all(tx_cases *list, tx_case *(*add)(tx_cases *list, size_t i))
{
    enum { COUNT = sizeof losses / sizeof losses[0] };
    for (size_t i = 0; i < COUNT; i++)
        add(list, i);
    for (size_t i = 0; i < COUNT - 1; i++) { /* all except the large one */
        add(list, i);
        tx_case *c = &list->item[list->count - 1];
        const size_t used = strlen(c->label);
        snprintf(c->label + used, sizeof c->label - used, ", a part");
        c->attrs.rows = 3 * c->attrs.vocab;
        for (int k = 1; k < 3; k++)
            if (c->in[k].fill == TX_FILL_LABELS)
                c->in[k].lo = -1.0 - (double)(c->attrs.vocab / 2);
    }
}

static void cross_entropy_cases(tx_cases *list)
{
    add_all(list, add_loss);
    tx_case *c = add_loss(list, 3);
    c->in[0].lo = 900.0;
    c->in[0].hi = 910.0;
    tx_case_chunks(list);
    c = add_loss(list, 3);
    c->in[0].fill = TX_FILL_NAN;
    tx_case_half(list, 1, false);
}

static void cross_entropy_grad_cases(tx_cases *list)
{
    add_all(list, add_gradient);
    tx_case_half(list, 1, false);
}

static void fused_classifier_cases(tx_cases *list)
{
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        tx_case *c = add_loss(list, i);
        c->in[2] = c->in[1];
        c->in[1] = tx_spec_real(c->in[2].shape);
        if (losses[i].vocab < tx_shape_last(&losses[i].logits))
            c->flags |= TX_CASE_ZEROS;
    }
    tx_case_half(list, 1, false);
}

/* ---- Token statistics -------------------------------------------------------------------------- */

static void token_statistics_reference(tx_call *call)
{
    const int64_t columns = tx_array_last(&call->in[0]), vocab = call->attrs.vocab;
    for (int64_t r = 0; r < tx_array_rows(&call->in[0]); r++) {
        const double *x = call->in[0].value + r * columns, label = call->in[1].value[r], lse = call->in[2].value[r];
        double value[4] = {0}, size[4] = {0};
        int64_t top = 0;
        for (int64_t i = 0; i < vocab && label >= 0.0; i++) {
            const double p = exp(x[i] - lse);
            top = x[i] > x[top] ? i : top;
            value[0] += p * (lse - x[i]);
            size[0] += p * (1.0 + fabs(lse) + fabs(x[i])) * (1.0 + fabs(lse - x[i]));
            value[1] += x[i] / (double)vocab;
            size[1] += fabs(x[i]) / (double)vocab;
            value[2] = (double)top == label;
            value[3] += p * p;
            size[3] = fmax(size[3], 1.0 + fabs(lse) + fabs(x[i]));
        }
        value[3] = label >= 0.0 ? log(value[3]) : 0.0;
        for (int i = 0; i < 4; i++)
            tx_array_put(&call->out[i], r, value[i], size[i]);
    }
}

static void token_statistics_outputs(tx_call *call)
{
    for (int i = 0; i < 4; i++)
        call->out[i] = (tx_array){.dtype = TX_F32, .shape = call->in[1].shape};
}

static void token_statistics_cases(tx_cases *list)
{
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        tx_case *c = add_loss(list, i);
        c->attrs.smoothing = 0.0f;
        c->in[2] = tx_spec_of(TX_F32, c->in[1].shape, TX_FILL_UNIFORM, 5.0, 12.0);
        c->flags |= TX_CASE_ZEROS;
    }
    tx_case_half(list, 1, false);
}

static void token_entropy_grad_reference(tx_call *call)
{
    const int64_t columns = tx_array_last(&call->in[0]), vocab = call->attrs.vocab;
    for (int64_t r = 0; r < tx_array_rows(&call->in[0]); r++) {
        const double *x = call->in[0].value + r * columns, d = call->in[1].value[r], lse = call->in[3].value[r],
                     entropy = call->in[4].value[r];
        for (int64_t i = 0; i < columns; i++) {
            const bool counts = i < vocab && call->in[2].value[r] >= 0.0;
            const double p = counts ? exp(x[i] - lse) : 0.0;
            tx_array_put(&call->out[0], r * columns + i, counts ? -p * (x[i] - lse + entropy) * d : 0.0,
                         counts ? p * (1.0 + fabs(x[i]) + fabs(lse)) * (1.0 + fabs(x[i] - lse) + entropy) * fabs(d)
                                : 0.0);
        }
    }
}

static void token_entropy_grad_cases(tx_cases *list)
{
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        tx_case *c = add_gradient(list, i);
        c->attrs.smoothing = 0.0f;
        c->in[3] = tx_spec_of(TX_F32, c->in[1].shape, TX_FILL_UNIFORM, 5.0, 12.0);
        c->in[4] = tx_spec_of(TX_F32, c->in[1].shape, TX_FILL_UNIFORM, 0.0, 3.0);
        c->flags |= TX_CASE_ZEROS;
    }
    tx_case_half(list, 1, false);
}

/* ---- Distillation ------------------------------------------------------------------------------ */

static double scaled_lse(const double *x, int64_t n, double inverse)
{
    double greatest = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        greatest = fmax(greatest, x[i] * inverse);
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] * inverse - greatest);
    return greatest + log(sum);
}

static void distillation_reference(tx_call *call)
{
    const int64_t columns = tx_array_last(&call->in[0]), vocab = call->attrs.vocab;
    const double alpha = (double)call->attrs.alpha, t = (double)call->attrs.scale;
    for (int64_t r = 0; r < tx_array_rows(&call->in[0]); r++) {
        const double *x = call->in[0].value + r * columns, *teacher = call->in[1].value + r * columns;
        const double label = call->in[2].value[r];
        const double lse = scaled_lse(x, vocab, 1), own = scaled_lse(x, vocab, 1 / t),
                     others = scaled_lse(teacher, vocab, 1 / t);
        double divergence = 0.0, size = 0.0;
        for (int64_t i = 0; i < vocab; i++) {
            const double q = teacher[i] / t - others, p = x[i] / t - own;
            divergence += exp(q) * (q - p);
            size += exp(q) * (fabs(teacher[i] / t) + fabs(others) + fabs(x[i] / t) + fabs(own));
        }
        const bool ignored = label == TX_IGNORE_LABEL;
        const double logit = ignored ? 0.0 : x[(int64_t)label];
        const double loss = alpha * (lse - logit) + (1 - alpha) * t * t * divergence;
        tx_array_put(&call->out[0], r, ignored ? 0.0 : loss,
                     ignored ? 0.0 : 1.0 + alpha * (fabs(lse) + fabs(logit)) + (1 - alpha) * t * t * size);
    }
}

TX_OUTPUT(distillation_outputs, TX_F32, call->in[2].shape)

static void distillation_grad_reference(tx_call *call)
{
    const int64_t columns = tx_array_last(&call->in[0]), vocab = call->attrs.vocab;
    const double alpha = (double)call->attrs.alpha, t = (double)call->attrs.scale;
    for (int64_t r = 0; r < tx_array_rows(&call->in[0]); r++) {
        const double *x = call->in[0].value + r * columns, *teacher = call->in[2].value + r * columns;
        const double label = call->in[3].value[r], d = call->in[1].value[r];
        const double lse = scaled_lse(x, vocab, 1), own = scaled_lse(x, vocab, 1 / t),
                     others = scaled_lse(teacher, vocab, 1 / t);
        for (int64_t i = 0; i < columns; i++) {
            if (label == TX_IGNORE_LABEL || i >= vocab) {
                tx_array_put(&call->out[0], r * columns + i, 0.0, 0.0);
                continue;
            }
            const double hot = (double)i == label ? 1.0 : 0.0, hard = exp(x[i] - lse), p = exp(x[i] / t - own),
                         q = exp(teacher[i] / t - others);
            const double sizes =
                alpha * (hard * (1 + fabs(x[i]) + fabs(lse)) + hot) +
                (1 - alpha) * t *
                    (p * (1 + fabs(x[i] / t) + fabs(own)) + q * (1 + fabs(teacher[i] / t) + fabs(others)));
            tx_array_put(&call->out[0], r * columns + i, (alpha * (hard - hot) + (1 - alpha) * t * (p - q)) * d,
                         sizes * fabs(d));
        }
    }
}

static tx_case *add_distillation(tx_cases *list, size_t i)
{
    static const float alphas[] = {0.5f, 0.0f, 0.9f, 1.0f}, temperatures[] = {2.0f, 1.0f, 4.0f, 0.5f};
    tx_case *c = add_loss(list, i);
    c->attrs.smoothing = 0.0f;
    c->attrs.alpha = alphas[i % 4];
    c->attrs.scale = temperatures[i / 2 % 4];
    return c;
}

static void distillation_cases(tx_cases *list)
{
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        tx_case *c = add_distillation(list, i);
        c->in[2] = c->in[1];
        c->in[1] = c->in[0];
    }
    tx_case_half(list, 3, false);
}

static void distillation_grad_cases(tx_cases *list)
{
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        tx_case *c = add_distillation(list, i);
        c->in[3] = c->in[1];
        c->in[2] = c->in[0];
        c->in[1] = tx_spec_real(c->in[3].shape);
        c->flags |= TX_CASE_ZEROS;
    }
    tx_case_half(list, 5, false);
}

const tx_descriptor tx_descriptor_softmax = {
    .cases = softmax_cases, .reference = softmax_reference, .length = last_length};
const tx_descriptor tx_descriptor_softmax_grad = {
    .cases = softmax_grad_cases,
    .reference = softmax_grad_reference,
    .length = last_length,
    .gradient = true,
    .forward = TX_OP_SOFTMAX,
    .source = {TX_FROM_DY, TX_FROM_OUT(0)},
    .gradient_of = {1},
};
const tx_descriptor tx_descriptor_cross_entropy = {.cases = cross_entropy_cases,
                                                   .outputs = cross_entropy_outputs,
                                                   .reference = cross_entropy_reference,
                                                   .length = last_length};
const tx_descriptor tx_descriptor_cross_entropy_grad = {
    .cases = cross_entropy_grad_cases,
    .reference = cross_entropy_grad_reference,
    .length = last_length,
    .gradient = true,
    .forward = TX_OP_CROSS_ENTROPY,
    .source = {TX_FROM_IN(0), TX_FROM_DY, TX_FROM_IN(1), TX_FROM_OUT(1)},
    .gradient_of = {1},
};
const tx_descriptor tx_descriptor_fused_classifier = {.cases = fused_classifier_cases,
                                                      .outputs = fused_classifier_outputs,
                                                      .reference = fused_classifier_reference,
                                                      .length = last_length};
const tx_descriptor tx_descriptor_token_statistics = {.cases = token_statistics_cases,
                                                      .outputs = token_statistics_outputs,
                                                      .reference = token_statistics_reference,
                                                      .length = last_length};
const tx_descriptor tx_descriptor_token_entropy_grad = {
    .cases = token_entropy_grad_cases,
    .reference = token_entropy_grad_reference,
    .length = last_length,
};
const tx_descriptor tx_descriptor_distillation = {.cases = distillation_cases,
                                                  .outputs = distillation_outputs,
                                                  .reference = distillation_reference,
                                                  .length = last_length};
const tx_descriptor tx_descriptor_distillation_grad = {
    .cases = distillation_grad_cases,
    .reference = distillation_grad_reference,
    .length = last_length,
    .gradient = true,
    .forward = TX_OP_DISTILLATION,
    .source = {TX_FROM_IN(0), TX_FROM_DY, TX_FROM_IN(1), TX_FROM_IN(2)},
    .gradient_of = {1},
};
