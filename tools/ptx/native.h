/* SPDX-License-Identifier: Apache-2.0
 *
 * native_exp2, which libclc lacks for NVIDIA: the driver's own compiler makes this instruction of it. */
#define overloaded static __attribute__((overloadable))
overloaded float tx_exp2(float x)
{
    float y;
    __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
overloaded float4 tx_exp2(float4 v)
{
    return (float4)(tx_exp2(v.x), tx_exp2(v.y), tx_exp2(v.z), tx_exp2(v.w));
}
#define native_exp2 tx_exp2
