/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations: their turns, the chat template that makes them the ids that a model is given, and the end of an
 * answer.
 *
 *     tx_lm_tokenizer(lm, &tokenizer);
 *     tx_encoder_create(tokenizer, &encoder);
 *     tx_chat_create(NULL, tokenizer, NULL, &chat);
 *     tx_conversation_add(&conversation, &(tx_chat_message){.role = TX_CHAT_USER, .text = text, .size = strlen(text)});
 *     tx_chat_prompt(chat, encoder, &conversation, &ids);
 *
 * tx_lm_generate then continues the ids, with the id of tx_chat_end among those that end a text. */
#ifndef TX_CHAT_H
#define TX_CHAT_H

#include "tx_json.h"
#include "tx_text.h"

TX_API_BEGIN

/* ---- Conversations -------------------------------------------------------------------------------------- */

typedef enum tx_chat_role { TX_CHAT_SYSTEM, TX_CHAT_USER, TX_CHAT_ASSISTANT } tx_chat_role;
extern const char *const tx_chat_roles[]; /* their names */

typedef struct tx_chat_message {
    tx_chat_role role;
    const char *text;
    size_t size;
    bool learnt;       /* training: the tokens of this turn of the assistant have labels */
    const char *input; /* the input of an instruction in Alpaca's form, or NULL */
    size_t input_size;
} tx_chat_message;

/* The form of an object of instruction data. */
typedef enum tx_chat_form {
    TX_CHAT_MESSAGES,    /* "messages": [{"role", "content"}, ..] */
    TX_CHAT_PAIR,        /* "prompt" and "completion", both such lists */
    TX_CHAT_PLAIN,       /* "prompt" and "completion", both texts */
    TX_CHAT_INSTRUCTION, /* "instruction", "output" and, if there is one, "input": Stanford Alpaca's */
    TX_CHAT_FORMS
} tx_chat_form;

#define TX_CHAT_IGNORED 200

/* The turns in their order; begin with {0}. Texts belong to their giver. */
typedef struct tx_conversation {
    tx_chat_message *message;
    size_t count, room;
    tx_chat_form form;
    char ignored[TX_CHAT_IGNORED]; /* unknown keys of all objects read, with ", " between; more are left out */
} tx_conversation;

/* Appends a turn. */
tx_status tx_conversation_add(tx_conversation *conversation, const tx_chat_message *message);
/* Replaces the turns by those of an object, whose texts live as long as the object. With `answered` it must have its
 * completion or output. TX_FORMAT tells the fault of the object, which may also be a part of the conversation that no
 * template here renders (tool calls, tools, images). Other unknown keys are noted as ignored. */
tx_status tx_conversation_read(const tx_json *object, bool answered, tx_conversation *conversation);
void tx_conversation_free(tx_conversation *conversation); /* leaves {0} */

/* ---- Templates ------------------------------------------------------------------------------------------ */

/* A chat template together with a tokenizer. Immutable once made. */
typedef struct tx_chat tx_chat;

/* `name` is one of the built-in templates, or a file that ends with .json or .jinja; pass NULL to use the template in
 * the folder of the tokenizer, TX_NOT_FOUND if it has none. Warns if the end of an answer is no token of its own.
 * `report` may be NULL. The tokenizer must outlive the template. The caller frees. */
tx_status tx_chat_create(const char *name, const tx_tokenizer *tokenizer, const tx_reporter *report, tx_chat **chat);
void tx_chat_free(tx_chat *chat); /* NULL is fine */

/* Replaces `ids` by those of a conversation that waits for an answer, as transformers' apply_chat_template has them,
 * except that special tokens and those of the template are plain text in a message. The encoder is one of the same
 * tokenizer. TX_FORMAT if the template has no place for one of the turns. The caller frees ids->id. */
tx_status tx_chat_prompt(const tx_chat *chat, tx_encoder *encoder, const tx_conversation *conversation, tx_ids *ids);

/* The text that ends an answer, and its id, or -1 if it is no single token. The text lives as long as the template. */
const char *tx_chat_end(const tx_chat *chat, int32_t *id);
/* The number of bytes at the end of an answer so far that are, or may become, the text that ends it: a program that
 * shows a growing answer keeps them back. */
size_t tx_chat_held_back(const tx_chat *chat, const char *answer, size_t size);
/* Cuts the text that ends a whole answer, and the text that the template puts before it. Returns the new size. */
size_t tx_chat_trim(const tx_chat *chat, char *answer, size_t size);

TX_API_END

#endif
