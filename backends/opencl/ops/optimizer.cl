/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates over ranges of the flat arenas, and the evaluation of the gradient norm.
 */

#include "update.cl"

/* v is absent if momentum_on is 0. */
__kernel void sgd(__global float *p, long po, const __global float *g, long go, const __global uchar *groups, long gro,
                  __global float *v, long vo, __global ushort *copy, long co, long n, float momentum, float decay,
                  int momentum_on, int nesterov,
                  const __global uint *control, const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f) {
        TX_KEEP_WEIGHTS
        return;
    }
    float factor = result[TX_RESULT_GRAD_FACTOR], rate = tx_update_rate(control, result);
    p += po;
    g += go;
    v += vo;
    TX_EACH({
        float wd = groups[gro + i / PARAM_BLOCK] & 1 ? decay : 0.0f;
        vec old = tx_load(p, i, n, 0.0f);
        vec grad = tx_load(g, i, n, 0.0f) * factor + wd * old;
        vec step = grad;
        if (momentum_on) {
            step += momentum * tx_load(v, i, n, 0.0f);
            tx_store(step, v, i, n);
            if (nesterov)
                step = grad + momentum * step;
        }
        TX_STORE_WEIGHTS(old - rate * step)
    })
}

/* log1 and log2 are the natural logarithms of beta1 and beta2, so that 1 - beta^t is accurate for beta near 1. */
__kernel void adamw(__global float *p, long po, const __global float *g, long go, const __global uchar *groups,
                    long gro, __global float *m, long mo, __global float *v, long vo, __global ushort *copy, long co,
                    long n, float beta1, float beta2, float log1, float log2, float eps, float decay,
                    const __global uint *control, const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f) {
        TX_KEEP_WEIGHTS
        return;
    }
    float factor = result[TX_RESULT_GRAD_FACTOR], rate = tx_update_rate(control, result);
    float t = result[TX_RESULT_UPDATES];
    float step = rate / -expm1(t * log1), inverse_root = 1.0f / sqrt(-expm1(t * log2));
    float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    p += po;
    g += go;
    m += mo;
    v += vo;
    TX_EACH({
        float keep = groups[gro + i / PARAM_BLOCK] & 1 ? 1.0f - rate * decay : 1.0f;
        vec grad = tx_load(g, i, n, 0.0f) * factor;
        vec m1 = beta1 * tx_load(m, i, n, 0.0f) + rest1 * grad;
        vec v1 = beta2 * tx_load(v, i, n, 0.0f) + rest2 * grad * grad;
        tx_store(m1, m, i, n);
        tx_store(v1, v, i, n);
        TX_STORE_WEIGHTS(tx_load(p, i, n, 0.0f) * keep - step * (m1 / (sqrt(v1) * inverse_root + eps)))
    })
}

#ifndef P /* type of p and g */
#define P f32
#endif

__kernel void mask_gradient(const __global TX_CAT(P, _t) *p, long po, __global TX_CAT(P, _t) *g, long go,
                            const __global uchar *groups, long gro, long n)
{
    p += po;
    g += go;
    TX_EACH({
        if (groups[gro + i / PARAM_BLOCK] & 2) {
            vec grad = TX_CAT(tx_load_, P)(g, i, n);
            TX_CAT(tx_store_, P)(TX_CAT(tx_load_, P)(p, i, n) == 0.0f ? (vec)0.0f : grad, g, i, n);
        }
    })
}

/* Runs as one work-item. */
__kernel void clip_norm(const __global uint *control, __global float *result)
{
    float scale = result[TX_RESULT_LOSS_SCALE], limit = as_float(control[TX_CONTROL_MAX_GRAD_NORM]);
    float interval = as_float(control[TX_CONTROL_GROWTH_INTERVAL]);
    float norm = sqrt(result[TX_RESULT_GRAD_SUMSQ]) / scale;
    int finite = isfinite(norm);
    float factor = limit > 0.0f ? fmin(1.0f, limit / (norm + 1e-6f)) : 1.0f;
    result[TX_RESULT_GRAD_NORM] = norm;
    result[TX_RESULT_FINITE] = finite ? 1.0f : 0.0f;
    result[TX_RESULT_GRAD_FACTOR] = factor / scale;
    result[finite ? TX_RESULT_UPDATES : TX_RESULT_SKIPPED] += 1.0f;
    if (interval == 0.0f)
        return;
    float steps = finite ? result[TX_RESULT_SCALE_STEPS] + 1.0f : 0.0f;
    int grows = steps >= interval && isfinite(2.0f * scale);
    result[TX_RESULT_LOSS_SCALE] = !finite ? 0.5f * scale : grows ? 2.0f * scale : scale;
    result[TX_RESULT_SCALE_STEPS] = steps >= interval ? 0.0f : steps;
}
