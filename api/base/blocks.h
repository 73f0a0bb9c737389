/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in blocks of small integers, as GGUF files hold them (ggml-org/ggml, docs/gguf.md and src/ggml-quants.c).
 * Rows are whole blocks. Halves are IEEE, all numbers little-endian; a sum is computed in fp32.
 *
 *   Q8_0   32 values: half d, 32 signed bytes q.                                   x = d q
 *   Q4_0   32 values: half d, 16 bytes with q of values i and i + 16.              x = d (q - 8)
 *   Q4_K   256 values: halves d and m, 8 pairs of 6-bit scales s and t in 12       x = d s q - m t
 *          bytes, 128 bytes: of each 64 values, byte i has q of i and i + 32.
 *   Q6_K   256 values: lower 4 bits of q in 128 bytes, upper 2 bits in 64, 16      x = d s (q - 32)
 *          signed scales s of 16 values each, half d.
 *
 * A parameter consists of rows of at most TX_BLOCK_PARTS parts. Files may give a part (a section of the parameter)
 * another type than the others have, so each part has its own. Their blocks have equally many values. The parameter's
 * type is the one of most bytes. Memory holds the parts at the places that they would have if all were of this type,
 * and then a table of the parts.
 */
#ifndef TX_BLOCKS_H
#define TX_BLOCKS_H

#include "api/base/arithmetic.h"
#include "api/base/half.h"
#include "tx_base.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#define TX_BLOCK_MAX 256 /* values of the largest block */
#define TX_BLOCK_PARTS 4
#define TX_BLOCK_TABLE 64 /* bytes of the table of parts */

/* Values and bytes of a block; 0 for types without blocks. */
static inline int64_t tx_block_values(tx_dtype dtype)
{
#define X(name, values, bytes) dtype == TX_##name ? (values):
    return TX_BLOCK_MAP(X) 0;
#undef X
}

static inline int64_t tx_block_bytes(tx_dtype dtype)
{
#define X(name, values, bytes) dtype == TX_##name ? (bytes):
    return TX_BLOCK_MAP(X) 0;
#undef X
}

/* Bytes of `count` values, which are whole blocks. */
static inline int64_t tx_block_run(tx_dtype dtype, int64_t count)
{
    return count / tx_block_values(dtype) * tx_block_bytes(dtype);
}

/* Values in `last` elements of a cache, which holds blocks of Q8_0 if it is U8. */
static inline int64_t tx_block_columns(tx_dtype dtype, int64_t last)
{
    return dtype == TX_U8 ? last / tx_block_bytes(TX_Q8_0) * tx_block_values(TX_Q8_0) : last;
}

/* ---- Memory -------------------------------------------------------------------------------------------- */

typedef struct tx_block_part {
    int32_t end, dtype; /* its last row + 1; end is 0 for parts that were not written */
} tx_block_part;

/* Byte offset of the table of parts, and bytes of a parameter of `count` values. */
static inline int64_t tx_block_parts_at(tx_dtype dtype, int64_t count)
{
    return tx_round_up(tx_block_run(dtype, count), TX_BLOCK_TABLE);
}
static inline int64_t tx_block_total(tx_dtype dtype, int64_t count)
{
    return tx_block_parts_at(dtype, count) + TX_BLOCK_TABLE;
}

/* A parameter in memory. */
typedef struct tx_block_matrix {
    const uint8_t *data;
    const tx_block_part *part;
    tx_dtype dtype;
    int64_t width; /* values of a row */
} tx_block_matrix;

static inline tx_block_matrix tx_block_matrix_of(const void *data, tx_dtype dtype, int64_t rows, int64_t width)
{
    const uint8_t *at = data;
    return (tx_block_matrix){.data = at,
                             .part = (const tx_block_part *)(const void *)(at + tx_block_parts_at(dtype, rows * width)),
                             .dtype = dtype,
                             .width = width};
}

/* Finds a row. Returns its bytes, their type, and in *end (may be NULL) the first later row that may be of another
 * type. Rows before that are contiguous. */
static inline const uint8_t *tx_block_row(const tx_block_matrix *b, int64_t row, tx_dtype *dtype, int64_t *end)
{
    int64_t first = 0;
    for (int i = 0; i < TX_BLOCK_PARTS && b->part[i].end > 0; i++) {
        if (row < b->part[i].end) {
            *dtype = (tx_dtype)b->part[i].dtype;
            if (end)
                *end = b->part[i].end;
            return b->data + first * tx_block_run(b->dtype, b->width) + (row - first) * tx_block_run(*dtype, b->width);
        }
        first = b->part[i].end;
    }
    *dtype = b->dtype;
    if (end)
        *end = INT64_MAX;
    return b->data + row * tx_block_run(b->dtype, b->width);
}

/* ---- Values ---------------------------------------------------------------------------------------------- */

static inline float tx_block_half(const uint8_t *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return tx_f16_to_f32(half);
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

/* Rounds to nearest multiples of 1/127 of the greatest magnitude. A value that is not finite makes the scale NaN. */
static inline void tx_block_write_q8_0(const float *from, uint8_t *b)
{
    float most = 0.0f, check = 0.0f;
    for (int i = 0; i < 32; i++) {
        most = fabsf(from[i]) > most ? fabsf(from[i]) : most;
        check += from[i] * 0.0f;
    }
    const float d = most / 127.0f + check, inverse = d > FLT_MIN ? 1.0f / d : 0.0f;
    const uint16_t half = tx_f32_to_f16(d);
    memcpy(b, &half, sizeof half);
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

/* Reads `count` values, which are whole blocks, as fp32. */
static inline void tx_block_read(tx_dtype dtype, const uint8_t *from, int64_t count, float *restrict to)
{
    const int64_t values = tx_block_values(dtype), bytes = tx_block_bytes(dtype);
    for (int64_t i = 0; i < count; i += values, from += bytes)
        if (dtype == TX_Q8_0)
            tx_block_read_q8_0(from, to + i);
        else if (dtype == TX_Q4_0)
            tx_block_read_q4_0(from, to + i);
        else if (dtype == TX_Q4_K)
            tx_block_read_q4_k(from, to + i);
        else
            tx_block_read_q6_k(from, to + i);
}

/* Returns true if the scales of all blocks are finite. Then so are the values. */
static inline bool tx_block_finite(tx_dtype dtype, const uint8_t *from, int64_t count)
{
    const int64_t blocks = count / tx_block_values(dtype), bytes = tx_block_bytes(dtype);
    const int64_t first = dtype == TX_Q6_K ? 208 : 0, second = dtype == TX_Q4_K ? 2 : first;
    bool finite = true;
    for (int64_t i = 0; i < blocks; i++) { /* an exponent of ones is infinity or NaN */
        const uint8_t *b = from + i * bytes;
        finite = finite && (b[first + 1] & 0x7c) != 0x7c && (b[second + 1] & 0x7c) != 0x7c;
    }
    return finite;
}

#endif
