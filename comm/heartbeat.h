/* SPDX-License-Identifier: Apache-2.0
 *
 * The heartbeat of the ranks: each tells rank 0 some times a second that its process lives and what it does, and rank 0
 * tells all others; by datagrams (UDP) and not by MPI, so that it goes on while a rank computes, writes a file or waits
 * in a library. A datagram that is lost is followed by another one; one without the job's token is dropped. */
#ifndef TX_COMM_HEARTBEAT_H
#define TX_COMM_HEARTBEAT_H

#include "comm/comm.h"

/* Gives the communicator its heartbeat: tells all ranks where rank 0 listens, and waits up to two seconds until the
 * first datagrams have come. All call it, when nothing is outstanding. A rank that is not heard by then is no failure.
 */
tx_status tx_heartbeat_open(tx_comm *comm);
void tx_heartbeat_close(tx_heartbeat *heartbeat);

/* `tell` and `hear` of a communicator, also of one without a heartbeat. Telling takes in what others told. */
void tx_heartbeat_send(tx_comm *comm, int64_t step, const char *doing);
bool tx_heartbeat_read(tx_comm *comm, int32_t rank, tx_comm_peer *peer);

#endif
