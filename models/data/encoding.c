/* SPDX-License-Identifier: Apache-2.0
 * Conversion of text to UTF-8 by iconv. */
#include "models/data/encoding.h"

#include <errno.h>
#include <iconv.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a character that may be left over between two pieces, and of converted text at a time. */
enum { REST = 16, ROOM = 8192 };

struct tx_encoding {
    char name[64];
    iconv_t how;
    int64_t done; /* bytes converted */
    char rest[REST];
    size_t rest_size;
};

/* iconv knows most names of Python without their hyphens. */
static iconv_t open_by_name(const char *name)
{
    char plain[64] = "";
    const iconv_t how = iconv_open("UTF-8", name);
    if (how != (iconv_t)-1 || strlen(name) >= sizeof plain)
        return how;
    for (size_t used = 0; *name; name++)
        if (*name != '-' && *name != '_')
            plain[used++] = *name;
    return iconv_open("UTF-8", plain);
}

tx_status tx_encoding_open(const char *name, tx_encoding **encoding)
{
    tx_encoding *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "encoding: out of memory");
    snprintf(created->name, sizeof created->name, "%s", name);
    created->how = open_by_name(name);
    if (created->how == (iconv_t)-1) {
        free(created);
        return tx_fail(TX_INVALID, "--encoding %s: iconv has no such encoding; `iconv -l` lists them", name);
    }
    *encoding = created;
    return TX_OK;
}

void tx_encoding_close(tx_encoding *encoding)
{
    if (encoding)
        iconv_close(encoding->how);
    free(encoding);
}

/* Converts as much as possible, and moves `*text` and `*size` to the rest, which is less than a character. */
static tx_status convert(tx_encoding *e, char **text, size_t *size, tx_buffer *to)
{
    while (*size) {
        char room[ROOM], *out = room;
        size_t left = sizeof room;
        const size_t before = *size;
        const size_t result = iconv(e->how, text, size, &out, &left);
        const int error = errno;
        tx_buffer_add(to, room, sizeof room - left);
        e->done += (int64_t)(before - *size);
        TX_TRY(to->status);
        if (result == (size_t)-1 && error == EINVAL)
            return TX_OK;
        if (result == (size_t)-1 && error != E2BIG)
            return tx_fail(TX_FORMAT, "byte %" PRId64 " is invalid in %s: the file has another encoding", e->done + 1,
                           e->name);
    }
    return TX_OK;
}

tx_status tx_encoding_add(tx_encoding *encoding, const char *text, size_t size, tx_buffer *to)
{
    tx_encoding *e = encoding;
    /* Complete the character that is left over, byte by byte. */
    while (e->rest_size && size) {
        char *at = e->rest;
        if (e->rest_size == REST)
            return tx_fail(TX_FORMAT, "byte %" PRId64 " is invalid in %s", e->done + 1, e->name);
        e->rest[e->rest_size++] = *text++;
        size--;
        TX_TRY(convert(e, &at, &e->rest_size, to));
        memmove(e->rest, at, e->rest_size);
    }
    char *at = (char *)(uintptr_t)text; /* iconv does not write to it */
    TX_TRY(convert(e, &at, &size, to));
    if (size > REST)
        return tx_fail(TX_FORMAT, "byte %" PRId64 " is invalid in %s", e->done + 1, e->name);
    memcpy(e->rest, at, size);
    e->rest_size = size;
    return TX_OK;
}

tx_status tx_encoding_end(const tx_encoding *encoding)
{
    if (!encoding->rest_size)
        return TX_OK;
    return tx_fail(TX_FORMAT, "ends within a character of %s: the file is cut off or has another encoding",
                   encoding->name);
}
