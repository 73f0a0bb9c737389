/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes native_exp2(-i / 64) in item i. OpenCL leaves its precision to the driver (check.c).
 */

__kernel void native(__global float *y)
{
    const int i = (int)get_global_id(0);
    y[i] = native_exp2(-(float)i / 64.0f);
}
