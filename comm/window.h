/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that the ranks of a group map into each other's address space. Each rank creates and first touches one
 * segment. Segments never have a name in a file system, so nothing remains after the ranks are killed. */
#ifndef TX_COMM_WINDOW_H
#define TX_COMM_WINDOW_H

#include "comm/layout.h"
#include "comm/transport.h"

typedef struct tx_window tx_window;
struct tx_window {
    tx_window *next;
    int64_t bytes; /* size of a segment, whole pages */
    int32_t place, members;
    char *segment[]; /* by place */
};

/* Collective over all ranks. Fails on all ranks or on none. The message names the rank and host that could not
 * create its segment. Returns MEMORY if the host or its control group lacks memory, else IO. */
tx_status tx_window_create(tx_transport *transport, const tx_comm_layout *layout, const tx_comm_rank *ranks,
                           int64_t bytes, tx_window **window);
void tx_window_free(tx_window *window);

/* Returns the window that contains the `bytes` bytes at `data`; NULL if there is none. */
const tx_window *tx_window_find(const tx_window *list, const void *data, int64_t bytes);

#endif
