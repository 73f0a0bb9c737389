/* SPDX-License-Identifier: Apache-2.0
 * Storage types from and to double, by the definition of rounding. */
#include "tests/ops/case.h"

#include <math.h>
#include <string.h>

/* Precision (with the hidden bit), exponent of the smallest normal number, and of the largest binade. */
typedef struct format {
    int precision, least, most;
} format;

static const format formats[TX_DTYPE_COUNT] = {
    [TX_F32] = {24, -126, 127},
    [TX_BF16] = {8, -126, 127},
    [TX_F16] = {11, -14, 15},
};

static bool is_float(tx_dtype dtype)
{
    return dtype < TX_DTYPE_COUNT && formats[dtype].precision > 0;
}

double tx_number_epsilon(tx_dtype dtype)
{
    return is_float(dtype) ? ldexp(1.0, -formats[dtype].precision) : 0.0;
}

double tx_number_round(tx_dtype dtype, double x)
{
    if (!is_float(dtype) || !isfinite(x) || x == 0.0)
        return x;
    const format *f = &formats[dtype];
    int exponent;
    frexp(x, &exponent);
    exponent -= 1; /* |x| in [2^exponent, 2^(exponent + 1)) */
    if (exponent < f->least)
        exponent = f->least;
    double quantum = ldexp(1.0, exponent - f->precision + 1);
    double rounded = nearbyint(x / quantum) * quantum;
    if (fabs(rounded) >= ldexp(1.0, f->most + 1))
        return copysign(INFINITY, x);
    return rounded == 0.0 ? copysign(0.0, x) : rounded;
}

/* Bits of a 16-bit format from a value that it can hold. */
static uint16_t bits16(const format *f, double x)
{
    int mantissa_bits = f->precision - 1;
    uint32_t sign = signbit(x) ? 0x8000u : 0, top = (uint32_t)(f->most - f->least + 2);
    if (isnan(x))
        return (uint16_t)(sign | top << mantissa_bits | 1u << (mantissa_bits - 1));
    if (isinf(x))
        return (uint16_t)(sign | top << mantissa_bits);
    if (x == 0.0)
        return (uint16_t)sign;
    int exponent;
    frexp(x, &exponent);
    exponent = exponent - 1 < f->least ? f->least : exponent - 1;
    uint32_t whole = (uint32_t)ldexp(fabs(x), mantissa_bits - exponent); /* hidden bit included unless subnormal */
    return (uint16_t)(sign | (whole + ((uint32_t)(exponent - f->least) << mantissa_bits)));
}

static double from_bits16(const format *f, uint16_t bits)
{
    int mantissa_bits = f->precision - 1;
    uint32_t top = (uint32_t)(f->most - f->least + 2);
    uint32_t exponent = (bits & 0x7FFFu) >> mantissa_bits, mantissa = bits & ((1u << mantissa_bits) - 1);
    double x = 0.0;
    if (exponent == top)
        x = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        x = ldexp((double)mantissa, f->least - mantissa_bits);
    else
        x = ldexp((double)(mantissa | 1u << mantissa_bits), f->least + (int)exponent - 1 - mantissa_bits);
    return bits & 0x8000u ? -x : x;
}

void tx_number_encode(tx_dtype dtype, const double *value, int64_t count, void *bytes)
{
    if (tx_dtype_packed(dtype))
        tx_number_pack(dtype, value, count, bytes);
    for (int64_t i = 0; i < count && !tx_dtype_packed(dtype); i++) {
        char *to = (char *)bytes + i * (int64_t)tx_dtype_size(dtype);
        if (dtype == TX_F32) {
            float f = (float)value[i];
            memcpy(to, &f, sizeof f);
        } else if (is_float(dtype)) {
            uint16_t h = bits16(&formats[dtype], tx_number_round(dtype, value[i]));
            memcpy(to, &h, sizeof h);
        } else if (dtype == TX_I32) {
            int32_t n = (int32_t)value[i];
            memcpy(to, &n, sizeof n);
        } else {
            *(uint8_t *)to = (uint8_t)value[i];
        }
    }
}

void tx_number_decode(tx_dtype dtype, const void *bytes, int64_t count, double *value)
{
    if (tx_dtype_packed(dtype))
        tx_number_unpack(dtype, bytes, count, value);
    for (int64_t i = 0; i < count && !tx_dtype_packed(dtype); i++) {
        const char *from = (const char *)bytes + i * (int64_t)tx_dtype_size(dtype);
        if (dtype == TX_F32) {
            float f;
            memcpy(&f, from, sizeof f);
            value[i] = f;
        } else if (is_float(dtype)) {
            uint16_t h;
            memcpy(&h, from, sizeof h);
            value[i] = from_bits16(&formats[dtype], h);
        } else if (dtype == TX_I32) {
            int32_t n;
            memcpy(&n, from, sizeof n);
            value[i] = n;
        } else {
            value[i] = *(const uint8_t *)from;
        }
    }
}

static const double pi = 3.14159265358979323846;

double tx_number_gelu(double x, bool exact)
{
    if (exact)
        return 0.5 * x * erfc(-x / sqrt(2.0));
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / pi) * (x + 0.044715 * x * x * x)));
}

double tx_number_gelu_slope(double x, bool exact)
{
    if (exact)
        return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-0.5 * x * x) / sqrt(2.0 * pi);
    double t = tanh(sqrt(2.0 / pi) * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * sqrt(2.0 / pi) * (1.0 + 3.0 * 0.044715 * x * x);
}

double tx_number_dot(const double *a, const double *b, int64_t n, double *magnitude)
{
    double sum = 0.0;
    *magnitude = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
        *magnitude += fabs(a[i] * b[i]);
    }
    return sum;
}
