/* SPDX-License-Identifier: Apache-2.0
 * Conversion between fp32 and the types of tensors in GGUF files. */
#include "models/gguf/gguf_file.h"

#include "api/base/blocks.h"
#include "models/files/mxfp4.h"

#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GGUF data are little-endian and copied unchanged; this machine is big-endian"
#endif

#define Q8_BLOCK 32

static const struct {
    int64_t elements, bytes;
} blocks[TX_GGUF_DTYPES] = {
#define X(name, number, elements, bytes, file, text) [TX_GGUF_##name] = {elements, bytes},
    TX_GGUF_DTYPE_MAP(X)
#undef X
};

int64_t tx_gguf_block(tx_gguf_dtype dtype)
{
    return blocks[dtype].elements;
}

int64_t tx_gguf_block_bytes(tx_gguf_dtype dtype)
{
    return blocks[dtype].bytes;
}

int64_t tx_gguf_elements(const tx_gguf_tensor *tensor)
{
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->rank; i++)
        count *= tensor->dim[i];
    return count;
}

int64_t tx_gguf_bytes(const tx_gguf_tensor *tensor)
{
    return tx_gguf_elements(tensor) / blocks[tensor->dtype].elements * blocks[tensor->dtype].bytes;
}

#define TX_MXFP4 TX_DTYPE_COUNT
tx_dtype tx_gguf_stored(tx_gguf_dtype dtype)
{
    switch (dtype) {
#define X(name, number, elements, bytes, file, text) \
    case TX_GGUF_##name:                             \
        return TX_##name;
        TX_GGUF_DTYPE_MAP(X)
#undef X
    default:
        return TX_DTYPE_COUNT;
    }
}

void tx_gguf_decode(tx_gguf_dtype dtype, const void *bytes, int64_t count, float *data)
{
    const uint8_t *from = bytes;
    if (dtype != TX_GGUF_MXFP4) {
        tx_to_f32(tx_gguf_stored(dtype), bytes, count, data);
        return;
    }
    /* A block is its scale and 16 bytes, of which byte i holds the elements i and i + 16. ggml has no negative zero. */
    for (int64_t i = 0; i < count; i += TX_MXFP4_BLOCK, from += blocks[dtype].bytes)
        for (int64_t k = 0; k < TX_MXFP4_BLOCK / 2; k++) {
            data[i + k] = tx_mxfp4_value(from[1 + k] & 15u, *from) + 0.0f;
            data[i + k + TX_MXFP4_BLOCK / 2] = tx_mxfp4_value(from[1 + k] >> 4, *from) + 0.0f;
        }
}

void tx_gguf_encode(tx_gguf_dtype dtype, const float *data, int64_t count, void *bytes)
{
    uint8_t *to = bytes;
    if (dtype == TX_GGUF_F32)
        memcpy(bytes, data, (size_t)count * sizeof *data);
    else if (dtype == TX_GGUF_Q8_0)
        for (int64_t i = 0; i < count / Q8_BLOCK; i++)
            tx_block_write_q8_0(data + i * Q8_BLOCK, to + i * blocks[dtype].bytes);
    else
        tx_from_f32(tx_gguf_stored(dtype), data, count, bytes);
}
