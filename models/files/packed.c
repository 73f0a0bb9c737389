/* SPDX-License-Identifier: Apache-2.0
 * Decompression of whole files by zlib and zstd. */
#include "models/files/packed.h"

#include "models/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

/* Bytes that are read or unpacked at a time. */
#define PIECE ((size_t)1 << 17)

size_t tx_packed_stem(const char *path)
{
    static const char *const endings[] = {".gz", ".zst"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (tx_ends_with(path, endings[i]))
            return strlen(path) - strlen(endings[i]);
    return 0;
}

static tx_status unpack_gzip(const char *path, char *room, tx_unpacked *add, void *to)
{
    gzFile file = gzopen(path, "rb");
    if (!file)
        return tx_fail(TX_IO, "%s: cannot open: %s", path, strerror(errno));
    tx_status status = TX_OK;
    int size;
    while (!status && (size = gzread(file, room, (unsigned)PIECE)) > 0)
        status = add(to, room, (size_t)size);
    const bool plain = gzdirect(file);
    if (!status && size < 0)
        status = tx_fail(TX_FORMAT, "%s: damaged: %s", path, gzerror(file, &size));
    if (gzclose(file) == Z_BUF_ERROR && !status)
        status = tx_fail(TX_FORMAT, "%s: cut off", path);
    return status || !plain ? status : tx_fail(TX_FORMAT, "%s: not compressed by gzip", path);
}

/* `room` has two pieces. */
static tx_status unpack_zstd(const char *path, char *room, tx_unpacked *add, void *to)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return tx_fail(TX_IO, "%s: cannot open: %s", path, strerror(errno));
    ZSTD_DStream *stream = ZSTD_createDStream();
    tx_status status = stream ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory to unpack it", path);
    ZSTD_inBuffer in = {room + PIECE, 0, 0};
    size_t left = 1; /* 0 at the end of a frame */
    while (!status && (in.size = fread(room + PIECE, 1, PIECE, file)) > 0) {
        bool full = false;
        for (in.pos = 0; (in.pos < in.size || full) && !status;) {
            ZSTD_outBuffer out = {room, PIECE, 0};
            left = ZSTD_decompressStream(stream, &out, &in);
            full = left && out.pos == out.size;
            status = ZSTD_isError(left) ? tx_fail(TX_FORMAT, "%s: damaged: %s", path, ZSTD_getErrorName(left))
                                        : add(to, room, out.pos);
        }
    }
    if (!status && ferror(file))
        status = tx_fail(TX_IO, "%s: cannot read: %s", path, strerror(errno));
    if (!status && left)
        status = tx_fail(TX_FORMAT, "%s: cut off", path);
    ZSTD_freeDStream(stream);
    fclose(file);
    return status;
}

tx_status tx_unpack(const char *path, tx_unpacked *add, void *to)
{
    char *room = malloc(2 * PIECE);
    if (!room)
        return tx_fail(TX_MEMORY, "%s: no memory to unpack it", path);
    const tx_status status =
        tx_ends_with(path, ".gz") ? unpack_gzip(path, room, add, to) : unpack_zstd(path, room, add, to);
    free(room);
    return status;
}
