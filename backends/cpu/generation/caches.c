/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of key-value caches.
 */
#include "backends/cpu/simd.h"

void TX_CPU_NAME(attention_cached)(const tx_cpu_call *call)
{
    TX_CPU_NAME(attention)(call);
}

/* An item is a position of the call. */
static void kv_append_positions(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_operand *in = call->command->in;
    const tx_shape *qkv = &in[0].shape, *cache = &in[1].shape;
    const bool blocks = in[1].dtype == TX_U8;
    const int64_t batch = qkv->dim[0], length = qkv->dim[1], width = qkv->dim[2], capacity = cache->dim[1],
                  keys = tx_block_columns(in[1].dtype, cache->dim[2]), unit = (int64_t)tx_dtype_size(in[0].dtype);
    for (int64_t b = 0; b < batch; b++) {
        const int64_t start = tx_cpu_position(call, 3, b, capacity - length), row = tx_cpu_slot(call, b);
        for (int64_t t = 2 * first; t < 2 * last; t += call->out[0] == call->out[1] ? 2 : 1) { /* keys, then values */
            const int64_t from = (b * length + t / 2) * width + width - (2 - t % 2) * keys;
            const int64_t to = (row * capacity + start + t / 2) * keys;
            float piece[32];
            if (!blocks)
                memcpy((char *)call->out[t % 2] + to * unit, (const char *)call->in[0] + from * unit,
                       (size_t)(keys * unit));
            for (int64_t i = 0; blocks && i < keys; i += 32)
                tx_block_round_q8_0(tx_run_of(call->in[0], in[0].dtype, from + i, 32, piece),
                                    (uint8_t *)call->out[t % 2] + tx_block_run(TX_Q8_0, to + i));
        }
    }
}

void TX_CPU_NAME(kv_append)(const tx_cpu_call *call)
{
    const tx_shape *qkv = &call->command->in[0].shape, *cache = &call->command->out[0].shape;
    tx_cpu_slices(call, qkv->dim[1], tx_cpu_rows_grain(qkv->dim[0] * cache->dim[2]), kv_append_positions);
}

/* Whether the row of sample b at a position becomes another sample's. */
static bool moves(const tx_cpu_call *call, int64_t b, int64_t position)
{
    const tx_shape *shape = &call->command->in[0].shape;
    const int32_t source = ((const int32_t *)call->in[2])[b];
    return source != b && source >= 0 && source < shape->dim[0] &&
           position < tx_cpu_position(call, 3, b, shape->dim[1]);
}

/* Reorders the rows at one position of all samples. It copies those that move first, so that any order is possible. */
static void reorder_position(const tx_cpu_call *call, char *cache, int64_t position)
{
    const tx_shape *shape = &call->command->in[0].shape;
    const int64_t width = shape->dim[2] * (int64_t)tx_dtype_size(call->command->in[0].dtype);
    const int64_t batch = shape->dim[0], step = shape->dim[1] * width;
    const int32_t *sources = call->in[2];
    char *row = cache + position * width, *copies = call->scratch;
    for (int64_t b = 0; b < batch; b++)
        if (moves(call, b, position))
            memcpy(copies + b * width, row + sources[b] * step, (size_t)width);
    for (int64_t b = 0; b < batch; b++)
        if (moves(call, b, position))
            memcpy(row + b * step, copies + b * width, (size_t)width);
}

static void kv_reorder_positions(const tx_cpu_call *call, int64_t first, int64_t last)
{
    for (int64_t position = first; position < last; position++)
        for (int i = 0; i < (call->out[0] == call->out[1] ? 1 : 2); i++)
            reorder_position(call, call->out[i], position);
}

void TX_CPU_NAME(kv_reorder)(const tx_cpu_call *call)
{
    const tx_shape *cache = &call->command->in[0].shape;
    tx_cpu_slices(call, cache->dim[1], tx_cpu_rows_grain(2 * cache->dim[0] * cache->dim[2]), kv_reorder_positions);
}
