/* SPDX-License-Identifier: Apache-2.0
 *
 * Tries a function of OpenCL C that some drivers lack or compute badly (builtins.c). Item i writes two results.
 *
 *   TRY  0 for native_exp2, 1 for sincos, 2 for fma.
 */

__kernel void builtins(__global float *y)
{
    const int i = (int)get_global_id(0);
    const float x = -(float)i / 64.0f;
#if TRY == 0
    y[2 * i] = y[2 * i + 1] = native_exp2(x);
#elif TRY == 1
    float c, s = sincos(x * 0.1875f, &c);
    y[2 * i] = s;
    y[2 * i + 1] = c;
#else
    const float4 four = fma((float4)x, (float4)(1.0f, 2.0f, 3.0f, 4.0f), (float4)(float)i);
    y[2 * i] = four.w;
    y[2 * i + 1] = fma(x, 3.0f, 1.0f);
#endif
}
