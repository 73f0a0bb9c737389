/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a file, to be read: a regular file is mapped, so that what is large takes no memory of its own, anything
 * else (a pipe) is read. A mapped file must not be shortened while it is in use. */
#ifndef TX_FILES_VIEW_H
#define TX_FILES_VIEW_H

#include "tx.h"

typedef struct tx_view {
    const char *data; /* at a multiple of 16 bytes; NULL when the file is empty */
    size_t size;
    bool mapped;
} tx_view;

tx_status tx_view_open(const char *path, tx_view *view);
/* Leaves {0}, of which it may be called as well. */
void tx_view_close(tx_view *view);

#endif
