/* SPDX-License-Identifier: Apache-2.0
 *
 * y [rows, n] += bias [n], after products of libraries that do not support a bias. Work-items: (n, rows).
 */
__kernel void gemm_bias(__global const float *bias, long bias_at, __global float *y, long y_at)
{
    long j = get_global_id(0), n = get_global_size(0);
    y[y_at + (long)get_global_id(1) * n + j] += bias[bias_at + j];
}
