/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations: their turns, the chat template that makes them the ids that a model is given, and the end of an
 * answer.
 *
 *     tx_lm_tokenizer(lm, &tokenizer);
 *     tx_encoder_create(tokenizer, &encoder);
 *     tx_chat_create(NULL, tokenizer, NULL, &chat);
 *     tx_conversation_add(&conversation, "user", text, strlen(text));
 *     tx_chat_prompt(chat, encoder, &conversation, &ids);
 *
 * tx_lm_generate then continues the ids, with the id of tx_chat_end among those that end a text. */
#ifndef TX_CHAT_H
#define TX_CHAT_H

#include "tx_json.h"
#include "tx_text.h"

TX_API_BEGIN

/* ---- Conversations -------------------------------------------------------------------------------------- */

/* The form of an object of instruction data. */
typedef enum tx_chat_form {
    TX_CHAT_MESSAGES,    /* "messages": [{"role", "content"}, ..] */
    TX_CHAT_SHAREGPT,    /* "conversations": [{"from": "human" or "gpt", "value"}, ..] */
    TX_CHAT_PAIR,        /* "prompt" and "completion", both such lists */
    TX_CHAT_PLAIN,       /* "prompt" and "completion", both texts */
    TX_CHAT_INSTRUCTION, /* "instruction", "output" and, if there is one, "input": Stanford Alpaca's */
    TX_CHAT_FORMS
} tx_chat_form;

#define TX_CHAT_IGNORED 200

/* A conversation as templates see it; begin with {0}. */
typedef struct tx_conversation {
    tx_json *said; /* an object: "messages" (objects with "role" and "content"), "tools" and "documents" (or null) */
    bool *learnt;  /* by message; training: its tokens have labels */
    size_t count, room;
    tx_chat_form form;
    char ignored[TX_CHAT_IGNORED]; /* unknown keys of all objects read, with ", " between; more are left out */
} tx_conversation;

/* Appends a message of `size` bytes; bytes that are no UTF-8 become U+FFFD. */
tx_status tx_conversation_add(tx_conversation *conversation, const char *role, const char *text, size_t size);
/* Appends message `index` of another conversation. */
tx_status tx_conversation_copy(tx_conversation *conversation, const tx_conversation *from, size_t index);
void tx_conversation_remove(tx_conversation *conversation, size_t first, size_t count);
/* The role of a message; it lives as long as the message. */
const char *tx_conversation_role(const tx_conversation *conversation, size_t index);
/* Replaces the conversation by that of an object. With `answered` it must have its completion or output. TX_FORMAT
 * tells the fault of the object. Unknown keys are noted as ignored. */
tx_status tx_conversation_read(const tx_json *object, bool answered, tx_conversation *conversation);
void tx_conversation_free(tx_conversation *conversation); /* leaves {0} */

/* ---- Templates ------------------------------------------------------------------------------------------ */

/* A chat template together with a tokenizer. Immutable once made. */
typedef struct tx_chat tx_chat;

/* `name` is one of the built-in templates, or a file of Jinja that ends with .jinja; pass NULL to use the template in
 * the folder of the tokenizer, TX_NOT_FOUND if it has none. Warns if the end of an answer is no token of its own.
 * `report` may be NULL. The tokenizer must outlive the template. The caller frees. */
tx_status tx_chat_create(const char *name, const tx_tokenizer *tokenizer, const tx_reporter *report, tx_chat **chat);
void tx_chat_free(tx_chat *chat); /* NULL is fine */

/* Replaces `ids` by those of a conversation that waits for an answer, as transformers' apply_chat_template has them,
 * except that special tokens and the end of an answer are plain text in a message. The encoder is one of the same
 * tokenizer. TX_FORMAT if the template raises an exception or does not render a part of the conversation. The caller
 * frees ids->id. */
tx_status tx_chat_prompt(const tx_chat *chat, tx_encoder *encoder, tx_conversation *conversation, tx_ids *ids);

/* The text that ends an answer, and its id, or -1 if it is no single token. The text lives as long as the template. */
const char *tx_chat_end(const tx_chat *chat, int32_t *id);
/* The number of bytes at the end of an answer so far that are, or may become, the text that ends it: a program that
 * shows a growing answer keeps them back. */
size_t tx_chat_held_back(const tx_chat *chat, const char *answer, size_t size);
/* Cuts the text that ends a whole answer, and the text that the template puts before it. Returns the new size. */
size_t tx_chat_trim(const tx_chat *chat, char *answer, size_t size);

TX_API_END

#endif
