/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding, gather, broadcasts, casts and copies. IN and OUT name storage types (f32, bf16 or f16).
 */

#ifndef IN
#define IN f32
#endif
#ifndef OUT
#define OUT f32
#endif
#define IN_T TX_CAT(IN, _t)
#define OUT_T TX_CAT(OUT, _t)
#define LOAD_IN TX_CAT(tx_load_, IN)
#define STORE_OUT TX_CAT(tx_store_, OUT)

/* TX_ROW is row (b, t). P is the number of rows of the position table, 0 without one. `at` is the rank of the
 * positions in it; 0 means absent, so row t has position t. */
__kernel void embedding(const __global int *tokens, long to, const __global IN_T *table, long tao,
                        const __global IN_T *places, long po, const __global int *positions, long pso,
                        __global OUT_T *y, long yo, long n, long T, long P, int at)
{
    long row = TX_ROW;
    long position = tx_place(positions + pso, at, row, T, P - T);
    const int number = tokens[to + row];
    const __global IN_T *token = table + tao + max(number, 0) * (long)n;
    const __global IN_T *place = places + po + position * n;
    y += yo + row * n;
    TX_EACH({
        vec v = 0.0f;
        if (number >= 0)
            v = LOAD_IN(token, i, n);
        if (P)
            v += LOAD_IN(place, i, n);
        STORE_OUT(v, y, i, n);
    })
}

/* TX_ROW is row t of the position table's gradient. */
__kernel void position_grad(const __global IN_T *dy, long dyo, __global float *y, long yo, long n, long B, long T,
                            int mode, const __global uint *control)
{
    long t = TX_ROW;
    int adds = tx_adds(mode, control);
    dy += dyo;
    y += yo + t * n;
    TX_EACH({
        vec sum = 0.0f;
        if (t < T)
            for (long b = 0; b < B; b++)
                sum += LOAD_IN(dy + (b * T + t) * n, i, n);
        if (adds)
            sum += tx_load(y, i, n, 0.0f);
        tx_store(sum, y, i, n);
    })
}

__kernel void gather(const __global IN_T *table, long to, const __global int *indices, long io, __global IN_T *y,
                     long yo, long n)
{
    long row = TX_ROW;
    int index = indices[io + row];
    table += to + max(index, 0) * n;
    y += yo + row * n;
    TX_EACH({
        vec v = 0.0f;
        if (index >= 0)
            v = LOAD_IN(table, i, n);
        TX_CAT(tx_store_, IN)(v, y, i, n);
    })
}

__kernel void transpose(const __global IN_T *x, long xo, __global IN_T *y, long yo, long n, int a, int b)
{
    long row = TX_ROW, first = row / ((long)a * b) * ((long)a * b), at = row - first;
    x += xo + (first + at % a * b + at / a) * n;
    y += yo + row * n;
    TX_EACH({ TX_CAT(tx_store_, IN)(LOAD_IN(x, i, n), y, i, n); })
}

/* TX_ROW is row t of T; its source has `columns` elements. */
__kernel void shift_rows(const __global IN_T *x, long xo, __global IN_T *y, long yo, long n, long columns, long T,
                         long first, long step)
{
    const long row = TX_ROW, offset = first + row % T * step;
    x += xo + row * columns;
    y += yo + row * n;
    TX_EACH({
        for (long k = i; k < i + VW && k < n; k++)
            y[k] = k + offset >= 0 && k + offset < columns ? x[k + offset] : (IN_T)0;
    })
}

/* Operands of latent attention (MLA_QKV). A head has N elements that do not rotate and R that do, and a value V. */
#define GET_IN(p, i) TX_CAT(TX_GET_, IN)(p, i)

/* The place of element i of those that rotate, and the element at place i. */
static long to_place(long i, long R, int step)
{
    return step == 2 ? i % 2 * (R / 2) + i / 2 : i;
}
static long at_place(long i, long R, int step)
{
    return step == 2 ? i % (R / 2) * 2 + i / (R / 2) : i;
}

__kernel void mla_qkv(const __global IN_T *q, long qo, const __global IN_T *kv, long ko, const __global IN_T *rope,
                      long ro, __global IN_T *y, long yo, long n, long heads, long N, long R, long V, int step)
{
    const long row = TX_ROW, d = N + R;
    q += qo + row * heads * d;
    kv += ko + row * heads * (N + V);
    rope += ro + row * R;
    y += yo + row * n;
    TX_EACH({
        for (long k = i; k < i + VW && k < n; k++) {
            const long part = k / (heads * d);
            const long head = k / d % heads;
            const long j = k % d;
            if (part == 2)
                y[k] = j < V ? kv[head * (N + V) + N + j] : (IN_T)0;
            else if (j >= R)
                y[k] = part ? kv[head * (N + V) + j - R] : q[head * d + j - R];
            else
                y[k] = part ? rope[at_place(j, R, step)] : q[head * d + N + at_place(j, R, step)];
        }
    })
}

/* The n columns are those of dq, dkv and drope. */
__kernel void mla_qkv_grad(const __global IN_T *dy, long dyo, __global IN_T *dq, long qo, __global IN_T *dkv, long ko,
                           __global float *drope, long ro, long n, long heads, long N, long R, long V, int step)
{
    const long row = TX_ROW, d = N + R;
    dy += dyo + row * 3 * heads * d;
    dq += qo + row * heads * d;
    dkv += ko + row * heads * (N + V);
    drope += ro + row * R;
    TX_EACH({
        for (long k = i; k < i + VW && k < n; k++) {
            const long in_kv = k - heads * d;
            const long in_rope = in_kv - heads * (N + V);
            if (in_rope >= 0) {
                float sum = 0.0f;
                for (long head = 0; head < heads; head++)
                    sum += GET_IN(dy, (heads + head) * d + to_place(in_rope, R, step));
                drope[in_rope] = sum;
            } else if (in_kv >= 0) {
                const long head = in_kv / (N + V);
                const long j = in_kv % (N + V);
                dkv[in_kv] = dy[(heads + head) * d + (j < N ? R + j : heads * d + j - N)];
            } else {
                const long j = k % d;
                dq[k] = dy[k - j + (j < N ? R + j : to_place(j - N, R, step))];
            }
        }
    })
}

/* The matrices of PLACE_ROWS: the first row and the rows of each, and the index of the one that has a row, or -1. */
#define PLACES long first0, long first1, long first2, long first3, long rows0, long rows1, long rows2, long rows3
#define HAS(i) (row >= first##i && row < first##i + rows##i)
#define PART (HAS(0) ? 0 : HAS(1) ? 1 : HAS(2) ? 2 : HAS(3) ? 3 : -1)
#define OF_PART(part, x) ((part) == 0 ? x##0 : (part) == 1 ? x##1 : (part) == 2 ? x##2 : x##3)

/* TX_ROW is row `row` of y. The matrices have `columns` columns. */
__kernel void place_rows(const __global float *x0, long o0, const __global float *x1, long o1, const __global float *x2,
                         long o2, const __global float *x3, long o3, __global float *y, long yo, long n, long columns,
                         long step, PLACES, float alpha)
{
    const long row = TX_ROW;
    const int part = PART;
    const long from = part < 0 ? 0 : OF_PART(part, o) + (row - OF_PART(part, first)) * columns;
    const __global float *x = OF_PART(part, x);
    y += yo + row * n;
    TX_EACH({
        for (long k = i; k < i + VW && k < n; k++) {
            const long column = k - part * step;
            y[k] = part >= 0 && column >= 0 && column < columns ? alpha * x[from + column] : 0.0f;
        }
    })
}

/* TX_ROW is row `row` of dy, which has `width` columns. */
__kernel void place_rows_grad(const __global float *dy, long dyo, __global float *x0, long o0, __global float *x1,
                              long o1, __global float *x2, long o2, __global float *x3, long o3, long n, long width,
                              long step, PLACES, float alpha, int mode, const __global uint *control)
{
    const long row = TX_ROW;
    const int part = PART, adds = tx_adds(mode, control);
    if (part < 0)
        return;
    __global float *x = OF_PART(part, x);
    x += OF_PART(part, o) + (row - OF_PART(part, first)) * n;
    dy += dyo + row * width + part * step;
    TX_EACH({
        for (long k = i; k < i + VW && k < n; k++)
            x[k] = (adds ? x[k] : 0.0f) + alpha * dy[k];
    })
}

/* A work-item numbers the tokens of one row. */
__kernel void token_positions(const __global int *tokens, long to, __global int *y, long yo, int B, int T, int padding)
{
    const long b = get_global_id(0);
    if (b >= B)
        return;
    int position = padding;
    for (long i = b * T; i < (b + 1) * T; i++)
        y[yo + i] = tokens[to + i] == padding ? padding : ++position;
}

/* ---- broadcasts, casts, copies ----------------------------------------------------------------------------- */

/* TX_ROW is a row of y. axis 0 reads x[0], 1 reads x[row], 2 reads x[column]. */
__kernel void broadcast(const __global float *x, long xo, __global float *y, long yo, long n, int axis, float alpha,
                        int which, const __global uint *control)
{
    long row = TX_ROW;
    float factor = tx_factor(alpha, which, control);
    x += xo;
    y += yo + row * n;
    TX_EACH({
        vec v;
        if (axis == 2)
            v = tx_load(x, i, n, 0.0f);
        else
            v = x[axis == 1 ? row : 0];
        tx_store(v * factor, y, i, n);
    })
}

#include "backends/opencl/ops/typed.cl"

/* From f32 to f32 it also copies 32-bit words of any type. */
__kernel void cast(const __global void *x, long xo, __global void *y, long yo, long n, int from, int to, int mode,
                   const __global uint *control)
{
    int adds = tx_adds(mode, control);
    TX_EACH({
        vec v = load_typed(from, x, xo, i, n);
        if (adds)
            v += load_typed(to, y, yo, i, n);
        store_typed(to, v, y, yo, i, n);
    })
}

/* Offsets and count are in bytes. */
__kernel void copy_bytes(const __global uchar *x, long xo, __global uchar *y, long yo, long n)
{
    TX_EACH({
        for (int k = 0; k < VW; k++)
            if (i + k < n)
                y[yo + i + k] = x[xo + i + k];
    })
}

__kernel void range(__global int *y, long yo, long n, long period, int first, int step, int gap)
{
    y += yo;
    TX_EACH({
        for (long k = i; k < i + VW && k < n; k++) {
            const long place = k % period;
            y[k] = first + (int)place * step + (place < period / 2 ? 0 : gap);
        }
    })
}
