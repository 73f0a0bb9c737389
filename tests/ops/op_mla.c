/* SPDX-License-Identifier: Apache-2.0
 * Operands of multi-head latent attention: reference and cases. */
#include "tests/ops/case.h"

/* The place in a head of q or k of element i of those that rotate. */
static int64_t place(const tx_call *call, int64_t i, int64_t rotated)
{
    return call->attrs.step == 1 ? i : i % 2 ? rotated / 2 + i / 2 : i / 2;
}

static void mla_reference(tx_call *call)
{
    const int64_t heads = call->attrs.attention.heads, rotated = tx_array_last(&call->in[2]),
                  size = tx_array_last(&call->in[0]) / heads, plain = size - rotated,
                  of_kv = tx_array_last(&call->in[1]) / heads, rows = tx_array_rows(&call->in[0]);
    tx_array *y = &call->out[0];
    for (int64_t i = 0; i < y->count; i++)
        tx_array_put(y, i, 0.0, 0.0);
    for (int64_t h = 0; h < rows * heads; h++) {
        double *q = y->value + (h / heads * 3 * heads + h % heads) * size, *k = q + heads * size, *v = k + heads * size;
        for (int64_t i = 0; i < rotated; i++) {
            q[place(call, i, rotated)] = call->in[0].value[h * size + plain + i];
            k[place(call, i, rotated)] = call->in[2].value[h / heads * rotated + i];
        }
        for (int64_t i = 0; i < plain; i++) {
            q[rotated + i] = call->in[0].value[h * size + i];
            k[rotated + i] = call->in[1].value[h * of_kv + i];
        }
        for (int64_t i = plain; i < of_kv; i++)
            v[i - plain] = call->in[1].value[h * of_kv + i];
    }
}

static void mla_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = call->in[0].dtype, .shape = call->in[0].shape};
    call->out[0].shape.dim[2] *= 3;
}

static void mla_grad_reference(tx_call *call)
{
    const int64_t heads = call->attrs.attention.heads, size = tx_array_last(&call->in[0]) / 3 / heads,
                  plain = call->attrs.rows, rotated = size - plain, of_kv = plain + call->attrs.vocab,
                  rows = tx_array_rows(&call->in[0]);
    for (int64_t i = 0; i < call->out[2].count; i++)
        tx_array_put(&call->out[2], i, 0.0, 0.0);
    for (int64_t h = 0; h < rows * heads; h++) {
        const double *q = call->in[0].value + (h / heads * 3 * heads + h % heads) * size, *k = q + heads * size;
        for (int64_t i = 0; i < size; i++)
            tx_array_put(&call->out[0], h * size + i, i < plain ? q[rotated + i] : q[place(call, i - plain, rotated)],
                         0.0);
        for (int64_t i = 0; i < of_kv; i++)
            tx_array_put(&call->out[1], h * of_kv + i, i < plain ? k[rotated + i] : k[heads * size + i - plain], 0.0);
        for (int64_t i = 0; i < rotated; i++) {
            const double term = k[place(call, i, rotated)];
            tx_array_add(&call->out[2], h / heads * rotated + i, term, fabs(term));
        }
    }
}

static void mla_grad_outputs(tx_call *call)
{
    const tx_shape *d = &call->in[0].shape;
    const int64_t heads = call->attrs.attention.heads, size = d->dim[2] / 3 / heads;
    for (int i = 0; i < 3; i++)
        call->out[i] = (tx_array){.dtype = i < 2 ? call->in[0].dtype : TX_F32, .shape = *d};
    call->out[0].shape.dim[2] = heads * size;
    call->out[1].shape.dim[2] = heads * (call->attrs.rows + call->attrs.vocab);
    call->out[2].shape.dim[2] = size - call->attrs.rows;
}

/* Heads, elements that do not rotate, those that do, values; batch and time. */
static const int64_t sizes[][6] = {{1, 1, 2, 1, 1, 1}, {3, 5, 4, 7, 2, 3},   {4, 16, 8, 12, 2, 5},
                                   {2, 3, 6, 9, 1, 7}, {5, 24, 8, 32, 3, 2}, {16, 128, 64, 128, 4, 512}};
static const tx_dtype floats[] = {TX_F32, TX_BF16, TX_F16};

static void add_cases(tx_cases *list, bool gradient)
{
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int t = 0; t < 6; t++) {
            const int64_t *n = sizes[s], heads = n[0];
            tx_case *c = tx_case_add(list, "%s %d heads of %d and %d, %d%s", tx_dtype_name(floats[t / 2]), (int)n[0],
                                     (int)n[1], (int)n[2], (int)n[3], t % 2 ? ", pairs" : "");
            c->attrs.attention.heads = (int32_t)heads;
            c->attrs.step = 1 + t % 2;
            if (gradient) {
                c->in[0] = tx_spec_real(TX_SHAPE(n[4], n[5], 3 * heads * (n[1] + n[2])));
                c->attrs.rows = n[1];
                c->attrs.vocab = n[3];
            } else {
                c->in[0] = tx_spec_real(TX_SHAPE(n[4], n[5], heads * (n[1] + n[2])));
                c->in[1] = tx_spec_real(TX_SHAPE(n[4], n[5], heads * (n[1] + n[3])));
                c->in[2] = tx_spec_real(TX_SHAPE(n[4], n[5], n[2]));
            }
            for (int i = 0; i < (gradient ? 1 : 3); i++)
                c->in[i].dtype = floats[t / 2];
            c->flags = TX_CASE_ZEROS | (n[5] == 512 ? TX_CASE_BENCH : 0u);
        }
}

static void mla_cases(tx_cases *list)
{
    add_cases(list, false);
}

static void mla_grad_cases(tx_cases *list)
{
    add_cases(list, true);
}

const tx_descriptor tx_descriptor_mla_qkv = {.cases = mla_cases, .outputs = mla_outputs, .reference = mla_reference};
const tx_descriptor tx_descriptor_mla_qkv_grad = {
    .cases = mla_grad_cases, .outputs = mla_grad_outputs, .reference = mla_grad_reference};
