/* SPDX-License-Identifier: Apache-2.0
 *
 * Decompression of pages of Parquet files and buffers of Arrow files. */
#ifndef TX_PARQUET_UNPACK_H
#define TX_PARQUET_UNPACK_H

#include "tx.h"

/* Numbered as in Parquet, except the last, which is Arrow's. */
typedef enum tx_pq_codec {
    TX_PQ_UNCOMPRESSED,
    TX_PQ_SNAPPY,
    TX_PQ_GZIP,
    TX_PQ_LZO,
    TX_PQ_BROTLI,
    TX_PQ_LZ4_HADOOP,
    TX_PQ_ZSTD,
    TX_PQ_LZ4_RAW,
    TX_PQ_LZ4_FRAME
} tx_pq_codec;

/* The name of a codec that tx_pq_unpack does not read, or NULL. */
const char *tx_pq_unread(int64_t codec);
/* Decompresses to exactly `room` bytes. False if the bytes are damaged. */
bool tx_pq_unpack(tx_pq_codec codec, const uint8_t *from, size_t size, uint8_t *to, size_t room);

#endif
