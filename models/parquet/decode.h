/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes the encodings of Parquet's pages (https://parquet.apache.org/docs/file-format/data-pages/encodings). pages.c
 * calls it with the bytes of a page. A function returns NULL, or in a few words the fault of damaged bytes. */
#ifndef TX_PARQUET_DECODE_H
#define TX_PARQUET_DECODE_H

#include "models/files/varint.h"
#include "models/parquet/metadata.h"
#include "models/tokenizer/buffer.h"

#include <stdint.h>

typedef enum tx_pq_encoding {
    TX_PQ_PLAIN_ENCODING = 0,
    TX_PQ_PLAIN_DICTIONARY = 2,
    TX_PQ_RLE = 3,
    TX_PQ_BIT_PACKED = 4,
    TX_PQ_DELTA_BINARY_PACKED = 5,
    TX_PQ_DELTA_LENGTH_BYTES = 6,
    TX_PQ_DELTA_BYTES = 7,
    TX_PQ_RLE_DICTIONARY = 8,
    TX_PQ_BYTE_STREAM_SPLIT = 9
} tx_pq_encoding;

/* One value that is not null: `integer` of BOOLEAN, INT32, INT64 and INT96 (nanoseconds since 1970), `number` of FLOAT
 * and DOUBLE, `bytes` of the others. */
typedef union tx_pq_value {
    int64_t integer;
    double number;
    struct {
        const uint8_t *data; /* not owned */
        uint32_t size;
    } bytes;
} tx_pq_value;

typedef struct tx_pq_bytes {
    const uint8_t *at, *end;
} tx_pq_bytes;

/* The next `count` numbers of `bits` bits each, 0 to 32, in runs of equal numbers and runs of packed ones. */
const char *tx_pq_decode_runs(tx_pq_bytes *in, int bits, int64_t count, uint32_t *numbers);
/* The number of bits of numbers from 0 to `most`. */
int tx_pq_bits(uint32_t most);

/* Decodes `count` values of a leaf in an encoding other than the two of dictionaries. Values point into `in`, or into
 * `decoded`, which receives the bytes that are put together here. */
const char *tx_pq_decode(const tx_pq_node *leaf, tx_pq_encoding encoding, tx_pq_bytes in, int64_t count,
                         tx_pq_value *values, tx_buffer *decoded);

#endif
