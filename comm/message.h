/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages from one rank to another that have begun. They go by pieces, and a thread that waits for anything moves all
 * on that it has begun: two ranks that have begun to send to each other and then wait to receive both get on. */
#ifndef TX_COMM_MESSAGE_H
#define TX_COMM_MESSAGE_H

#include "comm/group.h"
#include "comm/transport.h"

/* Slots of the transport that messages take, one each. */
#define TX_MESSAGE_SLOTS TX_MESSAGES

typedef struct tx_messages tx_messages;

/* Messages in pieces of `piece` bytes, the same on all ranks, in the slots of `transport` from number `first` on; ranks
 * are told by `group` for whom this one waits. Both are kept. */
tx_status tx_messages_create(tx_transport *transport, tx_group *group, int32_t first, int64_t piece,
                             tx_messages **messages);
void tx_messages_free(tx_messages *messages);
/* Begins one that is valid (tx_comm_check_message). */
tx_status tx_messages_begin(tx_messages *messages, const tx_message *message, int32_t *request);
tx_status tx_messages_wait(tx_messages *messages, int32_t request);

#endif
