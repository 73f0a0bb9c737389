/* SPDX-License-Identifier: Apache-2.0
 * Element-wise ops. Kernels over n elements run along dimension 0; those that know rows have the row in dimension 1. */

#include "draw.cl"
#include "gelu.cl"

static vec silu_slope(vec v)
{
    vec s = tx_sigmoid(v);
    return s + v * s * (1.0f - s);
}

/* y = `value` of an element u of a, and v of b. */
#define UNARY(name, value)                                                                                           \
    __kernel void name(const __global h_t *a, long ao, __global h_t *y, long yo, long n)                         \
    {                                                                                                                \
        TX_EACH({                                                                                                    \
            vec u = tx_load_h(a + ao, i, n);                                                                     \
            tx_store_h(value, y + yo, i, n);                                                                           \
        })                                                                                                           \
    }
#define BINARY(name, value)                                                                                          \
    __kernel void name(const __global h_t *a, long ao, const __global h_t *b, long bo, __global h_t *y,        \
                       long yo, long n)                                                                              \
    {                                                                                                                \
        TX_EACH({                                                                                                    \
            vec u = tx_load_h(a + ao, i, n);                                                                     \
            vec v = tx_load_h(b + bo, i, n);                                                                     \
            tx_store_h(value, y + yo, i, n);                                                                           \
        })                                                                                                           \
    }

UNARY(gelu_tanh, gelu_of(u, 0))
UNARY(gelu_exact, gelu_of(u, 1))
UNARY(silu, u * tx_sigmoid(u))
BINARY(add, u + v)
BINARY(mul, u * v)
BINARY(gelu_grad_tanh, u * gelu_slope(v, 0))
BINARY(gelu_grad_exact, u * gelu_slope(v, 1))
BINARY(silu_grad, u * silu_slope(v))

/* Rows of 2n: gate, then up. */
__kernel void swiglu(const __global h_t *x, long xo, __global h_t *y, long yo, long n)
{
    long row = TX_ROW;
    x += xo + row * 2 * n;
    y += yo + row * n;
    TX_EACH({
        vec gate = tx_load_h(x, i, n);
        tx_store_h(gate * tx_sigmoid(gate) * tx_load_h(x + n, i, n), y, i, n);
    })
}

__kernel void swiglu_grad(const __global h_t *dy, long dyo, const __global h_t *x, long xo, __global h_t *dx,
                          long dxo, long n)
{
    long row = TX_ROW;
    dy += dyo + row * n;
    x += xo + row * 2 * n;
    dx += dxo + row * 2 * n;
    TX_EACH({
        vec gate = tx_load_h(x, i, n);
        vec up = tx_load_h(x + n, i, n);
        vec d = tx_load_h(dy, i, n);
        tx_store_h(d * up * silu_slope(gate), dx, i, n);
        tx_store_h(d * gate * tx_sigmoid(gate), dx + n, i, n);
    })
}

__kernel void scale(const __global h_t *x, long xo, __global h_t *y, long yo, long n, float alpha, int which,
                    const __global uint *control)
{
    x += xo;
    y += yo;
    float factor = tx_factor(alpha, which, control);
    TX_EACH({ tx_store_h(tx_load_h(x, i, n) * factor, y, i, n); })
}

static float lane(float4 v, int which)
{
    return which < 2 ? (which == 0 ? v.x : v.y) : (which == 2 ? v.z : v.w);
}

/* y = x times the factors; a dropped NaN is gone. */
static void drop(const __global float *x, __global float *y, long i, long n, vec factor)
{
    vec v = tx_load(x, i, n, 0.0f);
#if VW == 1
    v = factor != 0.0f ? v * factor : 0.0f;
#else
    v = select((vec)0.0f, v * factor, factor != 0.0f);
#endif
    tx_store(v, y, i, n);
}

/* Row: row of `middle` rows a sample. */
__kernel void dropout(const __global float *x, long xo, __global float *y, long yo, long n, long middle, float p,
                      int site, const __global uint *control)
{
    const long row = TX_ROW;
    const uint line = (uint)(row % middle);
    const draws d = draws_of(control, (uint)(row / middle), site, 0, p);
    x += xo + row * n;
    y += yo + row * n;
#if VW == 16
    for (int r = 0; r < RUN; r += 2) { /* RUN is even */
        const long i = TX_COLUMN(r);
        if (i >= n)
            break;
        float8 f[4];
        draw_factors8(f, &d, line, (uint)i + (uint8)(0, 4, 8, 12, 16, 20, 24, 28));
        drop(x, y, i, n, (vec)(FACTORS_OF(f, 0), FACTORS_OF(f, 1), FACTORS_OF(f, 2), FACTORS_OF(f, 3)));
        if (i + VW < n)
            drop(x, y, i + VW, n, (vec)(FACTORS_OF(f, 4), FACTORS_OF(f, 5), FACTORS_OF(f, 6), FACTORS_OF(f, 7)));
    }
#elif VW == 4
    TX_EACH({ drop(x, y, i, n, draw_factors(&d, line, (uint)i)); })
#else
    TX_EACH({ drop(x, y, i, n, lane(draw_factors(&d, line, (uint)i), (int)i & 3)); })
#endif
}

#define TURN 0x28BE60DB9391054AUL /* 1 / (2 pi) as a fraction of 2^64 */

#ifdef EXPONENT
/* a * b of mantissas in [2^63, 2^64); their exponents add up in *exponent. */
static ulong times(ulong a, ulong b, int *exponent)
{
    const ulong product = mul_hi(a, b);
    const int low = product >> 63 == 0;
    *exponent -= low;
    return product << low;
}

/* The turns of pair i at position 1, as a fraction of 2^64: TURN * ratio^i, of which whole turns drop out. The ratio is
 * ratio / 2^64 * 2^EXPONENT, at least 1. Nothing is known of the fraction of more than 2^62 turns. */
static ulong turn_of(ulong ratio, int i)
{
    ulong result = 1UL << 63;
    int exponent = 1, step = EXPONENT;
    for (; i > 0; i >>= 1) {
        if (i & 1) {
            exponent += step;
            result = times(result, ratio, &exponent);
        }
        step *= 2;
        ratio = times(ratio, ratio, &step);
    }
    if (exponent == 0)
        return mul_hi(TURN, result);
    return exponent < 64 ? mul_hi(TURN, result) << exponent | (TURN * result) >> (64 - exponent) : 0;
}
#else
/* The same where the ratio is below 1 and held as a fraction of 2^64. */
static ulong turn_of(ulong ratio, int i)
{
    ulong power = ~0UL;
    if (i == 0)
        return TURN;
    for (; i > 0; i >>= 1) {
        if (i & 1)
            power = mul_hi(power, ratio);
        ratio = mul_hi(ratio, ratio);
    }
    return mul_hi(TURN, power);
}
#endif

/* Dimension 0: pair i of the head, dimension 1: row (b, t). `ratio` is theta^(-2/d), as turn_of takes it. Angles are kept
 * in turns as fractions of 2^64, where position times frequency wraps exactly: nothing is lost at high positions. */
__kernel void rotary(const __global float *x, long xo, __global float *y, long yo, long last, int T, int heads, int d,
                     ulong ratio, int inverse, int at, const __global int *positions, long po)
{
    long row = TX_ROW;
    ulong position = (ulong)(row % T) + (ulong)(at ? tx_position(positions[po + row / T], INT_MAX) : 0);
    x += xo + row * last;
    y += yo + row * last;
    int half_d = d / 2;
    for (int r = 0; r < RUN; r++) {
        int i = (int)TX_COLUMN(r);
        if (i >= half_d)
            break;
        long phase = (long)(turn_of(ratio, i) * position);
        float c, s = sincos((float)phase * (6.2831853071795865f / 18446744073709551616.0f), &c);
        if (inverse)
            s = -s;
        for (int h = 0; h < heads; h++) {
            float a = x[(long)h * d + i], b = x[(long)h * d + i + half_d];
            y[(long)h * d + i] = a * c - b * s;
            y[(long)h * d + i + half_d] = b * c + a * s;
        }
    }
    for (long i = (long)heads * d + TX_COLUMN(0) / RUN; i < last; i += (long)get_global_size(1 - ROW_DIM))
        y[i] = x[i];
}
