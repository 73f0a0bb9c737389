/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes values as JSON text. rows.c calls it for every value of a Parquet file. */
#ifndef TX_PARQUET_TEXT_H
#define TX_PARQUET_TEXT_H

#include "models/parquet/decode.h"

/* Appends a string with its quotes. Returns false, having written part of it, if the bytes are no UTF-8 text. */
bool tx_pq_write_string(tx_buffer *to, const char *text, size_t size);
/* Whether a string may be the key of a member. Parsers of JSON refuse NUL in keys. */
bool tx_pq_is_key(const tx_pq_value *value);
/* Appends a value of a leaf by its type and meaning. Returns NULL, or in a few words what cannot be written. */
const char *tx_pq_write_value(tx_buffer *to, const tx_pq_node *leaf, const tx_pq_value *value);

#endif
