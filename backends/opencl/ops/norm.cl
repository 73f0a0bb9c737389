/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm and RMS norm (RMS 1: no mean, no beta). One work-group computes a row. Sums over rows are computed in
 * blocks.
 *
 * ADDS 1 normalizes x + z and stores the sum; the gradient adds z to dx. DROPS 1 first applies dropout to z, which
 * has type Z. If HEADS is above 0, rows are heads of q, KV_HEADS heads of k and KV_HEADS heads of v, which is not
 * normalized. If HELD is above 0, a lane keeps at most HELD vectors of a row in registers and reads them once.
 */

#ifndef RMS
#define RMS 0
#endif
#ifndef ADDS
#define ADDS 0
#endif

#ifndef DROPS
#define DROPS 0
#define Z f32
#endif
#if DROPS
#include "draw.cl"
#endif
typedef TX_CAT(Z, _t) z_t;

#ifndef HEADS
#define HEADS 0
#define KV_HEADS 0
#endif
#define HEAD_OF(row) (HEADS ? (int)((row) % (HEADS ? HEADS + 2 * KV_HEADS : 1)) : 0)
#define IS_V(row) (HEADS && HEAD_OF(row) >= HEADS + KV_HEADS)
#define IS_K(row) (HEADS && HEAD_OF(row) >= HEADS) /* also true for v */
#define GAMMA_AT(row, n) (IS_K(row) && !IS_V(row) ? (n) : 0)
#define GAMMA(i, n) (IS_V(row) ? (vec)(1.0f) : tx_load(gamma, i, n, 0.0f))

/* Loops over the vectors of a row that belong to this work-item: vector k begins at element i. HOLD keeps a loaded
 * vector, and AGAIN returns it or loads it again. */
#ifndef HELD
#define HELD 0
#endif
#if HELD
#define ROW_LOOP(k, i, n)                                                                                              \
    _Pragma("unroll") for (int k = 0; k < HELD; k++)                                                                   \
        for (long i = ((long)k * WG + (long)get_local_id(0)) * VW; i < (n); i = (n))
#define AGAIN(own, k, v) own[k]
#else
#define ROW_LOOP(k, i, n) for (long k = 0, i = (long)get_local_id(0) * VW; i < (n); i += WG * VW, k++)
#define AGAIN(own, k, v) (v)
#endif
#define HOLD(own, k, v) own[HELD ? k : 0] = (v)

#if DROPS
#define DROPOUT_ARGUMENTS , long middle, float p, int site, int first_row, int gap, const __global uint *control

/* kept = x + dropout(z) for a row. */
static void add_dropped(const __global float *x, const __global z_t *z, __global float *kept, long n, const draws *d,
                        uint row)
{
    for (long first = (long)get_local_id(0) * DRAWN * VW; first < n; first += WG * DRAWN * VW) {
        vec factor[DRAWN];
        draw_vectors(factor, d, row, (uint)first);
        for (int k = 0; k < DRAWN && first + k * VW < n; k++) {
            const long i = first + k * VW;
            tx_store(tx_load(x, i, n, 0.0f) + drop(TX_CAT(tx_load_, Z)(z, i, n), factor[k]), kept, i, n);
        }
    }
    barrier(CLK_GLOBAL_MEM_FENCE); /* other work-items read it */
}
#else
#define DROPOUT_ARGUMENTS
#endif

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
norm(const __global float *x, long xo, const __global float *gamma, long go, const __global float *beta, long bo,
     __global h_t *y, long yo, __global float *mean, long mo, __global float *rstd, long ro, const __global z_t *z,
     long zo, __global float *kept, long ko, long n, float eps DROPOUT_ARGUMENTS)
{
    __local float part[WG];
    long row = get_group_id(0);
    x += xo + row * n;
#if ADDS
    z += zo + row * n;
    kept += ko + row * n;
#if DROPS
    const draws d = draws_of(control, (uint)(row / middle), site, 0, p, first_row, 0);
    add_dropped(x, z, kept, n, &d, drawn_row(row, middle, gap));
    x = kept;
#endif
#endif
    y += yo + row * n;
    gamma += go + GAMMA_AT(row, n);
    vec own[HELD ? HELD : 1], sum = 0.0f;
    float m = 0.0f;
    ROW_LOOP(k, i, n)
    {
        vec v = tx_load(x, i, n, 0.0f);
#if ADDS && !DROPS
        v += tx_load(z, i, n, 0.0f);
        tx_store(v, kept, i, n);
#endif
        HOLD(own, k, v);
        sum += RMS ? v * v : v;
    }
#if ADDS
    x = kept;
#endif
#if !RMS
    m = tx_group_sum(tx_hsum(sum), part) / (float)n;
    sum = 0.0f;
    ROW_LOOP(k, i, n)
    {
        vec d = AGAIN(own, k, tx_load(x, i, n, m)) - m;
        sum += d * d;
    }
#endif
    float r = 1.0f / sqrt(tx_group_sum(tx_hsum(sum), part) / (float)n + eps);
    if (IS_V(row))
        r = 1.0f;
    ROW_LOOP(k, i, n)
    {
        vec v = (AGAIN(own, k, tx_load(x, i, n, 0.0f)) - m) * r * GAMMA(i, n);
        if (!RMS)
            v += tx_load(beta + bo, i, n, 0.0f);
        tx_store_h(v, y, i, n);
    }
    if (get_local_id(0) == 0) {
        if (!RMS)
            mean[mo + row] = m;
        rstd[ro + row] = r;
    }
}

/* Dimension 0 is columns, dimension 1 blocks of `block` rows. Layer norm writes work [blocks, 2, n]: sums of dy *
 * xhat, and of dy. RMS norm writes work [blocks, n]: sums of dy * xhat; with HEADS it writes [blocks, 2, n], for q
 * and for k. */
__kernel void norm_grad_blocks(const __global h_t *dy, long dyo, const __global float *x, long xo,
                               const __global float *mean, long mo, const __global float *rstd, long ro,
                               __global float *work, long wo, long rows, long n, long block)
{
    long i = TX_COLUMN(0), b = TX_ROW;
    if (i >= n)
        return;
    dy += dyo;
    x += xo;
    mean += mo;
    rstd += ro;
    work += wo + b * n * (RMS && !HEADS ? 1 : 2);
    vec dgamma = 0.0f;
#if !RMS || HEADS
    vec second = 0.0f; /* of beta, or of k's gamma */
#endif
    long end = min(rows, (b + 1) * block);
    for (long row = b * block; row < end; row++) {
        vec d = tx_load_h(dy + row * n, i, n);
        float m = 0.0f;
#if !RMS
        m = mean[row];
        second += d;
#endif
#if HEADS
        if (IS_K(row) && !IS_V(row))
            second += d * tx_load(x + row * n, i, n, 0.0f) * rstd[row];
        if (IS_K(row))
            continue;
#endif
        dgamma += d * (tx_load(x + row * n, i, n, 0.0f) - m) * rstd[row];
    }
    tx_store(dgamma, work, i, n);
#if !RMS || HEADS
    tx_store(second, work + n, i, n);
#endif
}

/* dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma. dx may alias dy. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
norm_grad(const __global h_t *dy, long dyo, const __global float *x, long xo, const __global float *gamma, long go,
          const __global float *mean, long mo, const __global float *rstd, long ro, const __global float *z, long zo,
          __global float *dx, long dxo, long n)
{
    __local float part[WG];
    long row = get_group_id(0);
    dy += dyo + row * n;
    x += xo + row * n;
    dx += dxo + row * n;
    gamma += go + GAMMA_AT(row, n);
    float m = 0.0f, r = rstd[ro + row], mean_g = 0.0f;
#if !RMS
    m = mean[mo + row];
#endif
    vec own_g[HELD ? HELD : 1], own_d[HELD ? HELD : 1];
    vec sum_g = 0.0f, sum_gx = 0.0f;
    ROW_LOOP(k, i, n)
    {
        vec g = tx_load_h(dy, i, n) * GAMMA(i, n), d = tx_load(x, i, n, 0.0f) - m;
        HOLD(own_g, k, g);
        HOLD(own_d, k, d);
        sum_g += g;
        sum_gx += g * d;
    }
    if (!RMS)
        mean_g = tx_group_sum(tx_hsum(sum_g), part) / (float)n;
    float mean_gx = tx_group_sum(tx_hsum(sum_gx), part) * r / (float)n;
    if (IS_V(row))
        mean_gx = 0.0f;
    ROW_LOOP(k, i, n)
    {
        vec g = AGAIN(own_g, k, tx_load_h(dy, i, n) * GAMMA(i, n));
        vec xhat = AGAIN(own_d, k, tx_load(x, i, n, 0.0f) - m) * r;
        vec v = r * (g - mean_g - xhat * mean_gx);
#if ADDS
        v += tx_load(z + zo + row * n, i, n, 0.0f);
#endif
        tx_store(v, dx, i, n);
    }
}
