/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations, and chat templates, which render them to the ids of a prompt. Used by txgen --chat and by training on
 * instruction data.
 *
 *     tx_lm_tokenizer(lm, &tokenizer);
 *     tx_encoder_create(tokenizer, &encoder);
 *     tx_chat_create(NULL, tokenizer, NULL, &chat);
 *     tx_conversation_add(&conversation, "user", text, strlen(text));
 *     tx_chat_prompt(chat, encoder, &conversation, &ids);
 *
 * tx_lm_generate then continues the ids. Add the id of tx_chat_end to its eos_token_id. */
#ifndef TX_CHAT_H
#define TX_CHAT_H

#include "tx_grammar.h"
#include "tx_json.h"
#include "tx_text.h"

TX_API_BEGIN

/* ---- Conversations -------------------------------------------------------------------------------------- */

/* The form of an object of instruction data. */
typedef enum tx_chat_form {
    TX_CHAT_MESSAGES,    /* "messages": [{"role", "content"}, ..] */
    TX_CHAT_SHAREGPT,    /* "conversations": [{"from": "human" or "gpt", "value"}, ..] */
    TX_CHAT_PAIR,        /* "prompt" and "completion", both lists of messages */
    TX_CHAT_PLAIN,       /* "prompt" and "completion", both texts */
    TX_CHAT_INSTRUCTION, /* "instruction", "output" and an optional "input", as in Stanford Alpaca */
    TX_CHAT_FORMS
} tx_chat_form;

#define TX_CHAT_IGNORED 200

/* The end of a prompt. */
typedef enum tx_chat_suffix {
    TX_CHAT_GENERATION_PROMPT, /* the generation prompt */
    TX_CHAT_NO_SUFFIX,         /* the end of the last message */
    TX_CHAT_CONTINUE_FINAL     /* the end of the last message's text, as transformers' continue_final_message */
} tx_chat_suffix;

/* A conversation as templates see it; begin with {0}. */
typedef struct tx_conversation {
    tx_json *said; /* an object: "messages" (objects with "role" and "content"), "tools" and "documents" (or null), and
                      other variables of the template */
    bool *learnt;  /* for each message: in training, its tokens have labels */
    size_t count, room;
    size_t prompt; /* the number of messages before the completion, in the form TX_CHAT_PAIR */
    tx_chat_form form;
    bool weighted; /* a message has the weight 0, as in OpenAI's files: only messages with `learnt` have labels */
    char ignored[TX_CHAT_IGNORED]; /* unknown keys of all objects read, separated by ", "; as many as fit */
    tx_chat_suffix suffix;
    size_t lost; /* set by rendering: number of the first message that the template leaves out, from 1; or 0 */
} tx_conversation;

/* Appends a message of `size` bytes; bytes that are not UTF-8 become U+FFFD. */
tx_status tx_conversation_add(tx_conversation *conversation, const char *role, const char *text, size_t size);
/* Appends message `index` of another conversation. */
tx_status tx_conversation_copy(tx_conversation *conversation, const tx_conversation *from, size_t index);
void tx_conversation_remove(tx_conversation *conversation, size_t first, size_t count);
/* The role of a message; it lives as long as the message. */
const char *tx_conversation_role(const tx_conversation *conversation, size_t index);
/* Sets the members of an object, chat_template_kwargs, as variables of the template. NULL is fine. TX_INVALID if they
 * are none of the user's. */
tx_status tx_conversation_set(tx_conversation *conversation, const tx_json *variables);
/* Replaces the conversation by the one in an object. With `answered` its completion or output is required. TX_FORMAT if
 * the object is malformed; the message names the fault. Unknown keys are added to `ignored`. */
tx_status tx_conversation_read(const tx_json *object, bool answered, tx_conversation *conversation);
void tx_conversation_free(tx_conversation *conversation); /* sets it to {0} */

/* ---- Templates ------------------------------------------------------------------------------------------ */

/* A chat template together with a tokenizer. Immutable once made. */
typedef struct tx_chat tx_chat;

/* `name` is a built-in template, a Jinja file whose name ends with .jinja, or the text of a template. NULL means the
 * template in the tokenizer's folder, or, for conversations with tools, the one that is called tool_use; TX_NOT_FOUND
 * if it has none. Warns if the end of an answer is not a single token. `report` may be NULL. The tokenizer must outlive
 * the template. The caller frees. */
tx_status tx_chat_create(const char *name, const tx_tokenizer *tokenizer, const tx_reporter *report, tx_chat **chat);
void tx_chat_free(tx_chat *chat); /* NULL is fine */
/* Returns true if the template reads a variable. */
bool tx_chat_reads(const tx_chat *chat, const char *variable);

/* Replaces `ids` by those of a conversation with its generation prompt. They equal those of transformers'
 * apply_chat_template, except that special tokens and the end of an answer are plain text in a message. If the template
 * does not render the conversation, parts are joined, and developer gets the role system. Arguments of tool calls may
 * be the text of an object, as OpenAI's clients send them. The encoder must have the same tokenizer. TX_FORMAT if the
 * template raises an exception or does not render a part of the conversation. The caller frees ids->id. */
tx_status tx_chat_prompt(const tx_chat *chat, tx_encoder *encoder, tx_conversation *conversation, tx_ids *ids);

/* The text that ends an answer, and its id, or -1 if it is not a single token. The text lives as long as the template.
 */
const char *tx_chat_end(const tx_chat *chat, int32_t *id);
/* The number of bytes at the end of an unfinished answer that are, or may become, the text that ends it. A program that
 * prints an answer while it grows must not print them yet. */
size_t tx_chat_held_back(const tx_chat *chat, const char *answer, size_t size);
/* Removes the text that ends a complete answer, and the text that the template adds before it. Returns the new size. */
size_t tx_chat_trim(const tx_chat *chat, char *answer, size_t size);

/* ---- Answers -------------------------------------------------------------------------------------------- */

/* The parts of an answer. */
typedef enum tx_chat_piece_kind {
    TX_CHAT_CONTENT,
    TX_CHAT_THOUGHT,
    TX_CHAT_CALL,     /* a tool call begins; the text is the name of the tool */
    TX_CHAT_ARGUMENTS /* of the last call: a JSON object, if they are well-formed */
} tx_chat_piece_kind;

typedef struct tx_chat_piece {
    tx_chat_piece_kind kind;
    const char *text; /* it lives during the call */
    size_t size;
    const char *id; /* the id that the model wrote for a call, or NULL */
    size_t id_size;
} tx_chat_piece;

typedef struct tx_chat_parsing {
    bool thoughts;         /* separate thoughts from the content */
    const tx_json *tools;  /* separate calls; NULL leaves them in the content. It must outlive the parser */
    const int32_t *prompt; /* the ids that the answer continues: a template can begin a thought */
    size_t count;
    void *context;
    /* Receives each piece. A failure ends parsing. */
    tx_status (*piece)(void *context, const tx_chat_piece *piece);
} tx_chat_parsing;

/* Divides an answer into content, thoughts and tool calls while it grows. The marks are those of the model's template
 * (models/chat/forms.def). A thought is only at the start of an answer. Without marks everything is content. */
typedef struct tx_chat_parser tx_chat_parser;

/* Requires a call of the tool `name`, or of any tool of how->tools if that is NULL. The answer begins with the text
 * `*prefix`, whose special tokens are written as text, and continues with a text of `*grammar`. TX_UNSUPPORTED if the
 * template's calls are not JSON, or if the name must be known. The caller frees both. */
tx_status tx_chat_require(const tx_chat *chat, const tx_chat_parsing *how, const char *name,
                          const tx_vocabulary *vocabulary, char **prefix, tx_grammar **grammar);

/* Copies `how`; the ids of the prompt are read only here. The chat must outlive the parser. The caller frees. */
tx_status tx_chat_parser_create(const tx_chat *chat, const tx_chat_parsing *how, tx_chat_parser **parser);
/* Adds bytes of the answer, or a special token, which is never content. The text that ends an answer must not be added.
 * Reports pieces as soon as they are certain. */
tx_status tx_chat_parser_add(tx_chat_parser *parser, const char *bytes, size_t size, bool special);
/* Ends the answer and reports the rest. `*malformed` is true if the arguments of a call are not a JSON object. */
tx_status tx_chat_parser_end(tx_chat_parser *parser, bool *malformed);
void tx_chat_parser_free(tx_chat_parser *parser); /* NULL is fine */

TX_API_END

#endif
