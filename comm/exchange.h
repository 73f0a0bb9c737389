/* SPDX-License-Identifier: Apache-2.0
 *
 * One transfer between groups of ranks that share memory (layout.h). Within a group, the handler of a piece reads
 * and writes the segments of all ranks of its group. Between groups, the handlers of a piece exchange messages with
 * its owner:
 *
 * 1. Each handler sends the group's partial sum to the owner. In a broadcast, only the handler in root's group
 * sends, namely root's data.
 * 2. The owner adds the partial sums to that of its own group and writes the result to the segments of its group.
 * 3. The owner sends the result to the handlers, which write it to the segments of their groups.
 *
 * A reduce_scatter ends after step 2; an all_gather begins with step 3. A piece is processed in chunks. Three chunks
 * are in different stages at a time, so that communication overlaps with summation. */
#ifndef TX_COMM_EXCHANGE_H
#define TX_COMM_EXCHANGE_H

#include "comm/group.h"
#include "comm/layout.h"
#include "comm/transport.h"

typedef struct tx_exchange tx_exchange;

/* `group` is this rank's group in `layout`. The exchange keeps all three pointers. */
tx_status tx_exchange_create(const tx_comm_layout *layout, tx_transport *transport, tx_group *group,
                             tx_exchange **exchange);
void tx_exchange_free(tx_exchange *exchange);
/* Returns the maximum number of outstanding messages. */
int32_t tx_exchange_slots(const tx_exchange *exchange);
/* Returns the maximum bytes of a message. */
int64_t tx_exchange_message(const tx_exchange *exchange);

/* Executes a transfer of at least one element. segment[i] is the data of the rank at place i of the group. Adds to
 * traffic->sent and traffic->shared. */
tx_status tx_exchange_run(tx_exchange *exchange, const tx_transfer *transfer, char *const *segment,
                          tx_comm_traffic *traffic);
/* Executes a barrier over all ranks. */
tx_status tx_exchange_barrier(tx_exchange *exchange);

#endif
