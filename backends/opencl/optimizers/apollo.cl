/* SPDX-License-Identifier: Apache-2.0
 *
 * APOLLO: the projection, the scale of the gradient, and the update (api/optimizers/apollo.c).
 */

#define TINY 1e-8f       /* added to norms that divide */
#define MAX_GROWTH 1.01f /* of the norm of a step, in one update */

/* Normal numbers of variance scale^2; dimension 1 has the rows. */
__kernel void projection(__global float *y, long yo, long n, float scale, int steps, uint site,
                         const __global uint *control, const __global float *result)
{
    const uint row = (uint)TX_ROW, number = tx_projection_number(result[TX_RESULT_UPDATES], (uint)steps);
    y += yo + TX_ROW * n;
    TX_EACH({
        float part[VW];
        for (int k = 0; k < VW; k += 4) {
            const tx_random draw =
                tx_draw(control[TX_CONTROL_SEED_LO], control[TX_CONTROL_SEED_HI], number, site, TX_PROJECTION_SITE, 0,
                        row, (uint)(i + k) / 4);
            for (int w = 0; w < 4 && w < VW; w++) {
                const int at = (int)(i + w) & 3;
                const float u = ((float)(draw.word[at & 2] >> 9) + 0.5f) * 0x1p-23f;
                const float v = ((float)(draw.word[(at & 2) + 1] >> 9) + 0.5f) * 0x1p-23f;
                const float angle = 6.28318530717958648f * v;
                part[k + w] = scale * sqrt(-2.0f * log(u)) * (at & 1 ? sin(angle) : cos(angle));
            }
        }
        tx_store(VLOAD_PRIVATE(part), y, i, n);
    })
}

/* Updates the moments of a row, and sums the squares of the step and of the gradient, with a work-group for each row.
 */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
apollo_moments(const __global float *x, long xo, __global float *m, long mo, __global float *v, long vo,
               __global float *s, long so, __global float *work, long wo, long n, float beta1, float beta2, float eps,
               int by_tensor, const __global float *result)
{
    __local float part[WG];
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    const long row = get_group_id(0), first = row * n;
    const float factor = result[TX_RESULT_GRAD_FACTOR];
    float step = 0.0f, gradient = 0.0f;
    for (long i = first + get_local_id(0); i < first + n; i += WG) {
        const float d = x[xo + i] * factor, old = m[mo + i];
        const float m1 = old + (1.0f - beta1) * (d - old), v1 = beta2 * v[vo + i] + (1.0f - beta2) * d * d;
        const float u = m1 / (sqrt(v1) + eps);
        m[mo + i] = m1;
        v[vo + i] = v1;
        step += u * u;
        gradient += d * d;
    }
    step = tx_group_sum(step, part);
    gradient = tx_group_sum(gradient, part);
    if (get_local_id(0) != 0)
        return;
    work[wo + 2 * row] = step;
    work[wo + 2 * row + 1] = gradient;
    if (!by_tensor)
        s[so + row] = sqrt(step) / (sqrt(gradient) + TINY);
}

/* The scale of a whole tensor, with one work-group. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
apollo_tensor(__global float *s, long so, const __global float *work, long wo, long rows, const __global float *result)
{
    __local float part[WG];
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    float step = 0.0f, gradient = 0.0f;
    for (long i = get_local_id(0); i < rows; i += WG) {
        step += work[wo + 2 * i];
        gradient += work[wo + 2 * i + 1];
    }
    step = tx_group_sum(step, part);
    gradient = tx_group_sum(gradient, part);
    if (get_local_id(0) == 0)
        s[so] = sqrt(step) / (sqrt(gradient) + TINY);
}

/* Sums the squares of u of a row, with a work-group for each row. The scale of element i is s[row * by_row + i *
 * by_column]. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
apollo_measure(const __global float *g, long go, const __global float *s, long so, __global float *work, long wo,
               long n, int by_row, int by_column, const __global float *result)
{
    __local float part[WG];
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    const long row = get_group_id(0);
    const float factor = result[TX_RESULT_GRAD_FACTOR];
    float sum = 0.0f;
    g += go + row * n;
    s += so + row * by_row;
    for (long i = get_local_id(0); i < n; i += WG) {
        const float u = g[i] * factor * s[i * by_column];
        sum += u * u;
    }
    sum = tx_group_sum(sum, part);
    if (get_local_id(0) == 0)
        work[wo + row] = sum;
}

/* Computes the factor of u in the step and the norm of u, with one work-group. log1 and log2 are the natural
 * logarithms of beta1 and beta2. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
apollo_limit(__global float *norm, long no, __global float *work, long wo, long rows, float scale, int front,
             int unlimited, float log1, float log2, const __global uint *control, const __global float *result)
{
    __local float part[WG];
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    float sum = 0.0f;
    for (long i = get_local_id(0); i < rows; i += WG)
        sum += work[wo + i];
    sum = tx_group_sum(sum, part);
    if (get_local_id(0) != 0)
        return;
    const float t = result[TX_RESULT_UPDATES], now = front ? sqrt(sum) * scale : sqrt(sum);
    const float growth = now / (MAX_GROWTH * (norm[no] + TINY)), rate = tx_update_rate(control, result);
    const int limits = t > 1.0f && !unlimited && growth > 1.0f;
    work[wo + rows] = rate * sqrt(-expm1(t * log2)) / -expm1(t * log1) * scale / (limits ? growth : 1.0f);
    norm[no] = limits ? now / growth : now;
}

__kernel void apollo_update(__global float *p, long po, const __global float *g, long go, const __global uchar *groups,
                            long gro, const __global float *s, long so, const __global float *work, long wo, long n,
                            long rows, int by_row, int by_column, float decay, const __global uint *control,
                            const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    const long row = TX_ROW;
    const float keep = groups[gro] & 1 ? 1.0f - tx_update_rate(control, result) * decay : 1.0f;
    const float step = work[wo + rows] * result[TX_RESULT_GRAD_FACTOR], one = step * s[so + row * by_row];
    const int zeros_stay = groups[gro] & 2;
    p += po + row * n;
    g += go + row * n;
    s += so;
    TX_EACH({
        vec old = tx_load(p, i, n, 0.0f);
        vec scale = by_column ? step * tx_load(s, i, n, 0.0f) : (vec)one;
        vec now = (old - scale * tx_load(g, i, n, 0.0f)) * keep;
        tx_store(zeros_stay ? old == 0.0f ? old : now : now, p, i, n);
    })
}
