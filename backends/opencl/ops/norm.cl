/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm and RMS norm (RMS 1: no mean, no beta). A work-group computes a row, and in the gradient a block of rows.
 *
 * x has type X. ADDS 1 normalizes x + z and stores the sum, both of type X; the gradient adds z to dx. DROPS 1 first
 * applies dropout to z, which has type Z. If HEADS is above 0, rows are heads of q, KV_HEADS heads of k and KV_HEADS
 * heads of v, which is not normalized. If HELD is above 0, a lane keeps at most HELD vectors of a row in registers and
 * reads them once.
 */

#ifndef RMS
#define RMS 0
#endif
#ifndef ADDS
#define ADDS 0
#endif

#ifndef X
#define X f32
#endif
#include "stored.cl"
typedef TX_CAT(X, _t) x_t;
#define LOAD_X TX_CAT(tx_load_, X)
#define STORE_X TX_CAT(tx_store_, X)
#define STORED_X TX_CAT(tx_stored_, X)

#ifndef DROPS
#define DROPS 0
#define Z X
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
#define GAMMA(gamma, row, i, n) (IS_V(row) ? (vec)(1.0f) : tx_load(gamma, i, n, 0.0f))

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

TX_INLINE vec load_x_or(const __global x_t *x, long i, long n, float pad)
{
    TX_LOAD_END(TX_CAT(TX_GET_, X)(x, i + k), pad)
    return LOAD_X(x, i, n);
}

#if DROPS
#define DROPOUT_ARGUMENTS , long middle, float p, int site, int first_row, int gap, const __global uint *control

/* kept = x + dropout(z) for a row. */
TX_INLINE void add_dropped(const __global x_t *x, const __global z_t *z, __global x_t *kept, long n, const draws *d,
                           uint row)
{
    for (long first = (long)get_local_id(0) * DRAWN * VW; first < n; first += WG * DRAWN * VW) {
        vec factor[DRAWN];
        draw_vectors(factor, d, row, (uint)first);
        for (int k = 0; k < DRAWN && first + k * VW < n; k++) {
            const long i = first + k * VW;
            const vec dropped = STORED_X(drop(TX_CAT(tx_load_, Z)(z, i, n), factor[k]));
            STORE_X(LOAD_X(x, i, n) + dropped, kept, i, n);
        }
    }
    barrier(CLK_GLOBAL_MEM_FENCE); /* other work-items read it */
}
#else
#define DROPOUT_ARGUMENTS
#endif

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
norm(const __global x_t *x, long xo, const __global float *gamma, long go, const __global float *beta, long bo,
     __global h_t *y, long yo, __global float *mean, long mo, __global float *rstd, long ro, const __global z_t *z,
     long zo, __global x_t *kept, long ko, long n, float eps DROPOUT_ARGUMENTS)
{
    TX_LOCAL(float, part, WG);
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
        vec v = LOAD_X(x, i, n);
#if ADDS && !DROPS
        v = STORED_X(v + LOAD_X(z, i, n));
        STORE_X(v, kept, i, n);
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
        vec d = AGAIN(own, k, load_x_or(x, i, n, m)) - m;
        sum += d * d;
    }
#endif
    float r = 1.0f / sqrt(tx_group_sum(tx_hsum(sum), part) / (float)n + eps);
    if (IS_V(row))
        r = 1.0f;
    ROW_LOOP(k, i, n)
    {
        vec v = (AGAIN(own, k, LOAD_X(x, i, n)) - m) * r * GAMMA(gamma, row, i, n);
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

/* ---- Gradients. dx and z have type D. ---- */

#ifndef D
#define D f32
#define SUMS 0
#endif
typedef TX_CAT(D, _t) dx_t;
#define LOAD_D TX_CAT(tx_load_, D)
#define STORE_D TX_CAT(tx_store_, D)
#define STORED_D TX_CAT(tx_stored_, D)

/* Bits of SUMS are the sums over rows: dgamma, dbeta, dbias. Each has n floats in the block's slice of work. With
 * HEADS, dgamma is the only one and has n floats for q and n for k. A lane adds only to its own columns. It keeps the
 * sums in registers if it keeps the row there. */
#define DBETA (SUMS & 1)
#define DBIAS ((SUMS & 1) + (SUMS >> 1 & 1))
#define SLOTS (HEADS ? 2 * (SUMS & 1) : DBIAS + (SUMS >> 2))
#if HELD
#define SET_SUM(slot, v) total[slot][k] = (v)
#define ADD_TO_SUM(slot, v) total[slot][k] += (v)
#else
#define SET_SUM(slot, v) tx_store(v, work + (slot) * n, i, n)
#define ADD_TO_SUM(slot, v) tx_store(tx_load(work + (slot) * n, i, n, 0.0f) + (v), work + (slot) * n, i, n)
#endif

#define ADD_TO_SUMS(y, product, v)                                                                                     \
    do {                                                                                                               \
        if ((SUMS & 1) && !IS_K(row))                                                                                  \
            ADD_TO_SUM(0, product);                                                                                    \
        if ((SUMS & 1) && IS_K(row) && !IS_V(row))                                                                     \
            ADD_TO_SUM(HEADS ? 1 : 0, product);                                                                        \
        if (SUMS & 2)                                                                                                  \
            ADD_TO_SUM(DBETA, y);                                                                                      \
        if (SUMS & 4)                                                                                                  \
            ADD_TO_SUM(DBIAS, STORED_D(v)); /* as another op would read it */                                          \
    } while (0)

/* dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma. dx may alias dy. A work-group computes a block of `block`
 * rows. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
norm_grad(const __global h_t *dy, long dyo, const __global x_t *x, long xo, const __global float *gamma, long go,
          const __global float *mean, long mo, const __global float *rstd, long ro, const __global dx_t *z, long zo,
          __global dx_t *dx, long dxo, __global float *work, long wo, long rows, long n, long block)
{
    __local float2 part[WG];
    vec own_y[HELD ? HELD : 1], own_d[HELD ? HELD : 1], own_z[HELD ? HELD : 1];
#if HELD
    vec total[SLOTS + 1][HELD];
#endif
    const long first = get_group_id(0) * block, end = min(rows, first + block);
    work += wo + get_group_id(0) * SLOTS * n;
    for (int s = 0; s < SLOTS; s++)
        ROW_LOOP(k, i, n)
            SET_SUM(s, 0.0f);
    for (long row = first; row < end; row++) {
        const __global h_t *y_row = dy + dyo + row * n;
        const __global x_t *x_row = x + xo + row * n;
        const __global float *gamma_row = gamma + go + GAMMA_AT(row, n);
        const float r = rstd[ro + row];
        float m = 0.0f;
#if !RMS
        m = mean[mo + row];
#endif
        vec sum_g = 0.0f, sum_gx = 0.0f;
        ROW_LOOP(k, i, n)
        {
            vec y = tx_load_h(y_row, i, n), d = LOAD_X(x_row, i, n) - m;
            HOLD(own_y, k, y);
            HOLD(own_d, k, d);
            HOLD(own_z, k, ADDS ? LOAD_D(z + zo + row * n, i, n) : (vec)0.0f);
            vec g = y * GAMMA(gamma_row, row, i, n);
            sum_g += g;
            sum_gx += g * d;
        }
        const float2 sum = tx_group_sum2((float2)(tx_hsum(sum_g), tx_hsum(sum_gx)), part);
        const float mean_g = RMS ? 0.0f : sum.x / (float)n, mean_gx = IS_V(row) ? 0.0f : sum.y * r / (float)n;
        ROW_LOOP(k, i, n)
        {
            vec y = AGAIN(own_y, k, tx_load_h(y_row, i, n));
            vec d = AGAIN(own_d, k, LOAD_X(x_row, i, n) - m), xhat = d * r;
            vec v = r * (y * GAMMA(gamma_row, row, i, n) - mean_g - xhat * mean_gx);
            if (ADDS)
                v += AGAIN(own_z, k, LOAD_D(z + zo + row * n, i, n));
            STORE_D(v, dx + dxo + row * n, i, n);
            ADD_TO_SUMS(y, y * d * r, v);
        }
    }
#if HELD
    for (int s = 0; s < SLOTS; s++)
        ROW_LOOP(k, i, n)
            tx_store(total[s][k], work + s * n, i, n);
#endif
}
