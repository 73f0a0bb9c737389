/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a file of conversations, for instruction data and preferences. */
#ifndef TX_TASK_CONVERSATIONS_H
#define TX_TASK_CONVERSATIONS_H

#include "models/chat/chat.h"
#include "models/data/rows.h"
#include "models/task/store.h"

/* The first member of the data of both tasks. */
typedef struct tx_conversation_data {
    tx_store ids;  /* of all samples, one after the other */
    tx_chat *chat; /* NULL if no sample needed a chat template */
    int32_t eos;   /* id of eos_token, which ends texts without a template; -1 if there is none */
    char digest[TX_DIGEST_TEXT];
} tx_conversation_data;

/* Begins the data, and frees them. */
void tx_conversation_data_begin(tx_conversation_data *data, const tx_data_options *options);
void tx_conversation_data_free(tx_conversation_data *data);
/* The `save` of the tasks: writes the template to a model's folder, unless it is the model's own. */
tx_status tx_conversation_data_save(const tx_samples *samples, const char *folder);
/* The `end` of the tasks: the token that ends an answer, that of the template or eos_token. */
tx_text_end tx_conversation_data_end(const tx_samples *samples);

/* The state of reading. Begin with {.path, .options}. */
typedef struct tx_conversations {
    const char *path;
    const tx_data_options *options;
    tx_rows *rows;
    int64_t begin, end;           /* range of the rows to use */
    tx_conversation conversation; /* the current one */
    tx_chat_text text;            /* its rendered text */
    tx_encoder *encoder;
    tx_chat plain;       /* for texts without a template */
    tx_chat *chat;       /* NULL before a conversation needs a template */
    bool wrong_template; /* the template, not a row, is the fault */
} tx_conversations;

/* Opens the file and chooses the range. Close after success and failure. */
tx_status tx_conversations_open(tx_conversations *c);
void tx_conversations_close(tx_conversations *c);
/* Whether the current conversation is used without a template. */
bool tx_conversations_is_plain(const tx_conversations *c);
/* Opens the chat template that the current conversation needs: that of the options, else the model's, else the built-in
 * one for Alpaca's data. Does nothing if a template is open, or if none is needed. */
tx_status tx_conversations_open_chat(tx_conversations *c);
/* Ends the use of row `number`, as tx_rows_skip with --skip_bad does unless the template is wrong. */
tx_status tx_conversations_skip(tx_conversations *c, int64_t number, tx_status status);
/* Prints which keys were ignored, and how many rows were skipped. */
void tx_conversations_report(const tx_conversations *c);
/* Hands the template over to the data. */
void tx_conversations_give_chat(tx_conversations *c, tx_conversation_data *data);

/* Appends the ids that the tokenizer adds before a text. */
tx_status tx_conversations_begin(const tx_tokenizer *tokenizer, tx_ids *ids);
/* Replaces `ids` by the current conversation: with `asks` a prompt that a completion follows, else up to its last
 * message. As in TRL, eos_token ends a completion without a template that does not end with it. */
tx_status tx_conversations_encode(tx_conversations *conversations, bool asks, tx_ids *ids);

#endif
