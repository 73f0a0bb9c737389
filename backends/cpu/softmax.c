/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax, cross-entropy and distillation. A loss reads the logits once and keeps a running maximum and a running
 * sum of exponentials (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018).
 */
#include "backends/cpu/simd.h"

#define CHUNK 1024 /* columns that are read twice while they are in the L1 cache */

/* ---- Softmax ------------------------------------------------------------------------------------- */

TX_ROWS(softmax, out[0])
{
    const float *x = (const float *)call->in[0] + row * width;
    float *y = (float *)call->out[0] + row * width;
    const float greatest = tx_greatest(x, width);
    float sum;
    TX_SUM(sum, i, width, y[i] = tx_exp(x[i] - greatest));
    const float inverse = 1.0f / sum;
    TX_SIMD for (int64_t i = 0; i < width; i++) y[i] *= inverse;
}

TX_ROWS(softmax_grad, out[0])
{
    const float *dy = (const float *)call->in[0] + row * width, *y = (const float *)call->in[1] + row * width;
    float *dx = (float *)call->out[0] + row * width;
    float dot;
    TX_SUM(dot, i, width, dy[i] * y[i]);
    TX_SIMD for (int64_t i = 0; i < width; i++) dx[i] = y[i] * (dy[i] - dot);
}

/* ---- Cross-entropy --------------------------------------------------------------------------------- */

/* Returns log(sum of e^(times x)) over n > 0 elements from element `first` on. NaN or +inf among them gives NaN; if
 * all are -inf, the result is -inf. */
static float log_sum_exp(const void *x, tx_dtype type, int64_t first, int64_t n, float times)
{
    float lane[TX_LANES] = {0}, greatest = -INFINITY, piece[CHUNK];
    for (int64_t start = 0; start < n; start += CHUNK) {
        const int64_t count = tx_min(n - start, CHUNK);
        const float *chunk = tx_run_of(x, type, first + start, count, piece);
        if (times != 1.0f) {
            TX_SIMD for (int64_t i = 0; i < count; i++) piece[i] = chunk[i] * times;
            chunk = piece;
        }
        const float peak = tx_greatest(chunk, count);
        if (peak > greatest) {
            const float factor = tx_exp(greatest - peak);
            TX_SIMD for (int l = 0; l < TX_LANES; l++) lane[l] *= factor;
            greatest = peak;
        }
        const float base = greatest > -INFINITY ? greatest : 0.0f;
        TX_ADD_TERMS(lane, i, count, tx_exp(chunk[i] - base));
    }
    return greatest + logf(tx_fold(lane));
}

static float logit_of(const tx_cpu_call *call, int64_t at)
{
    float logit;
    return *tx_run_of(call->in[0], call->command->in[0].dtype, at, 1, &logit);
}

/* Returns the sum of `count` logits from element `at` on, divided by `all`. */
static float mean_logit(const void *x, tx_dtype type, int64_t at, int64_t count, int64_t all)
{
    float lane[TX_LANES] = {0}, piece[TX_PIECE];
    for (int64_t end = at + count, run; at < end; at += run) {
        run = tx_run_length(type, end - at);
        const float *values = tx_run_of(x, type, at, run, piece);
        TX_ADD_TERMS(lane, i, run, values[i]);
    }
    return tx_fold(lane) / (float)all;
}

/* Returns the columns of all ranks. */
static int64_t all_columns(const tx_cpu_call *call)
{
    return call->command->attrs.rows ? call->command->attrs.rows : call->command->attrs.vocab;
}

/* Returns the loss of a row of the logits (operand 0) and its log-sum-exp. The loss of an ignored row is 0. */
static float loss_of_row(const tx_cpu_call *call, int64_t row, int64_t width, int32_t label, float *lse)
{
    const int64_t at = row * width, vocab = call->command->attrs.vocab;
    const tx_dtype type = call->command->in[0].dtype;
    const float smoothing = call->command->attrs.smoothing;
    *lse = log_sum_exp(call->in[0], type, at, vocab, 1.0f);
    if (label == TX_IGNORE_LABEL)
        return 0.0f;
    const bool elsewhere = label < 0 && call->command->attrs.rows;
    if (!elsewhere && (label < 0 || label >= vocab)) /* invalid label: read nothing outside the row */
        return NAN;
    const float logit = elsewhere ? 0.0f : logit_of(call, at + label);
    if (smoothing > 0.0f)
        return *lse - (1.0f - smoothing) * logit -
               smoothing * mean_logit(call->in[0], type, at, vocab, all_columns(call));
    return *lse - logit;
}

TX_ROWS(cross_entropy, in[0])
{
    const int32_t *labels = call->in[1];
    float *losses = call->out[0], *lse = call->out[1];
    losses[row] = loss_of_row(call, row, width, labels[row], &lse[row]);
}

/* dx = (exp(x - base) - share) d for `count` columns from element `at` on. */
static void logit_slopes(const tx_cpu_call *call, int64_t at, int64_t count, float base, float share, float d)
{
    const tx_dtype type = call->command->in[0].dtype;
    float piece[TX_PIECE];
    for (int64_t end = at + count, run; at < end; at += run) {
        run = tx_run_length(type, end - at);
        const float *x = tx_run_of(call->in[0], type, at, run, piece);
        float *dx = tx_run_to(call->out[0], type, at, piece);
        TX_SIMD for (int64_t i = 0; i < run; i++) dx[i] = (tx_exp(x[i] - base) - share) * d;
        tx_run_put(call->out[0], dx, type, at, run);
    }
}

/* Zeroes the gradients of the whole row if its label is ignored, and returns false. Otherwise zeroes those of the
 * columns beyond the vocabulary. */
static bool begin_gradients(const tx_cpu_call *call, int64_t row, int64_t width, int32_t label)
{
    const int64_t from = label == TX_IGNORE_LABEL ? 0 : call->command->attrs.vocab;
    const int64_t size = (int64_t)tx_dtype_size(call->command->out[0].dtype);
    memset((char *)call->out[0] + (row * width + from) * size, 0, (size_t)((width - from) * size));
    return from > 0;
}

/* Computes the gradient of a row of logits from the gradient `d` of its loss. */
static void gradient_of_row(const tx_cpu_call *call, int64_t row, int64_t width, int32_t label, float lse, float d)
{
    const int64_t vocab = call->command->attrs.vocab;
    const float smoothing = call->command->attrs.smoothing, share = smoothing / (float)all_columns(call);
    const bool known = label >= 0 && label < vocab;
    const float hit =
        known ? (tx_exp(logit_of(call, row * width + label) - lse) - share - (1.0f - smoothing)) * d : 0.0f;
    if (!begin_gradients(call, row, width, label))
        return;
    logit_slopes(call, row * width, vocab, lse, share, d);
    if (known)
        tx_narrow(call->out[0], &hit, call->command->out[0].dtype, row * width + label, 1);
}

TX_ROWS(cross_entropy_grad, in[0])
{
    const float *dlosses = call->in[1], *lse = call->in[3];
    const int32_t *labels = call->in[2];
    gradient_of_row(call, row, width, labels[row], lse[row], dlosses[row]);
}

/* The row is still in the cache when its gradient overwrites it. */
TX_ROWS(fused_classifier, in[0])
{
    const float *dlosses = call->in[1];
    const int32_t *labels = call->in[2];
    float *losses = call->out[1], lse;
    losses[row] = loss_of_row(call, row, width, labels[row], &lse);
    gradient_of_row(call, row, width, labels[row], lse, dlosses[row]);
}

/* Each piece of the row is in the cache when it is read for the next sum. */
TX_ROWS(token_statistics, in[0])
{
    const tx_dtype type = call->command->in[0].dtype;
    const int64_t vocab = call->command->attrs.vocab, at = row * width;
    const int32_t label = ((const int32_t *)call->in[1])[row];
    const float lse = ((const float *)call->in[2])[row];
    float entropy[TX_LANES] = {0}, sum[TX_LANES] = {0}, squares[TX_LANES] = {0}, p[TX_PIECE], piece[TX_PIECE];
    float before = -INFINITY, greatest = -INFINITY, *const *out = (float *const *)call->out;
    if (label < 0 || label >= vocab) {
        for (int i = 0; i < 4; i++)
            out[i][row] = 0.0f;
        return;
    }
    for (int64_t first = 0; first < vocab; first += TX_PIECE) {
        const int64_t run = tx_min(vocab - first, TX_PIECE);
        const float *x = tx_run_of(call->in[0], type, at + first, run, piece);
        TX_SIMD for (int64_t i = 0; i < run; i++) p[i] = tx_exp(x[i] - lse);
        TX_ADD_TERMS(entropy, i, run, p[i] * (lse - x[i]));
        TX_ADD_TERMS(sum, i, run, x[i]);
        TX_ADD_TERMS(squares, i, run, p[i] * p[i]);
        greatest = fmaxf(greatest, tx_greatest(x, run));
        if (first < label)
            before = fmaxf(before, tx_greatest(x, tx_min(label - first, run)));
    }
    const float logit = logit_of(call, at + label);
    out[0][row] = tx_fold(entropy);
    out[1][row] = tx_fold(sum) / (float)vocab;
    out[2][row] = before < logit && greatest <= logit ? 1.0f : 0.0f;
    out[3][row] = logf(tx_fold(squares));
}

TX_ROWS(token_entropy_grad, in[0])
{
    const tx_dtype type = call->command->in[0].dtype;
    const int64_t vocab = call->command->attrs.vocab;
    const int32_t label = ((const int32_t *)call->in[2])[row];
    const float d = ((const float *)call->in[1])[row], lse = ((const float *)call->in[3])[row],
                entropy = ((const float *)call->in[4])[row];
    float piece[TX_PIECE];
    if (!begin_gradients(call, row, width, label < 0 || label >= vocab ? TX_IGNORE_LABEL : label))
        return;
    for (int64_t at = row * width, end = at + vocab, run; at < end; at += run) {
        run = tx_run_length(type, end - at);
        const float *x = tx_run_of(call->in[0], type, at, run, piece);
        float *dx = tx_run_to(call->out[0], type, at, piece);
        TX_SIMD for (int64_t i = 0; i < run; i++) dx[i] = -tx_exp(x[i] - lse) * (x[i] - lse + entropy) * d;
        tx_run_put(call->out[0], dx, type, at, run);
    }
}

/* ---- Distillation ------------------------------------------------------------------------------------ */

/* The state of a row: log-sum-exp of its logits, of its logits over T, and of the teacher's logits over T. */
typedef struct distilled {
    const void *x, *teacher;
    tx_dtype type;
    int64_t at, vocab;
    float temperature, inverse, alpha;
    float lse, own, others;
} distilled;

static distilled begin_distilled(const tx_cpu_call *call, const void *teacher, int64_t at)
{
    const tx_operand *x = &call->command->in[0];
    const tx_attrs *a = &call->command->attrs;
    distilled d = {.x = call->in[0],
                   .teacher = teacher,
                   .type = x->dtype,
                   .at = at,
                   .vocab = a->vocab,
                   .temperature = a->scale,
                   .inverse = 1.0f / a->scale,
                   .alpha = a->alpha};
    d.lse = log_sum_exp(d.x, d.type, d.at, d.vocab, 1.0f);
    d.own = log_sum_exp(d.x, d.type, d.at, d.vocab, d.inverse);
    d.others = log_sum_exp(d.teacher, d.type, d.at, d.vocab, d.inverse);
    return d;
}

static inline float divergence_term(float log_q, float log_p)
{
    return tx_exp(log_q) * (log_q - log_p);
}

/* Returns the sum of q (log q - log p) over the vocabulary. */
static float divergence(const distilled *d)
{
    float lane[TX_LANES] = {0}, piece[TX_PIECE], other[TX_PIECE];
    for (int64_t at = d->at, end = d->at + d->vocab, run; at < end; at += run) {
        run = tx_run_length(d->type, end - at);
        const float *x = tx_run_of(d->x, d->type, at, run, piece), *t = tx_run_of(d->teacher, d->type, at, run, other);
        TX_ADD_TERMS(lane, i, run, divergence_term(t[i] * d->inverse - d->others, x[i] * d->inverse - d->own));
    }
    return tx_fold(lane);
}

TX_ROWS(distillation, in[0])
{
    const int32_t label = ((const int32_t *)call->in[2])[row];
    float *loss = (float *)call->out[0] + row;
    *loss = label == TX_IGNORE_LABEL ? 0.0f : NAN;
    if (label < 0 || label >= call->command->attrs.vocab)
        return;
    const distilled d = begin_distilled(call, call->in[1], row * width);
    *loss = d.alpha * (d.lse - logit_of(call, d.at + label)) +
            (1.0f - d.alpha) * d.temperature * d.temperature * divergence(&d);
}

/* Computes the gradient of a row of logits from the gradient `g` of its loss. */
static void distilled_slopes(const tx_cpu_call *call, const distilled *d, float g)
{
    const float hard = d->alpha * g, soft = (1.0f - d->alpha) * d->temperature * g;
    float piece[TX_PIECE], other[TX_PIECE];
    for (int64_t at = d->at, end = d->at + d->vocab, run; at < end; at += run) {
        run = tx_run_length(d->type, end - at);
        const float *x = tx_run_of(d->x, d->type, at, run, piece), *t = tx_run_of(d->teacher, d->type, at, run, other);
        float *dx = tx_run_to(call->out[0], d->type, at, piece);
        TX_SIMD for (int64_t i = 0; i < run; i++) dx[i] =
            hard * tx_exp(x[i] - d->lse) +
            soft * (tx_exp(x[i] * d->inverse - d->own) - tx_exp(t[i] * d->inverse - d->others));
        tx_run_put(call->out[0], dx, d->type, at, run);
    }
}

TX_ROWS(distillation_grad, in[0])
{
    const float g = ((const float *)call->in[1])[row];
    const int32_t label = ((const int32_t *)call->in[3])[row];
    if (!begin_gradients(call, row, width, label))
        return;
    const distilled d = begin_distilled(call, call->in[2], row * width);
    const bool known = label >= 0 && label < d.vocab;
    float hit = 0.0f, t;
    if (known) {
        const float x = logit_of(call, d.at + label);
        t = *tx_run_of(d.teacher, d.type, d.at + label, 1, &t);
        hit = d.alpha * g * (tx_exp(x - d.lse) - 1.0f) +
              (1.0f - d.alpha) * d.temperature * g * (tx_exp(x * d.inverse - d.own) - tx_exp(t * d.inverse - d.others));
    }
    distilled_slopes(call, &d, g);
    if (known)
        tx_narrow(call->out[0], &hit, d.type, d.at + label, 1);
}
