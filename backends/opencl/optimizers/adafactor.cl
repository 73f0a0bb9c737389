/* SPDX-License-Identifier: Apache-2.0
 *
 * Adafactor. A line is a row of a matrix, or a block of a tensor that is not a matrix. See
 * backends/cpu/optimizers/adafactor.c for the layout of `work`.
 */

#define TINY 1e-30f
#define MEAN 0
#define FACTOR 1
#define KEEP 2

static float beta_of(const __global float *result)
{
    return -expm1(-0.8f * log(result[TX_RESULT_UPDATES]));
}

/* Computes r of a row, with a work-group for each row. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
adafactor_rows(const __global float *g, long go, __global float *r, long ro, long n, const __global float *result)
{
    __local float part[WG];
    const long row = get_group_id(0);
    const float factor = result[TX_RESULT_GRAD_FACTOR], beta = beta_of(result);
    float sum = 0.0f;
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    g += go + row * n;
    for (long i = get_local_id(0); i < n; i += WG)
        sum += g[i] * factor * (g[i] * factor) + TINY;
    sum = tx_group_sum(sum, part);
    if (get_local_id(0) == 0)
        r[ro + row] = beta * r[ro + row] + (1.0f - beta) * (sum / (float)n);
}

/* Sums columns over a block of rows, which is dimension 1. */
__kernel void adafactor_blocks(const __global float *g, long go, __global float *work, long wo, long rows, long n,
                               long block, const __global float *result)
{
    const long b = TX_ROW, end = min((b + 1) * block, rows);
    const float factor = result[TX_RESULT_GRAD_FACTOR];
    g += go;
    work += wo + b * n;
    TX_EACH({
        vec sum = 0.0f;
        for (long row = b * block; row < end; row++) {
            vec d = tx_load(g + row * n, i, n, 0.0f) * factor;
            sum += d * d + TINY;
        }
        tx_store(sum, work, i, n);
    })
}

__kernel void adafactor_columns(__global float *work, long wo, __global float *c, long co, long rows, long n,
                                long blocks, const __global float *result)
{
    const float beta = beta_of(result), weight = (1.0f - beta) / (float)rows;
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    work += wo;
    c += co;
    TX_EACH({
        vec sum = 0.0f;
        for (long b = 0; b < blocks; b++)
            sum += tx_load(work + b * n, i, n, 0.0f);
        vec now = beta * tx_load(c, i, n, 0.0f) + weight * sum;
        tx_store(now, c, i, n);
        tx_store(1.0f / sqrt(now), work, i, n);
    })
}

TX_INLINE float sum_of(const __global float *x, long n, __local float *part)
{
    float sum = 0.0f;
    for (long i = get_local_id(0); i < n; i += WG)
        sum += x[i];
    return tx_group_sum(sum, part);
}

/* Computes the mean of r with one work-group. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
adafactor_mean(const __global float *r, long ro, __global float *number, long no, long rows)
{
    __local float part[WG];
    const float sum = sum_of(r + ro, rows, part);
    if (get_local_id(0) == 0)
        number[no + MEAN] = sum / (float)rows;
}

/* Computes the sums of squares of u and p of a row, with a work-group for each row. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
adafactor_measure(const __global float *p, long po, const __global float *g, long go, const __global float *r, long ro,
                  __global float *work, long wo, long squares, long rows, long n, const __global float *result)
{
    __local float part[WG];
    const long row = get_group_id(0);
    const float factor = result[TX_RESULT_GRAD_FACTOR];
    float of_u = 0.0f, of_p = 0.0f;
    p += po + row * n;
    g += go + row * n;
    work += wo;
    for (long i = get_local_id(0); i < n; i += WG) {
        const float u = g[i] * factor * work[i];
        of_u += u * u;
        of_p += p[i] * p[i];
    }
    of_u = tx_group_sum(of_u, part);
    of_p = tx_group_sum(of_p, part);
    if (get_local_id(0) == 0) {
        work[squares + row] = of_u * (work[squares + 2 * rows + MEAN] / r[ro + row]);
        work[squares + rows + row] = of_p;
    }
}

/* Computes v and the sums of squares of u and p of a block of a tensor that is not a matrix, with a work-group for
 * each block. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
adafactor_vector_measure(const __global float *p, long po, const __global float *g, long go, __global float *v, long vo,
                         __global float *work, long wo, long lines, long n, long block, const __global float *result)
{
    __local float part[WG];
    const long line = get_group_id(0), end = min((line + 1) * block, n);
    const float factor = result[TX_RESULT_GRAD_FACTOR], beta = beta_of(result);
    float of_u = 0.0f, of_p = 0.0f;
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    for (long i = line * block + get_local_id(0); i < end; i += WG) {
        const float d = g[go + i] * factor, now = beta * v[vo + i] + (1.0f - beta) * (d * d + TINY);
        v[vo + i] = now;
        of_u += d * d / now;
        of_p += p[po + i] * p[po + i];
    }
    of_u = tx_group_sum(of_u, part);
    of_p = tx_group_sum(of_p, part);
    if (get_local_id(0) == 0) {
        work[wo + line] = of_u;
        work[wo + lines + line] = of_p;
    }
}

/* Computes the rate from the sums of squares of u and p with one work-group. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
adafactor_rate(const __global uchar *groups, long gro, __global float *work, long wo, long squares, long lines,
               long all, float decay, int relative, int warmup, int scales, const __global uint *control,
               const __global float *result)
{
    __local float part[WG];
    work += wo + squares;
    const float u = sqrt(sum_of(work, lines, part) / (float)all),
                p = sqrt(sum_of(work + lines, lines, part) / (float)all);
    const float t = result[TX_RESULT_UPDATES];
    float rate = tx_update_rate(control, result);
    if (relative)
        rate = fmin(warmup ? 1e-6f * t : 1e-2f, 1.0f / sqrt(t));
    if (scales)
        rate *= fmax(p, 1e-3f);
    if (get_local_id(0) == 0) {
        work[2 * lines + FACTOR] = rate / fmax(u, 1.0f);
        work[2 * lines + KEEP] = groups[gro] & 1 ? 1.0f - rate * decay : 1.0f;
    }
}

/* Dimension 1 is rows. */
__kernel void adafactor_update(__global float *p, long po, const __global float *g, long go, const __global float *r,
                               long ro, const __global float *work, long wo, long squares, long rows, long n,
                               const __global float *result)
{
    const long row = TX_ROW;
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    work += wo;
    const __global float *number = work + squares + 2 * rows;
    const float rate = number[FACTOR] * sqrt(number[MEAN] / r[ro + row]) * result[TX_RESULT_GRAD_FACTOR];
    const float keep = number[KEEP];
    p += po + row * n;
    g += go + row * n;
    TX_EACH({
        vec step = rate * (tx_load(g, i, n, 0.0f) * tx_load(work, i, n, 0.0f));
        tx_store(tx_load(p, i, n, 0.0f) * keep - step, p, i, n);
    })
}

__kernel void adafactor_vector_update(__global float *p, long po, const __global float *g, long go,
                                      const __global float *v, long vo, const __global float *work, long wo, long lines,
                                      long n, const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    const __global float *number = work + wo + 2 * lines;
    const float rate = number[FACTOR] * result[TX_RESULT_GRAD_FACTOR], keep = number[KEEP];
    p += po;
    g += go;
    v += vo;
    TX_EACH({
        vec step = rate * (tx_load(g, i, n, 0.0f) / sqrt(tx_load(v, i, n, 1.0f)));
        tx_store(tx_load(p, i, n, 0.0f) * keep - step, p, i, n);
    })
}
