/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in blocks of small integers, as GGUF files hold them (ggml-org/ggml, docs/gguf.md and src/ggml-quants.c).
 * Rows are whole blocks. Halves are IEEE, all numbers little-endian; a sum is computed in fp32. In blocks of 32, byte i
 * of 16 has the codes q of values i and i + 16. K and V are tables of 16 values; V are those of e2m1, doubled.
 *
 *   Q4_0, Q5_0   32 values: half d, Q5_0: the upper bits of q in 4 bytes, 16 bytes.        x = d (q - 8), d (q - 16)
 *   Q4_1, Q5_1   32 values: halves d and m, then as Q4_0 and Q5_0.                         x = d q + m
 *   Q8_0         32 values: half d, 32 signed bytes q.                                     x = d q
 *   IQ4_NL       32 values: half d, 16 bytes.                                              x = d K[q]
 *   MXFP4        32 values: exponent e in a byte, 16 bytes.                                x = 2^(e - 128) V[q]
 *   Q2_K         256 values: 16 bytes with scale s and t of 16 values, 64 bytes, halves    x = d s q - m t
 *                d and m. In 128 values, byte i has q of i, i + 32, i + 64 and i + 96.
 *   Q3_K         256 values: upper bits of q in 32 bytes, 64 bytes as Q2_K, 16 6-bit       x = d (s - 32) (q - 4)
 *                scales s in 12 bytes, half d.
 *   Q4_K, Q5_K   256 values: halves d and m, 8 pairs of 6-bit scales s and t in 12         x = d s q - m t
 *                bytes, Q5_K: upper bits of q in 32 bytes, 128 bytes: of each 64 values,
 *                byte i has q of i and i + 32.
 *   Q6_K         256 values: lower 4 bits of q in 128 bytes, upper 2 bits in 64, 16        x = d s (q - 32)
 *                signed scales s of 16 values each, half d.
 *   IQ4_XS       256 values: half d, upper bits of 8 scales s in 2 bytes, lower ones in    x = d (s - 32) K[q]
 *                4, 128 bytes.
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

/* X(NAME, number, values, bytes, name): types of blocks, with ggml's number, and the values and bytes of a block.
 * tx_block_read_<name> decodes a block. tx_block_write_<name> encodes a row. Memory holds the first ones, which are
 * also types of tx_dtype. The others occur only in files. */
#define TX_BLOCK_MAP(X)         \
    X(Q4_0, 2, 32, 18, q4_0)    \
    X(Q8_0, 8, 32, 34, q8_0)    \
    X(Q4_K, 12, 256, 144, q4_k) \
    X(Q6_K, 14, 256, 210, q6_k)
#define TX_BLOCK_FILE_MAP(X)        \
    X(Q4_1, 3, 32, 20, q4_1)        \
    X(Q5_0, 6, 32, 22, q5_0)        \
    X(Q5_1, 7, 32, 24, q5_1)        \
    X(Q2_K, 10, 256, 84, q2_k)      \
    X(Q3_K, 11, 256, 110, q3_k)     \
    X(Q5_K, 13, 256, 176, q5_k)     \
    X(IQ4_NL, 20, 32, 18, iq4_nl)   \
    X(IQ4_XS, 23, 256, 136, iq4_xs) \
    X(MXFP4, 39, 32, 17, mxfp4)

/* The same for types of single values. */
#define TX_BLOCK_PLAIN_MAP(X) X(F32, 0, 1, 4, f32) X(F16, 1, 1, 2, f16) X(BF16, 30, 1, 2, bf16)

#define TX_BLOCK_MAX 256 /* values of the largest block */
#define TX_BLOCK_PARTS 4
#define TX_BLOCK_TABLE 64 /* bytes of the table of parts */

/* Values and bytes of a block; 0 for types without blocks. */
static inline int64_t tx_block_values(tx_dtype dtype)
{
#define X(name, number, values, bytes, lower) dtype == TX_##name ? (values):
    return TX_BLOCK_MAP(X) 0;
#undef X
}

static inline int64_t tx_block_bytes(tx_dtype dtype)
{
#define X(name, number, values, bytes, lower) dtype == TX_##name ? (bytes):
    return TX_BLOCK_MAP(X) 0;
#undef X
}

/* Values of a block of a packed type (tx_dtype_packed): rows are whole blocks. */
int64_t tx_packed_unit(tx_dtype dtype);

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

#include "api/base/block_values.h"

#define X(name, number, values, bytes, lower) void tx_block_read_##lower(const uint8_t *b, float *restrict to);
TX_BLOCK_FILE_MAP(X)
#undef X

/* Rounds a row of `count` values, which are whole blocks, to the bytes that ggml's reference computes without
 * contracted multiply-adds. `v` has the importance of each column, at least 0, or is NULL; Q8_0 and MXFP4 ignore it.
 * Values must be finite and magnitudes at most 65504. */
#define X(name, number, values, bytes, lower) \
    void tx_block_write_##lower(const float *x, const float *v, int64_t count, uint8_t *to);
TX_BLOCK_MAP(X)
TX_BLOCK_FILE_MAP(X)
#undef X

/* Values of a block of ggml's type `number`: 1 for F32, F16 and BF16, 0 for unknown types. */
int64_t tx_block_unit(int32_t number);
/* Computes the values that remain of x after it is written to blocks of this type. `count` is at most TX_BLOCK_MAX and
 * whole blocks. If a value is not finite or too large for the type, all become NaN. */
void tx_block_round(int32_t number, const float *x, int64_t count, float *y);

/* Reads `count` values, which are whole blocks, as fp32. */
static inline void tx_block_read(tx_dtype dtype, const uint8_t *from, int64_t count, float *restrict to)
{
#define X(name, number, values, bytes, lower)                                            \
    for (int64_t i = 0; i < count && dtype == TX_##name; i += (values), from += (bytes)) \
        tx_block_read_##lower(from, to + i);
    TX_BLOCK_MAP(X)
#undef X
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
