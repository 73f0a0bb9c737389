/* SPDX-License-Identifier: Apache-2.0
 *
 * One transfer between ranks, in groups that share memory (layout.h). Within a group the handler of a piece reads and
 * writes the segments of all its ranks. Between groups the handlers of a piece talk to its owner:
 *
 *   1. they send it what the group adds to the sum (broadcast: what root has, from root's group alone),
 *   2. the owner adds these to its own group's and writes the result to its group's segments,
 *   3. it sends the result to the handlers, who write it to their groups' segments.
 *
 * A reduce_scatter ends with 2, an all_gather begins with 3. Pieces go by chunks, three of which are on the way in
 * different stages, so that a link carries one while another one is summed. */
#ifndef TX_COMM_EXCHANGE_H
#define TX_COMM_EXCHANGE_H

#include "comm/group.h"
#include "comm/layout.h"
#include "comm/transport.h"

typedef struct tx_exchange tx_exchange;

/* `group` has this rank's group of `layout`. All three are kept. */
tx_status tx_exchange_create(const tx_layout *layout, tx_transport *transport, tx_group *group, tx_exchange **exchange);
void tx_exchange_free(tx_exchange *exchange);
/* Messages on the way at most. */
int32_t tx_exchange_slots(const tx_exchange *exchange);
/* Bytes of a message at most. */
int64_t tx_exchange_message(const tx_exchange *exchange);

/* Makes a transfer of at least one element. segment[i]: the data of the group's rank with place i. Adds to
 * traffic->sent and ->shared. */
tx_status tx_exchange_run(tx_exchange *exchange, const tx_transfer *transfer, char *const *segment,
                          tx_comm_traffic *traffic);
/* A barrier of all ranks. */
tx_status tx_exchange_barrier(tx_exchange *exchange);

#endif
