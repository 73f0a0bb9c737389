/* SPDX-License-Identifier: Apache-2.0
 *
 * The pulse of the ranks: each tells rank 0 some times a second that its process lives and what it does, and rank 0
 * tells all others; by datagrams (UDP) and not by MPI, so that it goes on while a rank computes, writes a file or waits
 * in a library. A datagram that is lost is followed by another one; one without the job's token is dropped. */
#ifndef TX_COMM_PULSE_H
#define TX_COMM_PULSE_H

#include "comm/comm.h"

typedef struct tx_pulse tx_pulse;

/* Tells all ranks where rank 0 listens, and waits up to two seconds until the first datagrams have come: all call it,
 * when nothing is outstanding. A rank that is not heard by then is no failure. */
tx_status tx_pulse_open(tx_comm *comm, tx_pulse **pulse);
void tx_pulse_close(tx_pulse *pulse);
/* Tells what this rank does, and takes in what others told. One thread at a time. */
void tx_pulse_tell(tx_pulse *pulse, const tx_comm_peer *own);
/* What is known of another rank; false where it was never heard: only rank 0 hears all of them, the others hear rank 0.
 * From the thread that tells. */
bool tx_pulse_hear(const tx_pulse *pulse, int32_t rank, tx_comm_peer *peer);

#endif
