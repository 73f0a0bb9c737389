/* SPDX-License-Identifier: Apache-2.0
 * Matrix products: reference and cases. Strides are computed here independently of tx_gemm_of. */
#include "tests/ops/case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One operand as a batch of matrices op(x)[row, column]. */
typedef struct matrix {
    const double *value;
    int64_t batch, rows, columns; /* of op(x) */
    int64_t row_step, column_step, batch_step;
} matrix;

static matrix matrix_of(const tx_array *x, bool flat, bool transpose)
{
    int64_t columns = tx_array_last(x), rows = tx_array_rows(x), batch = 1;
    if (!flat && x->shape.rank > 2) {
        rows = x->shape.dim[x->shape.rank - 2];
        batch = tx_array_rows(x) / rows;
    }
    matrix m = {x->value, batch, rows, columns, columns, 1, batch > 1 ? rows * columns : 0};
    if (transpose) {
        m.rows = columns;
        m.columns = rows;
        m.row_step = 1;
        m.column_step = columns;
    }
    return m;
}

#define LEAST_ROUNDING (12.0 * 0x1p-24) /* that check.c allows of a magnitude */

/* Returns the epilogue of element i, whose product is `sum`. Its error is that of the product, times a slope of at most
 * 1.13, and its own. With a result of 16 bits the product was rounded to that type before. */
static void put_result(tx_call *call, int64_t i, double sum, double magnitude)
{
    const double z = tx_array_present(&call->in[3]) ? call->in[3].value[i] : 0.0,
                 slope = tx_number_gelu_slope(z, call->attrs.exact);
    if (tx_array_present(&call->out[1]))
        tx_array_put(&call->out[1], i, sum, magnitude);
    if (call->attrs.epilogue != TX_EPILOGUE_NONE && call->out[0].dtype != TX_F32)
        magnitude += fabs(sum) * tx_number_epsilon(call->out[0].dtype) / LEAST_ROUNDING;
    switch (call->attrs.epilogue) {
    case TX_EPILOGUE_GELU:
        sum = tx_number_gelu(sum, call->attrs.exact);
        magnitude *= 1.13;
        break;
    case TX_EPILOGUE_GELU_GRAD:
        sum *= slope;
        magnitude *= 1.0 + fabs(z);
        break;
    case TX_EPILOGUE_ADD:
        sum += z;
        magnitude += fabs(z);
        break;
    case TX_EPILOGUE_NONE:
        break;
    }
    tx_array_put(&call->out[0], i, sum, magnitude);
}

static void matmul_reference(tx_call *call)
{
    matrix a = matrix_of(&call->in[0], call->attrs.flat, call->attrs.trans_a);
    matrix b = matrix_of(&call->in[1], call->attrs.flat, call->attrs.trans_b);
    const double *bias = tx_array_present(&call->in[2]) ? call->in[2].value : NULL;
    int64_t batch = a.batch > b.batch ? a.batch : b.batch, out = 0;
    for (int64_t s = 0; s < batch; s++)
        for (int64_t i = 0; i < a.rows; i++)
            for (int64_t j = 0; j < b.columns; j++) {
                double sum = bias ? bias[j] : 0.0, magnitude = fabs(sum);
                for (int64_t k = 0; k < a.columns; k++) {
                    double x = a.value[s * a.batch_step + i * a.row_step + k * a.column_step];
                    double y = b.value[s * b.batch_step + k * b.row_step + j * b.column_step];
                    if (tx_dtype_packed(call->in[1].dtype))
                        y = tx_number_round(call->in[0].dtype, y);
                    sum += x * y;
                    magnitude += fabs(x * y);
                }
                put_result(call, out++, sum, magnitude);
            }
}

/* Leading dimensions of a (of b if a is the shared matrix), then m x n; if flat and transposed, [m, n]. */
static void matmul_outputs(tx_call *call)
{
    const tx_attrs *t = &call->attrs;
    matrix a = matrix_of(&call->in[0], t->flat, t->trans_a), b = matrix_of(&call->in[1], t->flat, t->trans_b);
    tx_array *y = &call->out[0];
    if (y->dtype == TX_DTYPE_COUNT)
        y->dtype = call->in[0].dtype;
    if (t->flat) {
        y->shape = t->trans_a ? TX_SHAPE(0, 0) : call->in[0].shape;
        if (t->trans_a)
            y->shape.dim[0] = a.rows;
    } else {
        y->shape = call->in[0].shape.rank >= call->in[1].shape.rank ? call->in[0].shape : call->in[1].shape;
        y->shape.dim[y->shape.rank - 2] = a.rows;
    }
    y->shape.dim[y->shape.rank - 1] = b.columns;
    if (t->epilogue == TX_EPILOGUE_GELU && t->keeps)
        call->out[1] = (tx_array){.dtype = y->dtype, .shape = y->shape};
}

TX_LENGTH(matmul_length, matrix_of(&call->in[0], call->attrs.flat, call->attrs.trans_a).columns)

static tx_case *add_product(tx_cases *list, tx_dtype dtype, tx_dtype out, int64_t m, int64_t n, int64_t k, int form)
{
    bool trans_a = form & 1, trans_b = form & 2;
    tx_case *c = tx_case_add(list, "%s->%s m%lld n%lld k%lld%s%s", tx_dtype_name(dtype), tx_dtype_name(out),
                             (long long)m, (long long)n, (long long)k, trans_a ? " ta" : "", trans_b ? " tb" : "");
    c->attrs.trans_a = trans_a;
    c->attrs.trans_b = trans_b;
    c->out_dtype = out;
    c->in[0] = tx_spec_real(trans_a ? TX_SHAPE(k, m) : TX_SHAPE(m, k));
    c->in[1] = tx_spec_real(trans_b ? TX_SHAPE(n, k) : TX_SHAPE(k, n));
    c->in[0].dtype = c->in[1].dtype = dtype;
    return c;
}

static void add_batched(tx_cases *list, tx_dtype dtype, tx_shape a, tx_shape b, int form)
{
    char left[64], right[64];
    tx_case *c = tx_case_add(list, "%s batched %s %s form %d", tx_dtype_name(dtype),
                             tx_shape_text(&a, left, sizeof left), tx_shape_text(&b, right, sizeof right), form);
    c->attrs.trans_a = form & 1;
    c->attrs.trans_b = form & 2;
    c->in[0] = tx_spec_real(a);
    c->in[1] = tx_spec_real(b);
    c->in[0].dtype = c->in[1].dtype = dtype;
    c->out_dtype = TX_F32;
}

/* Linear layers: x [B, T, K] with W in both layouts and a bias, and the two gradients. */
static void add_linear(tx_cases *list, tx_dtype dtype, tx_dtype out)
{
    for (int form = 0; form < 4; form += 2) {
        tx_case *c = add_product(list, dtype, out, 51, 48, 33, form);
        c->attrs.flat = true;
        c->in[0].shape = TX_SHAPE(3, 17, 33);
        c->in[1].arena = TX_ARENA_WEIGHTS;
        c->in[2] = tx_spec_real(TX_SHAPE(48));
        c->in[2].arena = TX_ARENA_WEIGHTS;
        tx_case_chunks(list);
    }
    tx_case *c = add_product(list, dtype, out, 33, 48, 51, 1); /* dW = x' dy */
    c->attrs.flat = true;
    c->in[0].shape = TX_SHAPE(3, 17, 33);
    c->in[1].shape = TX_SHAPE(3, 17, 48);
    tx_case_accumulate(list);
}

/* All epilogues, and GELU with the product kept. The products have tails, few rows, a batch, or terms that a device
 * with many units divides. */
static void add_epilogues(tx_cases *list, tx_dtype dtype, tx_dtype out)
{
    static const int64_t sizes[][3] = {{51, 48, 33}, {66, 65, 17}, {3, 130, 20}, {16, 64, 1100}};
    static const char *const names[] = {
#define X(name) #name,
        TX_EPILOGUE_MAP(X)
#undef X
    };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int e = 0; e < 6; e++) {
            const tx_epilogue epilogue = e < 2 ? TX_EPILOGUE_GELU : e < 4 ? TX_EPILOGUE_GELU_GRAD : TX_EPILOGUE_ADD;
            tx_case *c = add_product(list, dtype, out, sizes[s][0], sizes[s][1], sizes[s][2], (int)(s & 3));
            c->attrs.epilogue = epilogue;
            c->attrs.keeps = e == 1;
            c->attrs.exact = e == 1 || e == 3;
            snprintf(c->label + strlen(c->label), sizeof c->label - strlen(c->label), " %s%s%s", names[epilogue],
                     c->attrs.keeps ? " kept" : "", c->attrs.exact ? " exact" : "");
            if (e % 2 == 0 || e == 1)
                c->in[2] = tx_spec_real(TX_SHAPE(sizes[s][1]));
            if (epilogue != TX_EPILOGUE_GELU) {
                c->in[3] = tx_spec_real(TX_SHAPE(sizes[s][0], sizes[s][1]));
                c->in[3].dtype = out;
                c->in[3].lo = -4.0;
                c->in[3].hi = 4.0;
            }
        }
    add_batched(list, dtype, TX_SHAPE(3, 17, 9), TX_SHAPE(3, 9, 16), 0);
    tx_case *c = &list->item[list->count - 1];
    c->attrs.epilogue = TX_EPILOGUE_ADD;
    c->in[3] = tx_spec_real(TX_SHAPE(3, 17, 16));
    c->out_dtype = c->in[3].dtype = out;
    tx_case_chunks(list);
}

/* Weights of 4 or 8 bits, as linear layers and the gradients of their inputs read them. The numbers of rows lie around
 * the limit for few rows. Rows have one block or an odd number of blocks, and there are more blocks than share a scale.
 * Results are added and have epilogues. The types change every four cases, so that --every 4 has both. */
static void add_packed(tx_cases *list, tx_dtype dtype, tx_dtype out)
{
    static const int64_t sizes[][3] = {{1, 64, 64},     {8, 192, 128},  {9, 128, 192}, {3, 704, 64},
                                       {17, 320, 4096}, {9, 64, 16448}, {70, 320, 576}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int form = 0; form < 4; form += 2) {
            tx_case *c = add_product(list, dtype, out, sizes[s][0], sizes[s][1], sizes[s][2], form);
            c->attrs.flat = true;
            c->in[1].dtype = (s + (size_t)form) / 2 % 2 ? TX_NF4 : TX_NF4_DOUBLE;
            c->in[1].arena = TX_ARENA_FROZEN;
            snprintf(c->label + strlen(c->label), sizeof c->label - strlen(c->label), " %s",
                     tx_dtype_name(c->in[1].dtype));
            if (s % 2)
                c->in[2] = tx_spec_real(TX_SHAPE(sizes[s][1]));
        }
    tx_case_accumulate(list);
    tx_case_chunks(list);
    tx_case *other = tx_case_copy(list, " other type");
    other->in[1].dtype = other->in[1].dtype == TX_NF4 ? TX_NF4_DOUBLE : TX_NF4;
    for (int eight = 0; eight < 2; eight++) { /* the shapes above, and rows of an odd number of blocks of 32 */
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s += 2)
            for (int form = 0; form < 4; form += 2) {
                const int64_t odd = eight ? 32 : 0;
                tx_case *c = add_product(list, dtype, out, sizes[s][0], sizes[s][1] + odd, sizes[s][2] + odd, form);
                c->attrs.flat = true;
                c->in[1].dtype = s % 4 ? TX_MXFP4 : TX_Q8;
                c->in[1].arena = TX_ARENA_FROZEN;
                snprintf(c->label + strlen(c->label), sizeof c->label - strlen(c->label), " %s",
                         tx_dtype_name(c->in[1].dtype));
            }
    }
    if (out != TX_F32)
        return;
    other = tx_case_copy(list, " GELU");
    other->attrs.accumulate = TX_STORE;
    other->attrs.epilogue = TX_EPILOGUE_GELU;
}

static void matmul_cases(tx_cases *list)
{
    static const int64_t sizes[][3] = {{1, 1, 1},     {1, 17, 5},   {5, 1, 7},    {3, 2, 1},
                                       {15, 16, 17},  {16, 17, 15}, {63, 65, 64}, {64, 64, 64},
                                       {65, 63, 129}, {1, 130, 70}, {130, 1, 40}, {128, 96, 256}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int form = 0; form < 4; form++)
            add_product(list, TX_F32, TX_F32, sizes[s][0], sizes[s][1], sizes[s][2], form);
    static const tx_dtype half[] = {TX_BF16, TX_F16};
    for (int h = 0; h < 2; h++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s += s < 4 ? 2 : 1) {
            add_product(list, half[h], TX_F32, sizes[s][0], sizes[s][1], sizes[s][2], (int)(s & 3));
            add_product(list, half[h], half[h], sizes[s][0], sizes[s][1], sizes[s][2], (int)(~s & 3));
        }
    static const tx_dtype all[] = {TX_F32, TX_BF16, TX_F16};
    for (int t = 0; t < 3; t++) {
        for (int form = 0; form < 4; form++)
            add_batched(list, all[t], form & 1 ? TX_SHAPE(2, 3, 9, 17) : TX_SHAPE(2, 3, 17, 9),
                        form & 2 ? TX_SHAPE(2, 3, 15, 9) : TX_SHAPE(2, 3, 9, 15), form);
        add_batched(list, all[t], TX_SHAPE(4, 17, 9), TX_SHAPE(9, 15), 0);
        add_batched(list, all[t], TX_SHAPE(17, 9), TX_SHAPE(4, 15, 9), 2);
        add_linear(list, all[t], TX_F32);
        add_epilogues(list, all[t], TX_F32);
        if (t > 0) {
            add_linear(list, all[t], all[t]);
            add_epilogues(list, all[t], all[t]);
        }
        add_packed(list, all[t], TX_F32);
        if (t > 0)
            add_packed(list, all[t], all[t]);
        add_product(list, all[t], TX_F32, 17, 33, 65, 0);
        list->item[list->count - 1].in[2] = tx_spec_real(TX_SHAPE(33));
        tx_case_accumulate(list);
    }
    add_product(list, TX_F32, TX_F32, 5, 6, 7, 0)->in[0].fill = TX_FILL_NAN;
    for (int t = 0; t < 3; t++) {
        static const int64_t big[][3] = {{1024, 768, 768}, {1024, 3072, 768}, {1024, 768, 3072}};
        for (int s = 0; s < 3; s++)
            add_product(list, all[t], TX_F32, big[s][0], big[s][1], big[s][2], 2)->flags |= TX_CASE_BENCH;
    }
}

const tx_descriptor tx_descriptor_matmul = {
    .cases = matmul_cases, .outputs = matmul_outputs, .reference = matmul_reference, .length = matmul_length};
