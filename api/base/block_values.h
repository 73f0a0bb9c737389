/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoders of the blocks that memory holds, and the rounding to Q8_0: a part of blocks.h. Valid C and OpenCL C. */
#ifndef TX_BLOCK_VALUES_H
#define TX_BLOCK_VALUES_H

/* Tables: constants, and pointers to them. */
#ifdef __OPENCL_VERSION__
#define TX_BLOCK_CONSTANT __constant
#define TX_BLOCK_CONSTANTS __constant
#else
#define TX_BLOCK_CONSTANT static const
#define TX_BLOCK_CONSTANTS const
#endif

static inline float tx_block_half(const uint8_t *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return tx_f16_to_f32(bits);
}

/* The scale and the minimum of sub-block j of a Q4_K block: 6 bits each, of which those of the last four sub-blocks
 * are divided between bytes. */
static inline void tx_block_q4_k_scale(const uint8_t s[12], int j, int *scale, int *minimum)
{
    *scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    *minimum = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
}

static inline void tx_block_read_q8_0(const uint8_t *b, float *restrict to)
{
    const float d = tx_block_half(b);
    for (int i = 0; i < 32; i++)
        to[i] = d * (float)(int8_t)b[2 + i];
}

/* Rounds a block to nearest multiples of 1/127 of the greatest magnitude. A value that is not finite makes the scale
 * NaN. */
static inline void tx_block_round_q8_0(const float *from, uint8_t *b)
{
    float most = 0.0f, check = 0.0f;
    for (int i = 0; i < 32; i++) {
        most = fabsf(from[i]) > most ? fabsf(from[i]) : most;
        check += from[i] * 0.0f;
    }
    const float d = most / 127.0f + check, inverse = d > FLT_MIN ? 1.0f / d : 0.0f;
    const uint16_t bits = tx_f32_to_f16(d);
    memcpy(b, &bits, sizeof bits);
    for (int i = 0; i < 32; i++)
        b[2 + i] = inverse > 0.0f ? (uint8_t)(int8_t)roundf(from[i] * inverse) : 0;
}

static inline void tx_block_read_q4_0(const uint8_t *b, float *restrict to)
{
    const float d = tx_block_half(b);
    for (int i = 0; i < 16; i++) {
        to[i] = d * (float)((b[2 + i] & 15) - 8);
        to[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

static inline void tx_block_read_q4_k(const uint8_t *b, float *restrict to)
{
    const float d = tx_block_half(b), m = tx_block_half(b + 2);
    for (int c = 0; c < 4; c++, to += 64) {
        const uint8_t *q = b + 16 + 32 * c;
        int scale[2], minimum[2];
        tx_block_q4_k_scale(b + 4, 2 * c, &scale[0], &minimum[0]);
        tx_block_q4_k_scale(b + 4, 2 * c + 1, &scale[1], &minimum[1]);
        const float low = d * (float)scale[0], high = d * (float)scale[1];
        const float low_least = m * (float)minimum[0], high_least = m * (float)minimum[1];
        for (int i = 0; i < 32; i++) {
            to[i] = low * (float)(q[i] & 15) - low_least;
            to[i + 32] = high * (float)(q[i] >> 4) - high_least;
        }
    }
}

static inline void tx_block_read_q6_k(const uint8_t *b, float *restrict to)
{
    const float d = tx_block_half(b + 208);
    const int8_t *scale = (const int8_t *)b + 192;
    for (int part = 0; part < 4; part++) { /* 16 values in each quarter of 128 */
        const uint8_t *low = b + part / 2 * 64 + part % 2 * 16, *high = b + 128 + part / 2 * 32 + part % 2 * 16;
        const int8_t *s = scale + part / 2 * 8 + part % 2;
        float *y = to + part / 2 * 128 + part % 2 * 16;
        const float f[4] = {d * (float)s[0], d * (float)s[2], d * (float)s[4], d * (float)s[6]};
        for (int i = 0; i < 16; i++) {
            y[i] = f[0] * (float)(((low[i] & 15) | (high[i] & 3) << 4) - 32);
            y[i + 32] = f[1] * (float)(((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4) - 32);
            y[i + 64] = f[2] * (float)((low[i] >> 4 | (high[i] >> 4 & 3) << 4) - 32);
            y[i + 96] = f[3] * (float)((low[i + 32] >> 4 | high[i] >> 6 << 4) - 32);
        }
    }
}

#endif
