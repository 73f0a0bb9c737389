/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the atom of matrix_dpas.cl for attention. Own lines are columns of an atom's sums. A lane has all 16
 * other lines of one own line, so the sums are a fragment and lanes exchange nothing.
 */

#define OWN_ATOM LANES
#define OTHER_ATOM 16
#define LANE_LINES 1 /* own lines of a lane in an atom's sums */
#define LINE_OF(e) 0
#define OWN_OF(i, lane) (lane)
#define OTHER_OF(e, lane) (e)
#define BESIDE 16
#define STAGES 1
#define JOIN(operation, x)

/* 8 lines, or columns, of 16 terms are 256 bytes in the order in which the lanes read them. Each group of 8 is
 * padded by 16 bytes, so that work-items that write different groups access different banks. */
#define AT_OF(line, term, terms) \
    ((line) / 8 * (8 * (terms) + PIECE) + (term) / 16 * 128 + (line) % 8 * 16 + (term) % 16)
#define ALONG_AT(line, term) AT_OF(line, term, D)
#define TURNED_AT(column, line) AT_OF(column, line, OTHERS)
#define ALONG_BLOCK (OTHERS / 8 * (8 * D + PIECE))
#define TURNED_BLOCK (D / 8 * (8 * OTHERS + PIECE))

#if EMULATED == 0
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
static uint narrow_f16(float a, float b)
{
    return as_uint(convert_half2_rte((float2)(a, b)));
}

/* NaN is kept unless its lower 16 bits are all set, which does not occur with 16-bit operands. */
static uint narrow_bf16(float a, float b)
{
    const uint u = as_uint(a), v = as_uint(b);
    return (u + 0x7FFFu + (u >> 16 & 1u)) >> 16 | ((v + 0x7FFFu + (v >> 16 & 1u)) & 0xFFFF0000u);
}
/* Rounds two numbers to their storage type, a in the lower half. */
#define narrow_both TX_CAT(narrow_, AB)
#endif

/* Loads own lines of 16 terms. */
static void load_own(fragment f, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
    const __local uint4 *const at = (const __local uint4 *)(block + (line + lane) * PITCH + term);
    f->columns[0] = as_int8((uint8)(at[0], at[1]));
}

/* Loads 16 other lines of 16 terms. */
static void load_other(fragment f, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        f->rows[i] = read_rows(block + ALONG_AT(line + 8 * i, term));
}

/* Loads 16 columns, with 16 other lines as terms. */
static void load_turned(fragment f, const __local ab_t *block, int line, int column, int lane, __local uint *shown)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        f->rows[i] = read_rows(block + TURNED_AT(column + 8 * i, line));
}

static uint8 narrow_all(const float *sum)
{
    return (uint8)(narrow_both(sum[0], sum[1]), narrow_both(sum[2], sum[3]), narrow_both(sum[4], sum[5]),
                   narrow_both(sum[6], sum[7]), narrow_both(sum[8], sum[9]), narrow_both(sum[10], sum[11]),
                   narrow_both(sum[12], sum[13]), narrow_both(sum[14], sum[15]));
}

/* Makes own lines from the 16 sums of each, which are the terms. */
static void fragment_of(fragment f, const float *sum, int lane, __local uint *shown)
{
    f->columns[0] = as_int8(narrow_all(sum));
}

static void multiply_own(float *sum, const sixteen *own, const sixteen *other, __local uint *shown)
{
    multiply(sum, other, own, shown);
}

static void store_run(const float *v, __global ab_t *to)
{
    const uint8 all = narrow_all(v);
    ((__global uint4 *)to)[0] = all.lo;
    ((__global uint4 *)to)[1] = all.hi;
}

#include "attention_turned.cl"
