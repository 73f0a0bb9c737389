/* SPDX-License-Identifier: Apache-2.0
 *
 * The atom of NVIDIA's mma.sync for fp32: 32 x 32 sums of 16 terms, with 128-bit loads only. Each operand is rounded
 * to nearest tf32. With FULL 1 each operand is the sum of two tf32 numbers, and three of their four products are
 * added (infinity then gives NaN).
 *
 * The order of terms in the slots of an instruction does not matter if a and b agree. The same holds for the order
 * of lines. Lane (g, t) holds terms 4 t.. of lines 4 g.. . Instruction `step` of two uses terms 2 step.. of these.
 * Line 4 g + i is row g + 8 (i % 2) of 16, or column g of 8.
 */

#define ATOM_M 32
#define ATOM_N 32
#define ATOM_K 16
#define SUMS 32
#define ROW_RUN 8
#define ROW_OF(e, lane) ((lane) / 4 * 4 + (e) / 8)
#define COLUMN_OF(e, lane) ((lane) % 4 * 8 + (e) % 8)
#define STORE_RUN ROW_RUN
#define STORE_ROW ROW_OF
#define STORE_COLUMN COLUMN_OF

typedef float fragment[16]; /* four terms of four lines */

/* The position of an element in a block. Lines of 64 bytes, or the pieces of a term's `lines`, are permuted, so
 * that pieces that a quarter of a warp reads or writes together are in different banks. */
static int along_at(int line, int term)
{
    return (line ^ line / 4 % 2) * TILE_K + term;
}

static int across_at(int term, int line, int lines)
{
    return term * lines + (line ^ term / 4 % 4 * 2 * PIECE);
}

static void load_lines(fragment f, const __local float *block, int along, int lines, int line, int term, int lane)
{
    const int l = line + lane / 4 * 4, k = term + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 v = *(const __local float4 *)(block + (along ? along_at(l + i, k) : across_at(k + i, l, lines)));
        const int first = along ? 4 * i : i, step = along ? 1 : 4;
        f[first] = v.x;
        f[first + step] = v.y;
        f[first + 2 * step] = v.z;
        f[first + 3 * step] = v.w;
    }
}

static void load_a(fragment a, const __local float *block, int line, int term, int lane, __local uint *shown)
{
    load_lines(a, block, !TRANS_A, TILE_M, line, term, lane);
}

static void load_b(fragment b, const __local float *block, int line, int term, int lane, __local uint *shown)
{
    load_lines(b, block, TRANS_B, TILE_N, line, term, lane);
}

/* Rounds to nearest, to the 10 bits of mantissa that the unit reads; it drops the other 13. NaN and infinity are
 * kept. */
static float rounded(float x)
{
    return fma(as_float(as_uint(x) & 0xFF800000u), 0x1p-11f, x);
}

/* Returns the tf32 number that the unit reads for x; the rest x - upper(x) is exact. */
static float upper(float x)
{
    return as_float(as_uint(rounded(x)) & ~0x1FFFu);
}

typedef struct parts {
    float of[16];
} parts;

/* sum += a b, for one part of each operand. */
static void multiply_parts(float *sum, parts a, parts b, __local uint *shown)
{
#pragma unroll
    for (int step = 0; step < 2; step++)
#pragma unroll
        for (int row = 0; row < 2; row++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *x = a.of + 8 * row + 2 * step, *y = b.of + 4 * i + 2 * step;
                const uint left[4] = {as_uint(x[0]), as_uint(x[4]), as_uint(x[1]), as_uint(x[5])};
                const uint right[2] = {as_uint(y[0]), as_uint(y[1])};
                float *s = sum + 16 * row + i, some[4] = {s[0], s[4], s[8], s[12]};
                multiply_add(some, left, right, shown);
                s[0] = some[0];
                s[4] = some[1];
                s[8] = some[2];
                s[12] = some[3];
            }
}

#if FULL
/* The unit truncates sums, so the sums of a few terms are added by ordinary adders, which round. */
static void multiply(float *sum, const float *a, const float *b, __local uint *shown)
{
    parts x, y, rest_x, rest_y;
    float some[SUMS];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        x.of[i] = upper(a[i]);
        y.of[i] = upper(b[i]);
        rest_x.of[i] = rounded(a[i] - x.of[i]);
        rest_y.of[i] = rounded(b[i] - y.of[i]);
    }
#pragma unroll
    for (int e = 0; e < SUMS; e++)
        some[e] = 0.0f;
    multiply_parts(some, rest_x, y, shown);
    multiply_parts(some, x, rest_y, shown);
    multiply_parts(some, x, y, shown);
#pragma unroll
    for (int e = 0; e < SUMS; e++)
        sum[e] += some[e];
}
#else
static void multiply(float *sum, const float *a, const float *b, __local uint *shown)
{
    parts x, y;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        x.of[i] = rounded(a[i]);
        y.of[i] = rounded(b[i]);
    }
    multiply_parts(sum, x, y, shown);
}
#endif
