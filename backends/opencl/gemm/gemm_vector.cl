/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix product y = op(a) op(b) + bias (+ y) for cores with vector registers (CPUs). Sums are fp32, rounded to y's
 * type once. See gemm_operands.cl for the arguments.
 *
 * A work-group is one work-item. It owns ROWS x COLUMNS register tiles down a strip of COLUMNS columns. It loops
 * over blocks of k: it copies the strip of b to local memory (transposed and widened to fp32), then computes the row
 * tiles. A sum over several blocks of k is kept in local memory between blocks.
 *
 * Options: VECTOR 4, 8 or 16 (lanes of a register); ROWS 8, or 4 on CPUs with only 16 registers. Types: AB and Y, the
 * storage types of a and b, and of y (f32, bf16 or f16); WIDEN 1 if AB is not f32; TRANS_A, TRANS_B; PACKED
 * (gemm_packed.cl). ROWS x 3 sums, three vectors of b and one broadcast of a must fit in registers. They are named
 * variables, because arrays may be placed in memory.
 *
 * DOT 1, for bf16 AB: nothing is widened. x86's vdpbf16ps (Intel's manual, AVX512_BF16) multiplies and adds a word
 * of two neighbouring terms; it treats subnormal numbers as 0. Rows of a and b and the terms must then be whole
 * words.
 */

#ifndef DOT
#define DOT 0
#endif
#define AB_LOAD(p) TX_CAT(tx_load_, AB)(p, 0, 1)
#define Y_LOAD(p) TX_CAT(tx_load_, Y)(p, 0, 1)
#define Y_STORE(v, p) TX_CAT(tx_store_, Y)(v, p, 0, 1)
#include "gemm_operands.cl"
typedef TX_CAT(float, VECTOR) lanes;
#define LANES_LOAD TX_CAT(vload, VECTOR)
#define LANES_STORE TX_CAT(vstore, VECTOR)

#if ROWS == 8
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#else
#define EACH_ROW(X) X(0) X(1) X(2) X(3)
#endif
#define COLUMNS (3 * VECTOR)

#define VLOAD_f32(p) LANES_LOAD(0, p)
#define VLOAD_bf16(p) TX_CAT(as_float, VECTOR)(TX_CAT(convert_uint, VECTOR)(LANES_LOAD(0, p)) << 16)
#define VLOAD_f16(p) TX_CAT(vload_half, VECTOR)(0, (__global const half *)(p))
#define AB_VLOAD TX_CAT(VLOAD_, AB)

/* The unit of multiplication: a term in fp32, or with DOT two terms in bf16, the first in the lower half. `from_t`
 * is the storage type of a unit. */
#if DOT
#define TERMS 2
#define WORD uint
typedef uint from_t;
#define FROM_LOAD(p) (*(p))
#define FROM_VLOAD(p) LANES_LOAD(0, p)
#define ADD_PRODUCT(sum, x, y) __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y))
#else
#define TERMS 1
#define WORD float
typedef ab_t from_t;
#define FROM_LOAD AB_LOAD
#define FROM_VLOAD AB_VLOAD
#define ADD_PRODUCT(sum, x, y) sum += x * y
#endif
typedef WORD word;
typedef TX_CAT(WORD, VECTOR) words;
#define ROWS_WIDEN(p) TX_CAT(convert_uint, ROWS)(TX_CAT(vload, ROWS)(0, p))

/* a is read in place if it consists of words. Otherwise one row tile at a time is copied to local memory as words. */
#if (DOT && TRANS_A) || (WIDEN && !DOT)
#define COPY_A 1
#define A_SPACE __local
#else
#define COPY_A 0
#define A_SPACE __global
#endif

#define DECLARE(i) lanes c##i##0 = 0, c##i##1 = 0, c##i##2 = 0;
/* Rows beyond the last read the last one again; their sums are never stored. */
#define POINT(i) A_SPACE const word *a##i = a + min((long)i, last) * row;
#define MULTIPLY(i)                                                                                                    \
    {                                                                                                                  \
        words x = (words)(a##i[at]);                                                                                   \
        ADD_PRODUCT(c##i##0, x, b0);                                                                                   \
        ADD_PRODUCT(c##i##1, x, b1);                                                                                   \
        ADD_PRODUCT(c##i##2, x, b2);                                                                                   \
    }
#define KEEP(i)                                 \
    if (more) {                                 \
        c##i##0 += LANES_LOAD(3 * i, tile);     \
        c##i##1 += LANES_LOAD(3 * i + 1, tile); \
        c##i##2 += LANES_LOAD(3 * i + 2, tile); \
    }                                           \
    LANES_STORE(c##i##0, 3 * i, tile);          \
    LANES_STORE(c##i##1, 3 * i + 1, tile);      \
    LANES_STORE(c##i##2, 3 * i + 2, tile);

/* tile [ROWS, COLUMNS] = (more ? tile : 0) + a b over k words; element (i, p) of a is at a[i * row + p * step]. */
static void multiply_tile(A_SPACE const word *a, long row, long step, long last, __local const word *b, long k,
                   __local float *tile, int more)
{
    EACH_ROW(DECLARE)
    EACH_ROW(POINT)
    long at = 0;
    for (long p = 0; p < k; p++) {
        words b0 = LANES_LOAD(0, b), b1 = LANES_LOAD(1, b), b2 = LANES_LOAD(2, b);
        EACH_ROW(MULTIPLY)
        b += COLUMNS;
        at += step;
    }
    EACH_ROW(KEEP)
}

#if PACKED
/* Copies a packed strip, VECTOR elements of a row of b at a time. Local memory and whole blocks make this simpler
 * than for other types. Element (p, j) of op(b) has number first + j * ldb + p if b is transposed, else first + p *
 * ldb + j. */
static void copy_packed(__global const uchar *b, long count, long first, long ldb, long columns, long k,
                        const __local float *values, __local word *strip)
{
    float part[VECTOR];
    for (long j = 0; j < COLUMNS; j += TRANS_B ? 1 : VECTOR)
        for (long p = 0; p < k; p += TRANS_B ? VECTOR : 1) {
            const long column = min(j, columns - (TRANS_B ? 1 : VECTOR));
            tx_packed_lanes(b, count, first + (TRANS_B ? column * ldb + p : p * ldb + column), VECTOR, values, part);
            for (int e = 0; e < VECTOR; e++)
                strip[TRANS_B ? (p + e) * COLUMNS + j : p * COLUMNS + j + e] = part[e];
        }
}
#endif

/* strip [k, COLUMNS] = columns 0..columns-1 of op(b), as words; further columns repeat the last one. */
#if TRANS_B
#if VECTOR == 16
#define GATHER(e) (words)(r[0].e, r[1].e, r[2].e, r[3].e, r[4].e, r[5].e, r[6].e, r[7].e, \
                       r[8].e, r[9].e, r[10].e, r[11].e, r[12].e, r[13].e, r[14].e, r[15].e)
#define EACH_LANE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(a) X(b) X(c) X(d) X(e) X(f)
#elif VECTOR == 8
#define GATHER(e) (words)(r[0].e, r[1].e, r[2].e, r[3].e, r[4].e, r[5].e, r[6].e, r[7].e)
#define EACH_LANE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#else
#define GATHER(e) (words)(r[0].e, r[1].e, r[2].e, r[3].e)
#define EACH_LANE(X) X(0) X(1) X(2) X(3)
#endif
#define PUT(e) LANES_STORE(GATHER(s##e), 0, o); o += COLUMNS;

static void copy_strip(__global const ab_t *b, long ldb, long columns, long k, __local word *strip)
{
    __global const from_t *from = (__global const from_t *)b;
    ldb /= TERMS;
    for (long j = 0; j < COLUMNS; j += VECTOR) {
        long p = 0;
        for (; p + VECTOR <= k; p += VECTOR) {
            words r[VECTOR];
            for (int i = 0; i < VECTOR; i++)
                r[i] = FROM_VLOAD(from + min(j + i, columns - 1) * ldb + p);
            __local word *o = strip + p * COLUMNS + j;
            EACH_LANE(PUT)
        }
        for (; p < k; p++)
            for (int i = 0; i < VECTOR; i++)
                strip[p * COLUMNS + j + i] = FROM_LOAD(from + min(j + i, columns - 1) * ldb + p);
    }
}
#else
#if DOT
#define PAIR(low, high) ((uint)(low) | (uint)(high) << 16)
#define PAIRS(low, high) (TX_CAT(convert_uint, VECTOR)(low) | TX_CAT(convert_uint, VECTOR)(high) << 16)
#define STRIP_LOAD(p) PAIR(*(p), (p)[ldb])
#define STRIP_VLOAD(p) PAIRS(LANES_LOAD(0, p), LANES_LOAD(0, (p) + ldb))
#else
#define STRIP_LOAD AB_LOAD
#define STRIP_VLOAD AB_VLOAD
#endif
static void copy_strip(__global const ab_t *b, long ldb, long columns, long k, __local word *strip)
{
    for (long p = 0; p < k; p++, b += TERMS * ldb, strip += COLUMNS) {
        if (columns == COLUMNS)
            for (int v = 0; v < 3; v++)
                LANES_STORE(STRIP_VLOAD(b + v * VECTOR), v, strip);
        else
            for (long j = 0; j < COLUMNS; j++)
                strip[j] = STRIP_LOAD(b + min(j, columns - 1));
    }
}
#endif

#if COPY_A
#if DOT
#define ROWS_VLOAD(p) (ROWS_WIDEN(p) | ROWS_WIDEN((p) + lda) << 16)
#define ROW_LOAD(p) ((uint)*(p) | (uint)(p)[lda] << 16)
#else
#define ROWS_VLOAD_bf16(p) TX_CAT(as_float, ROWS)(ROWS_WIDEN(p) << 16)
#define ROWS_VLOAD_f16(p) TX_CAT(vload_half, ROWS)(0, (__global const half *)(p))
#define ROWS_VLOAD TX_CAT(ROWS_VLOAD_, AB)
#define ROW_LOAD AB_LOAD
#endif
/* Copies ROWS rows of op(a), k words: to [ROWS, pitch], or to [k, ROWS] if a is stored transposed. */
static void copy_rows(__global const ab_t *a, long lda, long last, long k, long pitch, __local word *rows)
{
#if TRANS_A
    for (long p = 0; p < k; p++, a += TERMS * lda, rows += ROWS) {
        if (last >= ROWS - 1)
            TX_CAT(vstore, ROWS)(ROWS_VLOAD(a), 0, rows);
        else
            for (int i = 0; i < ROWS; i++)
                rows[i] = ROW_LOAD(a + min((long)i, last));
    }
#else
    for (long i = 0; i <= min((long)ROWS - 1, last); i++, a += lda, rows += pitch) {
        long p = 0;
        for (; p + VECTOR <= k; p += VECTOR)
            LANES_STORE(AB_VLOAD(a + p), 0, rows + p);
        for (; p < k; p++)
            rows[p] = AB_LOAD(a + p);
    }
#endif
}
#endif

/* Stores lanes in y, rounded to its type like tx_store_TYPE. */
static void store_f32(lanes v, __global float *y)
{
    LANES_STORE(v, 0, y);
}

static void store_bf16(lanes v, __global ushort *y)
{
    const TX_CAT(uint, VECTOR) u = TX_CAT(as_uint, VECTOR)(v), rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    LANES_STORE(TX_CAT(convert_ushort, VECTOR)(select(rounded, (u >> 16) | 0x40u, (u & 0x7FFFFFFFu) > 0x7F800000u)), 0,
                y);
}

static void store_f16(lanes v, __global ushort *y)
{
    TX_CAT(TX_CAT(vstore_half, VECTOR), _rte)(v, 0, (__global half *)y);
}

/* y = tile + bias (+ y) in y's type. */
static void finish_tile(__local const float *tile, __local const float *bias, __global y_t *y, long ldy, long rows,
                        long columns, int add)
{
    for (long i = 0; i < rows; i++, tile += COLUMNS, y += ldy) {
        if (columns == COLUMNS) {
            for (int v = 0; v < 3; v++) {
                lanes sum = LANES_LOAD(v, tile) + LANES_LOAD(v, bias);
                if (add)
                    sum += TX_CAT(VLOAD_, Y)(y + v * VECTOR);
                TX_CAT(store_, Y)(sum, y + v * VECTOR);
            }
            continue;
        }
        for (long j = 0; j < columns; j++) {
            float sum = tile[j] + bias[j];
            if (add)
                sum += Y_LOAD(y + j);
            Y_STORE(sum, y + j);
        }
    }
}

/* Work-groups: (strips of columns, blocks of `mc` rows, batch). kc, which is even with DOT, is the number of terms
 * of a block. Local memory: strip [kc / TERMS, COLUMNS]; tiles [mc, COLUMNS] (or [ROWS, COLUMNS] if kc >= k); rows
 * [ROWS, kc / TERMS + VECTOR] if a is copied. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
gemm_vector(GEMM_ARGUMENTS, long mc, long kc, __local word *strip, __local float *tiles, __local word *rows OFFSETS)
{
    __local float bias_strip[COLUMNS];
    TX_PACKED_VALUES(0, 1)
    long batch = get_group_id(2), first_row = batch * m;
#if GROUPED
    offsets += offsets_at;
    const long first = group_begin(offsets, batch, groups, GROUPED == 1 ? m : k);
    const long count = group_rows(offsets, batch, groups, GROUPED == 1 ? m : k);
    a_at += first * lda;
#if GROUPED == 1
    m = count;
    k = batch < groups ? k : 0;
    first_row = first;
#else
    k = count;
    b_at += first * ldb;
#endif
#endif
    long j = get_group_id(0) * (long)COLUMNS, i0 = get_group_id(1) * mc, i1 = min(m, i0 + mc);
    long columns = min((long)COLUMNS, n - j);
    a += a_at + batch * stride_a;
    b += b_at + (PACKED ? 0 : batch * stride_b);
    y += y_at + first_row * n + j;
    int adds = tx_adds(accumulate, control);
#if GROUPED
    for (long i = i0; i < (k == 0 && !adds ? i1 : 0); i++)
        for (long c = 0; c < columns; c++)
            Y_STORE(0.0f, y + i * n + c);
#endif
    for (long c = 0; c < COLUMNS; c++)
        bias_strip[c] = bias && c < columns ? bias[bias_at + j + c] : 0.0f;
    for (long p = 0; p < k; p += kc) {
        long terms = min(kc, k - p), count = terms / TERMS;
#if PACKED
        copy_packed(b, n * k * MATRICES, batch * stride_b + (TRANS_B ? j * ldb + p : p * ldb + j), ldb, columns, count,
                    packed_values, strip);
#else
        copy_strip(b + (TRANS_B ? j * ldb + p : p * ldb + j), ldb, columns, count, strip);
#endif
        for (long i = i0; i < i1; i += ROWS) {
            __global const ab_t *from = a + (TRANS_A ? p * lda + i : i * lda + p);
            __local float *tile = tiles + (kc < k ? (i - i0) * COLUMNS : 0);
#if COPY_A
            const long pitch = TRANS_A ? 1 : kc + VECTOR;
            copy_rows(from, lda, i1 - i - 1, count, pitch, rows);
            multiply_tile(rows, pitch, TRANS_A ? ROWS : 1, i1 - i - 1, strip, count, tile, p > 0);
#else
            multiply_tile((__global const word *)from, TRANS_A ? 1 : lda / TERMS, TRANS_A ? lda : 1, i1 - i - 1, strip,
                          count, tile, p > 0);
#endif
            if (p + terms == k)
                finish_tile(tile, bias_strip, y + i * n, n, min((long)ROWS, i1 - i), columns, adds);
        }
    }
}
