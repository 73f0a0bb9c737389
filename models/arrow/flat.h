/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of FlatBuffers (https://flatbuffers.dev/internals), in which Arrow stores its metadata. The bytes may be
 * anything: a position outside of them sets `bad`, and everything read after it is absent. */
#ifndef TX_ARROW_FLAT_H
#define TX_ARROW_FLAT_H

#include "tx.h"

typedef struct tx_flat {
    const uint8_t *data;
    size_t size;
    bool bad;
} tx_flat;

/* Positions of tables, and of the items of vectors. 0 means absent. */
typedef size_t tx_flat_at;

tx_flat_at tx_flat_root(tx_flat *flat);
/* Field number `field` of a table, an integer of `bytes` bytes, or `otherwise` if it is absent. */
int64_t tx_flat_int(tx_flat *flat, tx_flat_at table, int field, int bytes, int64_t otherwise);
tx_flat_at tx_flat_table(tx_flat *flat, tx_flat_at table, int field);
/* The items of a vector, `bytes` bytes each. */
tx_flat_at tx_flat_vector(tx_flat *flat, tx_flat_at table, int field, size_t bytes, size_t *count);
/* Item `index` of a vector of tables. */
tx_flat_at tx_flat_item(tx_flat *flat, tx_flat_at items, size_t index);

#endif
