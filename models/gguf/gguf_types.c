/* SPDX-License-Identifier: Apache-2.0
 * Conversion between fp32 and the types of tensors in GGUF files. */
#include "models/gguf/gguf_file.h"

#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GGUF data are little-endian and copied unchanged; this machine is big-endian"
#endif

static const struct {
    int32_t number;
    int64_t elements, bytes;
    tx_dtype stored;
    void (*read)(const uint8_t *block, float *restrict data); /* NULL for types without blocks */
    void (*write)(const float *row, const float *importance, int64_t count, uint8_t *bytes);
} types[TX_GGUF_DTYPES] = {
#define PLAIN(name, number, elements, bytes, lower) [TX_GGUF_##name] = {number, elements, bytes, TX_##name, NULL, NULL},
#define KEPT(name, number, elements, bytes, lower) \
    [TX_GGUF_##name] = {number, elements, bytes, TX_##name, tx_block_read_##lower, tx_block_write_##lower},
#define FILED(name, number, elements, bytes, lower) \
    [TX_GGUF_##name] = {number, elements, bytes, TX_DTYPE_COUNT, tx_block_read_##lower, tx_block_write_##lower},
    TX_BLOCK_PLAIN_MAP(PLAIN) TX_BLOCK_MAP(KEPT) TX_BLOCK_FILE_MAP(FILED)};

int64_t tx_gguf_block(tx_gguf_dtype dtype)
{
    return types[dtype].elements;
}

int64_t tx_gguf_block_bytes(tx_gguf_dtype dtype)
{
    return types[dtype].bytes;
}

int32_t tx_gguf_type_number(tx_gguf_dtype dtype)
{
    return types[dtype].number;
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
    return tx_gguf_elements(tensor) / types[tensor->dtype].elements * types[tensor->dtype].bytes;
}

tx_dtype tx_gguf_stored(tx_gguf_dtype dtype)
{
    return types[dtype].stored;
}

void tx_gguf_decode(tx_gguf_dtype dtype, const void *bytes, int64_t count, float *data)
{
    const uint8_t *from = bytes;
    if (dtype == TX_GGUF_F32)
        memcpy(data, bytes, (size_t)count * sizeof *data);
    else if (!types[dtype].read)
        tx_to_f32(types[dtype].stored, bytes, count, data);
    for (int64_t i = 0; i < count && types[dtype].read; i += types[dtype].elements, from += types[dtype].bytes)
        types[dtype].read(from, data + i);
}

void tx_gguf_encode(tx_gguf_dtype dtype, const float *data, const float *importance, int64_t count, void *bytes)
{
    if (types[dtype].write)
        types[dtype].write(data, importance, count, bytes);
    else if (dtype == TX_GGUF_F32)
        memmove(bytes, data, (size_t)count * sizeof *data);
    else
        tx_from_f32(types[dtype].stored, data, count, bytes);
}
