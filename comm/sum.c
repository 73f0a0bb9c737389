/* SPDX-License-Identifier: Apache-2.0
 * Sums in tree order; the bits depend only on the number of ranks. Each block of elements is summed in the
 * first-level cache and then copied to its destinations, so that memory is read and written once. */
#include "api/base/half.h"
#include "comm/common.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { SUM_BLOCK = 2048 }; /* elements; a multiple of TX_COMM_BLOCK */

/* Elements in 8 bits. The last block of a message may have fewer; the rest of it is 0. */
typedef struct small_block {
    float scale; /* NaN if an element is not finite */
    int8_t value[TX_COMM_BLOCK];
} small_block;
_Static_assert(sizeof(small_block) == sizeof(float) + TX_COMM_BLOCK, "tx_comm_bytes counts other bytes");

typedef union lane {
    float f32;
    uint32_t u32;
} lane;

/* Whole blocks: `to` has room for them. */
static void load_small(lane *restrict to, const small_block *restrict from, int32_t count)
{
    for (int32_t first = 0; first < count; first += TX_COMM_BLOCK, from++)
        for (int32_t i = 0; i < TX_COMM_BLOCK; i++)
            to[first + i].f32 = from->scale * (float)from->value[i];
}

/* Whole blocks: what follows the elements is set to 0. Nothing branches within a block, so that compilers use vectors.
 * A float above 2^23 has no bits after the point, so the lowest byte of 1.5 * 2^23 + x is x, rounded. */
static void store_small(small_block *restrict to, lane *restrict from, int32_t count)
{
    for (int32_t i = count; i % TX_COMM_BLOCK != 0; i++)
        from[i].f32 = 0.0f;
    for (int32_t first = 0; first < count; first += TX_COMM_BLOCK, to++) {
        int32_t bits = 0; /* of the largest magnitude: bits of magnitudes are in the order of the magnitudes */
        for (int32_t i = 0; i < TX_COMM_BLOCK; i++) {
            const int32_t one = (int32_t)(from[first + i].u32 & INT32_MAX);
            bits = one > bits ? one : bits;
        }
        const float most = tx_float_of((uint32_t)bits), inverse = most >= 127.0f * FLT_MIN ? 127.0f / most : 0.0f;
        to->scale = !isfinite(most) ? NAN : inverse > 0.0f ? most / 127.0f : 0.0f;
        for (int32_t i = 0; i < TX_COMM_BLOCK; i++)
            to->value[i] = (int8_t)tx_bits_of(from[first + i].f32 * inverse + 0x1.8p23f);
    }
}

static void load(lane *restrict to, const tx_term *from, int64_t first, int32_t count)
{
    if (from->dtype == TX_U8) {
        load_small(to, (const small_block *)from->data + first / TX_COMM_BLOCK, count);
        return;
    }
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
    small_block small[SUM_BLOCK / TX_COMM_BLOCK];
    int32_t ranks = 0;
    for (int32_t i = 0; i < terms; i++)
        ranks += term[i].ranks;
    for (int64_t at = 0; at < count; at += SUM_BLOCK) {
        int32_t length = count - at < SUM_BLOCK ? (int32_t)(count - at) : SUM_BLOCK;
        const void *from = sum;
        sum_tree(term, ranks, at, length, sum);
        if (dtype == TX_BF16) {
            for (int32_t i = 0; i < length; i++)
                half[i] = tx_f32_to_bf16(sum[i].f32);
            from = half;
        } else if (dtype == TX_U8) {
            store_small(small, sum, length);
            from = small;
        }
        for (int32_t i = 0; i < outs; i++)
            memcpy((char *)out[i] + tx_comm_bytes(at, dtype), from, (size_t)tx_comm_bytes(length, dtype));
    }
}
