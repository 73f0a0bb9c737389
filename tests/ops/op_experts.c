/* SPDX-License-Identifier: Apache-2.0
 * The greatest elements of rows, routes to experts, weighted sums and products by groups: references and cases. */
#include "tests/ops/case.h"

#include <math.h>

static const tx_dtype floats[] = {TX_F32, TX_BF16, TX_F16};

/* ---- The greatest elements --------------------------------------------------------------------- */

/* How many elements of the row come before element i: an order by counting, which sorts nothing. */
static int64_t rank_of(const double *x, int64_t n, int64_t i)
{
    int64_t before = 0;
    for (int64_t j = 0; j < n; j++) {
        const double a = isnan(x[j]) ? INFINITY : x[j], b = isnan(x[i]) ? INFINITY : x[i];
        before += a > b || (a == b && j < i);
    }
    return before;
}

static void top_k_reference(tx_call *call)
{
    const int64_t n = tx_array_last(&call->in[0]), k = call->attrs.rows;
    for (int64_t i = 0; i < call->in[0].count; i++) {
        const int64_t place = rank_of(call->in[0].value + i / n * n, n, i % n);
        if (place >= k)
            continue;
        tx_array_put(&call->out[0], i / n * k + place, call->in[0].value[i], 0.0);
        tx_array_put(&call->out[1], i / n * k + place, (double)(i % n), 0.0);
    }
}

static void top_k_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = TX_F32, .shape = call->in[0].shape};
    call->out[0].shape.dim[call->out[0].shape.rank - 1] = call->attrs.rows;
    call->out[1] = call->out[0];
    call->out[1].dtype = TX_I32;
}

static void top_k_cases(tx_cases *list)
{
    static const int64_t sizes[][3] = {/* rows, of, k */
                                       {1, 1, 1},    {3, 4, 2},    {17, 8, 2},   {5, 60, 4},   {9, 7, 7},
                                       {130, 33, 3}, {65, 128, 8}, {2, 1025, 5}, {4096, 64, 8}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int ties = 0; ties < 2; ties++) {
            const int64_t *n = sizes[s];
            tx_case *c = tx_case_add(list, "%lld of [%lld, %lld]%s", (long long)n[2], (long long)n[0], (long long)n[1],
                                     ties ? ", equal ones" : "");
            c->in[0] = ties ? tx_spec_of(TX_F32, TX_SHAPE(n[0], n[1]), TX_FILL_INDEX, -1.0, 2.0)
                            : tx_spec_real(TX_SHAPE(n[0], n[1]));
            c->attrs.rows = n[2];
            c->flags = n[0] == 4096 ? TX_CASE_BENCH : ties ? TX_CASE_ZEROS : 0u;
        }
    tx_case *c = tx_case_add(list, "infinities and NaN");
    c->in[0] = tx_spec_of(TX_F32, TX_SHAPE(3, 5), TX_FILL_SPECIAL, -1.0, 1.0);
    c->attrs.rows = 4;
    c = tx_case_add(list, "rows of -inf");
    c->in[0] = tx_spec_of(TX_F32, TX_SHAPE(3, 5), TX_FILL_HOLES, -1.0, 1.0);
    c->attrs.rows = 3;
    c->flags = TX_CASE_ZEROS;
    tx_case_chunks(list);
}

static void top_k_grad_reference(tx_call *call)
{
    const int64_t k = tx_array_last(&call->in[0]), n = call->attrs.rows;
    for (int64_t i = 0; i < call->out[0].count; i++)
        tx_array_put(&call->out[0], i, 0.0, 0.0);
    for (int64_t i = 0; i < call->in[0].count; i++)
        call->out[0].value[i / k * n + (int64_t)call->in[1].value[i]] = call->in[0].value[i];
}

static void top_k_grad_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = TX_F32, .shape = call->in[0].shape};
    call->out[0].shape.dim[call->out[0].shape.rank - 1] = call->attrs.rows;
}

static void top_k_grad_cases(tx_cases *list)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {3, 4, 2}, {17, 8, 2}, {9, 7, 7}, {130, 33, 3}, {4096, 64, 8}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int64_t *n = sizes[s];
        tx_case *c = tx_case_add(list, "%lld of [%lld, %lld]", (long long)n[2], (long long)n[0], (long long)n[1]);
        c->in[0] = tx_spec_real(TX_SHAPE(n[0], n[2]));
        c->in[1] = tx_spec_of(TX_I32, TX_SHAPE(n[0], n[2]), TX_FILL_DISTINCT, 0.0, (double)n[1]);
        c->attrs.rows = n[1];
        c->flags = TX_CASE_ZEROS | (n[0] == 4096 ? TX_CASE_BENCH : 0u);
    }
}

/* ---- Routes ------------------------------------------------------------------------------------ */

/* Expert by expert, all choices of first rank, then of second. */
static void route_reference(tx_call *call)
{
    const tx_array *choices = &call->in[0];
    const int64_t k = tx_array_last(choices), tokens = choices->count / k;
    const double *ids = call->in[1].count ? call->in[1].value : NULL;
    int64_t place = 0;
    double all = 0.0;
    for (int64_t i = 0; i < choices->count; i++) {
        tx_array_put(&call->out[0], i, -1.0, 0.0);
        tx_array_put(&call->out[1], i, -1.0, 0.0);
        all += !ids || ids[i / k] >= 0.0;
    }
    const double most = ceil((double)call->attrs.scale * all / (double)call->attrs.rows);
    for (int64_t e = 0; e < call->attrs.rows; e++) {
        int64_t chosen = 0;
        tx_array_put(&call->out[2], e, (double)place, 0.0);
        for (int64_t j = 0; j < k; j++)
            for (int64_t n = 0; n < tokens; n++) {
                if (choices->value[n * k + j] != (double)e || (ids && ids[n] < 0.0))
                    continue;
                chosen++;
                if (call->attrs.scale > 0.0f && (double)chosen > most)
                    continue;
                call->out[0].value[place] = (double)n;
                call->out[1].value[n * k + j] = (double)place++;
            }
        tx_array_put(&call->out[3], e, (double)chosen, 0.0);
    }
    tx_array_put(&call->out[2], call->attrs.rows, (double)place, 0.0);
}

static void route_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = TX_I32, .shape = TX_SHAPE(call->in[0].count)};
    call->out[1] = (tx_array){.dtype = TX_I32, .shape = call->in[0].shape};
    call->out[2] = (tx_array){.dtype = TX_I32, .shape = TX_SHAPE(call->attrs.rows + 1)};
    call->out[3] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(call->attrs.rows)};
}

static void route_cases(tx_cases *list)
{
    static const struct {
        int64_t tokens, k, experts, chosen; /* of the experts */
        float capacity;                     /* times an even share; 0 if all are kept */
        bool padded;
    } sizes[] = {
        {1, 1, 1, 1, 0.0f, false},     {5, 2, 4, 4, 0.0f, false},        {5, 2, 4, 4, 0.0f, true},
        {17, 2, 8, 8, 0.7f, false},    {16, 2, 8, 1, 0.0f, false},       {16, 2, 8, 1, 1.25f, true},
        {33, 3, 5, 2, 1.0f, false},    {33, 3, 5, 2, 1.0f, true},        {300, 4, 60, 60, 0.0f, false},
        {300, 4, 60, 60, 0.95f, true}, {257, 8, 128, 9, 0x1p-70f, true}, {64, 1, 3, 3, 1e6f, true},
        {8192, 2, 8, 8, 0.0f, false},  {1, 2, 3, 3, 1.0f, true},
    };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int64_t n = sizes[s].tokens, k = sizes[s].k;
        tx_case *c = tx_case_add(list, "[%lld, %lld] to %lld of %lld, %g times an even share%s", (long long)n,
                                 (long long)k, (long long)sizes[s].chosen, (long long)sizes[s].experts,
                                 (double)sizes[s].capacity, sizes[s].padded ? ", padding" : "");
        c->in[0] = tx_spec_of(TX_I32, TX_SHAPE(n, k), TX_FILL_INDEX, 0.0, (double)sizes[s].chosen);
        if (sizes[s].padded)
            c->in[1] = tx_spec_of(TX_I32, TX_SHAPE(n), TX_FILL_INDEX, -2.0, 3.0);
        c->attrs.rows = sizes[s].experts;
        c->attrs.scale = sizes[s].capacity;
        c->flags = TX_CASE_ZEROS | (n == 8192 ? TX_CASE_BENCH : 0u);
    }
    tx_case_chunks(list);
}

/* ---- The sum of the experts' outputs ------------------------------------------------------------- */

static void combine_reference(tx_call *call)
{
    const tx_array *x = &call->in[0], *weights = &call->in[1];
    const int64_t width = tx_array_last(x), k = tx_array_last(weights);
    for (int64_t i = 0; i < call->out[0].count; i++) {
        double sum = 0.0, magnitude = 0.0;
        for (int64_t j = i / width * k; j < (i / width + 1) * k; j++) {
            const int64_t place = (int64_t)call->in[2].value[j];
            const double term = place < 0 ? 0.0 : weights->value[j] * x->value[place * width + i % width];
            sum += term;
            magnitude += fabs(term);
        }
        tx_array_put(&call->out[0], i, sum, magnitude);
    }
}

static void combine_outputs(tx_call *call)
{
    call->out[0] =
        (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(call->in[1].shape.dim[0], tx_array_last(&call->in[0]))};
}

TX_LENGTH(combine_length, tx_array_last(&call->in[1]))

static void combine_grad_reference(tx_call *call)
{
    const tx_array *dy = &call->in[0], *x = &call->in[1], *weights = &call->in[2];
    const int64_t width = tx_array_last(x), k = tx_array_last(weights);
    for (int64_t i = 0; i < x->count; i++)
        tx_array_put(&call->out[0], i, 0.0, 0.0);
    for (int64_t j = 0; j < weights->count; j++) {
        const int64_t place = (int64_t)call->in[3].value[j];
        double sum = 0.0, magnitude = 0.0;
        for (int64_t i = 0; i < width && place >= 0; i++) {
            const double d = dy->value[j / k * width + i], term = d * x->value[place * width + i];
            sum += term;
            magnitude += fabs(term);
            tx_array_put(&call->out[0], place * width + i, d * weights->value[j], fabs(d * weights->value[j]));
        }
        tx_array_put(&call->out[1], j, sum, magnitude);
    }
}

static void combine_grad_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = call->in[1].dtype, .shape = call->in[1].shape};
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = call->in[2].shape};
}

TX_LENGTH(combine_grad_length, tx_array_last(&call->in[1]))

/* Appends operands from input x on. */
static void add_combined(tx_cases *list, int x)
{
    static const int64_t sizes[][3] = {/* tokens, k, width */
                                       {1, 1, 1},    {7, 2, 5},   {17, 3, 33},  {16, 2, 64},
                                       {65, 8, 128}, {300, 1, 9}, {3, 2, 1027}, {4096, 2, 1024}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int t = 0; t < 3; t++) {
            const int64_t *n = sizes[s];
            tx_case *c = tx_case_add(list, "%s [%lld, %lld] of %lld", tx_dtype_name(floats[t]), (long long)n[0],
                                     (long long)n[1], (long long)n[2]);
            if (x > 0)
                c->in[0] = tx_spec_real(TX_SHAPE(n[0], n[2]));
            c->in[x] = tx_spec_real(TX_SHAPE(n[0] * n[1], n[2]));
            c->in[x].dtype = floats[t];
            c->in[x + 1] = tx_spec_real(TX_SHAPE(n[0], n[1]));
            c->in[x + 2] = tx_spec_of(TX_I32, TX_SHAPE(n[0], n[1]), TX_FILL_PLACES, 0.0, 0.0);
            c->in[x + 3] = tx_spec_of(TX_I32, TX_SHAPE(n[0] * n[1]), TX_FILL_TOKENS, 0.0, (double)n[1]);
            c->flags = n[0] == 4096 ? TX_CASE_BENCH : 0u;
        }
    tx_case_chunks(list);
}

static void combine_cases(tx_cases *list)
{
    add_combined(list, 0);
}

static void combine_grad_cases(tx_cases *list)
{
    add_combined(list, 1);
}

/* ---- Products by groups ---------------------------------------------------------------------------- */

/* The group of row r; as many as there are for rows of none. */
static int64_t group_of(const tx_array *offsets, int64_t r)
{
    int64_t group = 0;
    while (group + 1 < offsets->count && (double)r >= offsets->value[group + 1])
        group++;
    return group;
}

static void grouped_matmul_reference(tx_call *call)
{
    const tx_array *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    const int64_t k = tx_array_last(x), n = tx_array_last(y), groups = w->shape.dim[0];
    const int64_t row_step = call->attrs.trans_b ? 1 : n, column_step = call->attrs.trans_b ? k : 1;
    for (int64_t i = 0; i < y->count; i++) {
        const int64_t group = group_of(&call->in[2], i / n);
        double sum = 0.0, magnitude = 0.0;
        for (int64_t p = 0; p < k && group < groups; p++) {
            const double term = x->value[i / n * k + p] * w->value[group * k * n + p * row_step + i % n * column_step];
            sum += term;
            magnitude += fabs(term);
        }
        tx_array_put(&call->out[0], i, sum, magnitude);
    }
}

static void grouped_matmul_outputs(tx_call *call)
{
    tx_array *y = &call->out[0];
    if (y->dtype == TX_DTYPE_COUNT)
        y->dtype = call->in[0].dtype;
    y->shape = TX_SHAPE(call->in[0].shape.dim[0], call->in[1].shape.dim[call->attrs.trans_b ? 1 : 2]);
}

TX_LENGTH(grouped_matmul_length, tx_array_last(&call->in[0]))

static void grouped_matmul_grad_reference(tx_call *call)
{
    const tx_array *a = &call->in[0], *b = &call->in[1];
    const int64_t m = tx_array_last(a), n = tx_array_last(b), groups = call->in[2].count - 1;
    for (int64_t i = 0; i < call->out[0].count; i++)
        tx_array_put(&call->out[0], i, 0.0, 0.0);
    for (int64_t r = 0; r < a->shape.dim[0]; r++) {
        const int64_t group = group_of(&call->in[2], r);
        for (int64_t i = 0; i < m * n && group < groups; i++) {
            const double term = a->value[r * m + i / n] * b->value[r * n + i % n];
            call->out[0].value[group * m * n + i] += term;
            call->out[0].magnitude[group * m * n + i] += fabs(term);
        }
    }
}

static void grouped_matmul_grad_outputs(tx_call *call)
{
    call->out[0] =
        (tx_array){.dtype = TX_F32,
                   .shape = TX_SHAPE(call->in[2].count - 1, tx_array_last(&call->in[0]), tx_array_last(&call->in[1]))};
}

TX_LENGTH(grouped_matmul_grad_length, call->in[0].shape.dim[0])

/* Rows, groups, and two widths; how the rows are given to the groups: as TX_FILL_OFFSETS says. */
static const int64_t products[][5] = {{1, 1, 1, 1, 0},      {5, 3, 2, 7, 0},      {7, 2, 17, 5, 1},
                                      {40, 4, 33, 16, 0},   {40, 5, 16, 31, 1},   {40, 5, 65, 64, 2},
                                      {40, 5, 12, 20, 3},   {300, 8, 64, 65, 0},  {257, 60, 48, 20, 1},
                                      {150, 3, 130, 96, 2}, {1100, 2, 24, 40, 0}, {2048, 8, 768, 2048, 0}};
#define PRODUCTS (sizeof products / sizeof products[0])

static tx_case *add_grouped(tx_cases *list, size_t s, tx_dtype dtype, const char *what)
{
    const int64_t *n = products[s];
    tx_case *c = tx_case_add(list, "%s %lld rows, %lld groups of [%lld, %lld], %lld%s", tx_dtype_name(dtype),
                             (long long)n[0], (long long)n[1], (long long)n[2], (long long)n[3], (long long)n[4], what);
    c->in[0] = tx_spec_real(TX_SHAPE(n[0], n[2]));
    c->in[2] = tx_spec_of(TX_I32, TX_SHAPE(n[1] + 1), TX_FILL_OFFSETS, (double)n[4], (double)n[0]);
    c->flags = (s + 1 == PRODUCTS ? TX_CASE_BENCH : 0u) | (n[4] ? TX_CASE_ZEROS : 0u);
    return c;
}

static void grouped_matmul_cases(tx_cases *list)
{
    for (size_t s = 0; s < PRODUCTS; s++)
        for (int t = 0; t < 3; t++)
            for (int turned = 0; turned < 2; turned++) {
                const int64_t *n = products[s];
                tx_case *c = add_grouped(list, s, floats[t], turned ? " tb" : "");
                c->in[1] = tx_spec_real(turned ? TX_SHAPE(n[1], n[3], n[2]) : TX_SHAPE(n[1], n[2], n[3]));
                c->in[1].arena = TX_ARENA_WEIGHTS;
                c->in[0].dtype = c->in[1].dtype = floats[t];
                c->attrs.trans_b = turned;
                c->out_dtype = s % 2 ? TX_F32 : floats[t];
            }
    tx_case_chunks(list);
}

static void grouped_matmul_grad_cases(tx_cases *list)
{
    for (size_t s = 0; s < PRODUCTS; s++)
        for (int t = 0; t < 3; t++) {
            tx_case *c = add_grouped(list, s, floats[t], "");
            c->in[1] = tx_spec_real(TX_SHAPE(products[s][0], products[s][3]));
            c->in[0].dtype = c->in[1].dtype = floats[t];
            if (s + 1 < PRODUCTS)
                tx_case_accumulate(list);
        }
}

const tx_descriptor tx_descriptor_top_k = {
    .cases = top_k_cases, .outputs = top_k_outputs, .reference = top_k_reference};
const tx_descriptor tx_descriptor_top_k_grad = {
    .cases = top_k_grad_cases, .outputs = top_k_grad_outputs, .reference = top_k_grad_reference};
const tx_descriptor tx_descriptor_route = {
    .cases = route_cases, .outputs = route_outputs, .reference = route_reference};
const tx_descriptor tx_descriptor_combine = {
    .cases = combine_cases, .outputs = combine_outputs, .reference = combine_reference, .length = combine_length};
const tx_descriptor tx_descriptor_combine_grad = {
    .cases = combine_grad_cases,
    .outputs = combine_grad_outputs,
    .reference = combine_grad_reference,
    .length = combine_grad_length,
    .gradient = true,
    .forward = TX_OP_COMBINE,
    .source = {TX_FROM_DY, TX_FROM_IN(0), TX_FROM_IN(1), TX_FROM_IN(2), TX_FROM_IN(3)},
    .gradient_of = {1, 2}};
const tx_descriptor tx_descriptor_grouped_matmul = {.cases = grouped_matmul_cases,
                                                    .outputs = grouped_matmul_outputs,
                                                    .reference = grouped_matmul_reference,
                                                    .length = grouped_matmul_length};
const tx_descriptor tx_descriptor_grouped_matmul_grad = {.cases = grouped_matmul_grad_cases,
                                                         .outputs = grouped_matmul_grad_outputs,
                                                         .reference = grouped_matmul_grad_reference,
                                                         .length = grouped_matmul_grad_length};
