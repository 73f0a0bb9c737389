/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads of 4-bit weights (backends/nf4.h) for kernels with an optionally packed b. Option NF4 is 1 with fp32 absmax
 * and 2 with double quantization. If it is 0 or absent, b has type AB. Elements are rounded to AB, the storage type
 * of a.
 */
#ifndef NF4
#define NF4 0
#endif

#if NF4
#include "backends/nf4.h"

typedef uchar b_t;

/* The table of values in local memory, where work-items that look up different values do not delay each other. */
#define TX_NF4_VALUES(item, items)                                                                                     \
    __local float nf4_values[16];                                                                                      \
    for (int code = (item); code < 16; code += (items))                                                                \
        nf4_values[code] = tx_nf4_value[code];                                                                         \
    barrier(CLK_LOCAL_MEM_FENCE);

#define TX_ROUND_f32(v) (v)
#define TX_ROUND_bf16(v) tx_round_bf16(v)
#define TX_ROUND_f16(v) tx_round_f16(v)

/* Tests the bits, because isnan of PoCL 3.1 is true for numbers in vectorized parts of gemm_tile. */
static float tx_round_bf16(float v)
{
    const uint u = as_uint(v);
    const uint rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) & 0xFFFF0000u;
    return as_float((u & 0x7FFFFFFFu) > 0x7F800000u ? u | 0x400000u : rounded);
}

/* Without half operands, which rusticl of Mesa 26.2 leaves unrounded in private memory. Below 2^-14 all numbers are
 * multiples of 2^-24, as fp32 numbers between 0.5 and 1 are. */
static float tx_round_f16(float v)
{
    const float shift = copysign(0.5f, v);
    uint u = as_uint(v);
    u = (u + 0xFFFu + ((u >> 13) & 1u)) & ~0x1FFFu;
    if (fabs(v) < 0x1p-14f)
        return copysign((v + shift) - shift, v);
    return fabs(v) < 65520.0f ? as_float(u) : v * INFINITY;
}

/* Returns the absmax of the block of element `i` of a matrix of `count` elements. */
static float tx_nf4_absmax(const __global uchar *w, long count, long i)
{
    const long block = i / TX_NF4_BLOCK;
    const __global float *sections = (const __global float *)(w + count / 2);
#if NF4 == 1
    return sections[block];
#else
    const long groups = (count / TX_NF4_BLOCK + TX_NF4_GROUP - 1) / TX_NF4_GROUP;
    const __global float *group = sections + TX_NF4_MAP;
    const __global uchar *codes = (const __global uchar *)(group + 2 * groups);
    return group[block / TX_NF4_GROUP * 2] * sections[codes[block]] + group[block / TX_NF4_GROUP * 2 + 1];
#endif
}

#define TX_NF4_ELEMENT(code) TX_CAT(TX_ROUND_, AB)(values[code] * absmax)

/* Returns elements i .. i + 3; i is a multiple of 4. */
TX_INLINE float4 tx_nf4_quad(const __global uchar *w, long count, long i, const __local float *values)
{
    const float absmax = tx_nf4_absmax(w, count, i);
    const uchar2 pairs = *(const __global uchar2 *)(w + i / 2);
    return (float4)(TX_NF4_ELEMENT(pairs.s0 >> 4), TX_NF4_ELEMENT(pairs.s0 & 15), TX_NF4_ELEMENT(pairs.s1 >> 4),
                    TX_NF4_ELEMENT(pairs.s1 & 15));
}

/* Stores elements i .. i + lanes - 1, of one block, in `to`. i is a multiple of `lanes`, which is 1 or even. */
TX_INLINE void tx_nf4_lanes(const __global uchar *w, long count, long i, int lanes, const __local float *values,
                            float *to)
{
    const float absmax = tx_nf4_absmax(w, count, i);
    if (lanes == 1)
        to[0] = TX_NF4_ELEMENT(i & 1 ? w[i / 2] & 15 : w[i / 2] >> 4);
    for (int e = 0; e + 1 < lanes; e += 2) {
        const uchar pair = w[(i + e) / 2];
        to[e] = TX_NF4_ELEMENT(pair >> 4);
        to[e + 1] = TX_NF4_ELEMENT(pair & 15);
    }
}
#else
typedef TX_CAT(AB, _t) b_t;
#define TX_NF4_VALUES(item, items)
#endif
