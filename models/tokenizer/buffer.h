/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing byte buffer. Begin with {0}, end with free(buffer.data). The first failure persists: nothing more is added.
 * Check the status after the last addition. */
#ifndef TX_TOKENIZER_BUFFER_H
#define TX_TOKENIZER_BUFFER_H

#include "tx.h"

#include <string.h>

typedef struct tx_buffer {
    char *data;
    size_t size, room;
    size_t limit; /* maximum bytes, 0 means no limit */
    tx_status status;
} tx_buffer;

/* The limit for results of a text of `size` bytes: an untrusted tokenizer could expand each byte a thousandfold. */
static inline size_t tx_buffer_limit(size_t size)
{
    return ((size_t)1 << 20) + (size < SIZE_MAX / 128 ? 64 * size : SIZE_MAX / 2);
}

/* Makes room for `size` more bytes. */
static inline tx_status tx_buffer_reserve(tx_buffer *buffer, size_t size)
{
    if (size <= buffer->room - buffer->size && !buffer->status)
        return TX_OK;
    if (buffer->limit && (size > buffer->limit || buffer->size > buffer->limit - size))
        buffer->status = tx_fail(TX_UNSUPPORTED, "a text would become longer than %zu bytes", buffer->limit);
    if (!buffer->status && size > SIZE_MAX - buffer->size)
        buffer->status = tx_fail(TX_MEMORY, "no memory for a text of %zu more bytes", size);
    if (!buffer->status)
        buffer->status = tx_array_reserve(&buffer->data, &buffer->room, buffer->size + size, 1, "bytes of a text");
    return buffer->status;
}

static inline void tx_buffer_add(tx_buffer *buffer, const char *bytes, size_t size)
{
    if (size && !tx_buffer_reserve(buffer, size)) {
        memcpy(buffer->data + buffer->size, bytes, size);
        buffer->size += size;
    }
}

/* Empties the buffer and clears its status. */
static inline void tx_buffer_clear(tx_buffer *buffer)
{
    buffer->size = 0;
    buffer->status = TX_OK;
}

#endif
