/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of transfers that have begun. They are executed in order, by wait() or by a thread as soon as they
 * begin. If a transfer fails, all later ones fail with its message, because the ranks no longer agree on the next
 * transfer. */
#ifndef TX_COMM_QUEUE_H
#define TX_COMM_QUEUE_H

#include "comm/comm.h"

typedef tx_status (*tx_transfer_make)(tx_comm *comm, const tx_transfer *transfer);

/* Creates the queue of the communicator. With `make` NULL no data move and there is no thread. */
tx_status tx_queue_create(tx_comm *comm, tx_transfer_make make);
/* Waits until the thread has finished its current transfer. Later transfers are not executed. */
void tx_queue_free(tx_queue *queue);

/* Implementations of `begin`, `wait` and `background` of a communicator. */
tx_status tx_queue_begin(tx_comm *comm, const tx_transfer *transfer, int32_t *request);
tx_status tx_queue_wait(tx_comm *comm, int32_t request);
tx_status tx_queue_background(tx_comm *comm, bool on);
/* Returns INVALID if a transfer is outstanding. Otherwise this thread may do the work of the background thread
 * until the next begin. `call` is the function name for the message. */
tx_status tx_queue_check_empty(const tx_comm *comm, const char *call);

/* Returns the seconds that transfers took, and the seconds that tx_queue_wait blocked its caller. */
void tx_queue_times(tx_queue *queue, double *moving, double *waited);

#endif
