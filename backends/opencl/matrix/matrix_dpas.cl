/* SPDX-License-Identifier: Apache-2.0
 *
 * The atom of Intel's matrix units (DPAS): bf16, fp16 and, with 16 lanes on devices with tf32, fp32. An instruction
 * multiplies 8 rows by LANES columns. An atom of 16 x 16 sums is four instructions of 8 lanes (DPAS8: Xe-HPG), or
 * two of 16 (DPAS16: Xe-HPC, Xe2). The atom of attention has LANES columns.
 *
 * A lane has the terms of a column of b, two in a word. A row of a has 32 bytes of terms, and each lane has its part
 * of each row. Layouts: OpenCL registry, cl_intel_subgroup_matrix_multiply_accumulate and its _tf32.
 */

#define LANES (ATOM == DPAS8 ? 8 : 16)
#ifndef COLUMNS
#define COLUMNS 16
#endif
#define ATOM_M 16
#define ATOM_N COLUMNS
#define ATOM_K (2 * PIECE)
#define SUMS (ATOM_M * ATOM_N / LANES)
#define ROW_OF(e, lane) ((e) % 16)
#define COLUMN_OF(e, lane) ((e) / 16 * LANES + (lane))
#define ROW_RUN 1
#define KEEPS_ORDER 0

#if ATOM == DPAS8
typedef int8 rows8;
#elif WIDEN
typedef short8 rows8;
#else
typedef float4 rows8;
#endif

/* A fragment of 16 rows, or of the columns. */
typedef union sixteen {
    rows8 rows[2];
    int8 columns[COLUMNS / LANES];
} sixteen;
typedef sixteen fragment[1];

#if !EMULATED
#define SUB_GROUP __attribute__((intel_reqd_sub_group_size(LANES)))
#define OVERLOADED __attribute__((overloadable))
/* Some compilers that have these functions do not declare them. */
OVERLOADED uint4 intel_sub_group_block_read4(const __local uint *from);
OVERLOADED uint8 intel_sub_group_block_read8(const __local uint *from);
OVERLOADED ushort8 intel_sub_group_block_read_us8(const __local ushort *from);

/* Lane after lane takes a word, eight times. The address is a multiple of 16 bytes. */
static uint8 read_words(const __local void *from)
{
    return intel_sub_group_block_read8((const __local uint *)from);
}

/* Reads 8 rows of 32 bytes. */
static rows8 read_rows(const __local void *from)
{
#if ATOM == DPAS8
    return as_int8(read_words(from));
#elif WIDEN
    return as_short8(intel_sub_group_block_read_us8((const __local ushort *)from));
#else
    return as_float4(intel_sub_group_block_read4((const __local uint *)from));
#endif
}

#if WIDEN
#define MAD_bf16 intel_sub_group_bf16_bf16_matrix_mad_k16
#define MAD_f16 intel_sub_group_f16_f16_matrix_mad_k16
#define MAD TX_CAT(MAD_, AB)
OVERLOADED float8 MAD(rows8 a, int8 b, float8 sum);
#define ROUNDED(size, x) (x)
#else
#define MAD intel_sub_group_tf32_tf32_matrix_mad_k8
OVERLOADED float8 MAD(rows8 a, float8 b, float8 sum);
/* Rounds to nearest, to the 10 bits of mantissa that the unit reads. NaN and infinity are kept. */
#define ROUNDED(size, x) \
    fma(TX_CAT(as_float, size)(TX_CAT(as_uint, size)(x) & 0xFF800000u), 0x1p-11f, TX_CAT(as_float, size)(x))
#endif

static void multiply(float *sum, const sixteen *a, const sixteen *b, __local uint *shown)
{
#pragma unroll
    for (int j = 0; j < COLUMNS / LANES; j++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            vstore8(MAD(ROUNDED(4, a->rows[i]), ROUNDED(8, b->columns[j]), vload8(2 * j + i, sum)), 2 * j + i, sum);
}
#endif
