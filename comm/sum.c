/* SPDX-License-Identifier: Apache-2.0
 * Sums over the ranks, in rank order: the bits depend on the number of ranks alone. */
#include "api/half.h"
#include "comm/common.h"

#include <string.h>

enum { SUM_BLOCK = 1024 }; /* elements whose sums stay in the first-level cache */

static void sum_f32(const float *slots, int32_t ranks, float *out, int32_t count)
{
    for (int32_t at = 0; at < count; at += SUM_BLOCK) {
        int32_t end = count - at < SUM_BLOCK ? count : at + SUM_BLOCK;
        memcpy(out + at, slots + at, (size_t)(end - at) * sizeof *out);
        for (int32_t r = 1; r < ranks; r++) {
            const float *slot = slots + (int64_t)r * count;
            for (int32_t i = at; i < end; i++)
                out[i] += slot[i];
        }
    }
}

static void sum_bf16(const uint16_t *slots, int32_t ranks, uint16_t *out, int32_t count)
{
    for (int32_t at = 0; at < count; at += SUM_BLOCK) {
        int32_t length = count - at < SUM_BLOCK ? count - at : SUM_BLOCK;
        float sum[SUM_BLOCK];
        for (int32_t i = 0; i < length; i++)
            sum[i] = tx_bf16_to_f32(slots[at + i]);
        for (int32_t r = 1; r < ranks; r++) {
            const uint16_t *slot = slots + (int64_t)r * count + at;
            for (int32_t i = 0; i < length; i++)
                sum[i] += tx_bf16_to_f32(slot[i]);
        }
        for (int32_t i = 0; i < length; i++)
            out[at + i] = tx_f32_to_bf16(sum[i]);
    }
}

/* Wraps round on overflow. */
static void sum_i32(const uint32_t *slots, int32_t ranks, uint32_t *out, int32_t count)
{
    memcpy(out, slots, (size_t)count * sizeof *out);
    for (int32_t r = 1; r < ranks; r++)
        for (int32_t i = 0; i < count; i++)
            out[i] += slots[(int64_t)r * count + i];
}

void tx_comm_sum(const void *slots, int32_t ranks, void *out, int32_t count, tx_dtype dtype)
{
    if (count == 0)
        return;
    if (dtype == TX_F32)
        sum_f32(slots, ranks, out, count);
    else if (dtype == TX_BF16)
        sum_bf16(slots, ranks, out, count);
    else
        sum_i32(slots, ranks, out, count);
}
