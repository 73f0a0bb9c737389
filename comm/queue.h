/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers that have begun: made in their order by wait(), or by a thread as soon as they begin. A transfer that fails
 * makes all later ones fail with its message, for the ranks no longer agree on what comes next. */
#ifndef TX_COMM_QUEUE_H
#define TX_COMM_QUEUE_H

#include "comm/comm.h"

typedef tx_status (*tx_transfer_make)(tx_comm *comm, const tx_transfer *transfer);

/* Gives the communicator its queue. `make` NULL: nothing has to move, and there is no thread. */
tx_status tx_queue_create(tx_comm *comm, tx_transfer_make make);
/* Lets the thread end the transfer that it makes; those that it did not begin are not made. */
void tx_queue_free(tx_queue *queue);

/* `begin`, `wait` and `background` of a communicator. */
tx_status tx_queue_begin(tx_comm *comm, const tx_transfer *transfer, int32_t *request);
tx_status tx_queue_wait(tx_comm *comm, int32_t request);
tx_status tx_queue_background(tx_comm *comm, bool on);
/* INVALID unless nothing is outstanding; then this thread may do what the other one does, until the next begin. `call`
 * is the function's name in the message. */
tx_status tx_queue_idle(const tx_comm *comm, const char *call);

/* Seconds that transfers took, and that tx_queue_wait kept its caller. */
void tx_queue_times(tx_queue *queue, double *moving, double *waited);

#endif
