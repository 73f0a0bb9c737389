/* SPDX-License-Identifier: Apache-2.0
 * The ops of ring attention: taking and joining columns, and merging outputs. */
#include "tests/ops/case.h"

#include <math.h>

static const tx_dtype floats[] = {TX_F32, TX_BF16, TX_F16};

/* ---- Columns ------------------------------------------------------------------------------------------- */

static const int64_t widths[][4] = {/* rows, columns, first, how many */
                                    {1, 1, 0, 1},    {3, 5, 1, 3},        {7, 33, 0, 17},
                                    {9, 48, 16, 32}, {5, 1300, 12, 1200}, {8192, 2304, 768, 1536}};
enum { WIDTHS = sizeof widths / sizeof widths[0] };

/* A result is rounded when it is stored, and must be exact if nothing is added. */
static void put_moved(tx_call *call, int64_t i, double x)
{
    const bool adds = tx_call_beta(call, 0) != 0.0;
    tx_array_put(&call->out[0], i, adds ? x : tx_number_round(call->out[0].dtype, x), adds ? fabs(x) : 0.0);
}

static void take_columns_reference(tx_call *call)
{
    const int64_t all = tx_array_last(&call->in[0]), some = call->attrs.rows;
    for (int64_t i = 0; i < call->out[0].count; i++)
        put_moved(call, i, call->in[0].value[i / some * all + call->attrs.first + i % some]);
}

static void take_columns_outputs(tx_call *call)
{
    tx_array *y = &call->out[0];
    y->dtype = y->dtype == TX_DTYPE_COUNT ? TX_F32 : y->dtype;
    y->shape = call->in[0].shape;
    y->shape.dim[y->shape.rank - 1] = call->attrs.rows;
}

static void take_columns_cases(tx_cases *list)
{
    for (int s = 0; s < WIDTHS; s++)
        for (int t = 0; t < 4; t++) {
            const int64_t *n = widths[s];
            const tx_dtype from = floats[t % 3], to = t == 3 ? TX_DTYPE_COUNT : floats[t * 2 % 3];
            tx_case *c = tx_case_add(list, "%s [%lld, %lld] %lld from %lld", tx_dtype_name(from), (long long)n[0],
                                     (long long)n[1], (long long)n[3], (long long)n[2]);
            c->in[0] = tx_spec_real(TX_SHAPE(n[0], n[1]));
            c->in[0].dtype = from;
            c->out_dtype = to;
            c->attrs.first = n[2];
            c->attrs.rows = n[3];
            c->flags = s == WIDTHS - 1 ? TX_CASE_BENCH : 0u;
            if (s == 2 || s == 3)
                tx_case_accumulate(list);
        }
}

static void join_columns_reference(tx_call *call)
{
    const int64_t of_a = tx_array_last(&call->in[0]), of_b = tx_array_last(&call->in[1]), taken = call->attrs.rows;
    for (int64_t i = 0; i < call->out[0].count; i++) {
        const int64_t row = i / (taken + of_b), column = i % (taken + of_b);
        put_moved(call, i,
                  column < taken ? call->in[0].value[row * of_a + column]
                                 : call->in[1].value[row * of_b + column - taken]);
    }
}

static void join_columns_outputs(tx_call *call)
{
    tx_array *y = &call->out[0];
    y->dtype = y->dtype == TX_DTYPE_COUNT ? call->in[0].dtype : y->dtype;
    y->shape = call->in[0].shape;
    y->shape.dim[y->shape.rank - 1] = call->attrs.rows + tx_array_last(&call->in[1]);
}

static void join_columns_cases(tx_cases *list)
{
    for (int s = 0; s < WIDTHS; s++)
        for (int t = 0; t < 4; t++) {
            const int64_t *n = widths[s];
            tx_case *c = tx_case_add(list, "%lld rows: %lld of %lld, and %lld, case %d", (long long)n[0],
                                     (long long)n[3], (long long)n[1], (long long)n[2] + 1, t);
            c->in[0] = tx_spec_real(TX_SHAPE(n[0], n[1]));
            c->in[1] = tx_spec_real(TX_SHAPE(n[0], n[2] + (n[2] % 4 == 0 && n[2] > 0 ? 4 : 1)));
            c->in[0].dtype = floats[t % 3];
            c->in[1].dtype = floats[t * 2 % 3];
            c->out_dtype = t == 3 ? TX_DTYPE_COUNT : floats[(t + 1) % 3];
            c->attrs.rows = n[3];
            c->flags = s == WIDTHS - 1 ? TX_CASE_BENCH : 0u;
        }
}

const tx_descriptor tx_descriptor_take_columns = {
    .cases = take_columns_cases, .outputs = take_columns_outputs, .reference = take_columns_reference};
const tx_descriptor tx_descriptor_join_columns = {
    .cases = join_columns_cases, .outputs = join_columns_outputs, .reference = join_columns_reference};

/* ---- Merging ------------------------------------------------------------------------------------------- */

static void merge_reference(tx_call *call)
{
    const tx_array *a = &call->in[0], *b = &call->in[2];
    const int64_t heads = call->attrs.attention.heads, width = tx_array_last(a), time = a->shape.dim[1],
                  size = width / heads;
    for (int64_t i = 0; i < a->count; i++) {
        const int64_t row = i / width, h = i % width / size, at = (row / time * heads + h) * time + row % time;
        const double x = call->in[1].value[at], y = call->in[3].value[at], top = fmax(x, y);
        const double lse = top + log(exp(x - top) + exp(y - top));
        const double of_a = a->value[i] * exp(x - lse), of_b = b->value[i] * exp(y - lse);
        /* the error of a share is proportional to the difference of the log-sum-exps */
        tx_array_put(&call->out[0], i, of_a + of_b, (fabs(of_a) + fabs(of_b)) * (2.0 + fabs(x - y)));
        tx_array_put(&call->out[1], at, lse, fabs(top) + 1.0);
    }
}

static void merge_outputs(tx_call *call)
{
    tx_array *o = &call->out[0];
    o->dtype = o->dtype == TX_DTYPE_COUNT ? TX_F32 : o->dtype;
    o->shape = call->in[0].shape;
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = call->in[1].shape};
}

static void merge_cases(tx_cases *list)
{
    static const int64_t sizes[][4] = {/* B, T, heads, size */ {1, 1, 1, 1},
                                       {2, 3, 2, 5},
                                       {3, 17, 3, 16},
                                       {2, 9, 4, 33},
                                       {1, 65, 1, 600},
                                       {4, 1024, 12, 64}};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    for (int s = 0; s < SIZES; s++)
        for (int t = 0; t < 4; t++) {
            const int64_t *n = sizes[s];
            const double far = t == 2 ? 80.0 : 3.0; /* one set weighs next to nothing */
            tx_case *c = tx_case_add(list, "b%lld t%lld h%lld d%lld, case %d", (long long)n[0], (long long)n[1],
                                     (long long)n[2], (long long)n[3], t);
            c->in[0] = c->in[2] = tx_spec_real(TX_SHAPE(n[0], n[1], n[2] * n[3]));
            c->in[1] = c->in[3] = tx_spec_of(TX_F32, TX_SHAPE(n[0], n[2], n[1]), TX_FILL_UNIFORM, -far, far);
            c->in[0].dtype = floats[t % 3];
            c->in[2].dtype = floats[t * 2 % 3];
            c->out_dtype = t == 3 ? TX_DTYPE_COUNT : floats[t];
            c->attrs.attention.heads = (int32_t)n[2];
            c->flags = s == SIZES - 1 ? TX_CASE_BENCH : 0u;
        }
}

const tx_descriptor tx_descriptor_attention_merge = {
    .cases = merge_cases, .outputs = merge_outputs, .reference = merge_reference};
