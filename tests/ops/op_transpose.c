/* SPDX-License-Identifier: Apache-2.0
 * Swapped dimensions: reference and cases. */
#include "tests/ops/case.h"

static void transpose_reference(tx_call *call)
{
    const tx_shape *y = &call->out[0].shape;
    const int64_t c = y->dim[y->rank - 1], a = y->dim[y->rank - 2], b = y->dim[y->rank - 3];
    for (int64_t i = 0; i < call->out[0].count; i++) {
        const int64_t outer = i / (a * b * c), in_b = i / (a * c) % b, in_a = i / c % a;
        tx_array_put(&call->out[0], i, call->in[0].value[((outer * a + in_a) * b + in_b) * c + i % c], 0.0);
    }
}

static void transpose_outputs(tx_call *call)
{
    tx_shape y = call->in[0].shape;
    y.dim[y.rank - 3] = call->in[0].shape.dim[y.rank - 2];
    y.dim[y.rank - 2] = call->in[0].shape.dim[y.rank - 3];
    call->out[0] = (tx_array){.dtype = call->in[0].dtype, .shape = y};
}

static void transpose_cases(tx_cases *list)
{
    static const tx_shape shapes[] = {
        {3, {1, 1, 1}}, {3, {3, 5, 7}}, {4, {2, 12, 3, 16}}, {4, {5, 3, 4, 33}}, {4, {1024, 12, 3, 64}}};
    static const tx_dtype floats[] = {TX_F32, TX_BF16, TX_F16};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int t = 0; t < 3; t++) {
            char text[64];
            tx_case *c =
                tx_case_add(list, "%s %s", tx_shape_text(&shapes[s], text, sizeof text), tx_dtype_name(floats[t]));
            c->in[0] = tx_spec_real(shapes[s]);
            c->in[0].dtype = floats[t];
            c->flags = shapes[s].dim[0] > 1000 && t == 0 ? TX_CASE_BENCH : 0u;
        }
}

const tx_descriptor tx_descriptor_transpose = {
    .cases = transpose_cases, .outputs = transpose_outputs, .reference = transpose_reference};
