/* SPDX-License-Identifier: Apache-2.0
 * Sums over the ranks in the order of the tree: the bits depend on the number of ranks alone. */
#include "api/half.h"
#include "comm/common.h"

#include <string.h>

enum { SUM_BLOCK = 1024 }; /* elements whose sums stay in the first-level cache */

typedef union lane {
    float f32;
    uint32_t u32;
} lane;

static void load(lane *to, const void *from, int64_t first, int32_t count, tx_dtype dtype)
{
    if (dtype != TX_BF16) {
        memcpy(to, (const char *)from + first * (int64_t)sizeof *to, (size_t)count * sizeof *to);
        return;
    }
    for (int32_t i = 0; i < count; i++)
        to[i].f32 = tx_bf16_to_f32(((const uint16_t *)from)[first + i]);
}

static void add(lane *restrict to, const lane *restrict from, int32_t count, tx_dtype dtype)
{
    if (dtype == TX_I32)
        for (int32_t i = 0; i < count; i++)
            to[i].u32 += from[i].u32;
    else
        for (int32_t i = 0; i < count; i++)
            to[i].f32 += from[i].f32;
}

/* sum = elements first.. of all ranks' slots. */
static void sum_tree(const void *const *slot, int32_t ranks, int64_t first, int32_t count, tx_dtype dtype, lane *sum)
{
    lane other[SUM_BLOCK];
    int32_t split = ranks > 1 ? tx_comm_split(ranks) : 0;
    if (ranks == 1) {
        load(sum, slot[0], first, count, dtype);
        return;
    }
    sum_tree(slot, split, first, count, dtype, sum);
    sum_tree(slot + split, ranks - split, first, count, dtype, other);
    add(sum, other, count, dtype);
}

void tx_comm_sum(const void *const *slot, int32_t ranks, void *out, int64_t count, tx_dtype dtype)
{
    lane sum[SUM_BLOCK];
    for (int64_t at = 0; at < count; at += SUM_BLOCK) {
        int32_t length = count - at < SUM_BLOCK ? (int32_t)(count - at) : SUM_BLOCK;
        sum_tree(slot, ranks, at, length, dtype, sum);
        if (dtype == TX_BF16)
            for (int32_t i = 0; i < length; i++)
                ((uint16_t *)out)[at + i] = tx_f32_to_bf16(sum[i].f32);
        else
            memcpy((char *)out + at * (int64_t)sizeof *sum, sum, (size_t)length * sizeof *sum);
    }
}
