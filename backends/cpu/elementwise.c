/* SPDX-License-Identifier: Apache-2.0
 * Element-wise kernels: activations and their gradients, sums, products, scaling, dropout, rotary embedding. */
#include "backends/cpu/simd.h"

/* Every kernel here that maps element to element: y may lie on the first operand. */
typedef struct tx_map {
    const float *a, *b;
    float *y;
} tx_map;

static tx_map tx_map_of(const tx_cpu_call *call)
{
    return (tx_map){call->in[0], call->in[1], call->out[0]};
}

/* Defines kernel `name` as y[i] = term, an expression of a[i] and b[i]; `setup` runs once a slice. */
#define TX_MAP_KERNEL(name, setup, term)                                                           \
    static void name##_slice(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread) \
    {                                                                                              \
        const tx_map m = tx_map_of(call);                                                          \
        const float *a = m.a, *b = m.b;                                                            \
        float *y = m.y;                                                                            \
        (void)thread, (void)b;                                                                     \
        setup;                                                                                     \
        TX_SIMD for (int64_t i = first; i < last; i++) y[i] = term;                                \
    }                                                                                              \
    void TX_CPU_NAME(name)(const tx_cpu_call *call)                                                \
    {                                                                                              \
        tx_cpu_slices(call, tx_operand_count(&call->command->out[0]), TX_CPU_GRAIN, name##_slice); \
    }

/* ---- Activations ------------------------------------------------------------------------------- */

/* 0.5 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) is the sigmoid of twice the argument; slope is the derivative of that.
 */
static inline float tx_gelu_argument(float x)
{
    return x * (1.5957691216f + 0.0713548162f * x * x);
}

static inline float tx_gelu_tanh(float x)
{
    return x * tx_sigmoid(tx_gelu_argument(x));
}

static inline float tx_gelu_tanh_slope(float x)
{
    tx_logistic s = tx_logistic_of(tx_gelu_argument(x));
    return s.value + x * s.slope * (1.5957691216f + 0.2140644488f * x * x);
}

/* The normal distribution at x. */
static inline float tx_normal(float x, float bell)
{
    float z = x < 0.0f ? -x : x, tail = tx_normal_tail(z, bell);
    return x < 0.0f ? tail : 1.0f - tail;
}

static inline float tx_gelu_exact(float x)
{
    return x * tx_normal(x, tx_exp(-0.5f * x * x));
}

static inline float tx_gelu_exact_slope(float x)
{
    float bell = tx_exp(-0.5f * x * x);
    return tx_normal(x, bell) + x * bell * 0.3989422804f;
}

static inline float tx_silu_slope(float x)
{
    tx_logistic s = tx_logistic_of(x);
    return s.value + x * s.slope;
}

static void gelu_slice(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_map m = tx_map_of(call);
    (void)thread;
    if (call->command->attrs.exact) {
        TX_SIMD for (int64_t i = first; i < last; i++) m.y[i] = tx_gelu_exact(m.a[i]);
    } else {
        TX_SIMD for (int64_t i = first; i < last; i++) m.y[i] = tx_gelu_tanh(m.a[i]);
    }
}

void TX_CPU_NAME(gelu)(const tx_cpu_call *call)
{
    tx_cpu_slices(call, tx_operand_count(&call->command->out[0]), TX_CPU_GRAIN, gelu_slice);
}

static void gelu_grad_slice(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_map m = tx_map_of(call);
    (void)thread;
    if (call->command->attrs.exact) {
        TX_SIMD for (int64_t i = first; i < last; i++) m.y[i] = m.a[i] * tx_gelu_exact_slope(m.b[i]);
    } else {
        TX_SIMD for (int64_t i = first; i < last; i++) m.y[i] = m.a[i] * tx_gelu_tanh_slope(m.b[i]);
    }
}

void TX_CPU_NAME(gelu_grad)(const tx_cpu_call *call)
{
    tx_cpu_slices(call, tx_operand_count(&call->command->out[0]), TX_CPU_GRAIN, gelu_grad_slice);
}

TX_MAP_KERNEL(silu, , a[i] * tx_sigmoid(a[i]))
TX_MAP_KERNEL(silu_grad, , a[i] * tx_silu_slope(b[i]))

/* ---- Arithmetic -------------------------------------------------------------------------------- */

TX_MAP_KERNEL(add, , a[i] + b[i])
TX_MAP_KERNEL(mul, , a[i] * b[i])
TX_MAP_KERNEL(scale, const float alpha = tx_cpu_factor(call), a[i] * alpha)

/* ---- SwiGLU ------------------------------------------------------------------------------------ */

static void swiglu_rows(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const int64_t width = tx_shape_last(&call->command->out[0].shape);
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        const float *gate = (const float *)call->in[0] + row * 2 * width, *up = gate + width;
        float *y = (float *)call->out[0] + row * width;
        TX_SIMD for (int64_t i = 0; i < width; i++) y[i] = gate[i] * tx_sigmoid(gate[i]) * up[i];
    }
}

void TX_CPU_NAME(swiglu)(const tx_cpu_call *call)
{
    const tx_shape *y = &call->command->out[0].shape;
    tx_cpu_slices(call, tx_shape_rows(y), tx_cpu_rows_grain(tx_shape_last(y)), swiglu_rows);
}

/* dx may lie on x: both halves of an element are read before they are written. */
static void swiglu_grad_rows(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const int64_t width = tx_shape_last(&call->command->in[0].shape);
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        const float *dy = (const float *)call->in[0] + row * width;
        const float *gate = (const float *)call->in[1] + row * 2 * width, *up = gate + width;
        float *dgate = (float *)call->out[0] + row * 2 * width, *dup = dgate + width;
        TX_SIMD for (int64_t i = 0; i < width; i++)
        {
            float g = gate[i], u = up[i], d = dy[i];
            dgate[i] = d * u * tx_silu_slope(g);
            dup[i] = d * g * tx_sigmoid(g);
        }
    }
}

void TX_CPU_NAME(swiglu_grad)(const tx_cpu_call *call)
{
    const tx_shape *dy = &call->command->in[0].shape;
    tx_cpu_slices(call, tx_shape_rows(dy), tx_cpu_rows_grain(tx_shape_last(dy)), swiglu_grad_rows);
}
