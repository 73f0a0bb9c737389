/* SPDX-License-Identifier: Apache-2.0
 *
 * Tries functions of OpenCL C that some drivers lack or compute badly (builtins.c). Item i writes two results of each.
 *
 *   TRY  Bits of the functions that are tried: native_exp2, sincos, fma. Default: all.
 */
#ifndef TRY
#define TRY 7
#endif

__kernel void builtins(__global float *y)
{
    const int i = (int)get_global_id(0);
    const float x = -(float)i / 64.0f;
    y += 6 * i;
#if TRY & 1
    y[0] = y[1] = native_exp2(x);
#endif
#if TRY & 2
    float c, s = sincos(x * 0.1875f, &c);
    y[2] = s;
    y[3] = c;
#endif
#if TRY & 4
    const float4 four = fma((float4)x, (float4)(1.0f, 2.0f, 3.0f, 4.0f), (float4)(float)i);
    y[4] = four.w;
    y[5] = fma(x, 3.0f, 1.0f);
#endif
}
