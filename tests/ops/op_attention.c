/* SPDX-License-Identifier: Apache-2.0
 * Attention, its gradient and the cached form: references with whole rows of probabilities, and cases. */
#include "backends/rng.h"
#include "tests/ops/case.h"
#include "tests/ops/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of a call, and offsets in its packed operand. */
typedef struct layout {
    int64_t batch, time, heads, kv_heads, size, row; /* row: elements of a row of qkv */
    double scale, cap;
} layout;

static layout layout_of(const tx_array *qkv, const tx_attrs *attrs)
{
    layout l = {.batch = qkv->shape.dim[0],
                .time = qkv->shape.dim[1],
                .heads = attrs->attention.heads,
                .kv_heads = attrs->attention.kv_heads,
                .row = qkv->shape.dim[2],
                .scale = attrs->scale,
                .cap = attrs->attention.cap};
    l.size = l.row / (l.heads + 2 * l.kv_heads);
    return l;
}

static int64_t query_at(const layout *l, int64_t b, int64_t t, int64_t h)
{
    return (b * l->time + t) * l->row + h * l->size;
}

static int64_t key_at(const layout *l, int64_t b, int64_t t, int64_t h)
{
    return (b * l->time + t) * l->row + (l->heads + h / (l->heads / l->kv_heads)) * l->size;
}

static int64_t value_at(const layout *l, int64_t b, int64_t t, int64_t h)
{
    return key_at(l, b, t, h) + l->kv_heads * l->size;
}

/* Returns the first key that query t attends to; the query is at `place`. `starts` is absent, or follows `lengths` in
 * the call. */
static int64_t first_seen(const tx_call *call, const tx_array *starts, const layout *l, int64_t b, int64_t t,
                          int64_t place)
{
    const double from = starts && tx_array_present(starts) ? starts->value[b * l->time + t] : 0.0;
    const int64_t start = (int64_t)fmin(from, (double)place), window = call->attrs.attention.window;
    if (call->attrs.attention.chunked)
        return start + (place - start) / window * window;
    return window > 0 && place - window + 1 > start ? place - window + 1 : start;
}

/* The end of the keys that query t sees; 0 for rows beyond the length. */
static int64_t keys_seen(const tx_call *call, const tx_array *lengths, const layout *l, int64_t b, int64_t t)
{
    int64_t length = tx_array_present(lengths) ? (int64_t)lengths->value[b] : l->time;
    if (t >= length)
        return 0;
    return call->attrs.attention.causal && t + 1 < length ? t + 1 : length;
}

/* Factor of a probability under dropout: 0 or 1 / (1 - p). */
static double kept(const tx_call *call, int64_t b, int64_t h, int64_t query, int64_t key)
{
    if (!(call->attrs.draw.p > 0.0f))
        return 1.0;
    const tx_word *w = call->controls.word;
    tx_random r = tx_draw(w[TX_CONTROL_SEED_LO].u32, w[TX_CONTROL_SEED_HI].u32, w[TX_CONTROL_STEP].u32,
                          w[TX_CONTROL_SAMPLE].u32 + (uint32_t)b, (uint32_t)call->attrs.draw.site,
                          (uint32_t)(call->attrs.first + h), (uint32_t)(call->attrs.draw.row + query),
                          (uint32_t)(call->attrs.draw.column + key) >> 2);
    return r.word[key & 3] >= tx_dropout_threshold(call->attrs.draw.p) ? 1.0 / (1.0 - (double)call->attrs.draw.p) : 0.0;
}

/* Scaled and capped scores of one query against n keys `step` elements apart, and their magnitudes. `sink` is that of
 * the head, or -INFINITY. Returns log-sum-exp. */
static double scores(const double *q, const double *k, int64_t n, int64_t step, const layout *l, double sink,
                     double *score, double *magnitude)
{
    double top = sink, sum = 0.0;
    for (int64_t j = 0; j < n; j++) {
        score[j] = l->scale * tx_number_dot(q, k + j * step, l->size, &magnitude[j]);
        magnitude[j] *= fabs(l->scale);
        if (l->cap > 0.0) {
            score[j] = l->cap * tanh(score[j] / l->cap);
            magnitude[j] += l->cap; /* near 0 tanh may be a difference of numbers near 1 */
        }
        top = fmax(top, score[j]);
    }
    for (int64_t j = 0; j < n; j++)
        sum += exp(score[j] - top);
    sum += exp(sink - top);
    return top + log(sum);
}

static double sink_of(const tx_array *sinks, int64_t head)
{
    return tx_array_present(sinks) ? sinks->value[head] : -INFINITY;
}

/* Backends may round weights and their gradients to the operands' 16 bits before the products, except in attention with
 * caches. Returns the addition to the magnitude of a sum, four times the standard deviation; `squares` is the sum of
 * the terms' squares. */
static double coarse(const tx_call *call, tx_dtype dtype, double squares)
{
    if (dtype == TX_F32 || call->op == TX_OP_ATTENTION_CACHED)
        return 0.0;
    return 4.0 * tx_number_epsilon(dtype) * sqrt(squares) / tx_check_rounding(tx_descriptor_of(call->op)->length(call));
}

/* One output row o = sum of weight[j] v[j]; `extra` is how much weights err relative to rounding. */
static void weighted_sum(const tx_call *call, tx_array *out, int64_t at, const double *weight, const double *extra,
                         const double *v, int64_t n, int64_t step, int64_t size)
{
    for (int64_t i = 0; i < size; i++) {
        double sum = 0.0, magnitude = 0.0, squares = 0.0;
        for (int64_t j = 0; j < n; j++) {
            const double term = weight[j] * v[j * step + i];
            sum += term;
            magnitude += fabs(term) * extra[j];
            squares += term * term;
        }
        tx_array_put(out, at + i, sum, magnitude + coarse(call, out->dtype, squares));
    }
}

static void attention_reference(tx_call *call)
{
    layout l = layout_of(&call->in[0], &call->attrs);
    const double *x = call->in[0].value;
    double *p = calloc((size_t)l.time * 2, sizeof *p), *extra = p ? p + l.time : NULL;
    for (int64_t i = 0; p && i < l.batch * l.heads * l.time; i++) {
        int64_t b = i / (l.heads * l.time), h = i / l.time % l.heads, t = i % l.time;
        int64_t first = first_seen(call, &call->in[2], &l, b, t, t);
        int64_t n = keys_seen(call, &call->in[1], &l, b, t) - first;
        double lse = 0.0, lse_magnitude = 0.0;
        if (n > 0)
            lse = scores(x + query_at(&l, b, t, h), x + key_at(&l, b, first, h), n, l.row, &l, sink_of(&call->in[3], h),
                         p, extra);
        for (int64_t j = 0; j < n; j++) {
            double probability = exp(p[j] - lse);
            lse_magnitude += probability * extra[j];
            extra[j] += 1.0 + fabs(lse);
            p[j] = probability * kept(call, b, h, t, first + j);
        }
        tx_array_put(&call->out[1], i, lse, n > 0 ? 1.0 + fabs(lse) + lse_magnitude : 0.0);
        weighted_sum(call, &call->out[0], ((b * l.time + t) * l.heads + h) * l.size, p, extra,
                     x + value_at(&l, b, first, h), n, l.row, l.size);
    }
    free(p);
}

static void attention_outputs(tx_call *call)
{
    layout l = layout_of(&call->in[0], &call->attrs);
    call->out[0] = (tx_array){.dtype = call->in[0].dtype, .shape = TX_SHAPE(l.batch, l.time, l.heads * l.size)};
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(l.batch, l.heads, l.time)};
}

static double attention_length(const tx_call *call)
{
    const tx_array *qkv = &call->in[call->op == TX_OP_ATTENTION_GRAD ? 1 : 0];
    layout l = layout_of(qkv, &call->attrs);
    return (double)((l.time + l.size) * (l.heads / l.kv_heads));
}

/* ---- Gradient --------------------------------------------------------------------------------- */

static void add_scaled(tx_array *out, double *squares, int64_t at, double factor, double factor_magnitude,
                       const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out->value[at + i] += factor * x[i];
        out->magnitude[at + i] += factor_magnitude * fabs(x[i]);
        squares[at + i] += factor * x[i] * factor * x[i];
    }
}

/* Contributions of one query row: dv += p do, ds = p (dp - D), dq += scale ds k, dk += scale ds q. */
static void gradient_row(tx_call *call, double *squares, const layout *l, int64_t b, int64_t h, int64_t t,
                         double *score, double *extra)
{
    tx_array *dx = &call->out[0];
    const double *x = call->in[1].value;
    int64_t first = first_seen(call, &call->in[5], l, b, t, t);
    int64_t n = keys_seen(call, &call->in[4], l, b, t), row = ((b * l->time + t) * l->heads + h) * l->size;
    const double *dy = call->in[0].value + row, *o = call->in[2].value + row;
    double lse = call->in[3].value[(b * l->heads + h) * l->time + t], d_magnitude;
    double d = tx_number_dot(dy, o, l->size, &d_magnitude);
    if (n > 0)
        scores(x + query_at(l, b, t, h), x + key_at(l, b, 0, h), n, l->row, l, -INFINITY, score, extra);
    for (int64_t j = first; j < n; j++) {
        double p = exp(score[j] - lse), keep = kept(call, b, h, t, j), dp_magnitude;
        double grow = 1.0 + extra[j] + fabs(lse);
        double dp = keep * tx_number_dot(dy, x + value_at(l, b, j, h), l->size, &dp_magnitude);
        double slope = l->cap > 0.0 ? 1.0 - score[j] / l->cap * score[j] / l->cap : 1.0;
        double ds = l->scale * p * (dp - d) * slope;
        double ds_magnitude = fabs(l->scale) * p * (keep * dp_magnitude + d_magnitude) * grow;
        add_scaled(dx, squares, value_at(l, b, j, h), p * keep, p * keep * grow, dy, l->size);
        add_scaled(dx, squares, query_at(l, b, t, h), ds, ds_magnitude, x + key_at(l, b, j, h), l->size);
        add_scaled(dx, squares, key_at(l, b, j, h), ds, ds_magnitude, x + query_at(l, b, t, h), l->size);
    }
}

static void attention_grad_reference(tx_call *call)
{
    layout l = layout_of(&call->in[1], &call->attrs);
    const int64_t count = call->out[0].count;
    double *score = calloc((size_t)(l.time * 2 + count), sizeof *score), *squares = score ? score + 2 * l.time : NULL;
    for (int64_t i = 0; i < count; i++)
        tx_array_put(&call->out[0], i, 0.0, 0.0);
    for (int64_t i = 0; score && i < l.batch * l.heads * l.time; i++)
        gradient_row(call, squares, &l, i / (l.heads * l.time), i / l.time % l.heads, i % l.time, score,
                     score + l.time);
    for (int64_t i = 0; score && i < count; i++)
        call->out[0].magnitude[i] += coarse(call, call->out[0].dtype, squares[i]);
    free(score);
}

static void attention_grad_outputs(tx_call *call)
{
    layout l = layout_of(&call->in[1], &call->attrs);
    call->out[0] = (tx_array){.dtype = call->in[1].dtype, .shape = call->in[1].shape};
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(l.batch, l.heads, l.time)};
}

/* ---- Cached ----------------------------------------------------------------------------------- */

static void attention_cached_reference(tx_call *call)
{
    layout l = layout_of(&call->in[0], &call->attrs);
    int64_t capacity = call->in[1].shape.dim[1], row = l.kv_heads * l.size;
    double *p = calloc((size_t)capacity * 2, sizeof *p), *extra = p ? p + capacity : NULL;
    double *keys = tx_array_blocks(&call->in[1]), *values = tx_array_blocks(&call->in[2]);
    const double *k = keys ? keys : call->in[1].value, *v = values ? values : call->in[2].value;
    for (int64_t i = 0; p && i < l.batch * l.time * l.heads; i++) {
        int64_t b = i / (l.time * l.heads), t = i / l.heads % l.time, h = i % l.heads;
        int64_t place = tx_position_of(&call->in[3], b, capacity, l.time) + t;
        int64_t first = first_seen(call, NULL, &l, b, t, place), n = place + 1 - first,
                at = (tx_slot_of(&call->in[4], b, call->in[1].shape.dim[0]) * capacity + first) * row +
                     h / (l.heads / l.kv_heads) * l.size;
        double lse =
            scores(call->in[0].value + query_at(&l, b, t, h), k + at, n, row, &l, sink_of(&call->in[5], h), p, extra);
        for (int64_t j = 0; j < n; j++) {
            p[j] = exp(p[j] - lse);
            extra[j] += 1.0 + fabs(lse);
        }
        weighted_sum(call, &call->out[0], i * l.size, p, extra, v + at, n, row, l.size);
    }
    free(values);
    free(keys);
    free(p);
}

static void attention_cached_outputs(tx_call *call)
{
    layout l = layout_of(&call->in[0], &call->attrs);
    call->out[0] = (tx_array){.dtype = call->in[0].dtype, .shape = TX_SHAPE(l.batch, l.time, l.heads * l.size)};
}

/* ---- Cases ------------------------------------------------------------------------------------ */

typedef struct variant {
    int32_t batch, time, heads, kv_heads, size;
    bool causal, lengths;
    float p;
} variant;

static const variant variants[] = {
    {1, 1, 1, 1, 8, true, false, 0.0f},    {2, 5, 2, 2, 8, false, false, 0.0f},   {1, 17, 3, 3, 16, true, false, 0.0f},
    {2, 15, 4, 2, 8, true, false, 0.0f},   {2, 33, 2, 1, 32, false, true, 0.0f},  {3, 16, 2, 2, 16, true, true, 0.0f},
    {1, 65, 2, 2, 64, true, false, 0.0f},  {1, 64, 1, 1, 64, false, false, 0.0f}, {1, 129, 1, 1, 24, true, false, 0.0f},
    {1, 31, 2, 1, 128, true, false, 0.0f}, {1, 19, 1, 1, 256, true, false, 0.0f}, {2, 18, 2, 2, 8, true, false, 0.25f},
    {2, 37, 4, 2, 16, false, true, 0.5f},  {1, 70, 6, 3, 12, true, true, 0.1f},   {1, 20, 1, 1, 80, false, false, 0.0f},
    {1, 63, 1, 1, 32, true, false, 0.0f},  {1, 64, 2, 1, 72, true, false, 0.0f},  {1, 65, 1, 1, 80, false, false, 0.0f},
    {1, 127, 1, 1, 96, true, false, 0.0f}, {1, 129, 2, 2, 64, true, false, 0.2f}, {2, 65, 8, 2, 32, true, true, 0.0f},
    {3, 66, 1, 1, 64, false, true, 0.3f},  {1, 67, 1, 1, 128, true, false, 0.0f}, {1, 66, 2, 1, 256, true, false, 0.0f},
    {1, 66, 2, 1, 10, true, false, 0.0f},  {1, 1, 2, 2, 64, false, false, 0.0f},
};

/* Keys are bounded from below. A negative window stands for chunks. */
static const struct {
    variant v;
    int32_t window;
    bool starts;
} bounded[] = {
    {{1, 130, 2, 1, 16, true, false, 0.0f}, 7, false},   {{1, 200, 2, 2, 32, true, false, 0.0f}, 64, false},
    {{1, 65, 1, 1, 64, true, false, 0.0f}, 1, false},    {{2, 70, 1, 1, 24, true, false, 0.0f}, 1000, false},
    {{2, 150, 4, 2, 12, true, true, 0.2f}, 33, false},   {{2, 129, 2, 1, 16, true, false, 0.0f}, 0, true},
    {{3, 300, 1, 1, 8, true, true, 0.0f}, 0, true},      {{2, 260, 3, 1, 20, true, false, 0.3f}, 0, true},
    {{2, 193, 4, 2, 72, true, true, 0.1f}, 50, true},    {{1, 130, 2, 1, 16, true, false, 0.0f}, -7, false},
    {{1, 200, 2, 2, 32, true, false, 0.0f}, -64, false}, {{2, 193, 4, 2, 72, true, true, 0.1f}, -50, true},
};
/* Gives case i a cap, or sinks, or both. */
static void cap_and_sink(tx_case *c, size_t i, int32_t sinks)
{
    const bool has_sinks = sinks > 0 && i % 2 == 1;
    const size_t length = strlen(c->label);
    c->attrs.attention.cap = i % 3 == 1 ? 1.5f : i % 3 == 2 ? 0.6f : 0.0f;
    if (has_sinks)
        c->in[sinks] = tx_spec_real(TX_SHAPE(c->attrs.attention.heads));
    snprintf(c->label + length, sizeof c->label - length, "%s%s", i % 3 ? " cap" : "", has_sinks ? " sinks" : "");
}
#define BOUNDED (sizeof bounded / sizeof bounded[0])
static const variant big = {4, 1024, 12, 12, 64, true, false, 0.0f};

static tx_case *add_variant(tx_cases *list, const variant *v)
{
    tx_case *c = tx_case_add(list, "b%d t%d h%d/%d d%d%s%s%s", v->batch, v->time, v->heads, v->kv_heads, v->size,
                             v->causal ? " causal" : "", v->lengths ? " lengths" : "", v->p > 0.0f ? " dropout" : "");
    c->attrs.attention.heads = v->heads;
    c->attrs.attention.kv_heads = v->kv_heads;
    c->attrs.attention.causal = v->causal;
    c->attrs.draw.p = v->p;
    c->attrs.draw.site = 11;
    c->attrs.first = v->heads > 2 ? 9 : 0;     /* heads of a model of which others have those before */
    c->attrs.draw.row = v->heads > 2 ? 77 : 0; /* likewise queries, and keys */
    c->attrs.draw.column = v->heads > 2 ? 36 : 0;
    c->attrs.scale = 1.0f / sqrtf((float)v->size);
    return c;
}

static tx_shape packed(const variant *v)
{
    return TX_SHAPE(v->batch, v->time, (v->heads + 2 * v->kv_heads) * v->size);
}

static tx_spec qkv_spec(const variant *v)
{
    tx_spec s = tx_spec_real(packed(v));
    s.lo = -2.0;
    s.hi = 2.0;
    return s;
}

/* Full lengths, 0 (a padding row) and values between; 1 if there is only one row. */
static tx_spec lengths_spec(const variant *v)
{
    return tx_spec_of(TX_I32, TX_SHAPE(v->batch), TX_FILL_LENGTHS, v->batch > 2 ? 0 : 1,
                      v->batch > 1 ? v->time : v->time - 3);
}

/* Bounds a case by row i; values of operand `starts` may be greater than the position. */
static void bound(tx_case *c, size_t i, int32_t starts)
{
    const variant *v = &bounded[i].v;
    const size_t length = strlen(c->label);
    snprintf(c->label + length, sizeof c->label - length, " window %d%s", bounded[i].window,
             bounded[i].starts ? " starts" : "");
    c->attrs.attention.window = abs(bounded[i].window);
    c->attrs.attention.chunked = bounded[i].window < 0;
    c->flags |= bounded[i].window == 1 ? TX_CASE_ZEROS : 0u; /* one key, as with a single token */
    if (bounded[i].starts)
        c->in[starts] = tx_spec_of(TX_I32, TX_SHAPE(v->batch, v->time), TX_FILL_STARTS, 0.0, v->time);
}

static void add_attention(tx_cases *list, const variant *v)
{
    tx_case *c = add_variant(list, v);
    c->in[0] = qkv_spec(v);
    if (v->lengths) {
        c->in[1] = lengths_spec(v);
        c->flags |= TX_CASE_ZEROS;
    }
}

static void attention_cases(tx_cases *list)
{
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        add_attention(list, &variants[i]);
    for (size_t i = 0; i < BOUNDED; i++) {
        add_attention(list, &bounded[i].v);
        bound(&list->item[list->count - 1], i, 2);
        cap_and_sink(&list->item[list->count - 1], i % 4 == 1 ? i : 0, 3);
    }
    for (size_t i = 1; i < sizeof variants / sizeof variants[0]; i += 4) {
        add_attention(list, &variants[i]);
        cap_and_sink(&list->item[list->count - 1], i, 3);
    }
    tx_case_chunks(list);
    add_attention(list, &variants[1]);
    list->item[list->count - 1].in[0].fill = TX_FILL_NAN;
    add_attention(list, &variants[2]);
    list->item[list->count - 1].attrs.scale = 3.0f;
    tx_case_half(list, 1, false);
    add_attention(list, &big);
    list->item[list->count - 1].flags |= TX_CASE_BENCH;
}

static void add_gradient(tx_cases *list, const variant *v)
{
    tx_case *c = add_variant(list, v);
    tx_shape o = TX_SHAPE(v->batch, v->time, v->heads * v->size);
    c->in[0] = tx_spec_real(o);
    c->in[1] = qkv_spec(v);
    c->flags |= v->time == 1 ? TX_CASE_ZEROS : 0u; /* one key: its probability is 1, whatever the scores */
    c->in[2] = tx_spec_derived(o);
    c->in[3] = tx_spec_derived(TX_SHAPE(v->batch, v->heads, v->time));
    if (v->lengths) {
        c->in[4] = lengths_spec(v);
        c->flags |= TX_CASE_ZEROS;
    }
}

static void attention_grad_cases(tx_cases *list)
{
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        add_gradient(list, &variants[i]);
    for (size_t i = 0; i < BOUNDED; i++) {
        add_gradient(list, &bounded[i].v);
        bound(&list->item[list->count - 1], i, 5);
        cap_and_sink(&list->item[list->count - 1], i % 4 == 1 ? i : 0, 0);
    }
    for (size_t i = 1; i < sizeof variants / sizeof variants[0]; i += 4) {
        add_gradient(list, &variants[i]);
        cap_and_sink(&list->item[list->count - 1], i, 0);
    }
    tx_case_chunks(list);
    tx_case_half(list, 7, false);
    add_gradient(list, &big);
    list->item[list->count - 1].flags |= TX_CASE_BENCH;
}

static void attention_cached_cases(tx_cases *list)
{
    static const struct {
        variant v;
        int32_t capacity, first, last, window; /* positions; as in `bounded` */
        int32_t rows;                          /* of the caches, with slots of -1 to `rows`; 0 means no slots */
    } cached[] = {
        {{1, 1, 1, 1, 8, true, false, 0.0f}, 1, 0, 0, 0, 0},
        {{2, 1, 4, 2, 16, true, false, 0.0f}, 33, 0, 17, 0, 0},
        {{1, 5, 2, 2, 64, true, false, 0.0f}, 64, 59, 59, 0, 0},
        {{2, 17, 3, 1, 24, true, false, 0.0f}, 40, 0, 23, 0, 0},
        {{1, 1, 2, 1, 256, true, false, 0.0f}, 130, 128, 128, 0, 0},
        {{1, 1, 8, 4, 8, true, false, 0.0f}, 512, 0, 300, 0, 0},
        {{5, 1, 4, 4, 32, true, false, 0.0f}, 100, 0, 99, 0, 0},
        {{3, 5, 4, 2, 20, true, false, 0.0f}, 90, -7, 86, 0, 0},
        {{4, 2, 2, 2, 64, true, false, 0.0f}, 200, 1, 160, 0, 0},
        {{1, 1, 2, 1, 8, true, false, 0.0f}, 9000, 0, 8999, 0, 0},
        {{1, 70, 2, 1, 80, true, false, 0.0f}, 150, 60, 60, 0, 0},
        {{2, 1, 4, 2, 32, true, false, 0.0f}, 200, 3, 150, 9, 0},
        {{2, 90, 2, 1, 16, true, false, 0.0f}, 300, 0, 205, 20, 0},
        {{1, 3, 2, 2, 24, true, false, 0.0f}, 250, 180, 180, 70, 0},
        {{2, 90, 2, 1, 16, true, false, 0.0f}, 300, 0, 205, -20, 0},
        {{3, 1, 4, 2, 32, true, false, 0.0f}, 100, 0, 99, 0, 7},
        {{1, 40, 2, 2, 16, true, false, 0.0f}, 90, 3, 50, 0, 4},
        {{1, 1, 12, 12, 64, true, false, 0.0f}, 1024, 0, 1000, 0, 0},
    };
    int32_t count = (int32_t)(sizeof cached / sizeof cached[0]);
    static const tx_dtype types[] = {TX_F32, TX_BF16, TX_F16, TX_F32, TX_BF16}; /* the last two with blocks of Q8_0 */
    for (int32_t k = 0; k < 5 * count; k++) {
        const int32_t i = k % count;
        const variant *v = &cached[i].v;
        if (k >= 3 * count && v->size % 32 != 0)
            continue;
        tx_case *c = add_variant(list, v);
        tx_shape cache =
            TX_SHAPE(cached[i].rows ? cached[i].rows : v->batch, cached[i].capacity, v->kv_heads * v->size);
        c->in[0] = qkv_spec(v);
        c->in[1] = c->in[2] = tx_spec_real(cache);
        c->in[0].dtype = c->in[1].dtype = c->in[2].dtype = types[k / count];
        c->in[1].arena = c->in[2].arena = TX_ARENA_STATE;
        if (k >= 3 * count)
            c->in[1] = c->in[2] = tx_spec_blocks(&cache);
        c->in[3] = tx_spec_positions(v->batch, cached[i].first, cached[i].last);
        if (cached[i].rows)
            c->in[4] = tx_spec_of(TX_I32, TX_SHAPE(v->batch), TX_FILL_INDEX, -1.0, cached[i].rows + 1.0);
        c->attrs.attention.window = abs(cached[i].window);
        c->attrs.attention.chunked = cached[i].window < 0;
        if (k % 4 == 1)
            cap_and_sink(c, (size_t)(k / 4), 5);
        c->flags |= i == count - 1 ? TX_CASE_BENCH : 0u;
    }
}

const tx_descriptor tx_descriptor_attention = {.cases = attention_cases,
                                               .outputs = attention_outputs,
                                               .reference = attention_reference,
                                               .length = attention_length};
const tx_descriptor tx_descriptor_attention_grad = {
    .cases = attention_grad_cases,
    .outputs = attention_grad_outputs,
    .reference = attention_grad_reference,
    .length = attention_length,
    .gradient = true,
    .forward = TX_OP_ATTENTION,
    .source = {TX_FROM_DY, TX_FROM_IN(0), TX_FROM_OUT(0), TX_FROM_OUT(1), TX_FROM_IN(1), TX_FROM_IN(2)},
    .gradient_of = {1, 0},
    .work = 2,
};
const tx_descriptor tx_descriptor_attention_cached = {.cases = attention_cached_cases,
                                                      .outputs = attention_cached_outputs,
                                                      .reference = attention_cached_reference,
                                                      .length = attention_length};
