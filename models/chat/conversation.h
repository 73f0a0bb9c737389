/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading objects of instruction data. */
#ifndef TX_CHAT_CONVERSATION_H
#define TX_CHAT_CONVERSATION_H

#include "models/tx_chat.h"

/* The form of an object by its keys, or TX_CHAT_FORMS if it has none. */
tx_chat_form tx_chat_form_of(const tx_json *object);
/* Refuses an object with preferences, from which TX cannot train. */
tx_status tx_chat_foreign(const tx_json *object);
/* Replaces the conversation by the prompt of an object with preferences, followed by its key `side`, chosen or
 * rejected. Pass NULL as `side` for only the prompt. The prompt and both sides are texts, or lists of messages.
 * TX_FORMAT if the object is malformed; the message names the key. */
tx_status tx_conversation_read_side(const tx_json *object, const char *side, tx_conversation *conversation);
/* Message `index`. */
tx_json *tx_conversation_message(const tx_conversation *conversation, size_t index);
/* Adds a key that nothing reads to the list of ignored keys, once, while there is room. */
void tx_conversation_ignore(tx_conversation *conversation, const char *key);

#endif
