/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects of instruction data. */
#ifndef TX_CHAT_CONVERSATION_H
#define TX_CHAT_CONVERSATION_H

#include "models/tx_chat.h"

/* Which form an object has by its keys; TX_CHAT_FORMS: none. */
tx_chat_form tx_chat_form_of(const tx_json *object);
/* Refuses an object in a form that TX does not train from: preferences. */
tx_status tx_chat_foreign(const tx_json *object);
/* Message `index`. */
tx_json *tx_conversation_message(const tx_conversation *conversation, size_t index);
/* Notes a key that nothing reads, once, as long as there is room. */
void tx_conversation_ignore(tx_conversation *conversation, const char *key);

#endif
