/* SPDX-License-Identifier: Apache-2.0
 * Reads, checks and repairs UTF-8. */
#include "models/tokenizer/utf8.h"

#include "api/base/needs.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

size_t tx_utf8_part(const char *text, size_t size, size_t *length)
{
    const unsigned char *at = (const unsigned char *)text;
    /* Bounds of the second byte; the others must be 80..BF. */
    unsigned low = 0x80, high = 0xBF, first = at[0];
    if (first < 0x80) {
        *length = 1;
    } else if (first >= 0xC2 && first <= 0xDF) {
        *length = 2;
    } else if (first >= 0xE0 && first <= 0xEF) {
        *length = 3;
        low = first == 0xE0 ? 0xA0 : low;
        high = first == 0xED ? 0x9F : high;
    } else if (first >= 0xF0 && first <= 0xF4) {
        *length = 4;
        low = first == 0xF0 ? 0x90 : low;
        high = first == 0xF4 ? 0x8F : high;
    } else {
        *length = 1;
        return 0;
    }
    size_t good = 1;
    while (good < *length && good < size && at[good] >= low && at[good] <= high) {
        good++;
        low = 0x80;
        high = 0xBF;
    }
    return good;
}

size_t tx_utf8_read(const char *text, size_t size, uint32_t *code)
{
    utf8proc_int32_t found;
    const utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &found);
    if (length > 0 && code)
        *code = (uint32_t)found;
    return length > 0 ? (size_t)length : 0;
}

size_t tx_utf8_read_last(const char *text, size_t size, uint32_t *code)
{
    for (size_t length = 1; length <= TX_UTF8_MAX && length <= size; length++)
        if (tx_utf8_read(text + size - length, length, code) == length)
            return length;
    return 0;
}

size_t tx_utf8_prefix(const char *text, size_t size)
{
    const uint64_t high_bits = UINT64_C(0x8080808080808080);
    size_t at = 0;
    while (at < size) {
        uint64_t eight;
        while (size - at >= sizeof eight) {
            memcpy(&eight, text + at, sizeof eight);
            if (eight & high_bits)
                break;
            at += sizeof eight;
        }
        if (at == size)
            break;
        size_t length = (unsigned char)text[at] < 0x80 ? 1 : tx_utf8_read(text + at, size - at, NULL);
        if (!length)
            break;
        at += length;
    }
    return at;
}

size_t tx_utf8_write(uint32_t code, char text[TX_UTF8_MAX])
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)text);
}

tx_status tx_utf8_replace(const char *text, size_t size, char **replaced, size_t *replaced_size)
{
    TX_NEEDS((text || !size) && replaced && replaced_size, TX_INVALID);
    static const char mark[] = "\xEF\xBF\xBD";
    const size_t mark_size = sizeof mark - 1;
    size_t bad = 0;
    for (size_t at = 0; (at += tx_utf8_prefix(text + at, size - at)) < size; at++)
        bad++;
    char *copy = size <= (SIZE_MAX - 1) / mark_size ? malloc(size + bad * (mark_size - 1) + 1) : NULL;
    if (!copy)
        return tx_fail(TX_MEMORY, "no memory for a text of %zu bytes", size);
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        size_t good = tx_utf8_prefix(text + at, size - at), announced;
        memcpy(copy + used, text + at, good);
        used += good;
        at += good;
        if (at < size) {
            size_t part = tx_utf8_part(text + at, size - at, &announced);
            at += part ? part : 1;
            memcpy(copy + used, mark, mark_size);
            used += mark_size;
        }
    }
    copy[used] = '\0';
    *replaced = copy;
    *replaced_size = used;
    return TX_OK;
}
