/* SPDX-License-Identifier: Apache-2.0
 * Products by groups, of plain and packed weights: references and cases. */
#include "tests/ops/case.h"

#include <math.h>

static const tx_dtype floats[] = {TX_F32, TX_BF16, TX_F16};

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
            double factor = w->value[group * k * n + p * row_step + i % n * column_step];
            if (tx_dtype_packed(w->dtype))
                factor = tx_number_round(x->dtype, factor);
            const double term = x->value[i / n * k + p] * factor;
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

/* Packed weights: rows of one block or an odd number of blocks, groups without rows and of few rows, and more blocks
 * than share a scale. */
static void add_packed_grouped(tx_cases *list)
{
    static const tx_dtype packed[] = {TX_NF4, TX_NF4_DOUBLE, TX_Q8, TX_MXFP4};
    static const int64_t sizes[][5] = {{1, 1, 64, 64, 0},    {5, 3, 64, 192, 0},    {40, 5, 192, 64, 2},
                                       {40, 5, 128, 320, 3}, {257, 60, 64, 128, 1}, {300, 4, 320, 192, 0}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int t = 0; t < 3; t++)
            for (int turned = 0; turned < 2; turned++)
                for (int type = 0; type < 4; type++) {
                    const int64_t odd = type < 2 ? 0 : 32, *n = sizes[s], k = n[2] + odd, m = n[3] + odd;
                    tx_case *c = tx_case_add(list, "%s %lld rows, %lld groups of %s [%lld, %lld], %lld%s",
                                             tx_dtype_name(floats[t]), (long long)n[0], (long long)n[1],
                                             tx_dtype_name(packed[type]), (long long)k, (long long)m, (long long)n[4],
                                             turned ? " tb" : "");
                    c->in[0] = tx_spec_real(TX_SHAPE(n[0], k));
                    c->in[1] = tx_spec_real(turned ? TX_SHAPE(n[1], m, k) : TX_SHAPE(n[1], k, m));
                    c->in[2] = tx_spec_of(TX_I32, TX_SHAPE(n[1] + 1), TX_FILL_OFFSETS, (double)n[4], (double)n[0]);
                    c->in[0].dtype = floats[t];
                    c->in[1].dtype = packed[type];
                    c->in[1].arena = TX_ARENA_FROZEN;
                    c->attrs.trans_b = turned;
                    c->out_dtype = (s + (size_t)type) % 2 ? TX_F32 : floats[t];
                    c->flags = n[4] ? TX_CASE_ZEROS : 0u;
                }
    tx_case_chunks(list);
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
    add_packed_grouped(list);
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

const tx_descriptor tx_descriptor_grouped_matmul = {.cases = grouped_matmul_cases,
                                                    .outputs = grouped_matmul_outputs,
                                                    .reference = grouped_matmul_reference,
                                                    .length = grouped_matmul_length};
const tx_descriptor tx_descriptor_grouped_matmul_grad = {.cases = grouped_matmul_grad_cases,
                                                         .outputs = grouped_matmul_grad_outputs,
                                                         .reference = grouped_matmul_grad_reference,
                                                         .length = grouped_matmul_grad_length};
