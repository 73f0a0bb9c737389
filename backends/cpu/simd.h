/* SPDX-License-Identifier: Apache-2.0
 *
 * Tools of the kernel files: loops that the compiler vectorizes, sums with a fixed order, and branch-free fp32
 * functions. Included by files that are compiled once for each instruction set.
 */
#ifndef TX_BACKENDS_CPU_SIMD_H
#define TX_BACKENDS_CPU_SIMD_H

#include "api/base/blocks.h"
#include "backends/cpu/cpu.h"

#include <float.h>
#include <math.h>

#define TX_PRAGMA(text) _Pragma(#text)
#define TX_SIMD TX_PRAGMA(omp simd)

#define TX_TEXT_(x) #x
#define TX_TEXT(x) TX_TEXT_(x)

/* The matrix-product loops and the kernels of this variant. Kernels are named after the ops in ops.def. */
extern const tx_gemm_rows TX_CPU_NAME(gemm_rows);
#define TX_OP(NAME, name, ...) void TX_CPU_NAME(name)(const tx_cpu_call *call);
#define TX_VIRTUAL(NAME, name, ...)
#include "ops.def"

/* ---- Kernels --------------------------------------------------------------------------------- */

/* TX_ROWS(name, of) { ... } defines the kernel `name`. Threads divide the rows of operand `of`, for example out[0].
 * The body computes row `row` of `width` elements. */
#define TX_ROWS(name, of) TX_COSTLY_ROWS(name, of, width)

/* Like TX_ROWS, for a row that costs as much as `cost` elements, an expression of call and width. */
#define TX_COSTLY_ROWS(name, of, cost)                                                   \
    static inline void name##_row(const tx_cpu_call *call, int64_t row, int64_t width);  \
    static void name##_rows(const tx_cpu_call *call, int64_t first, int64_t last)        \
    {                                                                                    \
        const int64_t width = tx_shape_last(&call->command->of.shape);                   \
        for (int64_t row = first; row < last; row++)                                     \
            name##_row(call, row, width);                                                \
    }                                                                                    \
    void TX_CPU_NAME(name)(const tx_cpu_call *call)                                      \
    {                                                                                    \
        const tx_shape *shape = &call->command->of.shape;                                \
        const int64_t width = tx_shape_last(shape);                                      \
        tx_cpu_slices(call, tx_shape_rows(shape), tx_cpu_rows_grain(cost), name##_rows); \
    }                                                                                    \
    static inline void name##_row(const tx_cpu_call *call, int64_t row, int64_t width)

/* TX_ELEMENTS(name) { ... } defines the kernel `name`. Threads divide the elements of the first output. The body
 * computes elements first..last-1. */
#define TX_ELEMENTS(name)                                                                          \
    static void name##_slice(const tx_cpu_call *call, int64_t first, int64_t last);                \
    void TX_CPU_NAME(name)(const tx_cpu_call *call)                                                \
    {                                                                                              \
        tx_cpu_slices(call, tx_operand_count(&call->command->out[0]), TX_CPU_GRAIN, name##_slice); \
    }                                                                                              \
    static void name##_slice(const tx_cpu_call *call, int64_t first, int64_t last)

/* ---- Sums ------------------------------------------------------------------------------------ */

/* Lanes of a sum. Element i is added to lane i % TX_LANES, and the lanes are added pairwise. So the order does not
 * depend on the width of vectors. */
#define TX_LANES 32

static inline float tx_fold(float lane[TX_LANES])
{
    for (int width = TX_LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return lane[0];
}

/* Adds `term`, an expression of i, to the lanes for 0 <= i < n. */
#define TX_ADD_TERMS(lane, i, n, term)                               \
    do {                                                             \
        const int64_t n_ = (n), whole_ = n_ - n_ % TX_LANES;         \
        for (int64_t base_ = 0; base_ < whole_; base_ += TX_LANES) { \
            TX_SIMD for (int l_ = 0; l_ < TX_LANES; l_++)            \
            {                                                        \
                const int64_t i = base_ + l_;                        \
                (lane)[l_] += (term);                                \
            }                                                        \
        }                                                            \
        for (int64_t i = whole_; i < n_; i++)                        \
            (lane)[i - whole_] += (term);                            \
    } while (0)

/* sum = the sum of `term`, an expression of i, over 0 <= i < n. */
#define TX_SUM(sum, i, n, term)          \
    do {                                 \
        float lane_[TX_LANES] = {0};     \
        TX_ADD_TERMS(lane_, i, n, term); \
        (sum) = tx_fold(lane_);          \
    } while (0)

/* Returns the greatest of n > 0 numbers. It ignores NaN, which a sum of exponentials propagates. */
static inline float tx_greatest(const float *x, int64_t n)
{
    float lane[TX_LANES];
    for (int l = 0; l < TX_LANES; l++)
        lane[l] = -INFINITY;
    const int64_t whole = n - n % TX_LANES;
    for (int64_t base = 0; base < whole; base += TX_LANES) {
        TX_SIMD for (int l = 0; l < TX_LANES; l++) lane[l] = x[base + l] > lane[l] ? x[base + l] : lane[l];
    }
    for (int64_t i = whole; i < n; i++)
        lane[i - whole] = x[i] > lane[i - whole] ? x[i] : lane[i - whole];
    float greatest = -INFINITY;
    for (int l = 0; l < TX_LANES; l++)
        greatest = lane[l] > greatest ? lane[l] : greatest;
    return greatest;
}

/* y[i] = beta y[i] + factor * (sum of x[r * stride + i] over rows r in order), first <= i < last. With beta 0 it
 * does not read y. */
static inline void tx_cpu_fold_blocks(const float *x, int64_t rows, int64_t stride, int64_t first, int64_t last,
                                      float factor, float beta, float *y)
{
    for (int64_t base = first; base < last; base += TX_LANES) {
        const int64_t count = last - base < TX_LANES ? last - base : TX_LANES;
        float lane[TX_LANES] = {0};
        for (int64_t r = 0; r < rows; r++) {
            const float *row = x + r * stride + base;
            TX_SIMD for (int64_t l = 0; l < count; l++) lane[l] += row[l];
        }
        for (int64_t l = 0; l < count; l++)
            y[base + l] = beta != 0.0f ? y[base + l] + lane[l] * factor : lane[l] * factor;
    }
}

/* ---- Functions of one number -------------------------------------------------------------------- */

/* Returns e^x for x <= 88, within 1.01 units in the last place; NaN is kept. Below 2^-126.5 the result is 0, or the
 * correct subnormal number if `tiny`. x = n ln 2 + r; the polynomial for (e^r - 1 - r) / r^2 has an error of 3e-9
 * relative to e^r. */
static inline float tx_exp_to(float x, bool tiny)
{
    x = x < -104.0f ? -104.0f : x;
    const float magic = 0x1.8p23f; /* adding it rounds to an integer, held in the low bits */
    float shifted = x * 0x1.715476p+0f + magic, n = shifted - magic;
    float r = x - n * 0x1.62e4p-1f; /* exact: the constant has 17 bits */
    r = r - n * 0x1.7f7d1cp-20f;
    float q = 0x1.6a23d0p-10f;
    q = q * r + 0x1.123a20p-7f;
    q = q * r + 0x1.5558f2p-5f;
    q = q * r + 0x1.555492p-3f;
    q = q * r + 0x1.fffffcp-2f;
    int32_t power = (int32_t)(tx_bits_of(shifted) - (tx_bits_of(magic) - 127u)); /* n + 127; any value for NaN */
    float e = 1.0f + (r + r * r * q);
    if (tiny) {
        const bool low = power <= 0;
        power = low ? power + 64 : power;
        e = low ? e * 0x1p-64f : e; /* exact: only the last product rounds */
    }
    power = power > 0 ? power : 0;
    return e * tx_float_of((uint32_t)power << 23);
}

static inline float tx_exp(float x)
{
    return tx_exp_to(x, false);
}

/* s = 1 / (1 + e^-x) and its derivative s (1 - s). Both have a small relative error for every x. */
typedef struct tx_logistic {
    float value, slope;
} tx_logistic;

static inline tx_logistic tx_logistic_of(float x)
{
    float e = tx_exp_to(x < 0.0f ? x : -x, true), r = 1.0f / (1.0f + e); /* e^-|x| does not overflow */
    return (tx_logistic){x < 0.0f ? e * r : r, e * r * r};
}

static inline float tx_sigmoid_of(float x)
{
    return tx_logistic_of(x).value;
}

/* Has a small relative error for every x. A sigmoid near 1/2 minus 1/2 would lose the digits of small results, so that
 * these come from a minimax polynomial for (tanh x / x - 1) / x^2 in x^2, relative error 5e-9 before rounding. */
static inline float tx_tanh_of(float x)
{
    const float z = x * x, large = 2.0f * tx_sigmoid_of(2.0f * x) - 1.0f;
    float q = -0.0057049962f;
    q = q * z + 0.020639094f;
    q = q * z - 0.053739715f;
    q = q * z + 0.13331442f;
    q = q * z - 0.33333281f;
    return z < 0.390625f ? x + x * z * q : large;
}

/* Returns the upper tail of the normal distribution at z >= 0, given bell = e^(-z^2 / 2). Uses a minimax polynomial
 * for Q(z) / (t bell) in t = 1 / (1 + 0.35 z), relative error 3e-8 before rounding. */
static inline float tx_normal_tail(float z, float bell)
{
    float t = 1.0f / (1.0f + 0.35f * z);
    float q = -0.029157874808f;
    q = q * t + 0.144030867026f;
    q = q * t - 0.255838897247f;
    q = q * t + 0.159319576073f;
    q = q * t - 0.023212273373f;
    q = q * t + 0.105552469342f;
    q = q * t + 0.119821295719f;
    q = q * t + 0.139863514385f;
    q = q * t + 0.139621306899f;
    return q * t * bell;
}

/* ---- Narrow storage ------------------------------------------------------------------------------ */

/* Converts x[first..first+count-1] of any floating type, or whole blocks of Q8_0, to fp32. */
static inline void tx_widen(float *to, const void *from, tx_dtype dtype, int64_t first, int64_t count)
{
    if (dtype == TX_Q8_0) {
        tx_block_read(TX_Q8_0, (const uint8_t *)from + tx_block_run(TX_Q8_0, first), count, to);
        return;
    }
    const uint16_t *half = (const uint16_t *)from + first;
    if (dtype == TX_BF16) {
        TX_SIMD for (int64_t i = 0; i < count; i++) to[i] = tx_bf16_to_f32(half[i]);
    } else if (dtype == TX_F16) {
        TX_SIMD for (int64_t i = 0; i < count; i++) to[i] = tx_f16_to_f32(half[i]);
    } else {
        memcpy(to, (const float *)from + first, (size_t)count * sizeof *to);
    }
}

static inline void tx_narrow(void *to, const float *from, tx_dtype dtype, int64_t first, int64_t count)
{
    uint16_t *half = (uint16_t *)to + first;
    if (dtype == TX_BF16) {
        TX_SIMD for (int64_t i = 0; i < count; i++) half[i] = tx_f32_to_bf16(from[i]);
    } else if (dtype == TX_F16) {
        TX_SIMD for (int64_t i = 0; i < count; i++) half[i] = tx_f32_to_f16(from[i]);
    } else {
        memcpy((float *)to + first, from, (size_t)count * sizeof *from);
    }
}

#define TX_PIECE 512 /* elements that are converted at a time, on the stack */

/* Returns elements first..first+count-1 of x as fp32: in place, or widened from 16 bits into `piece`. */
static inline const float *tx_run_of(const void *x, tx_dtype dtype, int64_t first, int64_t count, float *piece)
{
    if (dtype == TX_F32)
        return (const float *)x + first;
    tx_widen(piece, x, dtype, first, count);
    return piece;
}

/* Returns the destination of results from `first` on: in place, or `piece` for a 16-bit y, which tx_run_put then
 * narrows. */
static inline float *tx_run_to(void *y, tx_dtype dtype, int64_t first, float *piece)
{
    return dtype == TX_F32 ? (float *)y + first : piece;
}

static inline void tx_run_put(void *y, const float *piece, tx_dtype dtype, int64_t first, int64_t count)
{
    if (dtype != TX_F32)
        tx_narrow(y, piece, dtype, first, count);
}

/* Returns how many of `rest` elements to process at once: all if they need no conversion. */
static inline int64_t tx_run_length(tx_dtype dtype, int64_t rest)
{
    return dtype == TX_F32 || rest < TX_PIECE ? rest : TX_PIECE;
}

#endif
