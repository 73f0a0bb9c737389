/* SPDX-License-Identifier: Apache-2.0
 *
 * Lion, AdEMAMix, and AdamW with weights and moments of any floating type.
 */

#include "backends/opencl/ops/update.cl"

__kernel void lion(__global float *p, long po, const __global float *g, long go, const __global uchar *groups, long gro,
                   __global float *m, long mo, __global ushort *copy, long co, long n, float beta1, float beta2,
                   float decay, const __global uint *control, const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f) {
        TX_KEEP_WEIGHTS
        return;
    }
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

/* log3 is the natural logarithm of beta3, weight that of the slow moment. Both rise in steps3 and steps_weight steps,
 * if these are not 0. */
__kernel void ademamix(__global float *p, long po, const __global float *g, long go, const __global uchar *groups,
                       long gro, __global float *m, long mo, __global float *slow, long so, __global float *v, long vo,
                       long n, float beta1, float beta2, float log1, float log2, float eps, float decay, float log3,
                       float weight, float steps3, float steps_weight, const __global uint *control,
                       const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    float factor = result[TX_RESULT_GRAD_FACTOR], rate = tx_update_rate(control, result);
    float t = result[TX_RESULT_UPDATES], x = steps3 > t ? t / steps3 : 1.0f;
    float power = x < 1.0f ? log1 * log3 / ((1.0f - x) * log3 + x * log1) : log3;
    float beta3 = exp(power), rest3 = -expm1(power), share = weight * (steps_weight > t ? t / steps_weight : 1.0f);
    float inverse = 1.0f / -expm1(t * log1), inverse_root = 1.0f / sqrt(-expm1(t * log2));
    p += po;
    g += go;
    m += mo;
    slow += so;
    v += vo;
    TX_EACH({
        float keep = groups[gro + i / PARAM_BLOCK] & 1 ? 1.0f - rate * decay : 1.0f;
        vec grad = tx_load(g, i, n, 0.0f) * factor;
        vec m1 = beta1 * tx_load(m, i, n, 0.0f) + (1.0f - beta1) * grad;
        vec m2 = beta3 * tx_load(slow, i, n, 0.0f) + rest3 * grad;
        vec v1 = beta2 * tx_load(v, i, n, 0.0f) + (1.0f - beta2) * grad * grad;
        vec step = (m1 * inverse + share * m2) / (sqrt(v1) * inverse_root + eps);
        tx_store(m1, m, i, n);
        tx_store(m2, slow, i, n);
        tx_store(v1, v, i, n);
        tx_store(tx_load(p, i, n, 0.0f) * keep - rate * step, p, i, n);
    })
}

/* P is the type of p and g. M, V and C are the types of the states. Without c, with_c is 0. */
#ifndef P
#define P f32
#endif
#ifndef M
#define M f32
#define V f32
#define C f32
#endif

#ifdef BY_CHANCE /* stochastic rounding of a bf16 P: see rng.h */
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

/* Rounds v plus noise down to bf16. */
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
