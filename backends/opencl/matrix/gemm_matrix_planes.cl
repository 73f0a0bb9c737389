/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits fp32 numbers into PLANES planes of bf16 for gemm_matrix.cl: x = high + middle + low. Each plane is the rest
 * of the earlier ones, rounded to nearest even. Three planes hold all 24 bits of x if |x| >= 2^-110. Below, bits
 * under 2^-133, bf16's smallest number, are lost. If rounding the high plane would make infinity of a finite x, it is
 * truncated. The other planes of infinity and NaN are 0.
 *
 * The planes of a matrix follow each other. Their lines are padded with zeros to `padded` elements, so that the lines
 * are whole pieces of 16 bytes, aligned.
 *
 *   VW   With 4 all addresses of x are multiples of 16 bytes; else 1.
 */

#define HIGHEST 0x7F7F7FFFu /* the largest number that does not round up to infinity */
#define INFINITE 0x7F800000u

static uvec upper_bits(vec x)
{
    const uvec bits = AS_UVEC(x), size = bits & 0x7FFFFFFFu;
    const uvec kept = select(bits, bits | 0x400000u, size > INFINITE);
    return select(bits + 0x7FFFu + (bits >> 16 & 1u), kept, size > HIGHEST) & 0xFFFF0000u;
}

__kernel void gemm_matrix_planes(__global const float *x, long x_at, __global ushort *planes, long planes_at,
                                 long lines, long inner, long ld, long stride, long padded, long count)
{
    const uint item = (uint)get_global_id(0), vectors = (uint)(padded / VW);
    if (item >= count)
        return;
    const long line = item / vectors, column = item % vectors * VW, matrix = line / lines;
    const __global float *from = x + x_at + matrix * stride + line % lines * ld;
    __global ushort *to = planes + planes_at + (matrix * (PLANES - 1) * lines + line) * padded + column;
    vec rest = column < inner ? tx_load(from, column, inner, 0.0f) : (vec)0.0f;
    const uvec bits = AS_UVEC(rest) & 0x7FFFFFFFu;
#pragma unroll
    for (int p = 0; p < PLANES; p++) {
        const uvec upper = upper_bits(rest);
        TX_HALVES_STORE(TX_NARROW(upper >> 16), to + p * lines * padded);
        rest = select(rest - AS_VEC(upper), (vec)0.0f, bits >= INFINITE);
    }
}
