/* SPDX-License-Identifier: Apache-2.0
 *
 * StableAdamW.
 */

/* Updates the moments of a block, and sums the squares of u = g / max(sqrt(v), eps), with a work-group for each block.
 * log1 and log2 are the natural logarithms of beta1 and beta2. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
stable_measure(const __global float *g, long go, __global float *m, long mo, __global float *v, long vo,
               __global float *work, long wo, long n, long block, float beta1, float beta2, float log1, float log2,
               float eps, const __global float *result)
{
    __local float part[WG];
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    const long line = get_group_id(0), end = min((line + 1) * block, n);
    const float factor = result[TX_RESULT_GRAD_FACTOR], t = result[TX_RESULT_UPDATES];
    const float weight1 = (1.0f - beta1) / -expm1(t * log1), weight2 = (1.0f - beta2) / -expm1(t * log2);
    const float least = eps > 0.0f ? eps : FLT_MIN;
    float sum = 0.0f;
    for (long i = line * block + get_local_id(0); i < end; i += WG) {
        const float d = g[go + i] * factor, old = m[mo + i];
        const float now = (1.0f - weight2) * v[vo + i] + weight2 * d * d;
        m[mo + i] = old + weight1 * (d - old);
        v[vo + i] = now;
        sum += d * d / fmax(now, least * least);
    }
    sum = tx_group_sum(sum, part);
    if (get_local_id(0) == 0)
        work[wo + line] = sum;
}

/* Adds the sums of all blocks with one work-group. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void stable_sum(__global float *work, long wo, long lines)
{
    __local float part[WG];
    float sum = 0.0f;
    for (long i = get_local_id(0); i < lines; i += WG)
        sum += work[wo + i];
    sum = tx_group_sum(sum, part);
    if (get_local_id(0) == 0)
        work[wo + lines] = sum;
}

__kernel void stable_update(__global float *p, long po, const __global uchar *groups, long gro,
                            const __global float *m, long mo, const __global float *v, long vo,
                            const __global float *work, long wo, long n, long lines, float eps, float decay,
                            const __global uint *control, const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    const float rate = tx_update_rate(control, result) / fmax(1.0f, sqrt(work[wo + lines] / (float)n));
    const float keep = groups[gro] & 1 ? 1.0f - rate * decay : 1.0f;
    const int zeros_stay = groups[gro] & 2;
    p += po;
    m += mo;
    v += vo;
    TX_EACH({
        vec old = tx_load(p, i, n, 0.0f);
        vec now = old * keep - rate * tx_load(m, i, n, 0.0f) / (sqrt(tx_load(v, i, n, 0.0f)) + eps);
        tx_store(zeros_stay ? old == 0.0f ? old : now : now, p, i, n);
    })
}
