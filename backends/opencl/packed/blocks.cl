/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes the place of api/base/blocks.h in kernels that include its encoders and decoders (fake_quantize.cl): C's types
 * and functions. Results have the bits of C, because products and sums are not contracted, and the host asks for
 * correctly rounded divisions and roots.
 */
#ifndef TX_BLOCKS
#define TX_BLOCKS
#pragma OPENCL FP_CONTRACT OFF

typedef char int8_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef long int64_t;
#define UINT32_C(x) x##u
#define fabsf fabs
#define fmaxf fmax
#define roundf round
#define sqrtf sqrt
#define frexpf frexp
#define tx_min(a, b) ((a) < (b) ? (a) : (b))
#define tx_float_of as_float
#define memcpy copy_bytes
#define memset set_bytes

static void copy_bytes(void *to, const void *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ((uchar *)to)[i] = ((const uchar *)from)[i];
}

static void set_bytes(void *to, uchar value, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ((uchar *)to)[i] = value;
}

static float tx_f16_to_f32(ushort bits)
{
    return vload_half(0, (const half *)&bits);
}

static ushort tx_f32_to_f16(float x)
{
    ushort bits;
    vstore_half_rte(x, 0, (half *)&bits);
    return bits;
}

#include "api/base/block_values.h"
#endif
