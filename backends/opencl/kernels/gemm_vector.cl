/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix product y = op(a) op(b) + bias (+ y) for cores with vector registers (CPUs). Sums are fp32, rounded to y's type
 * once. a and b are given by their first element, leading dimension and batch stride; y is dense.
 *
 * A work-group is one work-item. It owns ROWS x COLUMNS register tiles down a strip of COLUMNS columns, and walks: blocks
 * of k, for each the strip of b copied to local memory (transposed and widened to fp32 as it goes), for each the row
 * tiles. A sum that spans several blocks of k waits in local memory.
 *
 * Options: VECTOR 4, 8, 16 (lanes of a register); ROWS 8, or 4 where there are 16 registers only: ROWS x 3 sums, three
 * vectors of b and one broadcast of a are to fit. They are named variables, since arrays may end up in memory. AB, Y f32,
 * bf16 or f16: storage of a and b, and of y; WIDEN 1 where AB is not f32, NARROW 1 where Y is not; TRANS_A, TRANS_B. */

#define AB_LOAD(p) TX_CAT(tx_load_, AB)(p, 0, 1)
#define Y_LOAD(p) TX_CAT(tx_load_, Y)(p, 0, 1)
#define Y_STORE(v, p) TX_CAT(tx_store_, Y)(v, p, 0, 1)
typedef TX_CAT(AB, _t) ab_t;
typedef TX_CAT(Y, _t) y_t;
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

/* fp32 a is read where it lies; 16-bit a is widened, one row tile at a time, into local memory. */
#if !WIDEN
#define A_SPACE __global
#else
#define A_SPACE __local
#endif

#define DECLARE(i) lanes c##i##0 = 0, c##i##1 = 0, c##i##2 = 0;
/* Rows beyond the last read the last one again: their sums are never stored. */
#define POINT(i) A_SPACE const float *a##i = a + min((long)i, last) * row;
#define MULTIPLY(i)                                                                                                    \
    {                                                                                                                  \
        lanes x = (lanes)(a##i[at]);                                                                                         \
        c##i##0 += x * b0;                                                                                             \
        c##i##1 += x * b1;                                                                                             \
        c##i##2 += x * b2;                                                                                             \
    }
#define KEEP(i)                                                                                                        \
    if (more) {                                                                                                        \
        c##i##0 += LANES_LOAD(3 * i, tile);                                                                                 \
        c##i##1 += LANES_LOAD(3 * i + 1, tile);                                                                             \
        c##i##2 += LANES_LOAD(3 * i + 2, tile);                                                                             \
    }                                                                                                                  \
    LANES_STORE(c##i##0, 3 * i, tile);                                                                                      \
    LANES_STORE(c##i##1, 3 * i + 1, tile);                                                                                  \
    LANES_STORE(c##i##2, 3 * i + 2, tile);

/* tile [ROWS, COLUMNS] = (more ? tile : 0) + a b over k terms; element (i, p) of a at a[i * row + p * step]. */
static void multiply_tile(A_SPACE const float *a, long row, long step, long last, __local const float *b, long k,
                   __local float *tile, int more)
{
    EACH_ROW(DECLARE)
    EACH_ROW(POINT)
    long at = 0;
    for (long p = 0; p < k; p++) {
        lanes b0 = LANES_LOAD(0, b), b1 = LANES_LOAD(1, b), b2 = LANES_LOAD(2, b);
        EACH_ROW(MULTIPLY)
        b += COLUMNS;
        at += step;
    }
    EACH_ROW(KEEP)
}

#if TRANS_B
#if VECTOR == 16
#define GATHER(e) (lanes)(r[0].e, r[1].e, r[2].e, r[3].e, r[4].e, r[5].e, r[6].e, r[7].e, \
                       r[8].e, r[9].e, r[10].e, r[11].e, r[12].e, r[13].e, r[14].e, r[15].e)
#define EACH_LANE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(a) X(b) X(c) X(d) X(e) X(f)
#elif VECTOR == 8
#define GATHER(e) (lanes)(r[0].e, r[1].e, r[2].e, r[3].e, r[4].e, r[5].e, r[6].e, r[7].e)
#define EACH_LANE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#else
#define GATHER(e) (lanes)(r[0].e, r[1].e, r[2].e, r[3].e)
#define EACH_LANE(X) X(0) X(1) X(2) X(3)
#endif
#define PUT(e) LANES_STORE(GATHER(s##e), 0, o); o += COLUMNS;

/* strip [k, COLUMNS] = columns 0..columns-1 of op(b), fp32; further columns repeat the last one. */
static void copy_strip(__global const ab_t *b, long ldb, long columns, long k, __local float *strip)
{
    for (long j = 0; j < COLUMNS; j += VECTOR) {
        long p = 0;
        for (; p + VECTOR <= k; p += VECTOR) {
            lanes r[VECTOR];
            for (int i = 0; i < VECTOR; i++)
                r[i] = AB_VLOAD(b + min(j + i, columns - 1) * ldb + p);
            __local float *o = strip + p * COLUMNS + j;
            EACH_LANE(PUT)
        }
        for (; p < k; p++)
            for (int i = 0; i < VECTOR; i++)
                strip[p * COLUMNS + j + i] = AB_LOAD(b + min(j + i, columns - 1) * ldb + p);
    }
}
#else
static void copy_strip(__global const ab_t *b, long ldb, long columns, long k, __local float *strip)
{
    for (long p = 0; p < k; p++, b += ldb, strip += COLUMNS) {
        if (columns == COLUMNS)
            for (int v = 0; v < 3; v++)
                LANES_STORE(AB_VLOAD(b + v * VECTOR), v, strip);
        else
            for (long j = 0; j < COLUMNS; j++)
                strip[j] = AB_LOAD(b + min(j, columns - 1));
    }
}
#endif

#if WIDEN
/* Widens ROWS rows of op(a), k terms: laid out [ROWS, pitch], or [k, ROWS] when a is stored transposed. */
static void widen_rows(__global const ab_t *a, long lda, long last, long k, long pitch, __local float *rows)
{
#if TRANS_A
    for (long p = 0; p < k; p++, a += lda, rows += ROWS)
        for (int i = 0; i < ROWS; i++)
            rows[i] = AB_LOAD(a + min((long)i, last));
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

/* y = tile + bias (+ y) in y's type. */
static void finish_tile(__local const float *tile, __local const float *bias, __global y_t *y, long ldy, long rows, long columns,
                 int add)
{
    for (long i = 0; i < rows; i++, tile += COLUMNS, y += ldy) {
#if !NARROW
        if (columns == COLUMNS) {
            for (int v = 0; v < 3; v++) {
                lanes sum = LANES_LOAD(v, tile) + LANES_LOAD(v, bias);
                if (add)
                    sum += LANES_LOAD(v, y);
                LANES_STORE(sum, v, y);
            }
            continue;
        }
#endif
        for (long j = 0; j < columns; j++) {
            float sum = tile[j] + bias[j];
            if (add)
                sum += Y_LOAD(y + j);
            Y_STORE(sum, y + j);
        }
    }
}

/* Groups: (strips of columns, blocks of `mc` rows, batch). Local memory: strip [kc, COLUMNS],
 * tiles [mc, COLUMNS] ([ROWS, COLUMNS] when kc >= k), rows [ROWS, kc + VECTOR] (16-bit a only). */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
gemm_vector(__global const ab_t *a, long a_at, __global const ab_t *b, long b_at, __global const float *bias, long bias_at,
            __global y_t *y, long y_at, __global const uint *control, long m, long n, long k, long lda, long ldb,
            long stride_a, long stride_b, int accumulate, long mc, long kc, __local float *strip, __local float *tiles,
            __local float *rows)
{
    __local float bias_strip[COLUMNS];
    long j = get_group_id(0) * (long)COLUMNS, i0 = get_group_id(1) * mc, i1 = min(m, i0 + mc);
    long batch = get_group_id(2), columns = min((long)COLUMNS, n - j);
    a += a_at + batch * stride_a;
    b += b_at + batch * stride_b;
    y += y_at + batch * m * n + j;
    int adds = tx_adds(accumulate, control);
    for (long c = 0; c < COLUMNS; c++)
        bias_strip[c] = bias && c < columns ? bias[bias_at + j + c] : 0.0f;
    for (long p = 0; p < k; p += kc) {
        long terms = min(kc, k - p);
        copy_strip(b + (TRANS_B ? j * ldb + p : p * ldb + j), ldb, columns, terms, strip);
        for (long i = i0; i < i1; i += ROWS) {
            __global const ab_t *from = a + (TRANS_A ? p * lda + i : i * lda + p);
            __local float *tile = tiles + (kc < k ? (i - i0) * COLUMNS : 0);
#if !WIDEN
            multiply_tile(from, TRANS_A ? 1 : lda, TRANS_A ? lda : 1, i1 - i - 1, strip, terms, tile, p > 0);
#else
            widen_rows(from, lda, i1 - i - 1, terms, kc + VECTOR, rows);
            multiply_tile(rows, TRANS_A ? 1 : kc + VECTOR, TRANS_A ? ROWS : 1, i1 - i - 1, strip, terms, tile, p > 0);
#endif
            if (p + terms == k)
                finish_tile(tile, bias_strip, y + i * n, n, min((long)ROWS, i1 - i), columns, adds);
        }
    }
}
