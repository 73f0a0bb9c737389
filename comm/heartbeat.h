/* SPDX-License-Identifier: Apache-2.0
 *
 * The heartbeat of the ranks. Several times a second each rank sends its status to rank 0, and rank 0 sends its own
 * to all others. Heartbeats use datagrams (UDP) rather than MPI, so that they continue while a rank computes, writes
 * a file or waits in a library. A lost datagram is replaced by the next one; a datagram without the job's token is
 * ignored. */
#ifndef TX_COMM_HEARTBEAT_H
#define TX_COMM_HEARTBEAT_H

#include "comm/comm.h"

/* Collective, with nothing outstanding. Creates the heartbeat of the communicator: rank 0 broadcasts its addresses,
 * and all ranks wait up to two seconds for the first datagrams. A rank without a datagram by then is not an error. */
tx_status tx_heartbeat_open(tx_comm *comm);
void tx_heartbeat_close(tx_heartbeat *heartbeat);

/* Implementations of `send_status` and `read_status` of a communicator, also of one without a heartbeat. `send_status`
 * also receives the datagrams of other ranks. */
void tx_heartbeat_send(tx_comm *comm, int64_t step, const char *doing);
bool tx_heartbeat_read(tx_comm *comm, int32_t rank, tx_comm_peer *peer);

#endif
