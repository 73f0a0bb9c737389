/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers: Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011).
 * This file is valid C and OpenCL C, so every backend draws the same numbers.
 *
 * The key and counter of a draw identify its element, not the thread, node or rank that computes it:
 *
 *   key      Seed and optimizer step.
 *   counter  Global sample number, site in the model, row and column of the element, plane (attention head).
 *
 * One Philox block serves four neighbouring columns: column c uses word (c & 3) of block (c >> 2).
 */
#ifndef TX_RNG_H
#define TX_RNG_H

#ifdef __OPENCL_VERSION__
typedef uint tx_u32;
typedef ulong tx_u64;
#define TX_RNG_FN static
#else
#include <stdint.h>
typedef uint32_t tx_u32;
typedef uint64_t tx_u64;
#define TX_RNG_FN static inline
#endif

typedef struct {
    tx_u32 word[4];
} tx_random;

TX_RNG_FN tx_random tx_philox(tx_u32 c0, tx_u32 c1, tx_u32 c2, tx_u32 c3, tx_u32 k0, tx_u32 k1)
{
    for (int round = 0; round < 10; round++) {
        tx_u64 p0 = (tx_u64)0xD2511F53u * c0, p1 = (tx_u64)0xCD9E8D57u * c2;
        tx_u32 h0 = (tx_u32)(p0 >> 32), h1 = (tx_u32)(p1 >> 32);
        c0 = h1 ^ c1 ^ k0;
        c2 = h0 ^ c3 ^ k1;
        c1 = (tx_u32)p1;
        c3 = (tx_u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    tx_random r = {{c0, c1, c2, c3}};
    return r;
}

/* Returns the four numbers for columns 4 * block .. 4 * block + 3; block < 2^20, plane < 2^12. */
TX_RNG_FN tx_random tx_draw(tx_u32 seed_lo, tx_u32 seed_hi, tx_u32 step, tx_u32 sample, tx_u32 site, tx_u32 plane,
                            tx_u32 row, tx_u32 block)
{
    return tx_philox(block | (plane << 20), row, sample, site, seed_lo, seed_hi ^ (step * 0x85EBCA6Bu));
}

/* The site of the draws for stochastic rounding in optimizer updates; no model site has this number. Sample and
 * plane are 0. The row is the block of TX_PARAM_BLOCK elements of the arena, the column the element in the block.
 * Bits 0-15 of a number round the weight, 16-31 its first moment, 8-23 its second. */
#define TX_UPDATE_SITE 0xFFFFFFFFu

/* The site of the draws of random projections in optimizer updates. The step is tx_projection_number, the sample the
 * key of the tensor. */
#define TX_PROJECTION_SITE 0xFFFFFFFEu

/* Returns the number of projections before that of update number `updates`, which counts from 1. `steps` updates have
 * the same projection. */
TX_RNG_FN tx_u32 tx_projection_number(float updates, tx_u32 steps)
{
    return updates < 1.0f ? 0u : ((tx_u32)updates - 1u) / steps;
}

/* Dropout keeps an element if its number is at or above this threshold. The threshold is exact on every backend. p
 * in [0, 1). */
TX_RNG_FN tx_u32 tx_dropout_threshold(float p)
{
    return (tx_u32)(p * 16777216.0f) << 8;
}

#endif
