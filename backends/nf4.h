/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of 4 bits for weights that do not change (Dettmers et al., QLoRA, 2023): NormalFloat, whose 16 values are
 * quantiles of the normal distribution, by blocks of 64 neighbours that share their greatest magnitude ("absmax"); with
 * double quantisation these are 8-bit codes of dynamic_map.h by groups of 256 blocks. Values, codes and their order in
 * a byte are those of bitsandbytes.
 *
 * `count` elements, a multiple of 64, lie in one piece of memory:
 *   codes      count / 2 bytes; element 2 i is the upper half of byte i
 * NF4, then
 *   absmax     fp32, one a block
 * NF4_DOUBLE, then
 *   map        fp32, 256: what a code of an absmax stands for
 *   groups     fp32, two a group: scale and mean; absmax = scale map[code] + mean
 *   codes of absmax, a byte a block
 *
 * An element is value[code] absmax in fp32, rounded to the type of the operand that it is multiplied with. Written so
 * that C and OpenCL C compile the same text. */
#ifndef TX_NF4_H
#define TX_NF4_H

#ifdef __OPENCL_VERSION__
#define TX_NF4_FN static
#define TX_NF4_CONSTANT __constant
#else
#include <stdint.h>
#define TX_NF4_FN static inline
#define TX_NF4_CONSTANT static const
#endif

#define TX_NF4_BLOCK 64
#define TX_NF4_GROUP 256 /* blocks */
#define TX_NF4_MAP 256

TX_NF4_CONSTANT float tx_nf4_value[16] = {
    -1.0f,         -0.696192801f, -0.525073051f, -0.394917488f, -0.284441382f, -0.184773430f, -0.0910500363f, 0.0f,
    0.0795802996f, 0.160930201f,  0.246112302f,  0.337915242f,  0.440709829f,  0.562617004f,  0.722956836f,   1.0f,
};

#ifndef __OPENCL_VERSION__
TX_NF4_FN int64_t tx_nf4_groups(int64_t count)
{
    return (count / TX_NF4_BLOCK + TX_NF4_GROUP - 1) / TX_NF4_GROUP;
}

/* Where the parts behind the codes begin, in bytes. */
TX_NF4_FN int64_t tx_nf4_absmax_at(int64_t count)
{
    return count / 2;
}
TX_NF4_FN int64_t tx_nf4_map_at(int64_t count)
{
    return count / 2;
}
TX_NF4_FN int64_t tx_nf4_groups_at(int64_t count)
{
    return tx_nf4_map_at(count) + TX_NF4_MAP * (int64_t)sizeof(float);
}
TX_NF4_FN int64_t tx_nf4_codes_at(int64_t count)
{
    return tx_nf4_groups_at(count) + 2 * tx_nf4_groups(count) * (int64_t)sizeof(float);
}

TX_NF4_FN int64_t tx_nf4_bytes(int64_t count, int twice)
{
    const int64_t blocks = count / TX_NF4_BLOCK;
    return twice ? tx_nf4_codes_at(count) + blocks : tx_nf4_absmax_at(count) + blocks * (int64_t)sizeof(float);
}
#endif

#endif
