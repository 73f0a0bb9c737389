/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU of vectors and its derivative, in both forms of op GELU.
 */

#ifndef LOGISTIC /* unless the including file has a faster function */
#define LOGISTIC tx_sigmoid
#endif

/* 2 sqrt(2/pi) (x + 0.044715 x^3). The tanh form of GELU is x times the logistic function of this. */
static vec gelu_inner(vec x)
{
    return 1.5957691216057308f * x * (1.0f + 0.044715f * x * x);
}

static vec gelu_of(vec x, int exact)
{
    if (exact)
        return 0.5f * x * erfc(x * -0.70710678f);
    return x * LOGISTIC(gelu_inner(x));
}

static vec gelu_slope(vec x, int exact)
{
    if (exact)
        return 0.5f * erfc(x * -0.70710678f) + 0.3989422804f * x * tx_exp(-0.5f * x * x);
    const vec s = LOGISTIC(gelu_inner(x));
    return s + x * s * (1.0f - s) * (1.5957691216057308f * (1.0f + 0.134145f * x * x));
}
