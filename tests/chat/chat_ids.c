/* SPDX-License-Identifier: Apache-2.0
 * Renders and encodes conversations from standard input, an object of instruction data a line, with a chat template and
 * a tokenizer. Prints for each {"text": .., "ids": [..], "learnt": [..]}, or {"error": ".."}.
 *
 *   chat_ids TOKENIZER TEMPLATE|- [ask]   -: the tokenizer's own
 *   chat_ids TOKENIZER TEMPLATE jinja     prints the template */
#include "models/chat/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void warn(void *context, const char *message)
{
    (void)context;
    fprintf(stderr, "%s\n", message);
}

static tx_status add_ids(tx_json *json, const char *key, const tx_ids *ids)
{
    tx_json *list = tx_json_array();
    for (size_t i = 0; i < ids->count; i++)
        TX_TRY(tx_json_append_int(list, ids->id[i]));
    return tx_json_set(json, key, list);
}

/* Adds text and ids of one line to `json`. Returns an error if the line is invalid. */
static tx_status answer(const tx_chat *chat, tx_encoder *encoder, const char *line, bool asks, tx_json *json)
{
    tx_json *object = NULL;
    tx_conversation conversation = {0};
    tx_chat_text text = {0};
    tx_ids ids = {0}, learnt = {0};
    tx_status status = tx_json_parse_line(line, strlen(line), "line", &object);
    TX_THEN(status, tx_conversation_read(object, !asks, &conversation));
    TX_THEN(status, tx_chat_render(chat, &conversation, asks, asks ? TX_CHAT_NONE : TX_CHAT_ANSWERS, &text));
    TX_THEN(status, tx_chat_encode(chat, encoder, &text, &ids, &learnt));
    if (status)
        status = tx_json_set_string(json, "error", tx_error());
    else
        status = tx_json_set_text(json, "text", text.bytes.data, text.bytes.size);
    TX_THEN(status, add_ids(json, "ids", &ids));
    TX_THEN(status, add_ids(json, "learnt", &learnt));
    tx_json_free(object);
    tx_conversation_free(&conversation);
    tx_chat_text_free(&text);
    free(ids.id);
    free(learnt.id);
    return status;
}

static tx_status run(const char *path, const char *name, const char *what)
{
    tx_tokenizer *tokenizer = NULL;
    tx_encoder *encoder = NULL;
    tx_chat *chat = NULL;
    char *line = NULL;
    size_t room = 0;
    const tx_reporter report = {.warn = warn};
    tx_status status = tx_tokenizer_open(path, &tokenizer);
    TX_THEN(status, tx_chat_create(strcmp(name, "-") == 0 ? NULL : name, tokenizer, &report, &chat));
    TX_THEN(status, tx_encoder_create(tokenizer, &encoder));
    const bool jinja = strcmp(what, "jinja") == 0;
    if (!status && jinja)
        fputs(chat->text, stdout);
    while (!status && !jinja && getline(&line, &room, stdin) > 0) {
        tx_json *json = tx_json_object();
        status = answer(chat, encoder, line, strcmp(what, "ask") == 0, json);
        char *made = tx_json_text(json, TX_JSON_LINE);
        puts(made ? made : "");
        free(made);
        tx_json_free(json);
    }
    free(line);
    tx_chat_free(chat);
    tx_encoder_free(encoder);
    tx_tokenizer_free(tokenizer);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    if (run(argv[1], argv[2], argc > 3 ? argv[3] : "") == TX_OK)
        return 0;
    fprintf(stderr, "chat_ids: %s\n", tx_error());
    return 1;
}
