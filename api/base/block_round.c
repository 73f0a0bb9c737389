/* SPDX-License-Identifier: Apache-2.0
 * Encodes and decodes values: those that an exported file will hold. Called by the cpu kernel of FAKE_QUANTIZE. */
#include "api/base/block_codes.h"

/* ggml's numbers of types without blocks. */
enum {
#define X(name, number, values, bytes, lower) name = (number),
    TX_BLOCK_PLAIN_MAP(X)
#undef X
};
/* The greatest magnitude that halves hold, and so the scales of blocks. */
#define MOST 65504.0f

typedef struct kind {
    int64_t values, bytes;
    void (*read)(const uint8_t *b, float *restrict to);
    void (*write)(const float *x, const float *v, int64_t count, uint8_t *to);
} kind;

static kind kind_of(int32_t number)
{
    switch (number) {
#define X(name, number, values, bytes, lower) \
    case number:                              \
        return (kind){values, bytes, tx_block_read_##lower, tx_block_write_##lower};
        TX_BLOCK_MAP(X)
        TX_BLOCK_FILE_MAP(X)
#undef X
#define X(name, number, one, bytes, lower) \
    case number:                           \
        return (kind){.values = (one)};
        TX_BLOCK_PLAIN_MAP(X)
#undef X
    default:
        return (kind){0};
    }
}

int64_t tx_block_unit(int32_t number)
{
    return kind_of(number).values;
}

void tx_block_round(int32_t number, const float *x, int64_t count, float *y)
{
    uint8_t bytes[TX_BLOCK_MAX / 32 * 34]; /* of Q8_0, the largest */
    const kind k = kind_of(number);
    bool fits = true;
    for (int64_t i = 0; i < count; i++)
        fits &= fabsf(x[i]) <= (k.write || number == F16 ? MOST : INFINITY);
    if (k.write && fits)
        k.write(x, NULL, count, bytes);
    for (int64_t i = 0; i < count; i += fits ? k.values : 1)
        if (!fits)
            y[i] = NAN;
        else if (k.read)
            k.read(bytes + i / k.values * k.bytes, y + i);
        else
            y[i] = number == F16    ? tx_f16_to_f32(tx_f32_to_f16(x[i]))
                   : number == BF16 ? tx_bf16_to_f32(tx_f32_to_bf16(x[i]))
                                    : x[i];
}
