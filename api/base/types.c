/* SPDX-License-Identifier: Apache-2.0
 * Data types and their conversion, shapes, and the names of enumerations. */
#include "tx.h"

#include "api/base/blocks.h"
#include "api/base/needs.h"
#include "backends/nf4.h"
#include "backends/q8.h"

#include <inttypes.h>
#include <stdio.h>

size_t tx_dtype_size(tx_dtype dtype)
{
    static const size_t size[] = {
#define X(name, bytes, text) bytes,
        TX_DTYPE_MAP(X)
#undef X
    };
    return dtype < TX_DTYPE_COUNT ? size[dtype] : 0;
}

bool tx_dtype_packed(tx_dtype dtype)
{
    return dtype == TX_NF4 || dtype == TX_NF4_DOUBLE || dtype == TX_MXFP4 || dtype == TX_Q8 ||
           tx_block_values(dtype) > 0;
}

int64_t tx_packed_unit(tx_dtype dtype)
{
    const int64_t values = tx_block_values(dtype);
    return values ? values : dtype == TX_Q8 ? TX_Q8_BLOCK : dtype == TX_MXFP4 ? TX_E2M1_BLOCK : TX_NF4_BLOCK;
}

int64_t tx_dtype_bytes(tx_dtype dtype, int64_t count)
{
    if (tx_block_values(dtype) > 0)
        return tx_block_total(dtype, count);
    if (dtype == TX_Q8)
        return tx_q8_bytes(count);
    if (dtype == TX_MXFP4)
        return tx_mxfp4_bytes(count);
    return tx_dtype_packed(dtype) ? tx_nf4_bytes(count, dtype == TX_NF4_DOUBLE) : count * (int64_t)tx_dtype_size(dtype);
}

const char *tx_dtype_name(tx_dtype dtype)
{
    static const char *const name[] = {
#define X(name, bytes, text) text,
        TX_DTYPE_MAP(X)
#undef X
    };
    return dtype < TX_DTYPE_COUNT ? name[dtype] : "none";
}

void tx_to_f32(tx_dtype dtype, const void *from, int64_t count, float *to)
{
    const uint8_t *byte = from;
    const uint16_t *half = from;
    if (tx_block_values(dtype) > 0)
        tx_block_read(dtype, from, count, to);
    else
        for (int64_t i = 0; i < count; i++)
            to[i] = dtype == TX_U8 ? byte[i] : dtype == TX_BF16 ? tx_bf16_to_f32(half[i]) : tx_f16_to_f32(half[i]);
}

void tx_from_f32(tx_dtype dtype, const float *from, int64_t count, void *to)
{
    uint8_t *byte = to;
    for (int64_t i = 0; i < count; i++) {
        const uint16_t half = dtype == TX_BF16 ? tx_f32_to_bf16(from[i]) : tx_f32_to_f16(from[i]);
        if (dtype == TX_U8)
            byte[i] = (uint8_t)from[i];
        else
            memcpy(byte + i * (int64_t)sizeof half, &half, sizeof half);
    }
}

int64_t tx_shape_count(const tx_shape *shape)
{
    TX_NEEDS(shape, 0);
    int64_t count = 1;
    for (int32_t i = 0; i < shape->rank; i++)
        count *= shape->dim[i];
    return count;
}

int64_t tx_shape_last(const tx_shape *shape)
{
    TX_NEEDS(shape, 0);
    return shape->rank > 0 ? shape->dim[shape->rank - 1] : 1;
}

int64_t tx_shape_rows(const tx_shape *shape)
{
    TX_NEEDS(shape, 0);
    int64_t rows = 1;
    for (int32_t i = 0; i + 1 < shape->rank; i++)
        rows *= shape->dim[i];
    return rows;
}

bool tx_shape_equal(const tx_shape *a, const tx_shape *b)
{
    TX_NEEDS(a && b, false);
    if (a->rank != b->rank)
        return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

const char *tx_shape_text(const tx_shape *shape, char *text, size_t size)
{
    TX_NEEDS(shape && text, "");
    if (shape->rank < 0 || shape->rank > TX_MAX_RANK) {
        snprintf(text, size, "[of rank %" PRId32 "]", shape->rank);
        return text;
    }
    size_t used = (size_t)snprintf(text, size, "[");
    for (int32_t i = 0; i < shape->rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? ", " : "", shape->dim[i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
    return text;
}

const char *tx_memory_name(tx_memory_kind kind)
{
    static const char *const name[] = {
#define X(name, text) text,
        TX_MEMORY_MAP(X)
#undef X
    };
    return kind < TX_MEMORY_COUNT ? name[kind] : "none";
}

int64_t tx_memory_total(const tx_memory *memory)
{
    TX_NEEDS(memory, 0);
    int64_t total = 0;
    for (int i = 0; i < TX_MEMORY_COUNT; i++)
        total += i == TX_MEMORY_OFFLOADED ? 0 : memory->bytes[i];
    return total;
}

const char *tx_class_name(tx_op_class op_class)
{
    static const char *const name[] = {"contraction", "normalization", "element-wise", "movement", "collective"};
    return op_class < TX_CLASS_COUNT ? name[op_class] : "none";
}

const char *tx_direction_name(tx_direction direction)
{
    static const char *const name[] = {"forward", "recompute", "backward", "update"};
    return direction < TX_DIRECTION_COUNT ? name[direction] : "none";
}
