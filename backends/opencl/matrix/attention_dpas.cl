/* SPDX-License-Identifier: Apache-2.0
 * What attention does by the atom of matrix_dpas.cl. Own lines are columns of an atom's sums, all 16 others of one in one lane: as they lie
 * they are a fragment, and nothing is exchanged. */

#define OWN_ATOM LANES
#define OTHER_ATOM 16
#define LANE_LINES 1 /* own lines in an atom's sums that a lane has */
#define LINE_OF(e) 0
#define OWN_OF(i, lane) (lane)
#define OTHER_OF(e, lane) (e)
#define BESIDE 16
#define STAGES 1
#define JOIN(operation, x)

/* 8 lines, or columns, of 16 terms are 256 bytes, as the lanes read them; from 8 to the next there are 16 bytes more than these take, so that
 * work-items that write different ones meet different banks. */
#define AT_OF(line, term, terms) ((line) / 8 * (8 * (terms) + PIECE) + (term) / 16 * 128 + (line) % 8 * 16 + (term) % 16)
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

/* A NaN whose lower 16 bits are all set, which no operand of 16 bits leads to, would not stay one. */
static uint narrow_bf16(float a, float b)
{
    const uint u = as_uint(a), v = as_uint(b);
    return (u + 0x7FFFu + (u >> 16 & 1u)) >> 16 | ((v + 0x7FFFu + (v >> 16 & 1u)) & 0xFFFF0000u);
}
/* Two as they are stored, a below b. */
#define narrow_both TX_CAT(narrow_, AB)
#endif

/* Own lines of 16 terms. */
static void load_own(fragment f, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
    const __local uint4 *const at = (const __local uint4 *)(block + (line + lane) * PITCH + term);
    f->columns[0] = as_int8((uint8)(at[0], at[1]));
}

/* 16 other lines of 16 terms. */
static void load_other(fragment f, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        f->rows[i] = read_rows(block + ALONG_AT(line + 8 * i, term));
}

/* 16 columns, with 16 other lines as terms. */
static void load_turned(fragment f, const __local ab_t *block, int line, int column, int lane, __local uint *shown)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        f->rows[i] = read_rows(block + TURNED_AT(column + 8 * i, line));
}

static uint8 narrow_all(const float *sum)
{
    return (uint8)(narrow_both(sum[0], sum[1]), narrow_both(sum[2], sum[3]), narrow_both(sum[4], sum[5]), narrow_both(sum[6], sum[7]),
                   narrow_both(sum[8], sum[9]), narrow_both(sum[10], sum[11]), narrow_both(sum[12], sum[13]), narrow_both(sum[14], sum[15]));
}

/* Own lines of which the 16 sums of each are the terms. */
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
