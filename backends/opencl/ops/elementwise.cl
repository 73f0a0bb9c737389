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

/* As tx_tanh_of of the cpu backend: small results have all digits, too. */
static vec tanh_of(vec x)
{
    vec z = x * x, q = -0.0057049962f;
    q = q * z + 0.020639094f;
    q = q * z - 0.053739715f;
    q = q * z + 0.13331442f;
    q = q * z - 0.33333281f;
    return select(2.0f * tx_sigmoid(2.0f * x) - 1.0f, x + x * z * q, z < 0.390625f);
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
KERNEL_OF_ONE(tanh, tanh_of(u))
KERNEL_OF_TWO(tanh_grad, u * (1.0f - v * v))
KERNEL_OF_ONE(sigmoid, tx_sigmoid(u))
KERNEL_OF_TWO(sigmoid_grad, u * v * (1.0f - v))
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

#include "backends/opencl/ops/typed.cl"

/* TX_ROW is a row; a sample has `middle` rows. */
__kernel void dropout(const __global void *x, long xo, __global void *y, long yo, long n, int from, int to, long middle,
                      float p, int site, int first_row, int gap, const __global uint *control)
{
    const long row = TX_ROW;
    const draws d = draws_of(control, (uint)(row / middle), site, 0, p, first_row, 0);
    xo += row * n;
    yo += row * n;
    for (int r = 0; r < RUN; r += DRAWN) { /* RUN is a multiple of DRAWN */
        const long first = TX_COLUMN(r);
        if (first >= n)
            break;
        vec factor[DRAWN];
        draw_vectors(factor, &d, drawn_row(row, middle, gap), (uint)first);
        for (int k = 0; k < DRAWN && first + k * VW < n; k++) {
            const long i = first + k * VW;
            store_typed(to, drop(load_typed(from, x, xo, i, n), factor[k]), y, yo, i, n);
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

#include "rope.cl"

#ifdef RATES /* each row of the batch has its own */
#define ROTARY_RATES , const __global float *rates, long ro
#define FREQUENCY(i) rates[ro + row / T * half_d + (i)]
#else
#define ROTARY_RATES
#define FREQUENCY(i) table.frequency[i]
#endif

/* Dimension 0 is pair i of the head, dimension 1 row (b, t). */
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
        float c, s = rope_sincos(FREQUENCY(i), position, inverse ? -magnitude : magnitude, magnitude, &c);
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
