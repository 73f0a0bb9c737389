/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions. KIND 0 is the sum, 1 the maximum, 2 the sum of squares. Reductions over a whole tensor and over rows
 * first reduce blocks of a constant size into `work`, then the blocks. The second pass never squares. PARTS
 * work-items share a column in the last pass.
 */

#ifndef KIND
#define KIND 0
#endif
#ifndef PARTS
#define PARTS 1
#endif

#if KIND == 1
#define START (-INFINITY)
#define JOIN(a, b) tx_max(a, b)
#define JOIN1(a, b) tx_max1(a, b)
#define ALONG(v) tx_hmax(v)
#define GROUP(v, part) tx_group_max(v, part)
#else
#define START 0.0f
#define JOIN(a, b) ((a) + (b))
#define JOIN1(a, b) ((a) + (b))
#define ALONG(v) tx_hsum(v)
#define GROUP(v, part) tx_group_sum(v, part)
#endif
#if KIND == 2
#define MAP(v) ((v) * (v))
#else
#define MAP(v) (v)
#endif

TX_INLINE float reduce_span(const __global h_t *x, long n, __local float *part)
{
    vec a = START, b = START;
    long i = (long)get_local_id(0) * VW;
    for (; i + WG * VW < n; i += 2 * WG * VW) {
        vec u = tx_load_h_or(x, i, n, START), v = tx_load_h_or(x, i + WG * VW, n, START);
        a = JOIN(a, MAP(u));
        b = JOIN(b, MAP(v));
    }
    if (i < n) {
        vec u = tx_load_h_or(x, i, n, START);
        a = JOIN(a, MAP(u));
    }
    return GROUP(ALONG(JOIN(a, b)), part);
}

static void put(__global float *y, float value, int adds)
{
    *y = adds ? *y + value : value;
}

/* A work-group reduces a block of `block` elements to work[b]. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
reduce_blocks(const __global h_t *x, long xo, __global float *work, long wo, long n, long block)
{
    __local float part[WG];
    long b = get_group_id(0);
    float v = reduce_span(x + xo + b * block, min(block, n - b * block), part);
    if (get_local_id(0) == 0)
        work[wo + b] = v;
}

/* A work-group reduces a row of n elements to y[row]. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
reduce_rows(const __global h_t *x, long xo, __global float *y, long yo, long n, float alpha, int which, int mode,
            const __global uint *control)
{
    __local float part[WG];
    long row = get_group_id(0);
    float v = reduce_span(x + xo + row * n, n, part);
    if (get_local_id(0) == 0)
        put(y + yo + row, v * tx_factor(alpha, which, control), tx_adds(mode, control));
}

/* Dimension 0 is columns, dimension 1 blocks of `block` rows. Writes work [blocks, n]. */
__kernel void reduce_row_blocks(const __global h_t *x, long xo, __global float *work, long wo, long rows, long n,
                                long block)
{
    long i = TX_COLUMN(0), b = TX_ROW;
    if (i >= n)
        return;
    x += xo;
    vec v = START;
    long end = min(rows, (b + 1) * block);
    for (long row = b * block; row < end; row++) {
        vec u = tx_load_h_or(x + row * n, i, n, START);
        v = JOIN(v, MAP(u));
    }
    tx_store(v, work + wo + b * n, i, n);
}

/* Reduces the columns of work [blocks, planes, n] to y0 [n], y1 [n] and y2 [n], one for each plane. Work-groups are WG
 * columns by PARTS. */
__kernel __attribute__((reqd_work_group_size(WG, PARTS, 1))) void
reduce_columns(const __global float *work, long wo, long blocks, __global float *y0, long o0, __global float *y1,
               long o1, __global float *y2, long o2, long n, float alpha, int which, int mode,
               const __global uint *control)
{
    __local float part[PARTS * WG];
    const int p = (int)get_local_id(1), l = (int)get_local_id(0), plane = (int)get_global_id(2);
    const long i = get_global_id(0), stride = get_global_size(2) * n;
    work += wo + plane * n;
    float v = START;
    if (i < n) {
        long b = p;
        for (; b + 3 * PARTS < blocks; b += 4 * PARTS) { /* four loads in flight */
            const float u[] = {work[b * stride + i], work[(b + PARTS) * stride + i], work[(b + 2 * PARTS) * stride + i],
                               work[(b + 3 * PARTS) * stride + i]};
            v = JOIN1(JOIN1(JOIN1(JOIN1(v, u[0]), u[1]), u[2]), u[3]);
        }
        for (; b < blocks; b += PARTS) {
            float u = work[b * stride + i];
            v = JOIN1(v, u);
        }
    }
    part[p * WG + l] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (p > 0 || i >= n)
        return;
    for (int k = 1; k < PARTS; k++) {
        float u = part[k * WG + l];
        v = JOIN1(v, u);
    }
    __global float *y = plane == 0 ? y0 + o0 : plane == 1 ? y1 + o1 : y2 + o2;
    put(y + i, v * tx_factor(alpha, which, control), tx_adds(mode, control));
}

/* ---- Quantile --------------------------------------------------------------------------------------------- */

/* A number whose order as an integer is that of floats. Negative zero is below zero. */
static uint order_of(float x)
{
    const uint bits = as_uint(x);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Returns the element of rank `rank`, from 0 on, of those that count: bit by bit, from the highest. */
TX_INLINE float element_of_rank(const __global float *x, const __global float *counts, long n, float rank,
                                __local float *part)
{
    uint found = 0;
    for (int bit = 31; bit >= 0; bit--) {
        float own = 0.0f; /* elements that begin as `found` and have 0 in this bit */
        for (long i = get_local_id(0); i < n; i += WG)
            own += counts[i] != 0.0f && order_of(x[i]) >> bit == found >> bit ? 1.0f : 0.0f;
        const float below = tx_group_sum(own, part);
        if (rank >= below) {
            rank -= below;
            found |= 1u << bit;
        }
    }
    return as_float(found >> 31 ? found & 0x7FFFFFFFu : ~found);
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
quantile(const __global float *x, long xo, const __global float *counts, long co, __global float *y, long yo, long n,
         float share)
{
    __local float part[WG];
    float own = 0.0f, nan = 0.0f;
    x += xo;
    counts += co;
    for (long i = get_local_id(0); i < n; i += WG) {
        own += counts[i] != 0.0f ? 1.0f : 0.0f;
        nan += counts[i] != 0.0f && isnan(x[i]) ? 1.0f : 0.0f;
    }
    const float count = tx_group_sum(own, part), nans = tx_group_sum(nan, part);
    const float at = share * fmax(count - 1.0f, 0.0f), low = floor(at), rest = at - low;
    const float a = element_of_rank(x, counts, n, low, part), b = element_of_rank(x, counts, n, ceil(at), part);
    if (get_local_id(0) == 0)
        y[yo] = nans > 0.0f     ? NAN
                : count == 0.0f ? 0.0f
                : rest < 0.5f   ? fma(rest, b - a, a)
                                : fma(rest - 1.0f, b - a, b);
}
