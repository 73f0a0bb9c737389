/* SPDX-License-Identifier: Apache-2.0
 * Decodes the types of blocks that occur only in files. Called by models/gguf/gguf_types.c. */
#include "api/base/block_codes.h"

/* ---- Blocks of 32 -------------------------------------------------------------------------------------------- */

/* Writes d times the signed codes q - middle, plus m. `upper` has bit 4 of each code. */
static void read_32(const uint8_t *b, uint32_t upper, float d, int middle, float m, float *restrict to)
{
    for (int i = 0; i < 16; i++) {
        const int low = (int)((b[i] & 15u) | (upper >> i & 1u) << 4),
                  high = (int)(b[i] >> 4 | (upper >> (i + 16) & 1u) << 4);
        to[i] = d * (float)(low - middle) + m;
        to[i + 16] = d * (float)(high - middle) + m;
    }
}

static uint32_t upper_bits(const uint8_t *b)
{
    uint32_t bits;
    memcpy(&bits, b, sizeof bits);
    return bits;
}

void tx_block_read_q4_1(const uint8_t *b, float *restrict to)
{
    read_32(b + 4, 0, tx_block_half(b), 0, tx_block_half(b + 2), to);
}

void tx_block_read_q5_0(const uint8_t *b, float *restrict to)
{
    read_32(b + 6, upper_bits(b + 2), tx_block_half(b), 16, -0.0f, to); /* keeps the sign of 0 */
}

void tx_block_read_q5_1(const uint8_t *b, float *restrict to)
{
    read_32(b + 8, upper_bits(b + 4), tx_block_half(b), 0, tx_block_half(b + 2), to);
}

/* Writes scale times the values of a table. */
static void read_table(const uint8_t *b, float scale, TX_BLOCK_CONSTANTS float table[16], float *restrict to)
{
    for (int i = 0; i < 16; i++) {
        to[i] = scale * table[b[i] & 15];
        to[i + 16] = scale * table[b[i] >> 4];
    }
}

void tx_block_read_iq4_nl(const uint8_t *b, float *restrict to)
{
    read_table(b + 2, tx_block_half(b), tx_block_levels, to);
}

/* e2m1, doubled. ggml has no negative zero. */
TX_BLOCK_CONSTANT float values_of_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void tx_block_read_mxfp4(const uint8_t *b, float *restrict to)
{
    read_table(b + 1, tx_block_power(b[0]), values_of_e2m1, to);
}

/* ---- Blocks of 256 ------------------------------------------------------------------------------------------- */

/* The 2-bit code of value i: of each 128 values, a byte has four that are 32 apart. */
static int two_bits(const uint8_t *q, int i)
{
    return q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

void tx_block_read_q2_k(const uint8_t *b, float *restrict to)
{
    const float d = tx_block_half(b + 80), m = tx_block_half(b + 82);
    for (int i = 0; i < 256; i++) {
        const uint8_t s = b[i / 16];
        to[i] = d * (float)(s & 15) * (float)two_bits(b + 16, i) - m * (float)(s >> 4);
    }
}

void tx_block_read_q3_k(const uint8_t *b, float *restrict to)
{
    const float d = tx_block_half(b + 108);
    const uint8_t *s = b + 96;
    for (int j = 0; j < 16; j++) {
        const int scale = (j < 8 ? s[j] & 15 : s[j - 8] >> 4) | (s[8 + j % 4] >> (j / 4 * 2) & 3) << 4;
        const float f = d * (float)(scale - 32);
        for (int i = 16 * j; i < 16 * j + 16; i++)
            to[i] = f * (float)((two_bits(b + 32, i) | (b[i % 32] >> i / 32 & 1) << 2) - 4);
    }
}

void tx_block_read_q5_k(const uint8_t *b, float *restrict to)
{
    const float d = tx_block_half(b), m = tx_block_half(b + 2);
    const uint8_t *upper = b + 16, *q = b + 48;
    for (int j = 0; j < 8; j++) {
        int scale, minimum;
        tx_block_q4_k_scale(b + 4, j, &scale, &minimum);
        const float f = d * (float)scale, least = m * (float)minimum;
        for (int i = 0; i < 32; i++) {
            const int low = q[j / 2 * 32 + i] >> j % 2 * 4 & 15;
            to[32 * j + i] = f * (float)(low | (upper[i] >> j & 1) << 4) - least;
        }
    }
}

void tx_block_read_iq4_xs(const uint8_t *b, float *restrict to)
{
    const float d = tx_block_half(b);
    for (int j = 0; j < 8; j++) {
        const int low = b[4 + j / 2] >> j % 2 * 4 & 15, high = b[2 + j / 4] >> j % 4 * 2 & 3;
        read_table(b + 8 + 16 * j, d * (float)((low | high << 4) - 32), tx_block_levels, to + 32 * j);
    }
}
