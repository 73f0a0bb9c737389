/* SPDX-License-Identifier: Apache-2.0
 * Rows that move by an amount that grows with the row: reference and cases. */
#include "tests/ops/case.h"

static void shift_reference(tx_call *call)
{
    const tx_shape *x = &call->in[0].shape;
    const int64_t columns = call->attrs.rows, width = x->dim[x->rank - 1], rows = x->dim[x->rank - 2];
    for (int64_t i = 0; i < call->out[0].count; i++) {
        const int64_t row = i / columns, from = i % columns + call->attrs.first + row % rows * call->attrs.step;
        const bool inside = from >= 0 && from < width;
        tx_array_put(&call->out[0], i, inside ? call->in[0].value[row * width + from] : 0.0, 0.0);
    }
}

static void shift_outputs(tx_call *call)
{
    tx_shape y = call->in[0].shape;
    y.dim[y.rank - 1] = call->attrs.rows;
    call->out[0] = (tx_array){.dtype = call->in[0].dtype, .shape = y};
}

static void shift_cases(tx_cases *list)
{
    static const struct {
        tx_shape x;
        int64_t columns, first;
        int32_t step;
    } all[] = {{{2, {1, 1}}, 1, 0, 0},          {{3, {3, 5, 10}}, 5, 4, -1}, {{3, {3, 5, 5}}, 9, -4, 1},
               {{4, {2, 3, 4, 17}}, 19, -3, 2}, {{2, {6, 17}}, 13, 9, -4},   {{3, {2, 3, 4}}, 6, -2, 1},
               {{3, {96, 64, 128}}, 64, 63, -1}};
    static const tx_dtype floats[] = {TX_F32, TX_BF16, TX_F16};
    for (size_t s = 0; s < sizeof all / sizeof all[0]; s++)
        for (int t = 0; t < 3; t++) {
            char text[64];
            tx_case *c = tx_case_add(list, "%s %s from %d by %d", tx_shape_text(&all[s].x, text, sizeof text),
                                     tx_dtype_name(floats[t]), (int)all[s].first, (int)all[s].step);
            c->in[0] = tx_spec_real(all[s].x);
            c->in[0].dtype = floats[t];
            c->attrs.rows = all[s].columns;
            c->attrs.first = all[s].first;
            c->attrs.step = all[s].step;
            c->flags = all[s].x.dim[0] > 90 && t == 0 ? TX_CASE_BENCH : 0u;
        }
}

const tx_descriptor tx_descriptor_shift_rows = {
    .cases = shift_cases, .outputs = shift_outputs, .reference = shift_reference};
