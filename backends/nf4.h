/* SPDX-License-Identifier: Apache-2.0
 *
 * NormalFloat: 4-bit numbers for frozen weights (Dettmers et al., QLoRA, 2023). The 16 values are quantiles of the
 * normal distribution. Blocks of 64 neighbours share their greatest magnitude ("absmax"). With double quantization
 * an absmax is an 8-bit code of dynamic_map.h, in groups of 256 blocks. Values, codes and their order in a byte are
 * those of bitsandbytes.
 *
 * The layout of `count` elements, a multiple of 64, in memory.
 *
 *   codes           Count / 2 bytes. Element 2 i is the upper half of byte i.
 *
 * NF4 continues with:
 *
 *   absmax          One fp32 for each block.
 *
 * NF4_DOUBLE continues with:
 *
 *   map             256 fp32: the value of each code of an absmax.
 *   groups          Two fp32 for each group: scale and mean; absmax = scale * map[code] + mean.
 *   absmax codes    One byte for each block.
 *
 * MXFP4 (OCP Microscaling Formats, 2023) has other values and blocks of 32. After the codes it has:
 *
 *   exponents       One byte e for each block: absmax = 2^(e - 127).
 *
 * An element is value[code] * absmax in fp32, rounded to the type of the other operand of the product. This file is
 * valid C and OpenCL C.
 */
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

#define TX_E2M1_BLOCK 32
/* The bits of 2^(e - 127) in fp32. */
#define TX_E2M1_SCALE(e) ((e) > 0 ? (unsigned)(e) << 23 : 0x400000u)

/* The values of MXFP4. */
TX_NF4_CONSTANT float tx_e2m1_value[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                           -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

#ifndef __OPENCL_VERSION__
TX_NF4_FN int64_t tx_mxfp4_bytes(int64_t count)
{
    return count / 2 + count / TX_E2M1_BLOCK;
}

TX_NF4_FN int64_t tx_nf4_groups(int64_t count)
{
    return (count / TX_NF4_BLOCK + TX_NF4_GROUP - 1) / TX_NF4_GROUP;
}

/* Byte offsets of the sections after the codes. */
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
