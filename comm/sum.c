/* SPDX-License-Identifier: Apache-2.0
 * Sums in tree order; the bits depend only on the number of ranks. Each block of elements is summed in the
 * first-level cache and then copied to its destinations, so that memory is read and written once. */
#include "api/base/half.h"
#include "comm/common.h"

#include <string.h>

enum { SUM_BLOCK = 2048 }; /* elements */

typedef union lane {
    float f32;
    uint32_t u32;
} lane;

static void load(lane *restrict to, const tx_term *from, int64_t first, int32_t count)
{
    if (from->dtype != TX_BF16) {
        memcpy(to, (const char *)from->data + first * (int64_t)sizeof *to, (size_t)count * sizeof *to);
        return;
    }
    const uint16_t *half = (const uint16_t *)from->data + first;
    for (int32_t i = 0; i < count; i++)
        to[i].f32 = tx_bf16_to_f32(half[i]);
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

/* Fast path for the usual case of two terms that need no conversion. */
static void add_two(lane *restrict sum, const float *restrict a, const float *restrict b, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        sum[i].f32 = a[i] + b[i];
}

/* Computes `count` elements of the sum, from element `first` on. The terms cover `ranks` ranks. */
static void sum_tree(const tx_term *term, int32_t ranks, int64_t first, int32_t count, lane *sum)
{
    if (term->ranks == ranks) {
        load(sum, term, first, count);
        return;
    }
    int32_t split = tx_comm_split(ranks), left = 0;
    const tx_term *right = term;
    while (left < split)
        left += right++->ranks;
    if (term->ranks == split && right->ranks == ranks - split && term->dtype == TX_F32 && right->dtype == TX_F32) {
        add_two(sum, (const float *)term->data + first, (const float *)right->data + first, count);
        return;
    }
    lane other[SUM_BLOCK];
    sum_tree(term, split, first, count, sum);
    sum_tree(right, ranks - split, first, count, other);
    add(sum, other, count, term->dtype);
}

void tx_comm_sum(const tx_term *term, int32_t terms, void *const *out, int32_t outs, int64_t count, tx_dtype dtype)
{
    lane sum[SUM_BLOCK];
    uint16_t half[SUM_BLOCK];
    int32_t ranks = 0;
    for (int32_t i = 0; i < terms; i++)
        ranks += term[i].ranks;
    const int64_t bytes = (int64_t)tx_dtype_size(dtype);
    for (int64_t at = 0; at < count; at += SUM_BLOCK) {
        int32_t length = count - at < SUM_BLOCK ? (int32_t)(count - at) : SUM_BLOCK;
        sum_tree(term, ranks, at, length, sum);
        if (dtype == TX_BF16)
            for (int32_t i = 0; i < length; i++)
                half[i] = tx_f32_to_bf16(sum[i].f32);
        const void *from = dtype == TX_BF16 ? (const void *)half : sum;
        for (int32_t i = 0; i < outs; i++)
            memcpy((char *)out[i] + at * bytes, from, (size_t)(length * bytes));
    }
}
