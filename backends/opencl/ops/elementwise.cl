/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops. Kernels over n elements use dimension 0. Kernels that need rows have the row in dimension 1.
 */

#include "draw.cl"
#include "gelu.cl"

static vec silu_slope(vec v)
{
    vec s = tx_sigmoid(v);
    return s + v * s * (1.0f - s);
}

/* Kernel map_<name>: y = `value`, an expression of elements u of a and v of b. */
#define KERNEL_OF_ONE(name, value)                                                                                   \
    __kernel void map_##name(const __global h_t *a, long ao, __global h_t *y, long yo, long n)                   \
    {                                                                                                                \
        TX_EACH({                                                                                                    \
            vec u = tx_load_h(a + ao, i, n);                                                                     \
            tx_store_h(value, y + yo, i, n);                                                                           \
        })                                                                                                           \
    }
#define KERNEL_OF_TWO(name, value)                                                                                   \
    __kernel void map_##name(const __global h_t *a, long ao, const __global h_t *b, long bo, __global h_t *y,    \
                             long yo, long n)                                                                        \
    {                                                                                                                \
        TX_EACH({                                                                                                    \
            vec u = tx_load_h(a + ao, i, n);                                                                     \
            vec v = tx_load_h(b + bo, i, n);                                                                     \
            tx_store_h(value, y + yo, i, n);                                                                           \
        })                                                                                                           \
    }

KERNEL_OF_ONE(gelu_tanh, gelu_of(u, 0))
KERNEL_OF_ONE(gelu_exact, gelu_of(u, 1))
KERNEL_OF_ONE(relu, select(u, (vec)(0.0f), u < 0.0f))
KERNEL_OF_ONE(silu, u * tx_sigmoid(u))
KERNEL_OF_ONE(exponential, exp(u))
KERNEL_OF_ONE(logarithm, log(u))
KERNEL_OF_ONE(rsqrt, 1.0f / sqrt(u))
KERNEL_OF_ONE(tanh, 2.0f * tx_sigmoid(2.0f * u) - 1.0f)
KERNEL_OF_TWO(tanh_grad, u * (1.0f - v * v))
KERNEL_OF_TWO(add, u + v)
KERNEL_OF_TWO(mul, u * v)
KERNEL_OF_TWO(gelu_grad_tanh, u * gelu_slope(v, 0))
KERNEL_OF_TWO(gelu_grad_exact, u * gelu_slope(v, 1))
KERNEL_OF_TWO(relu_grad, select(u, (vec)(0.0f), v <= 0.0f))
KERNEL_OF_TWO(silu_grad, u * silu_slope(v))

/* Kernels <name> and <name>_grad: rows of x have 2n columns, gate, then up. `value` is the result; `dgate` and `dup`
 * are its derivatives times d. */
#define KERNELS_GATED(name, value, dgate, dup)                                                                       \
    __kernel void name(const __global h_t *x, long xo, __global h_t *y, long yo, long n)                             \
    {                                                                                                                \
        long row = TX_ROW;                                                                                           \
        x += xo + row * 2 * n;                                                                                       \
        y += yo + row * n;                                                                                           \
        TX_EACH({                                                                                                    \
            vec gate = tx_load_h(x, i, n);                                                                           \
            vec up = tx_load_h(x + n, i, n);                                                                         \
            tx_store_h(value, y, i, n);                                                                              \
        })                                                                                                           \
    }                                                                                                                \
    __kernel void name##_grad(const __global h_t *dy, long dyo, const __global h_t *x, long xo, __global h_t *dx,    \
                              long dxo, long n)                                                                      \
    {                                                                                                                \
        long row = TX_ROW;                                                                                           \
        dy += dyo + row * n;                                                                                         \
        x += xo + row * 2 * n;                                                                                       \
        dx += dxo + row * 2 * n;                                                                                     \
        TX_EACH({                                                                                                    \
            vec gate = tx_load_h(x, i, n);                                                                           \
            vec up = tx_load_h(x + n, i, n);                                                                         \
            vec d = tx_load_h(dy, i, n);                                                                             \
            tx_store_h(dgate, dx, i, n);                                                                             \
            tx_store_h(dup, dx + n, i, n);                                                                           \
        })                                                                                                           \
    }

KERNELS_GATED(swiglu, gate * tx_sigmoid(gate) * up, d * up * silu_slope(gate), d * gate * tx_sigmoid(gate))
#ifdef LIMIT /* tx_swiglu_clamped; the derivative is 1 at the limits */
#define LIMITED(gate) fmin(gate, LIMIT)
#define BETWEEN(up) clamp(up, -LIMIT, LIMIT)
KERNELS_GATED(swiglu_clamped, LIMITED(gate) * tx_sigmoid(ALPHA * LIMITED(gate)) * (BETWEEN(up) + 1.0f),
      gate > LIMIT ? (vec)0.0f : d * (BETWEEN(up) + 1.0f) * silu_slope(ALPHA * LIMITED(gate)),
      BETWEEN(up) == up ? d * LIMITED(gate) * tx_sigmoid(ALPHA * LIMITED(gate)) : (vec)0.0f)
#endif
KERNELS_GATED(geglu, gelu_of(gate, 0) * up, d * up * gelu_slope(gate, 0), d * gelu_of(gate, 0))

__kernel void scale(const __global h_t *x, long xo, __global h_t *y, long yo, long n, float alpha, int which,
                    const __global uint *control)
{
    x += xo;
    y += yo;
    float factor = tx_factor(alpha, which, control);
    TX_EACH({ tx_store_h(tx_load_h(x, i, n) * factor, y, i, n); })
}

/* Storage types of dropout's input and output: f32, bf16 or f16. */
#ifndef IN
#define IN f32
#define OUT f32
#endif
typedef TX_CAT(IN, _t) in_t;
typedef TX_CAT(OUT, _t) out_t;

/* TX_ROW is a row; a sample has `middle` rows. */
__kernel void dropout(const __global in_t *x, long xo, __global out_t *y, long yo, long n, long middle, float p,
                      int site, int first_row, int gap, const __global uint *control)
{
    const long row = TX_ROW;
    const draws d = draws_of(control, (uint)(row / middle), site, 0, p, first_row, 0);
    x += xo + row * n;
    y += yo + row * n;
    for (int r = 0; r < RUN; r += DRAWN) { /* RUN is a multiple of DRAWN */
        const long first = TX_COLUMN(r);
        if (first >= n)
            break;
        vec factor[DRAWN];
        draw_vectors(factor, &d, drawn_row(row, middle, gap), (uint)first);
        for (int k = 0; k < DRAWN && first + k * VW < n; k++) {
            const long i = first + k * VW;
            TX_CAT(tx_store_, OUT)(drop(TX_CAT(tx_load_, IN)(x, i, n), factor[k]), y, i, n);
        }
    }
}

/* y = x + scale * control NOISE * u, u in [-1, 1). Rows are as in dropout. */
__kernel void noise(const __global float *x, long xo, __global float *y, long yo, long n, long middle, float scale,
                    int site, int first_row, int gap, const __global uint *control)
{
    const long row = TX_ROW;
    const draws d = draws_of(control, (uint)(row / middle), site, 0, 0.0f, first_row, 0);
    const float amplitude = scale * as_float(control[TX_CONTROL_NOISE]);
    x += xo + row * n;
    y += yo + row * n;
    TX_EACH({
        float part[VW];
        vec v = tx_load(x, i, n, 0.0f);
        VSTORE_PRIVATE(v, part);
        for (int k = 0; k < VW; k++) {
            const uint column = (uint)i + (uint)k;
            const tx_random u = DRAW_AT(&d, drawn_row(row, middle, gap), column);
            part[k] += amplitude * ((float)(u.word[column & 3] >> 8) * 0x1p-23f - 1.0f);
        }
        v = VLOAD_PRIVATE(part);
        tx_store(v, y, i, n);
    })
}

#define TURN 0x28BE60DB9391054AUL /* 1 / (2 pi) as a fraction of 2^64 */

/* Converts an angle in radians to turns, as a fraction of 2^64. Whole turns vanish. */
static ulong turns_of(float angle)
{
    const uint bits = as_uint(angle);
    const ulong mantissa = (bits & 0x7FFFFFu) | 0x800000u;
    /* Not mul_hi: NVIDIA's compiler 470 takes it for 0 if a factor is a constant. The mantissa has 24 bits. */
    const ulong low = mantissa * TURN,
                high = (mantissa * (TURN >> 32) + (mantissa * (TURN & 0xFFFFFFFFUL) >> 32)) >> 32;
    const int exponent = (int)(bits >> 23) - 150; /* angle = mantissa * 2^exponent */
    if (exponent >= 0)
        return exponent < 64 ? low << exponent : 0;
    return exponent > -64 ? low >> -exponent | high << (64 + exponent) : exponent > -128 ? high >> (-64 - exponent) : 0;
}

/* The host defines TX_NO_SINCOS if the driver has no sincos. Returns the sine of x and sets *c to the cosine, for x in
 * [-pi, pi]: polynomials (Cephes, Moshier) for the difference from the nearest multiple of pi / 2. */
#ifdef TX_NO_SINCOS
static float own_sincos(float x, float *c)
{
    const int quarter = (int)(x * 0.63661977f + (x < 0.0f ? -0.5f : 0.5f));
    const float r = (x - (float)quarter * 1.5703125f) - (float)quarter * 4.8382679e-4f, r2 = r * r;
    const float sine = r + r * r2 * (-1.6666654611e-1f + r2 * (8.3321608736e-3f - r2 * 1.9515295891e-4f));
    const float cosine = 1.0f - 0.5f * r2 +
                         r2 * r2 * (4.166664568298827e-2f + r2 * (-1.388731625493765e-3f + r2 * 2.443315711809948e-5f));
    const float s = quarter & 1 ? cosine : sine, k = quarter & 1 ? sine : cosine;
    *c = (quarter + 1) & 2 ? -k : k;
    return quarter & 2 ? -s : s;
}
#undef sincos
#define sincos own_sincos
#endif

typedef struct {
    float frequency[128]; /* of TX_MAX_ROTARY / 2 pairs */
} rope_table;

#ifdef RATES /* each row of the batch has its own */
#define ROTARY_RATES , const __global float *rates, long ro
#define RATE(i) rates[ro + row / T * half_d + (i)]
#else
#define ROTARY_RATES
#define RATE(i) table.frequency[i]
#endif

/* Dimension 0 is pair i of the head, dimension 1 row (b, t). Angles are turns in fractions of 2^64, where position
 * times frequency wraps exactly. So high positions lose no precision. */
__kernel void rotary(const __global h_t *x, long xo, __global h_t *y, long yo, long last, int T, int heads, int d,
                     int half_d, rope_table table, float magnitude, int inverse, int at,
                     const __global int *positions, long po ROTARY_RATES)
{
    long row = TX_ROW;
    ulong position = (ulong)tx_place(positions + po, at, row, T, INT_MAX);
    x += xo + row * last;
    y += yo + row * last;
    for (int r = 0; r < RUN; r++) {
        int i = (int)TX_COLUMN(r);
        if (i >= half_d)
            break;
        long phase = (long)(turns_of(RATE(i)) * position);
        float c, s = sincos((float)phase * (6.2831853071795865f / 18446744073709551616.0f), &c);
        s *= inverse ? -magnitude : magnitude;
        c *= magnitude;
        for (int h = 0; h < heads; h++) {
            const long at = (long)h * d + i;
            float a = tx_get_h(x, at), b = tx_get_h(x, at + half_d);
            tx_store_h(a * c - b * s, y, at, last);
            tx_store_h(b * c + a * s, y, at + half_d, last);
        }
    }
    for (int i = 2 * half_d + (int)TX_COLUMN(0) / RUN; i < d; i += (int)get_global_size(1 - ROW_DIM))
        for (int h = 0; h < heads; h++)
            y[(long)h * d + i] = x[(long)h * d + i];
    for (long i = (long)heads * d + TX_COLUMN(0) / RUN; i < last; i += (long)get_global_size(1 - ROW_DIM))
        y[i] = x[i];
}
