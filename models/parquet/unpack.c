/* SPDX-License-Identifier: Apache-2.0
 * Decompression by the libraries of the codecs. pages.c and models/arrow/batch.c call it. */
#include "models/parquet/unpack.h"

#include <limits.h>
#include <lz4.h>
#include <lz4frame.h>
#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

const char *tx_pq_unread(int64_t codec)
{
    if (codec < 0 || codec > TX_PQ_LZ4_FRAME)
        return "an unknown codec";
    return codec == TX_PQ_LZO ? "LZO" : codec == TX_PQ_BROTLI ? "Brotli" : codec == TX_PQ_LZ4_HADOOP ? "LZ4" : NULL;
}

static bool inflate_gzip(const uint8_t *from, size_t size, uint8_t *to, size_t room)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)from, .avail_in = (uInt)size, .next_out = to, .avail_out = (uInt)room};
    if (inflateInit2(&z, 15 + 32) != Z_OK) /* gzip or zlib, by its header */
        return false;
    int result = inflate(&z, Z_FINISH);
    while (result == Z_STREAM_END && z.avail_in > 0 && z.avail_out > 0 && inflateReset(&z) == Z_OK)
        result = inflate(&z, Z_FINISH); /* several members */
    inflateEnd(&z);
    return result == Z_STREAM_END && z.avail_out == 0;
}

static bool decode_frame(const uint8_t *from, size_t size, uint8_t *to, size_t room)
{
    LZ4F_dctx *context = NULL;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)))
        return false;
    size_t used = 0, result = 0, more = 1;
    while (more && used < size) {
        size_t in = size - used, out = room - result;
        more = LZ4F_decompress(context, to + result, &out, from + used, &in, NULL);
        if (LZ4F_isError(more) || (!in && !out))
            break;
        used += in;
        result += out;
    }
    LZ4F_freeDecompressionContext(context);
    return more == 0 && result == room;
}

bool tx_pq_unpack(tx_pq_codec codec, const uint8_t *from, size_t size, uint8_t *to, size_t room)
{
    size_t result = room;
    switch (codec) {
    case TX_PQ_UNCOMPRESSED:
        if (size == room && size)
            memcpy(to, from, size);
        return size == room;
    case TX_PQ_SNAPPY:
        return snappy_uncompress((const char *)from, size, (char *)to, &result) == SNAPPY_OK && result == room;
    case TX_PQ_GZIP:
        return room == 0 || inflate_gzip(from, size, to, room);
    case TX_PQ_ZSTD:
        return ZSTD_decompress(to, room, from, size) == room;
    case TX_PQ_LZ4_RAW:
        return size <= INT_MAX && room <= INT_MAX &&
               LZ4_decompress_safe((const char *)from, (char *)to, (int)size, (int)room) == (int)room;
    case TX_PQ_LZ4_FRAME:
        return decode_frame(from, size, to, room);
    default:
        return false;
    }
}
