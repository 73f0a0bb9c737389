/* SPDX-License-Identifier: Apache-2.0
 * The gradient of attention sinks: reference and cases. */
#include "tests/ops/case.h"
#include "tests/ops/check.h"

#include <math.h>

static void attention_sink_grad_reference(tx_call *call)
{
    const tx_array *d_o = &call->in[0], *o = &call->in[1], *lse = &call->in[2], *sinks = &call->in[3];
    const int64_t time = o->shape.dim[1], heads = sinks->count, size = o->shape.dim[2] / heads;
    for (int64_t i = 0; i < call->out[0].count; i++) {
        const int64_t h = i % heads, row = i / heads;
        const double exponent = sinks->value[h] - lse->value[(row / time * heads + h) * time + row % time];
        double sum = 0.0, magnitude = 0.0;
        for (int64_t k = i * size; k < (i + 1) * size; k++) {
            sum += d_o->value[k] * o->value[k];
            magnitude += fabs(d_o->value[k] * o->value[k]);
        }
        tx_array_put(&call->out[0], i, -exp(exponent) * sum, exp(exponent) * magnitude * (1.0 + fabs(exponent)));
    }
}

static void attention_sink_grad_outputs(tx_call *call)
{
    const tx_shape *o = &call->in[1].shape;
    call->out[0] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(o->dim[0], o->dim[1], call->in[3].count)};
}

static double sink_length(const tx_call *call)
{
    return (double)call->in[1].shape.dim[2] / (double)call->in[3].count;
}

static void attention_sink_grad_cases(tx_cases *list)
{
    static const int32_t sizes[][4] = {{1, 1, 1, 8},   {2, 5, 2, 8},   {1, 17, 3, 16}, {3, 33, 2, 64},
                                       {1, 65, 4, 12}, {2, 7, 5, 128}, {1, 3, 1, 256}, {2, 31, 3, 10}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int32_t batch = sizes[i][0], time = sizes[i][1], heads = sizes[i][2], size = sizes[i][3];
        tx_case *c = tx_case_add(list, "b%d t%d h%d d%d", batch, time, heads, size);
        c->in[0] = c->in[1] = tx_spec_real(TX_SHAPE(batch, time, heads * size));
        c->in[2] = tx_spec_real(TX_SHAPE(batch, heads, time));
        c->in[3] = tx_spec_real(TX_SHAPE(heads));
    }
    tx_case_half(list, 3, false);
}

const tx_descriptor tx_descriptor_attention_sink_grad = {.cases = attention_sink_grad_cases,
                                                         .outputs = attention_sink_grad_outputs,
                                                         .reference = attention_sink_grad_reference,
                                                         .length = sink_length};
