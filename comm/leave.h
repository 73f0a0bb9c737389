/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TX_COMM_LEAVE_H
#define TX_COMM_LEAVE_H

/* The `leave` of a communicator whose ranks MPICH's launcher may have started. Flushes nothing and takes no lock. */
void tx_leave(void);

#endif
