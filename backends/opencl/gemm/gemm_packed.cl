/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads of packed weights for kernels with an optionally packed b. Option PACKED is 1 for NF4, 2 for NF4_DOUBLE
 * (backends/nf4.h), 3 for Q8 (backends/q8.h) and 4 for MXFP4 (backends/nf4.h). If it is 0 or absent, b has type AB.
 * Elements are rounded to AB, the storage type of a.
 */
#ifndef PACKED
#define PACKED 0
#endif

#if PACKED
typedef uchar b_t;

#define TX_ROUND_f32(v) (v)
#define TX_ROUND_bf16(v) as_float((uint)tx_narrow_bf16(v) << 16)
#define TX_ROUND_f16(v) tx_round_f16(v)

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

#if PACKED == 3
#include "backends/q8.h"

#define TX_PACKED_VALUES(item, items) const __local float *packed_values = 0;
#define TX_Q8_ELEMENT(code) TX_CAT(TX_ROUND_, AB)(convert_float(code) * scale)

static float tx_q8_scale(const __global uchar *w, long count, long i)
{
    return vload_half(i / TX_Q8_BLOCK, (const __global half *)(w + count));
}

/* Returns elements i .. i + 3; i is a multiple of 4. */
TX_INLINE float4 tx_packed_quad(const __global uchar *w, long count, long i, const __local float *values)
{
    const float scale = tx_q8_scale(w, count, i);
    const char4 code = *(const __global char4 *)(w + i);
    return (float4)(TX_Q8_ELEMENT(code.s0), TX_Q8_ELEMENT(code.s1), TX_Q8_ELEMENT(code.s2), TX_Q8_ELEMENT(code.s3));
}

/* Stores elements i .. i + lanes - 1, of one block, in `to`. */
TX_INLINE void tx_packed_lanes(const __global uchar *w, long count, long i, int lanes, const __local float *values,
                               float *to)
{
    const float scale = tx_q8_scale(w, count, i);
    for (int e = 0; e < lanes; e++)
        to[e] = TX_Q8_ELEMENT(((const __global char *)w)[i + e]);
}
#else
#include "backends/nf4.h"

#if PACKED == 4
#define PACKED_VALUE tx_e2m1_value
#else
#define PACKED_VALUE tx_nf4_value
#endif
/* The table of values in local memory, where work-items that look up different values do not delay each other. */
#define TX_PACKED_VALUES(item, items)                                                                                  \
    TX_LOCAL(float, packed_values, 16);                                                                                \
    for (int code = (item); code < 16; code += (items))                                                                \
        packed_values[code] = PACKED_VALUE[code];                                                                      \
    barrier(CLK_LOCAL_MEM_FENCE);

/* Returns the absmax of the block of element `i` of a matrix of `count` elements. */
static float tx_nf4_absmax(const __global uchar *w, long count, long i)
{
#if PACKED == 4
    return as_float(TX_E2M1_SCALE(w[count / 2 + i / TX_E2M1_BLOCK]));
#else
    const long block = i / TX_NF4_BLOCK;
    const __global float *sections = (const __global float *)(w + count / 2);
#if PACKED == 1
    return sections[block];
#else
    const long groups = (count / TX_NF4_BLOCK + TX_NF4_GROUP - 1) / TX_NF4_GROUP;
    const __global float *group = sections + TX_NF4_MAP;
    const __global uchar *codes = (const __global uchar *)(group + 2 * groups);
    return group[block / TX_NF4_GROUP * 2] * sections[codes[block]] + group[block / TX_NF4_GROUP * 2 + 1];
#endif
#endif
}

#define TX_NF4_ELEMENT(code) TX_CAT(TX_ROUND_, AB)(values[code] * absmax)

/* Returns elements i .. i + 3; i is a multiple of 4. */
TX_INLINE float4 tx_packed_quad(const __global uchar *w, long count, long i, const __local float *values)
{
    const float absmax = tx_nf4_absmax(w, count, i);
    const uchar2 pairs = *(const __global uchar2 *)(w + i / 2);
    return (float4)(TX_NF4_ELEMENT(pairs.s0 >> 4), TX_NF4_ELEMENT(pairs.s0 & 15), TX_NF4_ELEMENT(pairs.s1 >> 4),
                    TX_NF4_ELEMENT(pairs.s1 & 15));
}

/* Stores elements i .. i + lanes - 1, of one block, in `to`. i is a multiple of `lanes`, which is 1 or even. */
TX_INLINE void tx_packed_lanes(const __global uchar *w, long count, long i, int lanes, const __local float *values,
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
#endif
#else
typedef TX_CAT(AB, _t) b_t;
#define TX_PACKED_VALUES(item, items)
#endif
