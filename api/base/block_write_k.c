/* SPDX-License-Identifier: Apache-2.0
 * Encodes rows in the types Q2_K to Q6_K, whose blocks of 256 values have scales of scales. Called by
 * models/gguf/gguf_types.c. */
#include "api/base/block_codes.h"

#define VALUES 256
#define MOST_GROUPS 16

/* A block before it is packed: codes, and integer scales and minima of each group. */
typedef struct block {
    uint8_t q[VALUES], s[MOST_GROUPS], t[MOST_GROUPS];
    uint16_t d, m; /* halves */
} block;

/* The search of a type. Groups have VALUES / groups values each. */
typedef struct search {
    tx_lanes value[MOST_GROUPS / TX_LANES][TX_LANE_VALUES], weight[MOST_GROUPS / TX_LANES][TX_LANE_VALUES];
    tx_lanes code[MOST_GROUPS / TX_LANES][TX_LANE_VALUES];
    float scale[MOST_GROUPS], minimum[MOST_GROUPS], sum[MOST_GROUPS]; /* sum: of the weights */
} search;

static void load(const float *x, const float *w, int groups, search *s)
{
    const int n = VALUES / groups;
    for (int j = 0; j < groups; j++) {
        s->sum[j] = 0.0f;
        for (int i = n * j; i < n * j + n; i++)
            s->sum[j] += w[i];
    }
    for (int j = 0; j < groups; j += TX_LANES) {
        tx_block_load(x + n * j, n, TX_LANES, s->value[j / TX_LANES]);
        tx_block_load(w + n * j, n, TX_LANES, s->weight[j / TX_LANES]);
    }
}

/* v sqrt(square + x^2) */
static void weigh(const float *x, const float *v, float square, float *w)
{
    for (int i = 0; i < VALUES; i++)
        w[i] = v[i] * sqrtf(square + x[i] * x[i]);
}

/* Stores the codes that the search found, for a group whose rounded scale is 0. The others are rounded again. */
static void store_codes(const search *s, int j, int n, uint8_t *q)
{
    for (int i = 0; i < n; i++)
        q[n * j + i] = (uint8_t)s->code[j / TX_LANES][i][j % TX_LANES];
}

/* ---- Q2_K, Q4_K, Q5_K: x = d s q - m t ------------------------------------------------------------------------ */

typedef struct affine_type {
    int groups;
    float scales;                   /* greatest integer scale */
    tx_block_range plain, weighted; /* without and with importance */
} affine_type;

TX_BLOCK_CONSTANT affine_type q2_k = {16, 15.0f, {3.0f, -0.5f, 0.1f, 15, true}, {3.0f, -0.9f, 0.05f, 36, false}};
TX_BLOCK_CONSTANT affine_type q4_k = {8, 63.0f, {15.0f, -1.0f, 0.1f, 20, false}, {15.0f, -0.9f, 0.05f, 36, false}};
TX_BLOCK_CONSTANT affine_type q5_k = {8, 63.0f, {31.0f, -0.5f, 0.1f, 15, false}, {31.0f, -0.9f, 0.05f, 36, false}};

static void weigh_affine(const affine_type *a, const float *x, const float *v, float *w)
{
    const int n = VALUES / a->groups;
    if (v) {
        weigh(x, v, (a->groups == 8 ? 2.0f : 1.0f) * tx_block_mean_square(x, VALUES), w);
        return;
    }
    for (int i = 0; i < VALUES; i += n) {
        const float root = a->groups == 8 ? sqrtf(tx_block_mean_square(x + i, n)) : 0.0f;
        for (int k = i; k < i + n; k++)
            w[k] = root + fabsf(x[k]);
    }
}

/* Rounds positive scales to integers. Returns the scale of them. */
static float round_scales(const affine_type *a, const float *scale, const float *sum, bool weighted, uint8_t *to)
{
    float most = 0.0f, code[MOST_GROUPS], d;
    for (int j = 0; j < a->groups; j++)
        most = scale[j] > most ? scale[j] : most;
    const float inverse = most > 0.0f ? a->scales / most : 0.0f;
    for (int j = 0; j < a->groups; j++)
        code[j] = tx_block_nearest(inverse * scale[j], 0.0f, a->scales);
    d = weighted ? tx_block_positive(a->groups, a->scales, scale, sum, code) : most / a->scales;
    for (int j = 0; j < a->groups; j++)
        to[j] = (uint8_t)code[j];
    return d;
}

static void encode_affine(const affine_type *a, const float *x, const float *v, block *b)
{
    const int n = VALUES / a->groups;
    search s;
    float w[VALUES];
    weigh_affine(a, x, v, w);
    load(x, w, a->groups, &s);
    for (int j = 0; j < a->groups; j += TX_LANES)
        tx_block_affine(v ? &a->weighted : &a->plain, n, (const tx_lanes *)s.value[j / TX_LANES],
                        (const tx_lanes *)s.weight[j / TX_LANES], s.code[j / TX_LANES], s.scale + j, s.minimum + j);
    b->d = tx_f32_to_f16(round_scales(a, s.scale, s.sum, v, b->s));
    b->m = tx_f32_to_f16(round_scales(a, s.minimum, s.sum, v, b->t));
    for (int j = 0; j < a->groups; j++) {
        const float d = tx_f16_to_f32(b->d) * (float)b->s[j], m = tx_f16_to_f32(b->m) * (float)b->t[j];
        if (d == 0.0f)
            store_codes(&s, j, n, b->q);
        else
            for (int i = n * j; i < n * j + n; i++)
                b->q[i] = (uint8_t)tx_block_nearest((x[i] + m) / d, 0.0f, a->plain.most);
    }
}

/* Packs codes of two bits: of each 128 values, a byte has four that are 32 apart. */
static void pack_2(const uint8_t *q, uint8_t *to)
{
    for (int i = 0; i < 64; i++) {
        const uint8_t *at = q + i / 32 * 128 + i % 32;
        to[i] = (uint8_t)((at[0] & 3) | (at[32] & 3) << 2 | (at[64] & 3) << 4 | (at[96] & 3) << 6);
    }
}

/* Packs codes of four bits: of each 64 values, a byte has two that are 32 apart. */
static void pack_4(const uint8_t *q, uint8_t *to)
{
    for (int i = 0; i < 128; i++) {
        const uint8_t *at = q + i / 32 * 64 + i % 32;
        to[i] = (uint8_t)((at[0] & 15) | (at[32] & 15) << 4);
    }
}

/* Packs bit `bit` of the codes: byte i has those of the values i, i + 32, i + 64, .. */
static void pack_upper(const uint8_t *q, int bit, uint8_t *to)
{
    for (int i = 0; i < 32; i++) {
        to[i] = 0;
        for (int k = 0; k < 8; k++)
            to[i] = (uint8_t)(to[i] | (q[32 * k + i] >> bit & 1) << k);
    }
}

/* Packs pairs of 6-bit scales; see tx_block_q4_k_scale. */
static void pack_scales(const block *b, uint8_t *to)
{
    for (int j = 0; j < 4; j++) {
        to[j] = (uint8_t)(b->s[j] | b->s[j + 4] >> 4 << 6);
        to[j + 4] = (uint8_t)(b->t[j] | b->t[j + 4] >> 4 << 6);
        to[j + 8] = (uint8_t)((b->s[j + 4] & 15) | (b->t[j + 4] & 15) << 4);
    }
}

static TX_BLOCK_CLONES void write_q2_k(const float *x, const float *v, int64_t count, uint8_t *to)
{
    for (int64_t i = 0; i < count; i += VALUES, to += 84) {
        const affine_type type = q2_k;
        block b;
        encode_affine(&type, x + i, v ? v + i : NULL, &b);
        for (int j = 0; j < 16; j++)
            to[j] = (uint8_t)(b.s[j] | b.t[j] << 4);
        pack_2(b.q, to + 16);
        memcpy(to + 80, &b.d, 2);
        memcpy(to + 82, &b.m, 2);
    }
}

static TX_BLOCK_CLONES void write_q4_k(const float *x, const float *v, int64_t count, uint8_t *to)
{
    for (int64_t i = 0; i < count; i += VALUES, to += 144) {
        const affine_type type = q4_k;
        block b;
        encode_affine(&type, x + i, v ? v + i : NULL, &b);
        memcpy(to, &b.d, 2);
        memcpy(to + 2, &b.m, 2);
        pack_scales(&b, to + 4);
        pack_4(b.q, to + 16);
    }
}

static TX_BLOCK_CLONES void write_q5_k(const float *x, const float *v, int64_t count, uint8_t *to)
{
    for (int64_t i = 0; i < count; i += VALUES, to += 176) {
        const affine_type type = q5_k;
        block b;
        encode_affine(&type, x + i, v ? v + i : NULL, &b);
        memcpy(to, &b.d, 2);
        memcpy(to + 2, &b.m, 2);
        pack_scales(&b, to + 4);
        pack_upper(b.q, 4, to + 16);
        pack_4(b.q, to + 48);
    }
}

/* ---- Q3_K, Q6_K: x = d (s - S) (q - N) ------------------------------------------------------------------------- */

/* Codes again, with the rounded scale `d` times s - offset. */
static void round_again(const search *s, const float *x, float d, const int *scale, float most, uint8_t *q)
{
    for (int j = 0; j < 16; j++) {
        const float f = d * (float)scale[j];
        if (f == 0.0f)
            store_codes(s, j, 16, q);
        else
            for (int i = 16 * j; i < 16 * j + 16; i++)
                q[i] = (uint8_t)(tx_block_nearest(x[i] / f, -most, most - 1.0f) + most);
    }
}

static float largest_scale(const search *s)
{
    float largest = 0.0f;
    for (int j = 0; j < 16; j++)
        largest = fabsf(s->scale[j]) > fabsf(largest) ? s->scale[j] : largest;
    return largest;
}

/* Rounds the scales of Q3_K to 0 .. 63, offset 32. Returns the scale of them. */
static float round_q3_k(const search *s, bool weighted, uint8_t *to)
{
    const float largest = largest_scale(s), f = largest != 0.0f ? -32.0f / largest : 0.0f;
    if (weighted) {
        tx_lanes scale[MOST_GROUPS], sum[MOST_GROUPS], code[MOST_GROUPS], d;
        tx_block_load(s->scale, 16, 1, scale);
        tx_block_load(s->sum, 16, 1, sum);
        tx_block_symmetric(16, 9, 32.0f, (const tx_lanes *)scale, (const tx_lanes *)sum, code, d);
        for (int j = 0; j < 16; j++)
            to[j] = (uint8_t)code[j][0];
        return d[0];
    }
    for (int j = 0; j < 16; j++)
        to[j] = f != 0.0f ? (uint8_t)(tx_block_nearest(f * s->scale[j], -32.0f, 31.0f) + 32.0f) : 0;
    return f != 0.0f ? 1.0f / f : 0.0f;
}

static void encode_q3_k(const float *x, const float *v, block *b)
{
    search s;
    float w[VALUES];
    int scale[16];
    if (v)
        weigh(x, v, 2.0f * tx_block_mean_square(x, VALUES), w);
    else
        for (int i = 0; i < VALUES; i++)
            w[i] = x[i] * x[i];
    load(x, w, 16, &s);
    for (int j = 0; j < 2; j++) {
        const tx_lanes *value = (const tx_lanes *)s.value[j], *weight = (const tx_lanes *)s.weight[j];
        tx_block_symmetric(16, v ? 9 : 0, 4.0f, value, weight, s.code[j], s.scale + 8 * j);
        if (!v)
            tx_block_refine(16, 4.0f, value, weight, s.code[j], s.scale + 8 * j);
    }
    b->d = tx_f32_to_f16(round_q3_k(&s, v, b->s));
    for (int j = 0; j < 16; j++)
        scale[j] = b->s[j] - 32;
    round_again(&s, x, tx_f16_to_f32(b->d), scale, 4.0f, b->q);
}

static TX_BLOCK_CLONES void write_q3_k(const float *x, const float *v, int64_t count, uint8_t *to)
{
    for (int64_t i = 0; i < count; i += VALUES, to += 110) {
        block b;
        encode_q3_k(x + i, v ? v + i : NULL, &b);
        pack_upper(b.q, 2, to);
        pack_2(b.q, to + 32);
        for (int j = 0; j < 8; j++)
            to[96 + j] = (uint8_t)((b.s[j] & 15) | (b.s[j + 8] & 15) << 4);
        for (int j = 0; j < 4; j++)
            to[104 + j] = (uint8_t)(b.s[j] >> 4 | b.s[j + 4] >> 4 << 2 | b.s[j + 8] >> 4 << 4 | b.s[j + 12] >> 4 << 6);
        memcpy(to + 108, &b.d, 2);
    }
}

static void encode_q6_k(const float *x, const float *v, block *b)
{
    search s;
    float w[VALUES];
    int scale[16];
    for (int i = 0; i < VALUES; i++)
        w[i] = v ? v[i] : x[i] * x[i];
    load(x, w, 16, &s);
    for (int j = 0; j < 2; j++)
        tx_block_symmetric(16, 9, 32.0f, (const tx_lanes *)s.value[j], (const tx_lanes *)s.weight[j], s.code[j],
                           s.scale + 8 * j);
    const float largest = largest_scale(&s), f = fabsf(largest) < TX_BLOCK_LEAST ? 0.0f : -128.0f / largest;
    b->d = tx_f32_to_f16(f != 0.0f ? 1.0f / f : 0.0f);
    for (int j = 0; j < 16; j++) {
        scale[j] = (int)tx_block_nearest(f * s.scale[j], -128.0f, 127.0f);
        b->s[j] = (uint8_t)(int8_t)scale[j];
    }
    round_again(&s, x, tx_f16_to_f32(b->d), scale, 32.0f, b->q);
    if (f == 0.0f)
        memset(b->q, 0, sizeof b->q);
}

static TX_BLOCK_CLONES void write_q6_k(const float *x, const float *v, int64_t count, uint8_t *to)
{
    for (int64_t i = 0; i < count; i += VALUES, to += 210) {
        block b;
        uint8_t upper[VALUES];
        encode_q6_k(x + i, v ? v + i : NULL, &b);
        for (int k = 0; k < 128; k++) { /* of each 128 values, a byte has two that are 64 apart */
            const uint8_t *at = b.q + k / 64 * 128 + k % 64;
            to[k] = (uint8_t)((at[0] & 15) | (at[64] & 15) << 4);
        }
        for (int k = 0; k < VALUES; k++)
            upper[k] = b.q[k] >> 4;
        pack_2(upper, to + 128);
        memcpy(to + 192, b.s, 16);
        memcpy(to + 208, &b.d, 2);
    }
}

#define K_WRITER(type)                                                                     \
    void tx_block_write_##type(const float *x, const float *v, int64_t count, uint8_t *to) \
    {                                                                                      \
        write_##type(x, v, count, to);                                                     \
    }
K_WRITER(q2_k)
K_WRITER(q3_k)
K_WRITER(q4_k)
K_WRITER(q5_k)
K_WRITER(q6_k)
