/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise kernels: activations and their gradients, sums, products, scaling and SwiGLU.
 */
#include "backends/cpu/simd.h"

/* Computes y[i] from a[i] and b[i] for n neighbours. b is NULL for functions of one operand. y may alias a. */
typedef void tx_map(const tx_cpu_call *call, const float *a, const float *b, float *y, int64_t n);

/* Maps elements first..last-1. All operands have the type of the result. This also holds for an epilogue, whose
 * command is that of the matrix product. */
static inline void map_slice(const tx_cpu_call *call, int64_t first, int64_t last, tx_map *map)
{
    const tx_dtype type = call->command->out[0].dtype;
    float a[TX_PIECE], b[TX_PIECE], y[TX_PIECE];
    for (int64_t at = first, count; at < last; at += count) {
        count = tx_run_length(type, last - at);
        map(call, tx_run_of(call->in[0], type, at, count, a),
            call->in[1] ? tx_run_of(call->in[1], type, at, count, b) : NULL, tx_run_to(call->out[0], type, at, y),
            count);
        tx_run_put(call->out[0], y, type, at, count);
    }
}

/* Defines the kernel `name` from the function name_map. */
#define TX_MAPPED(name)                           \
    TX_ELEMENTS(name)                             \
    {                                             \
        map_slice(call, first, last, name##_map); \
    }

/* Defines the map function and its kernel: y[i] = term, an expression of a[i] and b[i]. `setup` runs before the
 * loop. */
#define TX_MAP_KERNEL(name, setup, term)                                                                 \
    static void name##_map(const tx_cpu_call *call, const float *a, const float *b, float *y, int64_t n) \
    {                                                                                                    \
        (void)call, (void)b;                                                                             \
        setup;                                                                                           \
        TX_SIMD for (int64_t i = 0; i < n; i++) y[i] = term;                                             \
    }                                                                                                    \
    TX_MAPPED(name)

/* ---- Activations ------------------------------------------------------------------------------- */

/* 0.5 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) is the sigmoid of twice the argument of tanh. The slope is the
 * derivative of x times that. */
static inline float tx_gelu_argument(float x)
{
    return x * (1.5957691216f + 0.0713548162f * x * x);
}

static inline float tx_gelu_tanh(float x)
{
    return x * tx_sigmoid_of(tx_gelu_argument(x));
}

static inline float tx_gelu_tanh_slope(float x)
{
    tx_logistic s = tx_logistic_of(tx_gelu_argument(x));
    return s.value + x * s.slope * (1.5957691216f + 0.2140644488f * x * x);
}

/* Returns the cumulative normal distribution at x. */
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

static void gelu_map(const tx_cpu_call *call, const float *a, const float *b, float *y, int64_t n)
{
    (void)b;
    if (call->command->attrs.exact) {
        TX_SIMD for (int64_t i = 0; i < n; i++) y[i] = tx_gelu_exact(a[i]);
    } else {
        TX_SIMD for (int64_t i = 0; i < n; i++) y[i] = tx_gelu_tanh(a[i]);
    }
}

static void gelu_grad_map(const tx_cpu_call *call, const float *a, const float *b, float *y, int64_t n)
{
    if (call->command->attrs.exact) {
        TX_SIMD for (int64_t i = 0; i < n; i++) y[i] = a[i] * tx_gelu_exact_slope(b[i]);
    } else {
        TX_SIMD for (int64_t i = 0; i < n; i++) y[i] = a[i] * tx_gelu_tanh_slope(b[i]);
    }
}

TX_MAPPED(gelu)
TX_MAPPED(gelu_grad)

TX_MAP_KERNEL(relu, , a[i] < 0.0f ? 0.0f : a[i])
TX_MAP_KERNEL(relu_grad, , b[i] <= 0.0f ? 0.0f : a[i])
TX_MAP_KERNEL(silu, , a[i] * tx_sigmoid_of(a[i]))
TX_MAP_KERNEL(silu_grad, , a[i] * tx_silu_slope(b[i]))
TX_MAP_KERNEL(tanh, , tx_tanh_of(a[i]))
TX_MAP_KERNEL(exponential, , expf(a[i]))
TX_MAP_KERNEL(logarithm, , logf(a[i]))
TX_MAP_KERNEL(rsqrt, , 1.0f / sqrtf(a[i]))
TX_MAP_KERNEL(tanh_grad, , a[i] * (1.0f - b[i] * b[i]))
TX_MAP_KERNEL(sigmoid, , tx_sigmoid_of(a[i]))
TX_MAP_KERNEL(sigmoid_grad, , a[i] * b[i] * (1.0f - b[i]))

/* ---- Arithmetic -------------------------------------------------------------------------------- */

TX_MAP_KERNEL(add, , a[i] + b[i])
TX_MAP_KERNEL(mul, , a[i] * b[i])
TX_MAP_KERNEL(scale, const float alpha = tx_cpu_factor(call), a[i] * alpha)
TX_MAP_KERNEL(blend, const tx_attrs t = call->command->attrs, t.alpha *a[i] + t.scale * b[i])

/* ---- SwiGLU ------------------------------------------------------------------------------------ */

/* SwiGLU with clamped operands (tx_swiglu_clamped). */
static inline float clamp(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

static void clamped_swiglu(const tx_attrs *attrs, const float *gate, const float *up, float *y, int64_t n)
{
    const float alpha = attrs->alpha, limit = attrs->scale;
    TX_SIMD for (int64_t i = 0; i < n; i++)
    {
        const float g = gate[i] > limit ? limit : gate[i];
        y[i] = g * tx_sigmoid_of(alpha * g) * (clamp(up[i], -limit, limit) + 1.0f);
    }
}

/* The derivative is 1 at the limits, as in torch.clamp. */
static void clamped_slopes(const tx_attrs *attrs, const float *dy, const float *gate, const float *up, float *dgate,
                           float *dup, int64_t n)
{
    const float alpha = attrs->alpha, limit = attrs->scale;
    TX_SIMD for (int64_t i = 0; i < n; i++)
    {
        const float g = gate[i] > limit ? limit : gate[i], u = up[i], d = dy[i], h = clamp(u, -limit, limit);
        const float of_gate = d * (h + 1.0f) * tx_silu_slope(alpha * g), of_up = d * g * tx_sigmoid_of(alpha * g);
        dgate[i] = gate[i] > limit ? 0.0f : of_gate;
        dup[i] = h == u ? of_up : 0.0f;
    }
}

TX_ROWS(swiglu, out[0])
{
    const tx_dtype type = call->command->out[0].dtype;
    float gates[TX_PIECE], ups[TX_PIECE], results[TX_PIECE];
    for (int64_t at = row * width, end = at + width, count; at < end; at += count) {
        count = tx_run_length(type, end - at);
        const float *gate = tx_run_of(call->in[0], type, at + row * width, count, gates);
        const float *up = tx_run_of(call->in[0], type, at + (row + 1) * width, count, ups);
        float *y = tx_run_to(call->out[0], type, at, results);
        if (call->command->attrs.gate == TX_GATE_CLAMPED)
            clamped_swiglu(&call->command->attrs, gate, up, y, count);
        else if (call->command->attrs.gate == TX_GATE_GELU)
            TX_SIMD for (int64_t i = 0; i < count; i++) y[i] = tx_gelu_tanh(gate[i]) * up[i];
        else
            TX_SIMD for (int64_t i = 0; i < count; i++) y[i] = gate[i] * tx_sigmoid_of(gate[i]) * up[i];
        tx_run_put(call->out[0], y, type, at, count);
    }
}

static void geglu_slopes(const float *dy, const float *gate, const float *up, float *dgate, float *dup, int64_t n)
{
    TX_SIMD for (int64_t i = 0; i < n; i++)
    {
        float g = gate[i], u = up[i], d = dy[i];
        dgate[i] = d * u * tx_gelu_tanh_slope(g);
        dup[i] = d * tx_gelu_tanh(g);
    }
}

static void swiglu_slopes(const float *dy, const float *gate, const float *up, float *dgate, float *dup, int64_t n)
{
    TX_SIMD for (int64_t i = 0; i < n; i++)
    {
        float g = gate[i], u = up[i], d = dy[i];
        dgate[i] = d * u * tx_silu_slope(g);
        dup[i] = d * g * tx_sigmoid_of(g);
    }
}

/* dx may alias x: both halves of an element are read before they are written. */
TX_ROWS(swiglu_grad, in[0])
{
    const tx_dtype type = call->command->in[0].dtype;
    float dys[TX_PIECE], gates[TX_PIECE], ups[TX_PIECE];
    for (int64_t at = row * width, end = at + width, count; at < end; at += count) {
        const int64_t to_gate = at + row * width, to_up = to_gate + width;
        count = tx_run_length(type, end - at);
        const float *dy = tx_run_of(call->in[0], type, at, count, dys);
        const float *gate = tx_run_of(call->in[1], type, to_gate, count, gates);
        const float *up = tx_run_of(call->in[1], type, to_up, count, ups);
        float *dgate = tx_run_to(call->out[0], type, to_gate, gates), *dup = tx_run_to(call->out[0], type, to_up, ups);
        if (call->command->attrs.gate == TX_GATE_CLAMPED)
            clamped_slopes(&call->command->attrs, dy, gate, up, dgate, dup, count);
        else
            (call->command->attrs.gate == TX_GATE_GELU ? geglu_slopes : swiglu_slopes)(dy, gate, up, dgate, dup, count);
        tx_run_put(call->out[0], dgate, type, to_gate, count);
        tx_run_put(call->out[0], dup, type, to_up, count);
    }
}
