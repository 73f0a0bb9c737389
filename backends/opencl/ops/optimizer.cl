/* SPDX-License-Identifier: Apache-2.0
 * Parameter updates over ranges of the flat arenas, and the decision on the gradient's norm. */

/* One group byte for so many elements of a range. Vectors never straddle two such blocks: PARAM_BLOCK is a multiple of VW
 * and ranges start on blocks. */
#ifndef PARAM_BLOCK
#define PARAM_BLOCK 256
#endif

/* What stores new weights: with COPY, bf16 or f16, also as the copy of that type, which the kernel has as
 * `copy` and `co`. */
#ifdef COPY
#define TX_STORE_WEIGHTS(v)                                                                                            \
    {                                                                                                                  \
        vec weights = v;                                                                                               \
        tx_store(weights, p, i, n);                                                                                    \
        TX_CAT(tx_store_, COPY)(weights, copy + co, i, n);                                                             \
    }
#else
#define TX_STORE_WEIGHTS(v) tx_store(v, p, i, n);
#endif

/* momentum_on 0: v is absent. */
__kernel void sgd(__global float *p, long po, const __global float *g, long go, const __global uchar *groups, long gro,
                  __global float *v, long vo, __global ushort *copy, long co, long n, float momentum, float decay,
                  int momentum_on, int nesterov,
                  const __global uint *control, const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
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

/* log1, log2: natural logarithms of beta1, beta2, so that 1 - beta^t keeps its digits for beta near 1. */
__kernel void adamw(__global float *p, long po, const __global float *g, long go, const __global uchar *groups, long gro,
                    __global float *m, long mo, __global float *v, long vo, __global ushort *copy, long co, long n,
                    float beta1, float beta2, float log1, float log2, float eps, float decay,
                    const __global uint *control, const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
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

__kernel void lion(__global float *p, long po, const __global float *g, long go, const __global uchar *groups, long gro,
                   __global float *m, long mo, __global ushort *copy, long co, long n, float beta1, float beta2,
                   float decay, const __global uint *control, const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    float factor = result[TX_RESULT_GRAD_FACTOR], rate = tx_update_rate(control, result);
    p += po;
    g += go;
    m += mo;
    TX_EACH({
        float keep = groups[gro + i / PARAM_BLOCK] & 1 ? 1.0f - rate * decay : 1.0f;
        vec grad = tx_load(g, i, n, 0.0f) * factor;
        vec old = tx_load(m, i, n, 0.0f);
        TX_STORE_WEIGHTS(tx_load(p, i, n, 0.0f) * keep - rate * sign(beta1 * old + (1.0f - beta1) * grad))
        tx_store(beta2 * old + (1.0f - beta2) * grad, m, i, n);
    })
}

/* P: type of p and g; M, V, C: types of the states; c absent: with_c 0. */
#ifndef P
#define P f32
#endif
#ifndef M
#define M f32
#define V f32
#define C f32
#endif

#ifdef BY_CHANCE /* P is bf16: rng.h */
static uvec noise_of(const __global uint *control, long element)
{
    uint part[VW];
    for (int k = 0; k < VW; k += 4) {
        const tx_random u = tx_draw(control[TX_CONTROL_SEED_LO], control[TX_CONTROL_SEED_HI], control[TX_CONTROL_STEP],
                                    0, TX_UPDATE_SITE, 0, (uint)((element + k) / PARAM_BLOCK),
                                    (uint)((element + k) % PARAM_BLOCK) / 4);
        for (int w = 0; w < 4 && w < VW; w++)
            part[k + w] = u.word[(element + w) & 3];
    }
    return VLOAD_PRIVATE(part);
}

/* The number of bf16 below v plus noise. */
static vec round_with(vec v, uvec noise)
{
    const uvec bits = AS_UVEC(v), up = (bits + noise) & 0xFFFF0000u;
    return AS_VEC((bits & 0x7F800000u) == 0x7F800000u ? bits : up);
}

#define DRAW_NOISE(control, element) const uvec noise = noise_of(control, element);
#define rounded_bf16(v, noise, shift) round_with(v, (noise) >> (shift)&0xFFFFu)
#define rounded_nearest(v) round_with(v, 0x7FFFu + (AS_UVEC(v) >> 16 & 1u))
#else
#define DRAW_NOISE(control, element)
#define rounded_bf16(v, noise, shift) (v)
#define rounded_nearest(v) (v)
#endif
#define rounded_f32(v, noise, shift) (v)
#define rounded_f16(v, noise, shift) (v)

__kernel void adamw_anyprecision(__global TX_CAT(P, _t) *p, long po, const __global TX_CAT(P, _t) *g, long go,
                                 const __global uchar *groups, long gro, __global TX_CAT(M, _t) *m, long mo,
                                 __global TX_CAT(V, _t) *v, long vo, __global TX_CAT(C, _t) *c, long co, long n,
                                 float beta1, float beta2, float log1, float log2, float eps, float decay, int with_c,
                                 long first, const __global uint *control, const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    float factor = result[TX_RESULT_GRAD_FACTOR], rate = tx_update_rate(control, result);
    float t = result[TX_RESULT_UPDATES];
    float step = rate / -expm1(t * log1), inverse_root = 1.0f / sqrt(-expm1(t * log2));
    p += po;
    g += go;
    m += mo;
    v += vo;
    c += co;
    TX_EACH({
        float keep = groups[gro + i / PARAM_BLOCK] & 1 ? 1.0f - rate * decay : 1.0f;
        vec grad = TX_CAT(tx_load_, P)(g, i, n) * factor;
        vec m1 = beta1 * TX_CAT(tx_load_, M)(m, i, n) + (1.0f - beta1) * grad;
        vec v1 = beta2 * TX_CAT(tx_load_, V)(v, i, n) + (1.0f - beta2) * grad * grad;
        vec old = TX_CAT(tx_load_, P)(p, i, n) * keep;
        vec rest = with_c ? TX_CAT(tx_load_, C)(c, i, n) : (vec)0.0f;
        rest -= step * (m1 / (sqrt(v1) * inverse_root + eps));
        DRAW_NOISE(control, first + i)
        vec now = old + rest;
        now = with_c ? rounded_nearest(now) : TX_CAT(rounded_, P)(now, noise, 0);
        TX_CAT(tx_store_, M)(TX_CAT(rounded_, M)(m1, noise, 16), m, i, n);
        TX_CAT(tx_store_, V)(TX_CAT(rounded_, V)(v1, noise, 8), v, i, n);
        if (with_c)
            TX_CAT(tx_store_, C)(rest + (old - now), c, i, n);
        TX_CAT(tx_store_, P)(now, p, i, n);
    })
}

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

/* One work-item. */
__kernel void clip_norm(const __global uint *control, __global float *result)
{
    float scale = result[TX_RESULT_LOSS_SCALE], most = as_float(control[TX_CONTROL_MAX_GRAD_NORM]);
    float interval = as_float(control[TX_CONTROL_GROWTH_INTERVAL]);
    float norm = sqrt(result[TX_RESULT_GRAD_SUMSQ]) / scale;
    int finite = isfinite(norm);
    float factor = most > 0.0f ? fmin(1.0f, most / (norm + 1e-6f)) : 1.0f;
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
