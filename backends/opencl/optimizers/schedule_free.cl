/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedule-free AdamW and SGD, and the exchange of the weights of training with their average.
 */

#include "backends/opencl/ops/update.cl"

/* The weight of this step in the average: see prepare_average in backends/cpu/optimizers/averages.c. */
static float weight_of(float t, float warmup)
{
    const float rising = fmin(t, warmup), sum = (rising + 1.0f) * (2.0f * rising + 1.0f) / 6.0f;
    return t < warmup ? t / sum : 1.0f / ((warmup > 0.0f ? sum / warmup : 0.0f) + (t - warmup));
}

/* Moves z by a step of rate * u, then x and p. Before the first update both are p, here `old`. */
#define MOVE(old, u)                                                  \
    vec z1 = (t == 1.0f ? old : tx_load(z, i, n, 0.0f)) - rate * (u); \
    vec x1 = t == 1.0f ? old : tx_load(x, i, n, 0.0f);                \
    x1 += now * (z1 - x1);                                            \
    tx_store(z1, z, i, n);                                            \
    tx_store(x1, x, i, n);                                            \
    tx_store(x1 + (1.0f - beta1) * (z1 - x1), p, i, n);

__kernel void schedule_free_adamw(__global float *p, long po, const __global float *g, long go,
                                  const __global uchar *groups, long gro, __global float *x, long xo, __global float *z,
                                  long zo, __global float *v, long vo, long n, float beta1, float beta2, float log1,
                                  float log2, float eps, float decay, float warmup, const __global uint *control,
                                  const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    float factor = result[TX_RESULT_GRAD_FACTOR], rate = tx_update_rate(control, result);
    float t = result[TX_RESULT_UPDATES], now = weight_of(t, warmup), inverse_root = 1.0f / sqrt(-expm1(t * log2));
    p += po;
    g += go;
    x += xo;
    z += zo;
    v += vo;
    TX_EACH({
        float wd = groups[gro + i / PARAM_BLOCK] & 1 ? decay : 0.0f;
        vec old = tx_load(p, i, n, 0.0f);
        vec grad = tx_load(g, i, n, 0.0f) * factor;
        vec v1 = beta2 * tx_load(v, i, n, 0.0f) + (1.0f - beta2) * grad * grad;
        tx_store(v1, v, i, n);
        MOVE(old, grad / (sqrt(v1) * inverse_root + eps) + wd * old)
    })
}

__kernel void schedule_free_sgd(__global float *p, long po, const __global float *g, long go,
                                const __global uchar *groups, long gro, __global float *x, long xo, __global float *z,
                                long zo, long n, float beta1, float decay, float warmup, const __global uint *control,
                                const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    float factor = result[TX_RESULT_GRAD_FACTOR], rate = tx_update_rate(control, result);
    float t = result[TX_RESULT_UPDATES], now = weight_of(t, warmup);
    p += po;
    g += go;
    x += xo;
    z += zo;
    TX_EACH({
        float wd = groups[gro + i / PARAM_BLOCK] & 1 ? decay : 0.0f;
        vec old = tx_load(p, i, n, 0.0f);
        MOVE(old, tx_load(g, i, n, 0.0f) * factor + wd * old)
    })
}

__kernel void exchange(__global float *p, long po, __global float *x, long xo, long n, const __global float *result)
{
    if (result[TX_RESULT_UPDATES] == 0.0f)
        return;
    p += po;
    x += xo;
    TX_EACH({
        vec old = tx_load(p, i, n, 0.0f);
        tx_store(tx_load(x, i, n, 0.0f), p, i, n);
        tx_store(old, x, i, n);
    })
}
