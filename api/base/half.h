/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions between fp32 and bf16 or IEEE half. They round to nearest even, keep NaN and are exact for subnormals. */
#ifndef TX_HALF_H
#define TX_HALF_H

#include "tx_base.h"

#include <string.h>

/* Convert numbers from BF16, F16, U8 or whole blocks to fp32, and from fp32 to the first three (also in place). */
void tx_to_f32(tx_dtype dtype, const void *from, int64_t count, float *to);
void tx_from_f32(tx_dtype dtype, const float *from, int64_t count, void *to);

static inline uint32_t tx_bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float tx_float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float tx_bf16_to_f32(uint16_t h)
{
    return tx_float_of((uint32_t)h << 16);
}

static inline uint16_t tx_f32_to_bf16(float f)
{
    uint32_t u = tx_bits_of(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)((u >> 16) | 0x0040u);
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

/* Has no branches, so that compilers can vectorise loops over it. */
static inline float tx_f16_to_f32(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7FFFu) << 13, sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t special = magnitude >= 0x0F800000u ? 0x7F800000u : 0u; /* infinity or NaN */
    uint32_t normal = magnitude + 0x38000000u;
    /* 2^-14 + mantissa 2^-24 is a normal number, and the subtraction of 2^-14 is exact. */
    uint32_t subnormal = tx_bits_of(tx_float_of(magnitude + 0x38800000u) - 0x1p-14f);
    return tx_float_of(sign | special | (magnitude < 0x00800000u ? subnormal : normal));
}

static inline uint16_t tx_f32_to_f16(float f)
{
    uint32_t u = tx_bits_of(f), sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | ((a >> 13) & 0x3FFu));
    if (a >= 0x477FF000u) /* rounds to 2^16 or is infinite */
        return (uint16_t)(sign | 0x7C00u);
    if (a < 0x38800000u) { /* below 2^-14: adding 0.5 leaves a multiple of 2^-24, rounded by the hardware */
        return (uint16_t)(sign | (tx_bits_of(tx_float_of(a) + 0.5f) - 0x3F000000u));
    }
    return (uint16_t)(sign | ((a - 0x38000000u + 0xFFFu + ((a >> 13) & 1u)) >> 13));
}

#endif
