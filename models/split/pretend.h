/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of ranks that are not there, for plans alone (tx_model_only_plan): all ranks are taken to be alike.
 * Every transfer but the comparing of records fails. */
#ifndef TX_MODELS_PRETEND_H
#define TX_MODELS_PRETEND_H

#include "tx.h"

/* Rank 0 of `size`, `host` of which share a host. The caller closes it. */
tx_status tx_fake_comm_open(int32_t size, int32_t host, tx_comm **comm);
void tx_fake_comm_close(tx_comm *comm); /* NULL is fine */

#endif
