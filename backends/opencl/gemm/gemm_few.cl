/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix product y = a op(b) + bias (+ y) of few rows with its epilogue, limited by the bandwidth of the memory that
 * holds b. Every element of b is read once and multiplied with all rows. Sums are fp32, rounded to y's type once, and
 * their order depends only on the options. See gemm_operands.cl for the arguments, and epilogue.cl for the epilogue.
 *
 * A work-group is ACROSS x ALONG work-items. If b is stored [k, n], an item computes RUN vectors of neighbouring
 * columns. ACROSS items are adjacent in n, and ALONG items share the terms, DEEP terms at a time.
 * If b is stored [n, k] (TRANS_B), ALONG items share a column, RUN vectors of terms at a time. A group computes
 * ACROSS columns at a time, COLUMNS times.
 *
 * Options: VW, RUN, ROWS (of a), ACROSS, ALONG, COLUMNS; AB and Y, the storage types of a and b, and of y (f32, bf16
 * or f16); TRANS_B; PACKED (gemm_packed.cl). NORM and NEXT are ops of the same launch (gemm_few_joined.cl).
 */

#define AB_GET TX_CAT(TX_GET_, AB)
#define AB_VLOAD TX_CAT(tx_load_, AB)
#define Y_VLOAD TX_CAT(tx_load_, Y)
#define Y_VSTORE TX_CAT(tx_store_, Y)
#define GROUP (ACROSS * ALONG)
#include "gemm_operands.cl"
#include "epilogue.cl"
#include "gemm_few_joined.cl"

/* Loads the i-th vector of b, of n elements from element `first` on. For a packed b n is a multiple of 32, so all
 * vectors are whole. */
#if PACKED
typedef struct from_b {
    const __global uchar *w;
    long count;
    const __local float *values;
} from_b;
#define FROM_B (from_b){b, n * k, packed_values}
static vec load_b(from_b b, long first, long i, long n)
{
    float part[VW];
    tx_packed_lanes(b.w, b.count, first + i, VW, b.values, part);
    return VLOAD_PRIVATE(part);
}
#else
typedef const __global b_t *from_b;
#define FROM_B b
#define load_b(b, first, i, n) AB_VLOAD((b) + (first), i, n)
#endif

#define DEEP 8
#define UNROLL _Pragma("unroll") /* NVIDIA's compiler keeps indexed arrays in memory */

#if !TRANS_B

/* sum [ROWS][RUN] += DEEP terms from element `first` of b on, for columns i.. of n. */
static void add_terms(from_a a, long lda, from_b b, long first, long ldb, long i, long n, int deep,
                      vec sum[ROWS][RUN])
{
    float x[ROWS][DEEP];
    UNROLL for (int row = 0; row < ROWS; row++)
        UNROLL for (int d = 0; d < DEEP; d++)
            x[row][d] = d < deep ? A_GET(a, row * lda + d) : 0.0f;
    for (int r = 0; r < RUN && i + r * VW < n; r++) {
        vec w[DEEP];
        UNROLL for (int d = 0; d < DEEP; d++)
            w[d] = d < deep ? load_b(b, first + d * ldb, i + r * VW, n) : (vec)0.0f;
        UNROLL for (int row = 0; row < ROWS; row++) {
            vec s = sum[row][r];
            UNROLL for (int d = 0; d < DEEP; d++)
                s += x[row][d] * w[d];
            sum[row][r] = s;
        }
    }
}

/* Work-groups: (columns, batch). */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
gemm_few(GEMM_ARGUMENTS, TILE_ARGUMENTS NORM_ARGUMENTS NEXT_ARGUMENTS)
{
    const int across = (int)get_local_id(0) % ACROSS, along = (int)get_local_id(0) / ACROSS;
    const long i = (get_group_id(0) * (long)ACROSS + across) * VW * RUN, batch = get_group_id(1);
    const int adds = tx_adds(accumulate, control);
    a += a_at + batch * stride_a;
    b += b_at + batch * stride_b;
    y += y_at + batch * m * n;
    with = with ? with + with_at + batch * m * n : 0;
    kept = kept ? kept + kept_at + batch * m * n : 0;
    vec sum[ROWS][RUN];
    for (int row = 0; row < ROWS; row++)
        for (int r = 0; r < RUN; r++)
            sum[row][r] = 0.0f;
    long p = along * DEEP;
    TX_PACKED_VALUES((int)get_local_id(0), GROUP)
    NORM_ROWS
    for (; i < n && p + DEEP <= k; p += ALONG * DEEP)
        add_terms(A + p, A_PITCH, FROM_B, p * ldb, ldb, i, n, DEEP, sum);
    if (i < n && p < k)
        add_terms(A + p, A_PITCH, FROM_B, p * ldb, ldb, i, n, (int)(k - p), sum);
#if ALONG > 1
    TX_LOCAL(vec, part, GROUP); /* RUN is 1 here */
    for (int row = 0; row < ROWS; row++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        part[get_local_id(0)] = sum[row][0];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int other = 1; along == 0 && other < ALONG; other++)
            sum[row][0] += part[other * ACROSS + across];
    }
    if (along > 0)
        return;
#endif
    for (int row = 0; row < ROWS; row++)
        for (int r = 0; r < RUN && i + r * VW < n; r++) {
            vec v = sum[row][r];
            if (bias)
                v += tx_load(bias + bias_at, i + r * VW, n, 0.0f);
            if (adds)
                v += Y_VLOAD(y + row * n, i + r * VW, n);
            v = tx_finish(v, with ? with + row * n : 0, kept ? kept + row * n : 0, i + r * VW, n);
            Y_VSTORE(v, y + row * n, i + r * VW, n);
        }
}

#else

/* Sums one column over the terms of item `along`: sum [ROWS] of vectors. */
static void sum_column(from_a a, long lda, from_b b, long first, long k, int along, vec sum[ROWS])
{
    vec part[ROWS][RUN];
    for (int row = 0; row < ROWS; row++)
        for (int r = 0; r < RUN; r++)
            part[row][r] = 0.0f;
    long p = along * VW;
    for (; p + (RUN - 1) * ALONG * VW + VW <= k; p += RUN * ALONG * VW)
        for (int r = 0; r < RUN; r++) {
            const vec w = load_b(b, first, p + r * ALONG * VW, k);
            for (int row = 0; row < ROWS; row++)
                part[row][r] += A_VLOAD(a + row * lda, p + r * ALONG * VW, k) * w;
        }
    for (int r = 0; p < k; r++, p += ALONG * VW) {
        const vec w = load_b(b, first, p, k);
        for (int row = 0; row < ROWS; row++)
            part[row][r] += A_VLOAD(a + row * lda, p, k) * w;
    }
    for (int row = 0; row < ROWS; row++) {
        sum[row] = part[row][0];
        for (int r = 1; r < RUN; r++)
            sum[row] += part[row][r];
    }
}

/* Stores element j of a row of y, and returns it. The loads and stores need j: with 0 instead rusticl of Mesa 22.3
 * stores nothing. In a function called with the constants i = 0 and n = 1 it evaluates `i + k < n` as false for k = 0
 * of a loop. */
static float finish(float sum, __global const float *bias, __global y_t *y, __global const y_t *with,
                   __global y_t *kept, long j, int adds)
{
    vec v = (vec)(bias ? sum + bias[j] : sum);
    if (adds)
        v += Y_VLOAD(y, j, j + 1);
    v = tx_finish(v, with, kept, j, j + 1);
    Y_VSTORE(v, y, j, j + 1);
    return STORED(v);
}

/* Work-groups: (columns, batch). */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
gemm_few(GEMM_ARGUMENTS, TILE_ARGUMENTS NORM_ARGUMENTS NEXT_ARGUMENTS)
{
    const int along = (int)get_local_id(0) % ALONG, across = (int)get_local_id(0) / ALONG;
    const long first = get_group_id(0) * (long)(ACROSS * COLUMNS / SIDES) + across, batch = get_group_id(1);
    const int adds = tx_adds(accumulate, control);
    a += a_at + batch * stride_a;
    b += b_at + batch * stride_b;
    y += y_at + batch * m * n;
    with = with ? with + with_at + batch * m * n : 0;
    kept = kept ? kept + kept_at + batch * m * n : 0;
    bias = bias ? bias + bias_at : 0;
#if ALONG > 1
    TX_LOCAL(float, part, GROUP);
#endif
    TX_PACKED_VALUES((int)get_local_id(0), GROUP)
    NORM_ROWS
    NEXT_HELD
    for (int c = 0; c < COLUMNS; c++) {
        const long place = first + c / SIDES * ACROSS, j = COLUMN_OF(place, c % SIDES);
        const int exists = place < n / SIDES;
        vec sum[ROWS];
        for (int row = 0; row < ROWS; row++)
            sum[row] = 0.0f;
        if (exists)
            sum_column(A, A_PITCH, FROM_B, j * ldb, k, along, sum);
        for (int row = 0; row < ROWS; row++) {
            float total = tx_hsum(sum[row]);
#if ALONG > 1
            barrier(CLK_LOCAL_MEM_FENCE);
            part[get_local_id(0)] = total;
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
            if (along == 0 && exists) {
#if ALONG > 1
                for (int other = 1; other < ALONG; other++)
                    total += part[get_local_id(0) + other];
#endif
                total = finish(total, bias, y + row * n, with ? with + row * n : 0, kept ? kept + row * n : 0, j, adds);
                NEXT_STORE(row, place, c % SIDES, total)
            }
        }
    }
}
#endif
