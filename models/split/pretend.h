/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of simulated ranks, only for plans (tx_model_only_plan). All ranks are assumed to be alike. Every
 * transfer fails, except the exchange of records that compares the ranks. */
#ifndef TX_MODELS_PRETEND_H
#define TX_MODELS_PRETEND_H

#include "tx.h"

/* Rank 0 of `size`, `host` of which share a host. The caller closes it. */
tx_status tx_fake_comm_open(int32_t size, int32_t host, tx_comm **comm);
void tx_fake_comm_close(tx_comm *comm); /* `comm` may be NULL */

#endif
