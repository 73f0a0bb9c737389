/* SPDX-License-Identifier: Apache-2.0
 *
 * How a rank waits for others: it tries again at once some times, then gives its core away between tries, and when
 * nothing came for a while it sleeps between them, so that whoever computes on the same core keeps it. After a long
 * wait the next one comes to sleeping sooner. */
#ifndef TX_COMM_PATIENCE_H
#define TX_COMM_PATIENCE_H

#include "tx.h"

typedef struct tx_patience {
    bool long_before; /* what the last wait was */
    int32_t tries;
    double began, waited; /* when this wait passed its first tries, and the microseconds since */
} tx_patience;

/* Begins a wait. What the last one was like is kept. */
void tx_patience_begin(tx_patience *patience);
/* Lets some time pass; true when it slept. */
bool tx_patience_pause(tx_patience *patience);

#endif
