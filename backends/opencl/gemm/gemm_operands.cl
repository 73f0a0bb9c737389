/* SPDX-License-Identifier: Apache-2.0
 *
 * Types and arguments that the kernels of matrix products share. AB is the storage type of a and b, Y that of y.
 */
#include "gemm_grouped.cl"
#include "gemm_packed.cl"

typedef TX_CAT(AB, _t) ab_t;
typedef TX_CAT(Y, _t) y_t;

/* a and b have a first element, a leading dimension and a batch stride. y is dense. */
#define GEMM_ARGUMENTS                                                                                                 \
    __global const ab_t *a, long a_at, __global const b_t *b, long b_at, __global const float *bias, long bias_at,     \
        __global y_t *y, long y_at, __global const uint *control, long m, long n, long k, long lda, long ldb,          \
        long stride_a, long stride_b, int accumulate
/* Additional arguments of kernels with epilogues: operands of the epilogue, and offsets of groups. */
#define TILE_ARGUMENTS                                                                                                 \
    __global const y_t *with, long with_at, __global y_t *kept, long kept_at OFFSETS
