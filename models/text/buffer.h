/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that grow. Begin with {0}, end with free(buffer.data). */
#ifndef TX_TEXT_BUFFER_H
#define TX_TEXT_BUFFER_H

#include "tx.h"

#include <stdlib.h>
#include <string.h>

typedef struct tx_buffer {
    char *data;
    size_t size, room;
    size_t limit; /* more bytes are refused; 0: none are */
} tx_buffer;

/* What may become of a text of `size` bytes: a stranger's file can make a thousand characters of each, many times. */
static inline size_t tx_buffer_limit(size_t size)
{
    return ((size_t)1 << 20) + (size < SIZE_MAX / 128 ? 64 * size : SIZE_MAX / 2);
}

/* Makes room for `size` more bytes. */
static inline tx_status tx_buffer_reserve(tx_buffer *buffer, size_t size)
{
    if (size <= buffer->room - buffer->size)
        return TX_OK;
    if (buffer->limit && (size > buffer->limit || buffer->size > buffer->limit - size))
        return tx_fail(TX_UNSUPPORTED, "a text would become longer than %zu bytes", buffer->limit);
    const size_t room = 2 * buffer->room + size + 64;
    char *larger = room > size ? realloc(buffer->data, room) : NULL;
    if (!larger)
        return tx_fail(TX_MEMORY, "no memory for a text of %zu bytes", room);
    buffer->data = larger;
    buffer->room = room;
    return TX_OK;
}

static inline tx_status tx_buffer_add(tx_buffer *buffer, const char *bytes, size_t size)
{
    tx_status status = tx_buffer_reserve(buffer, size);
    if (!status && size) {
        memcpy(buffer->data + buffer->size, bytes, size);
        buffer->size += size;
    }
    return status;
}

#endif
