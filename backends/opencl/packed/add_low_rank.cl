/* SPDX-License-Identifier: Apache-2.0
 *
 * Merged weights of adapted layers (op ADD_LOW_RANK), with the bits of api/base/low_rank.c: the same order of sums, and
 * nothing is contracted.
 */
#pragma OPENCL FP_CONTRACT OFF

#define HAS(i) (output >= first##i && output < first##i + count##i)
#define OF_PART(x) (part == 0 ? x##0 : part == 1 ? x##1 : part == 2 ? x##2 : x##3)

/* Item i has element i of matrices [rows, columns]. `parts` is the number of parts, `in` that of inputs. */
__kernel void add_low_rank(const __global float *w, long wo, const __global float *a, long ao, const __global float *b0,
                           long o0, const __global float *b1, long o1, const __global float *b2, long o2,
                           const __global float *b3, long o3, __global float *y, long yo, long all, long rows,
                           long columns, int turned, long parts, long rank, long first0, long first1, long first2,
                           long first3, long count0, long count1, long count2, long count3, float scale)
{
    const long i = get_global_id(0);
    if (i >= all)
        return;
    const long matrix = i / columns / rows, row = i / columns % rows, column = i % columns;
    const long output = turned ? column : row, input = turned ? row : column, in = turned ? rows : columns;
    const int part = HAS(0) ? 0 : HAS(1) ? 1 : HAS(2) ? 2 : HAS(3) ? 3 : -1;
    float x = w[wo + i];
    if (part >= 0) {
        const __global float *of_b = OF_PART(b) + OF_PART(o);
        const long at = (matrix * OF_PART(count) + output - OF_PART(first)) * rank;
        const __global float *of_a = a + ao + (matrix * parts + part) * rank * in + input;
        float sum = 0.0f;
        for (long k = 0; k < rank; k++)
            sum += of_b[at + k] * of_a[k * in];
        x += scale * sum;
    }
    y[yo + i] = x;
}
