/* SPDX-License-Identifier: Apache-2.0
 * Conversion of weights of 4 and 8 bits from and to double, by the layouts of backends/nf4.h and backends/q8.h. Values
 * and map are an independent implementation.
 */
#include "tests/ops/case.h"

#include <math.h>
#include <string.h>

#define BLOCK 64
#define GROUP 256

/* The quantiles of QLoRA (Dettmers et al., 2023), appendix E. */
static const double quantile[16] = {-1.0,
                                    -0.6961928009986877,
                                    -0.5250730514526367,
                                    -0.39491748809814453,
                                    -0.28444138169288635,
                                    -0.18477343022823334,
                                    -0.09105003625154495,
                                    0.0,
                                    0.07958029955625534,
                                    0.16093020141124725,
                                    0.24611230194568634,
                                    0.33791524171829224,
                                    0.44070982933044434,
                                    0.5626170039176941,
                                    0.7229568362236023,
                                    1.0};

/* A map that is no model's: 8-bit codes of -1 .. 1, closer to each other near 0. */
static double mapped(int code)
{
    const double x = (code - 128) / 128.0;
    return x * fabs(x);
}

/* The scale of a group is a power of two, so that scale times number plus mean is rounded only once. */
static double scale_of(int64_t group)
{
    return ldexp(1.0, -1 - (int)(group % 3));
}
static double mean_of(int64_t group)
{
    return 1.0 + 0.25 * (double)(group % 5);
}

static double absmax_of(tx_dtype dtype, int64_t block, int choice)
{
    const int64_t group = block / GROUP;
    if (dtype == TX_NF4)
        return (float)(0.3 + choice / 200.0);
    return (float)(mapped(choice) * scale_of(group) + mean_of(group));
}

static int64_t groups_of(int64_t blocks)
{
    return (blocks + GROUP - 1) / GROUP;
}

/* ---- 8 bits ------------------------------------------------------------------------------------------------- */

#define BLOCK8 32

/* A scale that a half holds. */
static double scale8_of(int64_t block)
{
    return (double)(1 + block % 7) / 1024.0;
}

static void settle8(double *value, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        value[i] = fmax(-128.0, fmin(127.0, nearbyint(value[i] * 127.0))) * scale8_of(i / BLOCK8);
}

static void pack8(const double *value, int64_t count, uint8_t *bytes)
{
    for (int64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(int8_t)(value[i] / scale8_of(i / BLOCK8));
    for (int64_t b = 0; b < count / BLOCK8; b++) {
        const double scale = scale8_of(b);
        tx_number_encode(TX_F16, &scale, 1, bytes + count + 2 * b);
    }
}

static void unpack8(const uint8_t *bytes, int64_t count, double *value)
{
    for (int64_t i = 0; i < count; i++) {
        double scale;
        tx_number_decode(TX_F16, bytes + count + i / BLOCK8 * 2, 1, &scale);
        value[i] = (int8_t)bytes[i] * scale;
    }
}

/* ---- MXFP4 -------------------------------------------------------------------------------------------------- */

#define BLOCK_E2M1 32

/* The values of e2m1: bit 3 is the sign, bits 1 and 2 the exponent, bit 0 the mantissa. */
static double e2m1(int code)
{
    const int exponent = code >> 1 & 3, mantissa = code & 1;
    const double x = exponent ? ldexp(1.0 + mantissa / 2.0, exponent - 1) : mantissa / 2.0;
    return code & 8 ? -x : x;
}

static int exponent_of(int64_t block)
{
    return 120 + (int)(block * 5 % 11);
}

static void settle_mxfp4(double *value, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        value[i] =
            ldexp(e2m1((int)fmin(15.0, fmax(0.0, floor((value[i] + 1.0) * 8.0)))), exponent_of(i / BLOCK_E2M1) - 127);
}

static void pack_mxfp4(const double *value, int64_t count, uint8_t *bytes)
{
    for (int64_t i = 0; i < count; i++) {
        int code = 0;
        while (ldexp(e2m1(code), exponent_of(i / BLOCK_E2M1) - 127) != value[i])
            code++;
        bytes[i / 2] = (uint8_t)(i % 2 ? bytes[i / 2] | code : code << 4);
    }
    for (int64_t b = 0; b < count / BLOCK_E2M1; b++)
        bytes[count / 2 + b] = (uint8_t)exponent_of(b);
}

static void unpack_mxfp4(const uint8_t *bytes, int64_t count, double *value)
{
    for (int64_t i = 0; i < count; i++)
        value[i] = ldexp(e2m1(i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4), bytes[count / 2 + i / BLOCK_E2M1] - 127);
}

/* ---- 4 bits ------------------------------------------------------------------------------------------------- */

void tx_number_settle(tx_dtype dtype, double *value, int64_t count)
{
    if (dtype == TX_Q8) {
        settle8(value, count);
        return;
    }
    if (dtype == TX_MXFP4) {
        settle_mxfp4(value, count);
        return;
    }
    for (int64_t b = 0; b < count / BLOCK; b++) {
        double *v = value + b * BLOCK;
        const double absmax = absmax_of(dtype, b, (int)(fabs(v[b % BLOCK]) * 255.0));
        for (int64_t i = 0; i < BLOCK; i++) {
            const double place = floor((v[i] + 1.0) * 8.0);
            int code = place < 0.0 ? 0 : place > 15.0 ? 15 : (int)place;
            if (i == b * 7 % BLOCK) /* one at least is the greatest magnitude, from which absmax is found */
                code = b % 2 ? 0 : 15;
            v[i] = (float)(quantile[code] * absmax);
        }
    }
}

/* The number of the nearest of `count` ascending values. */
static int nearest(double x, int count, double (*value)(int))
{
    int best = 0;
    for (int i = 1; i < count; i++)
        if (fabs(value(i) - x) < fabs(value(best) - x))
            best = i;
    return best;
}

static double quantile_of(int code)
{
    return quantile[code];
}

static void put_float(uint8_t *to, double value)
{
    const float f = (float)value;
    memcpy(to, &f, sizeof f);
}

static double get_float(const uint8_t *from)
{
    float f;
    memcpy(&f, from, sizeof f);
    return f;
}

void tx_number_pack(tx_dtype dtype, const double *value, int64_t count, uint8_t *bytes)
{
    if (dtype == TX_Q8) {
        pack8(value, count, bytes);
        return;
    }
    if (dtype == TX_MXFP4) {
        pack_mxfp4(value, count, bytes);
        return;
    }
    const int64_t blocks = count / BLOCK;
    uint8_t *behind = bytes + count / 2, *groups = behind + 4 * 256, *codes = groups + 8 * groups_of(blocks);
    for (int64_t b = 0; b < blocks; b++) {
        const double *v = value + b * BLOCK;
        double absmax = 0.0;
        for (int64_t i = 0; i < BLOCK; i++)
            absmax = fmax(absmax, fabs(v[i]));
        for (int64_t i = 0; i < BLOCK; i += 2)
            bytes[(b * BLOCK + i) / 2] =
                (uint8_t)(nearest(v[i] / absmax, 16, quantile_of) * 16 + nearest(v[i + 1] / absmax, 16, quantile_of));
        if (dtype == TX_NF4)
            put_float(behind + 4 * b, absmax);
        else
            codes[b] = (uint8_t)nearest((absmax - mean_of(b / GROUP)) / scale_of(b / GROUP), 256, mapped);
    }
    for (int i = 0; i < 256 && dtype != TX_NF4; i++)
        put_float(behind + 4 * i, mapped(i));
    for (int64_t g = 0; g < groups_of(blocks) && dtype != TX_NF4; g++) {
        put_float(groups + 8 * g, scale_of(g));
        put_float(groups + 8 * g + 4, mean_of(g));
    }
}

void tx_number_unpack(tx_dtype dtype, const uint8_t *bytes, int64_t count, double *value)
{
    if (dtype == TX_Q8) {
        unpack8(bytes, count, value);
        return;
    }
    if (dtype == TX_MXFP4) {
        unpack_mxfp4(bytes, count, value);
        return;
    }
    const int64_t blocks = count / BLOCK;
    const uint8_t *behind = bytes + count / 2, *groups = behind + 4 * 256, *codes = groups + 8 * groups_of(blocks);
    for (int64_t i = 0; i < count; i++) {
        const int64_t b = i / BLOCK;
        const uint8_t *group = groups + 8 * (b / GROUP);
        const double absmax = dtype == TX_NF4
                                  ? get_float(behind + 4 * b)
                                  : (float)(get_float(group) * get_float(behind + 4 * codes[b]) + get_float(group + 4));
        value[i] = (float)(quantile[i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4] * absmax);
    }
}
