/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that a product of few rows computes in its launch (runtime/join.c). Their results are stored as by their own
 * launches.
 *
 *   NORM   The norm that computes a: 1 is a layer norm, 2 an RMS norm. Every group normalizes all rows in local memory.
 *   NEXT   The op that reads y: 1 is a rotary embedding, 2 and 3 are SWIGLU with SiLU and with GELU. A result of it
 *          depends on two columns, which one work-item computes one after the other.
 */

#ifndef NORM
#define NORM 0
#endif
#ifndef NEXT
#define NEXT 0
#endif

#if VW == 1
#define FIRST_OF(v) (v)
#elif VW == 4
#define FIRST_OF(v) (v).x
#else
#define FIRST_OF(v) (v).s0
#endif

/* ---- The norm before the product --------------------------------------------------------------------- */

#if NORM
#define NORM_ARGUMENTS                                                                                                 \
    , const __global float *x, long x_at, const __global float *gamma, long gamma_at, const __global float *beta,      \
        long beta_at, __global ab_t *normed, long normed_at, __global float *mean, long mean_at, __global float *rstd, \
        long rstd_at, float eps, __local vec *rows
#define A_PITCH ((k + VW - 1) / VW * VW)
#define A ((const __local float *)rows)
typedef const __local float *from_a;
#define A_GET(a, i) ((a)[i])
#if VW == 16
#define A_VLOAD(a, i, n) vload16(0, (a) + (i)) /* columns after the last are 0 */
#else
#define A_VLOAD(a, i, n) (*(const __local vec *)((a) + (i)))
#endif
#define NORM_ROWS                                                                                                      \
    TX_LOCAL(float, norm_part, GROUP);                                                                                 \
    const int stores_rows = get_group_id(0) == 0;                                                                      \
    for (int row = 0; row < ROWS; row++)                                                                               \
        norm_row(x + x_at + row * k, gamma + gamma_at, beta + beta_at, rows + row * (A_PITCH / VW),                    \
                 normed ? normed + normed_at + row * k : 0, mean ? mean + mean_at + row : 0,                           \
                 rstd ? rstd + rstd_at + row : 0, k, eps, norm_part, stores_rows);                                     \
    barrier(CLK_LOCAL_MEM_FENCE);

/* As in norm.cl. Outputs may be NULL, and only a group with `stores` stores them. */
TX_INLINE void norm_row(const __global float *x, const __global float *gamma, const __global float *beta,
                        __local vec *row, __global ab_t *normed, __global float *mean, __global float *rstd, long n,
                        float eps, __local float *part, int stores)
{
    const long first = (long)get_local_id(0) * VW;
    vec sum = 0.0f;
    float m = 0.0f;
    for (long i = first; i < n; i += GROUP * VW) {
        const vec v = tx_load(x, i, n, 0.0f);
        sum += NORM == 2 ? v * v : v;
    }
    if (NORM == 1) {
        m = tx_group_sum(tx_hsum(sum), part) / (float)n;
        sum = 0.0f;
        for (long i = first; i < n; i += GROUP * VW) {
            const vec d = tx_load(x, i, n, m) - m;
            sum += d * d;
        }
    }
    const float r = 1.0f / sqrt(tx_group_sum(tx_hsum(sum), part) / (float)n + eps);
    for (long i = first; i < n; i += GROUP * VW) {
        vec v = (tx_load(x, i, n, 0.0f) - m) * r * tx_load(gamma, i, n, 0.0f);
        if (NORM == 1)
            v += tx_load(beta, i, n, 0.0f);
        if (normed && stores)
            TX_CAT(tx_store_, AB)(v, normed, i, n);
        row[i / VW] = TX_CAT(tx_stored_, AB)(v);
    }
    if (stores && get_local_id(0) == 0) {
        if (mean)
            *mean = m;
        if (rstd)
            *rstd = r;
    }
}
#else
#define NORM_ARGUMENTS
#define NORM_ROWS
#define A_PITCH lda
#define A a
typedef __global const ab_t *from_a;
#define A_GET AB_GET
#define A_VLOAD AB_VLOAD
#endif

/* ---- The op after the product --------------------------------------------------------------------- */

#if NEXT
#define SIDES 2
#define STORED(v) FIRST_OF(TX_CAT(tx_stored_, Y)(v))
#define NEXT_HELD float held[ROWS]; /* the values of the first columns */
#define NEXT_STORE(row, pair, side, value)                                                                             \
    if (side)                                                                                                          \
        store_pair(held[row], value, row, pair, n, next + next_at NEXT_VALUES(pair));                                  \
    else                                                                                                               \
        held[row] = value;

#if VW == 16
#define PUT_NEXT TX_CAT(TX_PUT_, Y)
#else /* PoCL 3.1 computes other numbers with stores of one element here */
#define PUT_NEXT(value, y, j) Y_VSTORE((vec)(value), y, j, (j) + 1)
#endif

#if NEXT == 1
#include "backends/opencl/ops/rope.cl"
#define NEXT_ARGUMENTS                                                                                                 \
    , __global y_t *next, long next_at, int T, int heads, int d, int half_d, rope_table table, float magnitude,        \
        int inverse, int at, const __global int *positions, long positions_at
#define NEXT_VALUES(pair)                                                                                              \
    , T, heads, d, half_d, table.frequency[min((int)((pair) % (d / 2)), half_d - 1)], magnitude, inverse, at,          \
        positions + positions_at

/* Returns a column of pair p: of a rotated pair, or of two neighbours that are copied. */
static long column_of(long p, int side, int heads, int d, int half_d)
{
    const long head = p / (d / 2), i = p % (d / 2);
    return head < heads && i < half_d ? head * d + i + side * half_d : 2 * p + side;
}
#define COLUMN_OF(p, side) column_of(p, side, heads, d, half_d)

static void store_pair(float a, float b, long row, long p, long n, __global y_t *y, int T, int heads, int d, int half_d,
                       float frequency, float magnitude, int inverse, int at, const __global int *positions)
{
    const long head = p / (d / 2), i = p % (d / 2);
    y += row * n;
    if (head < heads && i < half_d) {
        const ulong position = (ulong)tx_place(positions, at, row, T, INT_MAX);
        float c, s = rope_sincos(frequency, position, inverse ? -magnitude : magnitude, magnitude, &c);
        const float first = a * c - b * s;
        b = b * c + a * s;
        a = first;
    }
    PUT_NEXT(a, y, column_of(p, 0, heads, d, half_d));
    PUT_NEXT(b, y, column_of(p, 1, heads, d, half_d));
}
#else
#if NEXT == 3
#include "backends/opencl/ops/gelu.cl"
#define GATE(gate) gelu_of(gate, 0)
#else
#define GATE(gate) (gate) * tx_sigmoid(gate)
#endif
#define NEXT_ARGUMENTS , __global y_t *next, long next_at
#define NEXT_VALUES(pair)
#define COLUMN_OF(p, side) ((p) + (side) * (n / 2))

static void store_pair(float gate, float up, long row, long p, long n, __global y_t *y)
{
    const vec open = GATE((vec)gate);
    PUT_NEXT(FIRST_OF(open) * up, y + row * (n / 2), p);
}
#endif
#else
#define SIDES 1
#define STORED(v) 0.0f
#define NEXT_ARGUMENTS
#define NEXT_HELD
#define NEXT_STORE(row, pair, side, value)
#define COLUMN_OF(place, side) (place)
#endif
