/* SPDX-License-Identifier: Apache-2.0
 * Encodes rows in blocks of 32, and in the tables of IQ4. Called by models/gguf/gguf_types.c. */
#include "api/base/block_codes.h"

static void put_half(float value, uint8_t *b)
{
    const uint16_t bits = tx_f32_to_f16(value);
    memcpy(b, &bits, sizeof bits);
}

/* Packs the codes of 32 values, with bit 4 of each in `upper` (may be NULL). */
static void pack_32(const uint8_t *q, uint8_t *upper, uint8_t *b)
{
    uint32_t bits = 0;
    for (int i = 0; i < 16; i++) {
        b[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
        bits |= (uint32_t)(q[i] >> 4) << i | (uint32_t)(q[i + 16] >> 4) << (i + 16);
    }
    if (upper)
        memcpy(upper, &bits, sizeof bits);
}

/* ---- Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 ----------------------------------------------------------------------------- */

void tx_block_write_q8_0(const float *x, const float *v, int64_t count, uint8_t *to)
{
    (void)v;
    for (int64_t i = 0; i < count; i += 32, to += 34)
        tx_block_round_q8_0(x + i, to);
}

/* A type of blocks of 32: d, with `affine` m, with five bits the upper ones, and 16 bytes. */
typedef struct kind {
    float most;
    bool affine;
    int64_t bytes;
} kind;

static void put_block(const kind *k, float d, float m, const uint8_t *q, uint8_t *b)
{
    const int at = k->affine ? 4 : 2;
    put_half(d, b);
    if (k->affine)
        put_half(m, b + 2);
    pack_32(q, k->most >= 16.0f ? b + at : NULL, b + k->bytes - 16);
}

/* Rounds a block to levels between its extremes. */
static void write_plain(const kind *k, const float *x, uint8_t *b)
{
    float low = x[0], high = x[0], largest = x[0];
    uint8_t q[32];
    for (int i = 1; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        largest = fabsf(x[i]) > fabsf(largest) ? x[i] : largest;
    }
    const float d = k->affine ? (high - low) / k->most : largest / -k->most, from = k->affine ? low : 0.0f;
    const float inverse = d != 0.0f ? 1.0f / d : 0.0f, top = k->affine ? k->most : 2.0f * k->most - 1.0f,
                middle = k->affine ? 0.5f : k->most + 0.5f;
    for (int i = 0; i < 32; i++) {
        const float code = (x[i] - from) * inverse + middle;
        q[i] = (uint8_t)(code < top ? fmaxf(code, 0.0f) : top); /* 1 / d of the smallest numbers is infinite */
    }
    put_block(k, d, from, q, b);
}

/* Rounds eight blocks or fewer with the importance of their values. */
static void write_weighted(const kind *k, const float *x, const float *v, float square, int groups, uint8_t *b)
{
    tx_lanes value[32], weight[32], code[32], scale, minimum = {0};
    float w[32 * TX_LANES];
    for (int i = 0; i < 32 * groups; i++)
        w[i] = v[i] * sqrtf(square + x[i] * x[i]);
    tx_block_load(x, 32, groups, value);
    tx_block_load(w, 32, groups, weight);
    const tx_block_range how = {k->most, -0.9f, 0.05f, 36, false};
    if (k->affine)
        tx_block_affine(&how, 32, (const tx_lanes *)value, (const tx_lanes *)weight, code, scale, minimum);
    else
        tx_block_symmetric(32, 9, k->most, (const tx_lanes *)value, (const tx_lanes *)weight, code, scale);
    for (int j = 0; j < groups; j++, b += k->bytes) {
        uint8_t q[32];
        for (int i = 0; i < 32; i++)
            q[i] = (uint8_t)code[i][j];
        put_block(k, scale[j], -minimum[j], q, b);
    }
}

static void write_rows(const kind *k, const float *x, const float *v, int64_t count, uint8_t *to)
{
    const float square = v ? tx_block_mean_square(x, count) : 0.0f;
    for (int64_t i = 0; i < count && !v; i += 32, to += k->bytes)
        write_plain(k, x + i, to);
    for (int64_t i = 0, groups; i < count && v; i += 32 * groups, to += groups * k->bytes) {
        groups = tx_min((count - i) / 32, TX_LANES);
        write_weighted(k, x + i, v + i, square, (int)groups, to);
    }
}

#define WRITER(name, most, affine, bytes)                                                  \
    void tx_block_write_##name(const float *x, const float *v, int64_t count, uint8_t *to) \
    {                                                                                      \
        const kind k = {most, affine, bytes};                                              \
        write_rows(&k, x, v, count, to);                                                   \
    }
WRITER(q4_0, 8.0f, false, 18)
WRITER(q4_1, 15.0f, true, 20)
WRITER(q5_0, 16.0f, false, 22)
WRITER(q5_1, 31.0f, true, 24)

/* ---- MXFP4 --------------------------------------------------------------------------------------------------- */

/* Halfway between neighbours of the values of e2m1, doubled. */
TX_BLOCK_CONSTANT float between[] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};

void tx_block_write_mxfp4(const float *x, const float *v, int64_t count, uint8_t *to)
{
    (void)v;
    for (int64_t at = 0; at < count; at += 32, to += 17, x += 32) {
        float most = 0.0f;
        uint8_t q[32];
        int e = 0;
        for (int i = 0; i < 32; i++)
            most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        if (most > 0.0f)
            frexpf(most, &e); /* most is from 2^(e - 1) to 2^e */
        e = most > 0.0f && e > -124 ? e + 124 : 0;
        const float d = tx_block_power((uint8_t)e);
        for (int i = 0; i < 32; i++) {
            int code = 0;
            for (size_t k = 0; k < sizeof between / sizeof between[0]; k++) /* of two that are as near, the smaller */
                code += fabsf(x[i]) > between[k] * d;
            q[i] = (uint8_t)(code > 0 && x[i] < 0.0f ? code | 8 : code);
        }
        to[0] = (uint8_t)e;
        pack_32(q, NULL, to + 1);
    }
}

/* ---- IQ4_NL, IQ4_XS ------------------------------------------------------------------------------------------- */

/* Halfway between neighbours of tx_block_levels. */
TX_BLOCK_CONSTANT float halfway[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                       7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};

/* The nearest level; of two that are as near, the upper. */
static inline float nearest_level(float x)
{
    float level = tx_block_levels[0];
    for (int k = 0; k < 15; k++)
        level += x >= halfway[k] ? tx_block_levels[k + 1] - tx_block_levels[k] : 0.0f;
    return level;
}

/* Computes the scale of each group: the one with the least error among those that map the largest magnitude to 127 or
 * to k - 127, k from -7 to 7. */
static void search_levels(const tx_lanes *x, const tx_lanes *w, tx_lanes scale)
{
    tx_lanes largest = {0}, best = {0};
    memset(scale, 0, sizeof(tx_lanes));
    for (int i = 0; i < 32; i++)
        TX_EACH_LANE
    largest[l] = fabsf(x[i][l]) > fabsf(largest[l]) ? x[i][l] : largest[l];
    for (int k = -8; k <= 7; k++) {
        tx_lanes f, a = {0}, b = {0};
        TX_EACH_LANE
        f[l] = fabsf(largest[l]) < TX_BLOCK_LEAST ? 0.0f
               : k < -7                           ? 1.0f / (largest[l] / 127.0f)
                                                  : ((float)k - 127.0f) / largest[l];
        for (int i = 0; i < 32; i++)
            TX_EACH_LANE
            {
                const float level = nearest_level(f[l] * x[i][l]);
                a[l] += w[i][l] * level * x[i][l];
                b[l] += w[i][l] * level * level;
            }
        TX_EACH_LANE
        {
            const bool better = (f[l] != 0.0f) & (b[l] > 0.0f) & ((k < -7) | (a[l] * a[l] > best[l] * b[l]));
            scale[l] = better ? a[l] / b[l] : scale[l];
            best[l] = better ? scale[l] * a[l] : best[l];
        }
    }
}

/* Finds the scales of eight groups or fewer. Each group, or with `joint` all of them, has its mean square. */
static void scale_groups(const float *x, const float *v, int groups, bool joint, tx_lanes scale)
{
    tx_lanes value[32], weight[32];
    float w[32 * TX_LANES];
    const float all = joint ? 2.0f * tx_block_mean_square(x, 32 * groups) : 0.0f;
    for (int j = 0; j < groups; j++) {
        const float square = joint ? all : 2.0f * tx_block_mean_square(x + 32 * j, 32);
        for (int i = 32 * j; i < 32 * j + 32; i++)
            w[i] = v ? v[i] * sqrtf(square + x[i] * x[i]) : x[i] * x[i];
    }
    tx_block_load(x, 32, groups, value);
    tx_block_load(w, 32, groups, weight);
    search_levels((const tx_lanes *)value, (const tx_lanes *)weight, scale);
}

/* Packs the codes of 32 values, x times `factor`. */
static void put_levels(const float *x, float factor, uint8_t *b)
{
    uint8_t q[32];
    for (int i = 0; i < 32; i++) {
        int code = 0;
        for (int k = 0; k < 15; k++)
            code += factor * x[i] >= halfway[k];
        q[i] = (uint8_t)code;
    }
    pack_32(q, NULL, b);
}

void tx_block_write_iq4_nl(const float *x, const float *v, int64_t count, uint8_t *to)
{
    for (int64_t i = 0, groups; i < count; i += 32 * groups) {
        tx_lanes scale;
        groups = tx_min((count - i) / 32, TX_LANES);
        scale_groups(x + i, v ? v + i : NULL, (int)groups, false, scale);
        for (int64_t j = 0; j < groups; j++, to += 18) {
            put_half(scale[j], to);
            put_levels(x + i + 32 * j, scale[j] != 0.0f ? 1.0f / scale[j] : 0.0f, to + 2);
        }
    }
}

void tx_block_write_iq4_xs(const float *x, const float *v, int64_t count, uint8_t *to)
{
    for (int64_t at = 0; at < count; at += 256, to += 136) {
        tx_lanes scale;
        float largest = 0.0f;
        unsigned upper = 0;
        scale_groups(x + at, v ? v + at : NULL, 8, true, scale);
        for (int j = 0; j < 8; j++)
            largest = fabsf(scale[j]) > fabsf(largest) ? scale[j] : largest;
        const float d = -largest / 32.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
        put_half(d, to);
        memset(to + 4, 0, 4);
        for (int j = 0; j < 8; j++) {
            const float s = tx_block_nearest(inverse * scale[j], -32.0f, 31.0f), f = d * s;
            const unsigned code = (unsigned)(s + 32.0f);
            put_levels(x + at + 32 * j, f != 0.0f ? 1.0f / f : 0.0f, to + 8 + 16 * j);
            to[4 + j / 2] = (uint8_t)(to[4 + j / 2] | (code & 15) << j % 2 * 4);
            upper |= code >> 4 << 2 * j;
        }
        to[2] = (uint8_t)upper;
        to[3] = (uint8_t)(upper >> 8);
    }
}
