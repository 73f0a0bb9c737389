/* SPDX-License-Identifier: Apache-2.0
 * Merged weights of adapted layers (op ADD_LOW_RANK), by the function that merging calls. */
#include "api/base/low_rank.h"
#include "backends/cpu/simd.h"

static void add_row(const tx_cpu_call *call, int64_t matrix, int64_t row, float *y)
{
    const tx_command *c = call->command;
    const bool turned = c->attrs.trans_a;
    const tx_shape *a = &c->in[1].shape;
    const int64_t in = tx_shape_last(a), all = a->dim[a->rank - 2], rank = tx_shape_last(&c->in[2].shape),
                  columns = tx_shape_last(&c->in[0].shape);
    for (int i = 0; i < TX_PLACES && c->attrs.placed[i] > 0; i++) {
        const int64_t first = c->attrs.place[i], count = c->attrs.placed[i];
        const float *of_a = (const float *)call->in[1] + (matrix * all + i * rank) * in;
        const float *of_b = (const float *)call->in[2 + i] + matrix * count * rank;
        const tx_low_rank product = tx_low_rank_of(of_a, of_b, in, rank, c->attrs.alpha, turned);
        if (turned)
            tx_low_rank_add(&product, row, 0, count, y + first);
        else if (row >= first && row < first + count)
            tx_low_rank_add(&product, row - first, 0, columns, y);
    }
}

static void add_rows(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_shape *w = &call->command->in[0].shape;
    const int64_t columns = tx_shape_last(w), rows = w->dim[w->rank - 2];
    for (int64_t i = first; i < last; i++) {
        float *y = (float *)call->out[0] + i * columns;
        memcpy(y, (const float *)call->in[0] + i * columns, (size_t)columns * sizeof *y);
        add_row(call, i / rows, i % rows, y);
    }
}

void TX_CPU_NAME(add_low_rank)(const tx_cpu_call *call)
{
    const tx_shape *w = &call->command->in[0].shape;
    tx_cpu_slices(call, tx_shape_rows(w), tx_cpu_rows_grain(tx_shape_last(w)), add_rows);
}
