/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU of vectors and its derivative, in both forms of op GELU. If results have 16 bits, short forms suffice. The
 * including file then defines POWER_OF (a power of 2) and RECIPROCAL_OF, instructions with relative errors of about
 * 2^-22.
 */

#ifdef POWER_OF
static float logistic_of(float x)
{
    return RECIPROCAL_OF(1.0f + POWER_OF(x * -1.44269504f));
}

/* erfc(z) = e^(-z^2) P(1 / (1 + 0.6 z)) for z >= 0. P, of degree 8, has the least relative error for z up to 10: 3e-7
 * (fitted to scipy.special.erfcx). */
static float erfc_of(float x)
{
    const float z = fabs(x), t = RECIPROCAL_OF(1.0f + 0.6f * z);
    float p = fma(-0.0920803407f, t, 0.411937729f);
    p = fma(p, t, -0.644442659f);
    p = fma(p, t, 0.283759198f);
    p = fma(p, t, 0.0734165557f);
    p = fma(p, t, 0.29159983f);
    p = fma(p, t, 0.337249316f);
    p = fma(p, t, 0.338560067f) * t * POWER_OF(z * z * -1.44269504f);
    return x < 0.0f ? 2.0f - p : p;
}

#if VW == 4
#define EACH_OF(f, v) ((vec)(f((v).x), f((v).y), f((v).z), f((v).w)))
#else
#define EACH_OF(f, v) f(v)
#endif
#define LOGISTIC(v) EACH_OF(logistic_of, v)
#define ERFC(v) EACH_OF(erfc_of, v)
#else
#define LOGISTIC tx_sigmoid
#define ERFC erfc
#endif

/* 2 sqrt(2/pi) (x + 0.044715 x^3). The tanh form of GELU is x times the logistic function of this. */
static vec gelu_inner(vec x)
{
    return 1.5957691216057308f * x * (1.0f + 0.044715f * x * x);
}

static vec gelu_of(vec x, int exact)
{
    if (exact)
        return 0.5f * x * ERFC(x * -0.70710678f);
    return x * LOGISTIC(gelu_inner(x));
}

static vec gelu_slope(vec x, int exact)
{
    if (exact)
        return 0.5f * ERFC(x * -0.70710678f) + 0.3989422804f * x * tx_exp(-0.5f * x * x);
    const vec s = LOGISTIC(gelu_inner(x));
    return s + x * s * (1.0f - s) * (1.5957691216057308f * (1.0f + 0.134145f * x * x));
}
