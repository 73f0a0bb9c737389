/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels for tensors that are divided among ranks: rows of tables, columns of tensors, keys of attention.
 */
#include "backends/cpu/move.h"

#include <math.h>

TX_ELEMENTS(tp_indices)
{
    const tx_attrs *a = &call->command->attrs;
    const int32_t *index = call->in[0];
    int32_t *y = call->out[0];
    for (int64_t i = first; i < last; i++) {
        const int64_t row = index[i] - a->first;
        const bool there = index[i] >= 0 && index[i] < a->vocab;
        y[i] = !there ? index[i] : row >= 0 && row < a->rows ? (int32_t)row : -1;
    }
}

TX_ROWS(take_columns, out[0])
{
    const int64_t of_x = tx_shape_last(&call->command->in[0].shape);
    tx_cpu_move(call, 0, row * of_x + call->command->attrs.first, row * width, width, tx_cpu_adds(call));
}

TX_ROWS(join_columns, out[0])
{
    const int64_t of_a = tx_shape_last(&call->command->in[0].shape), taken = call->command->attrs.rows;
    tx_cpu_move(call, 0, row * of_a, row * width, taken, false);
    tx_cpu_move(call, 1, row * (width - taken), row * width + taken, width - taken, false);
}

/* Merges attention over two sets of keys into attention over both. Processes all heads of a row (b, t). */
TX_ROWS(attention_merge, out[0])
{
    const tx_command *c = call->command;
    const int64_t heads = c->attrs.attention.heads, length = c->out[0].shape.dim[1], size = width / heads;
    const float *a_lse = call->in[1], *b_lse = call->in[3];
    float *lse = call->out[1], a[TX_PIECE], b[TX_PIECE];
    for (int64_t h = 0; h < heads; h++) {
        const int64_t at = (row / length * heads + h) * length + row % length;
        const float greater = a_lse[at] > b_lse[at] ? a_lse[at] : b_lse[at];
        const float of_a = tx_exp(a_lse[at] - greater), of_b = tx_exp(b_lse[at] - greater), sum = of_a + of_b;
        const float share_a = of_a / sum, share_b = of_b / sum;
        lse[at] = greater + logf(sum);
        for (int64_t start = 0; start < size; start += TX_PIECE) {
            const int64_t count = tx_min(size - start, TX_PIECE), from = row * width + h * size + start;
            tx_widen(a, call->in[0], c->in[0].dtype, from, count);
            tx_widen(b, call->in[2], c->in[2].dtype, from, count);
            TX_SIMD for (int64_t i = 0; i < count; i++) a[i] = a[i] * share_a + b[i] * share_b;
            tx_narrow(call->out[0], a, c->out[0].dtype, from, count);
        }
    }
}
