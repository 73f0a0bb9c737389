/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that the ranks of a group map into each other: one segment a rank, made and first touched by it. It has no
 * name at any time, so nothing is left when the ranks are killed. */
#ifndef TX_COMM_WINDOW_H
#define TX_COMM_WINDOW_H

#include "comm/layout.h"
#include "comm/transport.h"

typedef struct tx_window tx_window;
struct tx_window {
    tx_window *next;
    int64_t bytes; /* of a segment, whole pages */
    int32_t place, members;
    char *segment[]; /* by place */
};

/* Of all ranks, and it fails on all or none, naming the rank and host that could not give its part: MEMORY where the
 * host or a control group has not enough left, else IO. */
tx_status tx_window_create(tx_transport *transport, const tx_layout *layout, const tx_comm_rank *ranks, int64_t bytes,
                           tx_window **window);
void tx_window_free(tx_window *window);

/* The window that `bytes` bytes at `data` lie in, NULL when none. */
const tx_window *tx_window_find(const tx_window *list, const void *data, int64_t bytes);

#endif
