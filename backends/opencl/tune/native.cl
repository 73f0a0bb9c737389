/* SPDX-License-Identifier: Apache-2.0
 * What the driver makes of native_exp2, whose precision OpenCL leaves to it: of -i / 64, item i. */

__kernel void native(__global float *y)
{
    const int i = (int)get_global_id(0);
    y[i] = native_exp2(-(float)i / 64.0f);
}
