/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between two ranks. A message is sent in pieces. A thread that waits for anything makes progress on all
 * messages that it has begun. Two ranks that both begin a send and then wait for a receive therefore do not
 * deadlock. */
#ifndef TX_COMM_MESSAGE_H
#define TX_COMM_MESSAGE_H

#include "comm/group.h"
#include "comm/transport.h"

/* Slots of the transport for messages, one for each message. */
#define TX_MESSAGE_SLOTS TX_MESSAGES

typedef struct tx_messages tx_messages;

/* Creates messages in pieces of `piece` bytes, the same on all ranks. They use the slots of `transport` from
 * `first` on. Waits are published to `group`. Both pointers are kept. */
tx_status tx_messages_create(tx_transport *transport, tx_group *group, int32_t first, int64_t piece,
                             tx_messages **messages);
void tx_messages_free(tx_messages *messages);
/* Begins a valid message (tx_comm_check_message). */
tx_status tx_messages_begin(tx_messages *messages, const tx_message *message, int32_t *request);
tx_status tx_messages_wait(tx_messages *messages, int32_t request);

#endif
