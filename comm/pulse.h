/* SPDX-License-Identifier: Apache-2.0
 *
 * The pulse of the ranks: each tells rank 0 some times a second that its process lives and what it does, and rank 0
 * tells all others; by datagrams (UDP) and not by MPI, so that it goes on while a rank computes, writes a file or waits
 * in a library. A datagram that is lost is followed by another one; one without the job's token is dropped. */
#ifndef TX_COMM_PULSE_H
#define TX_COMM_PULSE_H

#include "comm/comm.h"

/* Gives the communicator its pulse: tells all ranks where rank 0 listens, and waits up to two seconds until the first
 * datagrams have come. All call it, when nothing is outstanding. A rank that is not heard by then is no failure. */
tx_status tx_pulse_open(tx_comm *comm);
void tx_pulse_close(tx_pulse *pulse);

/* `tell` and `hear` of a communicator, also of one without a pulse. Telling takes in what others told. */
void tx_pulse_tell(tx_comm *comm, int64_t step, const char *doing);
bool tx_pulse_hear(tx_comm *comm, int32_t rank, tx_comm_peer *peer);

#endif
