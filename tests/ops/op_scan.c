/* SPDX-License-Identifier: Apache-2.0
 * Linear attention as a recurrence over tokens: references and cases. */
#include "backends/scan.h"
#include "tests/ops/case.h"

#include <stdlib.h>
#include <string.h>

static const tx_dtype floats[] = {TX_F32, TX_BF16, TX_F16};

/* ---- Linear attention ------------------------------------------------------------------------------------ */

/* A value head of a sample. */
typedef struct scan {
    tx_call *call;
    int x; /* index of operand qkv; rates, skip and starts follow */
    tx_scan s;
    int64_t b, head;
    bool cached; /* continues tokens before the first */
} scan;

static double part(const scan *r, int64_t t, int64_t at, int64_t size, int64_t head, int64_t i)
{
    return r->call->in[r->x].value[(r->b * r->s.time + t) * r->s.width + at + head * size + i];
}

/* The unnormalized q (or k) of a token, and 1 / its norm. */
static double inverse_norm(const scan *r, int64_t t, int64_t at)
{
    double squares = (double)r->call->attrs.eps;
    for (int64_t i = 0; i < r->s.k_size && squares > 0.0; i++)
        squares += pow(part(r, t, at, r->s.k_size, r->head / r->s.shared, i), 2.0);
    return squares > 0.0 ? 1.0 / sqrt(squares) : 1.0;
}

/* q (scaled) or k of a token. */
static void vector_of(const scan *r, int64_t t, int64_t at, double *x)
{
    const double factor = inverse_norm(r, t, at) * (at == r->s.q_at ? (double)r->call->attrs.scale : 1.0);
    for (int64_t i = 0; i < r->s.k_size; i++)
        x[i] = factor * part(r, t, at, r->s.k_size, r->head / r->s.shared, i);
}

static double rate_at(const scan *r, int64_t t, bool weight)
{
    const int64_t heads = r->s.v_heads;
    return r->call->in[r->x + 1].value[(r->b * r->s.time + t) * 2 * heads + (weight ? heads : 0) + r->head];
}

static bool begins(const scan *r, int64_t t)
{
    const tx_array *starts = &r->call->in[r->x + 3];
    if (r->cached)
        return false;
    return t == 0 || (tx_array_present(starts) && starts->value[r->b * r->s.time + t] >= (double)t);
}

/* What token t sees: the decayed state [k, v], its k, and err = v - [delta] S^T k. */
static void enter(const scan *r, int64_t t, double *state, double *k, double *err)
{
    const double keep = begins(r, t) ? 0.0 : exp(rate_at(r, t, false));
    vector_of(r, t, r->s.k_at, k);
    for (int64_t c = 0; c < r->s.v_size; c++) {
        err[c] = part(r, t, r->s.v_at, r->s.v_size, r->head, c);
        for (int64_t i = 0; i < r->s.k_size; i++) {
            double *cell = &state[i * r->s.v_size + c];
            *cell = begins(r, t) ? 0.0 : *cell * keep;
            err[c] -= r->call->attrs.scan.delta ? *cell * k[i] : 0.0;
        }
    }
}

/* S += k n^T */
static void write_state(const scan *r, double weight, const double *k, const double *err, double *state)
{
    for (int64_t i = 0; i < r->s.k_size * r->s.v_size; i++)
        state[i] += k[i / r->s.v_size] * weight * err[i % r->s.v_size];
}

/* Rounding errors of a recurrence are about as large as its results: the magnitude of each element is `factor` times
 * the root mean square of all, plus its own. */
static void set_magnitudes(tx_array *a, double factor)
{
    double squares = 0.0;
    for (int64_t i = 0; i < a->count; i++)
        squares += a->value[i] * a->value[i];
    for (int64_t i = 0; i < a->count; i++)
        a->magnitude[i] = factor * sqrt(squares / (double)a->count) + fabs(a->value[i]);
}

static double skip_of(const scan *r)
{
    const tx_array *skip = &r->call->in[r->x + 2];
    return tx_array_present(skip) ? skip->value[r->head] : 0.0;
}

/* Computes `count` tokens; `state` is that before them, then that after them. */
static void scan_head_forward(const scan *r, int64_t count, double *state)
{
    const int64_t size = r->s.v_size;
    double k[TX_SCAN_HEAD], q[TX_SCAN_HEAD], err[TX_SCAN_HEAD];
    for (int64_t t = 0; t < count; t++) {
        enter(r, t, state, k, err);
        write_state(r, rate_at(r, t, true), k, err, state);
        vector_of(r, t, r->s.q_at, q);
        for (int64_t c = 0; c < size; c++) {
            double sum = skip_of(r) * part(r, t, r->s.v_at, size, r->head, c);
            for (int64_t i = 0; i < r->s.k_size; i++)
                sum += q[i] * state[i * size + c];
            r->call->out[0].value[((r->b * r->s.time + t) * r->s.v_heads + r->head) * size + c] = sum;
        }
    }
}

static void scan_reference(tx_call *call)
{
    scan r = {.call = call, .s = tx_scan_of(&call->attrs, &call->in[0].shape)};
    for (r.b = 0; r.b < r.s.batch; r.b++)
        for (r.head = 0; r.head < r.s.v_heads; r.head++) {
            double *state = calloc((size_t)(r.s.k_size * r.s.v_size), sizeof *state);
            if (state)
                scan_head_forward(&r, r.s.time, state);
            free(state);
        }
    set_magnitudes(&call->out[0], 8.0);
}

static void scan_cached_reference(tx_call *call)
{
    scan r = {.call = call, .cached = true, .s = tx_scan_of(&call->attrs, &call->in[0].shape)};
    tx_array *states = &call->out[1];
    const int64_t cells = r.s.k_size * r.s.v_size;
    memset(call->out[0].value, 0, (size_t)call->out[0].count * sizeof(double));
    memcpy(states->value, call->in[3].value, (size_t)states->count * sizeof(double));
    for (r.b = 0; r.b < r.s.batch; r.b++) {
        const double *span = call->in[4].value + 3 * r.b;
        const int64_t row = (int64_t)fmin(span[0], (double)(states->shape.dim[0] - 1)),
                      count = (int64_t)fmin(span[2], (double)r.s.time);
        double *state = states->value + row * r.s.v_heads * cells;
        if (count > 0 && span[1] <= 0.0)
            memset(state, 0, (size_t)(r.s.v_heads * cells) * sizeof *state);
        for (r.head = 0; r.head < r.s.v_heads; r.head++)
            scan_head_forward(&r, count, state + r.head * cells);
    }
    set_magnitudes(&call->out[0], 8.0);
    set_magnitudes(states, 8.0);
    for (int64_t i = 0; i < states->count; i++) /* states that no token changes are exact */
        if (!(fabs(states->value[i] - call->in[3].value[i]) > 0.0))
            states->magnitude[i] = 0.0;
}

/* Adds the gradient of q or k (`at`) to that of qkv. */
static void put_vector(const scan *r, int64_t t, int64_t at, const double *d)
{
    const double factor = at == r->s.q_at ? (double)r->call->attrs.scale : 1.0, rho = inverse_norm(r, t, at);
    const int64_t key = r->head / r->s.shared;
    double along = 0.0;
    for (int64_t i = 0; i < r->s.k_size && r->call->attrs.eps > 0.0f; i++)
        along += d[i] * part(r, t, at, r->s.k_size, key, i) * rho;
    for (int64_t i = 0; i < r->s.k_size; i++)
        r->call->out[0].value[(r->b * r->s.time + t) * r->s.width + at + key * r->s.k_size + i] +=
            factor * rho * (d[i] - part(r, t, at, r->s.k_size, key, i) * rho * along);
}

/* A token of the backward recurrence. On entry `d` is the gradient of the state after it, on return of that before it.
 * `after` is the state after the token, `before` the one before it. */
static void scan_token_back(const scan *r, int64_t t, const double *before, const double *after, double *d)
{
    const int64_t size = r->s.v_size, row = r->b * r->s.time + t, heads = r->s.v_heads;
    const double weight = rate_at(r, t, true), keep = begins(r, t) ? 0.0 : exp(rate_at(r, t, false));
    double k[TX_SCAN_HEAD], q[TX_SCAN_HEAD], dk[TX_SCAN_HEAD] = {0}, dq[TX_SCAN_HEAD] = {0}, dweight = 0.0, dg = 0.0;
    vector_of(r, t, r->s.k_at, k);
    vector_of(r, t, r->s.q_at, q);
    for (int64_t c = 0; c < size; c++) {
        const double dy = r->call->in[0].value[(row * heads + r->head) * size + c],
                     v = part(r, t, r->s.v_at, size, r->head, c);
        double err = v, dn = 0.0;
        for (int64_t i = 0; i < r->s.k_size; i++) {
            d[i * size + c] += q[i] * dy;
            dq[i] += after[i * size + c] * dy;
            dn += d[i * size + c] * k[i];
            err -= r->call->attrs.scan.delta ? keep * before[i * size + c] * k[i] : 0.0;
        }
        dweight += dn * err;
        r->call->out[0].value[row * r->s.width + r->s.v_at + r->head * size + c] += weight * dn + skip_of(r) * dy;
        tx_array_add(&r->call->out[2], r->head, dy * v, 4.0 * fabs(dy * v));
        for (int64_t i = 0; i < r->s.k_size; i++) {
            dk[i] += d[i * size + c] * weight * err;
            if (r->call->attrs.scan.delta) {
                dk[i] -= keep * before[i * size + c] * weight * dn;
                d[i * size + c] -= k[i] * weight * dn;
            }
            dg += d[i * size + c] * keep * before[i * size + c];
            d[i * size + c] *= keep;
        }
    }
    put_vector(r, t, r->s.q_at, dq);
    put_vector(r, t, r->s.k_at, dk);
    r->call->out[1].value[row * 2 * heads + r->head] = dg;
    r->call->out[1].value[row * 2 * heads + heads + r->head] = dweight;
}

static void scan_head_backward(const scan *r)
{
    const int64_t cells = r->s.k_size * r->s.v_size;
    double *states = calloc((size_t)((r->s.time + 2) * cells), sizeof *states), k[TX_SCAN_HEAD], err[TX_SCAN_HEAD];
    for (int64_t t = 0; states && t < r->s.time; t++) {
        double *now = states + (t + 1) * cells;
        memcpy(now, now - cells, (size_t)cells * sizeof *now);
        enter(r, t, now, k, err);
        write_state(r, rate_at(r, t, true), k, err, now);
    }
    for (int64_t t = r->s.time - 1; states && t >= 0; t--)
        scan_token_back(r, t, states + t * cells, states + (t + 1) * cells, states + (r->s.time + 1) * cells);
    free(states);
}

static void scan_grad_reference(tx_call *call)
{
    scan r = {.call = call, .x = 1, .s = tx_scan_of(&call->attrs, &call->in[1].shape)};
    memset(call->out[0].value, 0, (size_t)call->out[0].count * sizeof(double));
    for (int64_t i = 0; i < call->out[2].count; i++)
        tx_array_put(&call->out[2], i, 0.0, 0.0);
    for (r.b = 0; r.b < r.s.batch; r.b++)
        for (r.head = 0; r.head < r.s.v_heads; r.head++)
            scan_head_backward(&r);
    set_magnitudes(&call->out[0], 8.0);
    set_magnitudes(&call->out[1], 32.0); /* g: differences of products */
}

static void scan_outputs(tx_call *call)
{
    const tx_scan s = tx_scan_of(&call->attrs, &call->in[0].shape);
    call->out[0] = (tx_array){.dtype = call->in[0].dtype, .shape = TX_SHAPE(s.batch, s.time, s.v_heads * s.v_size)};
}

static void scan_cached_outputs(tx_call *call)
{
    scan_outputs(call);
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = call->in[3].shape};
}

static void scan_grad_outputs(tx_call *call)
{
    const tx_scan s = tx_scan_of(&call->attrs, &call->in[1].shape);
    call->out[0] = (tx_array){.dtype = call->in[1].dtype, .shape = call->in[1].shape};
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = call->in[2].shape};
    if (call->attrs.sums)
        call->out[2] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(s.v_heads)};
    call->out[3] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(tx_scan_states(&s))};
    call->out[4] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(tx_scan_work(&s))};
}

TX_LENGTH(scan_length, call->in[0].shape.dim[1] + call->attrs.scan.k_size)

/* A case of this size; operands begin at input x. */
static tx_case *add_scan(tx_cases *list, int x, const int64_t n[6], tx_dtype dtype, bool delta, bool starts)
{
    const bool skip = !delta && n[3] != 1;
    tx_case *c = tx_case_add(list, "%s%s [%lld, %lld], heads %lld of %lld, %lld of %lld%s", tx_dtype_name(dtype),
                             delta ? " delta" : "", (long long)n[0], (long long)n[1], (long long)n[2], (long long)n[4],
                             (long long)n[3], (long long)n[5], starts ? ", starts" : "");
    c->in[x] = tx_spec_real(TX_SHAPE(n[0], n[1], 2 * n[2] * n[4] + n[3] * n[5]));
    c->in[x].dtype = dtype;
    c->in[x + 1] = tx_spec_of(TX_F32, TX_SHAPE(n[0], n[1], 2 * n[3]), TX_FILL_UNIFORM, -0.9, 0.1);
    if (skip)
        c->in[x + 2] = tx_spec_real(TX_SHAPE(n[3]));
    if (starts)
        c->in[x + 3] = tx_spec_of(TX_I32, TX_SHAPE(n[0], n[1]), TX_FILL_STARTS, 0.0, (double)n[1]);
    c->attrs.scan.k_heads = (int32_t)n[2];
    c->attrs.scan.v_heads = (int32_t)n[3];
    c->attrs.scan.k_size = (int32_t)n[4];
    c->attrs.scan.delta = delta;
    c->attrs.eps = delta ? 1e-6f : 0.0f;
    c->attrs.scale = delta ? 0.25f : 1.0f;
    if (x) {
        c->in[0] = tx_spec_real(TX_SHAPE(n[0], n[1], n[3] * n[5]));
        c->in[0].dtype = dtype;
        c->attrs.sums = skip ? 1u : 0u;
    }
    return c;
}

static void add_scans(tx_cases *list, int x)
{
    /* batch, time, key heads, value heads, and their elements */
    static const int64_t sizes[][6] = {{1, 1, 1, 1, 1, 1},    {1, 2, 1, 2, 3, 5},      {1, 63, 1, 2, 16, 8},
                                       {2, 64, 2, 2, 5, 17},  {1, 65, 2, 4, 33, 20},   {2, 150, 1, 3, 32, 40},
                                       {1, 300, 2, 6, 64, 7}, {1, 128, 1, 1, 256, 36}, {1, 70, 1, 70, 4, 4}};
    static const int64_t big[][6] = {{1, 2048, 16, 32, 128, 128}, {1, 2048, 1, 48, 128, 64}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int t = 0; t < 4; t++) {
            const int64_t *n = sizes[s];
            add_scan(list, x, n, floats[s % 2 ? t % 3 : 0], t % 2, t > 1 && n[1] > 2)->flags |=
                n[1] < 3 || n[2] * n[4] < 2 ? TX_CASE_ZEROS : 0u;
        }
    const int64_t packed[] = {4, 130, 2, 4, 12, 9};
    add_scan(list, x, packed, TX_F32, true, true);
    add_scan(list, x, packed, TX_F32, false, true);
    if (x)
        tx_case_accumulate(list);
    tx_case *c = add_scan(list, x, packed, TX_F32, false, false); /* strong decay */
    c->in[x + 1].lo = -20.0;
    c->in[x + 1].hi = 0.0;
    tx_case_chunks(list);
    for (int i = 0; i < 2; i++)
        add_scan(list, x, big[i], TX_F32, i == 0, false)->flags |= TX_CASE_BENCH;
}

static void scan_cases(tx_cases *list)
{
    add_scans(list, 0);
}

static void scan_cached_cases(tx_cases *list)
{
    /* batch, time, key heads, value heads, and their elements */
    static const int64_t sizes[][6] = {{1, 1, 1, 1, 1, 1},    {3, 1, 1, 2, 3, 5},     {2, 2, 2, 4, 33, 20},
                                       {4, 16, 1, 3, 12, 40}, {5, 17, 2, 6, 16, 7},   {3, 64, 2, 2, 5, 17},
                                       {4, 65, 1, 2, 64, 9},  {2, 150, 1, 3, 32, 40}, {2, 128, 1, 1, 256, 36}};
    static const int64_t big[] = {8, 1, 16, 32, 128, 128};
    for (size_t s = 0; s <= sizeof sizes / sizeof sizes[0]; s++)
        for (int t = 0; t < 6; t++) {
            const bool bench = s == sizeof sizes / sizeof sizes[0];
            const int64_t *n = bench ? big : sizes[s];
            tx_case *c = add_scan(list, 0, n, floats[t % 3], t < 3, false);
            c->in[3] = tx_spec_real(TX_SHAPE(n[0] + 1, n[3] * n[4], n[5]));
            c->in[3].arena = TX_ARENA_STATE;
            c->in[4] = tx_spec_of(TX_I32, TX_SHAPE(n[0], 3), TX_FILL_SPANS, 0.0, (double)n[1]);
            c->flags |= bench ? TX_CASE_BENCH : TX_CASE_ZEROS;
        }
    tx_case_chunks(list);
}

static void scan_grad_cases(tx_cases *list)
{
    add_scans(list, 1);
}

const tx_descriptor tx_descriptor_linear_scan = {
    .cases = scan_cases, .outputs = scan_outputs, .reference = scan_reference, .length = scan_length};
const tx_descriptor tx_descriptor_linear_scan_cached = {.cases = scan_cached_cases,
                                                        .outputs = scan_cached_outputs,
                                                        .reference = scan_cached_reference,
                                                        .length = scan_length,
                                                        .lies_on = {0, 4}};
const tx_descriptor tx_descriptor_linear_scan_grad = {
    .cases = scan_grad_cases,
    .outputs = scan_grad_outputs,
    .reference = scan_grad_reference,
    .length = scan_length,
    .gradient = true,
    .source = {TX_FROM_DY, TX_FROM_IN(0), TX_FROM_IN(1), TX_FROM_IN(2), TX_FROM_IN(3)},
    .forward = TX_OP_LINEAR_SCAN,
    .gradient_of = {1, 2, 3},
    .work = 24};
