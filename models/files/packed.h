/* SPDX-License-Identifier: Apache-2.0
 *
 * Data files that gzip or zstd compressed. models/data/prepare.c unpacks them. */
#ifndef TX_FILES_PACKED_H
#define TX_FILES_PACKED_H

#include "tx.h"

/* Bytes of the name before .gz or .zst; 0 if it has no such ending. */
size_t tx_packed_stem(const char *path);
/* Receives a piece of unpacked contents. */
typedef tx_status tx_unpacked(void *to, const char *text, size_t size);
/* Passes the unpacked contents on, piece by piece. TX_FORMAT if the file is damaged or cut off. */
tx_status tx_unpack(const char *path, tx_unpacked *add, void *to);

#endif
