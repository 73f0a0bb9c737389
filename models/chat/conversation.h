/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations, as files of instruction data have them. */
#ifndef TX_CHAT_CONVERSATION_H
#define TX_CHAT_CONVERSATION_H

#include "api/base/json.h"
#include "models/text/buffer.h"

typedef enum tx_chat_role { TX_CHAT_SYSTEM, TX_CHAT_USER, TX_CHAT_ASSISTANT } tx_chat_role;
extern const char *const tx_chat_roles[]; /* their names */

typedef struct tx_chat_message {
    tx_chat_role role;
    const char *text;
    size_t size;
    bool learnt;       /* of the assistant: its tokens have labels */
    const char *input; /* of an instruction of Alpaca's form; NULL: none */
    size_t input_size;
} tx_chat_message;

/* What an object of instruction data holds. */
typedef enum tx_chat_form {
    TX_CHAT_MESSAGES,    /* "messages": [{"role", "content"}, ..] */
    TX_CHAT_PAIR,        /* "prompt" and "completion", both such lists */
    TX_CHAT_PLAIN,       /* "prompt" and "completion", both texts */
    TX_CHAT_INSTRUCTION, /* "instruction", "output" and, if there is one, "input": Stanford Alpaca's */
    TX_CHAT_FORMS
} tx_chat_form;

/* Texts belong to whoever gave them. */
typedef struct tx_conversation {
    tx_chat_message *message;
    size_t count, room;
    tx_chat_form form;
    tx_buffer ignored; /* keys of all objects read that nothing reads, ", " after each; at most TX_CHAT_IGNORED bytes */
} tx_conversation;

#define TX_CHAT_IGNORED 200

/* Which form an object has by its keys; TX_CHAT_FORMS: none. */
tx_chat_form tx_chat_form_of(const tx_json *object);
/* Refuses an object that trains in a form that TX does not have: ShareGPT's, preferences. */
tx_status tx_chat_foreign(const tx_json *object);
/* Reads an object in the place of what the conversation held. With `answered` it must have its completion or output.
 * The texts live as long as the object; TX_FORMAT says what is wrong with it. So do keys that hold a part of the
 * conversation that no template here renders (tool calls, tools, images). Other keys are noted as ignored. */
tx_status tx_conversation_read(const tx_json *object, bool answered, tx_conversation *conversation);
/* Appends a turn. */
tx_status tx_conversation_add(tx_conversation *conversation, const tx_chat_message *message);
void tx_conversation_free(tx_conversation *conversation); /* leaves {0} */

#endif
