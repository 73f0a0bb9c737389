/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of products of planes (gemm_matrix_planes.cl). Infinity times the planes of a number gives NaN, and the product
 * of the high planes may overflow if that of the numbers does not. So a sum that is not finite, or so large that
 * truncation may have avoided infinity, is computed again from the fp32 operands, by fp32 additions in the order of the
 * terms.
 */
#if PROMOTES
#define PARTIAL(sum) partial
#define PARTIAL_SUMS                       \
    float partial[ATOMS_M][ATOMS_N][SUMS]; \
    clear(partial);

/* Adds the sums of a block. */
static void promote(float sum[ATOMS_M][ATOMS_N][SUMS], float partial[ATOMS_M][ATOMS_N][SUMS], __local uint *shown)
{
    multiply_end(partial, shown);
#pragma unroll
    for (int e = 0; e < LANE_SUMS; e++)
        SUM_AT(sum, e) += SUM_AT(partial, e);
}
#else
#define PARTIAL(sum) sum
#define PARTIAL_SUMS
#define promote(sum, partial, shown)
#endif

#if PLANES > 1
#define WHOLE_ARGUMENTS                                                                                               \
    , __global const float *whole_a, long whole_a_at, __global const float *whole_b, long whole_b_at, long whole_lda, \
        long whole_ldb, long whole_stride_a, long whole_stride_b
#define WHOLE_OPERANDS                                                                              \
    const whole_operands whole = {whole_a + whole_a_at, whole_b + whole_b_at, whole_lda, whole_ldb, \
                                  whole_stride_a,       whole_stride_b};

/* The fp32 operands. */
typedef struct whole_operands {
    const __global float *a, *b;
    long lda, ldb, stride_a, stride_b;
} whole_operands;

/* Returns the sum of the terms of a tile in one row and column. */
static float sum_of_terms(const whole_operands *o, const gemm_place *at, long row, long column)
{
    const __global float *a =
        o->a + at->batch * o->stride_a + (TRANS_A ? row + at->k0 * o->lda : row * o->lda + at->k0);
    const __global float *b =
        o->b + at->batch * o->stride_b + (TRANS_B ? column * o->ldb + at->k0 : column + at->k0 * o->ldb);
    float sum = 0.0f;
    for (long t = 0; t < at->terms; t++)
        sum = fma(a[t * (TRANS_A ? o->lda : 1)], b[t * (TRANS_B ? 1 : o->ldb)], sum);
    return sum;
}

#define IS_SAFE(sum) (fabs(sum) < 0x1.FCp127f)

/* Computes the sums of existing rows and columns again that are not safe. The loops over all sums keep these in
 * registers. */
TX_INLINE void mend(float sum[ATOMS_M][ATOMS_N][SUMS], const whole_operands *o, const gemm_place *at, int line,
                    int column, int rows, int columns, int lane)
{
    int safe = 1;
#pragma unroll
    for (int e = 0; e < LANE_SUMS; e++)
        safe &= IS_SAFE(SUM_AT(sum, e));
    if (safe)
        return;
    for (int which = 0; which < LANE_SUMS; which++) {
        const int row = ROW_OF(which % SUMS, lane) + which / SUMS / ATOMS_N * ATOM_M,
                  at_column = COLUMN_OF(which % SUMS, lane) + which / SUMS % ATOMS_N * ATOM_N;
        float one = 0.0f;
#pragma unroll
        for (int e = 0; e < LANE_SUMS; e++)
            one = e == which ? SUM_AT(sum, e) : one;
        if (IS_SAFE(one) || row >= rows || at_column >= columns)
            continue;
        one = sum_of_terms(o, at, at->i0 + line + row, at->j0 + column + at_column);
#pragma unroll
        for (int e = 0; e < LANE_SUMS; e++)
            SUM_AT(sum, e) = e == which ? one : SUM_AT(sum, e);
    }
}
#else
typedef int whole_operands;
#define WHOLE_ARGUMENTS
#define WHOLE_OPERANDS const whole_operands whole = 0;
#define mend(sum, whole, at, line, column, rows, columns, lane)
#endif
