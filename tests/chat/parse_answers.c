/* SPDX-License-Identifier: Apache-2.0
 * Parses answers from standard input, one JSON object a line: {"prompt": text, "answer": [text or {"special": text},
 * ..], "tools": [..] or null, "thoughts": bool}. Prints for each {"content", "thought", "calls": [{"name", "arguments",
 * "id"}, ..], "malformed", "pieces"}.
 *
 *   parse_answers TEMPLATE */
#include "models/tx_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct result {
    char *text[2]; /* content, thought */
    size_t size[2];
    tx_json *calls;
    char *arguments;
    size_t arguments_size;
    int64_t pieces;
} result;

static tx_status add(char **text, size_t *size, const char *bytes, size_t count)
{
    *text = realloc(*text, *size + count + 1);
    if (!*text)
        return tx_fail(TX_MEMORY, "out of memory");
    memcpy(*text + *size, bytes, count);
    *size += count;
    return TX_OK;
}

static tx_status end_call(result *r)
{
    if (!tx_json_size(r->calls))
        return TX_OK;
    tx_json *last = tx_json_at(r->calls, tx_json_size(r->calls) - 1);
    if (tx_json_has(last, "arguments"))
        return TX_OK;
    return tx_json_set_text(last, "arguments", r->arguments ? r->arguments : "", r->arguments_size);
}

static tx_status on_piece(void *context, const tx_chat_piece *piece)
{
    result *r = context;
    r->pieces++;
    if (piece->kind == TX_CHAT_ARGUMENTS)
        return add(&r->arguments, &r->arguments_size, piece->text, piece->size);
    if (piece->kind != TX_CHAT_CALL)
        return add(&r->text[piece->kind], &r->size[piece->kind], piece->text, piece->size);
    TX_TRY(end_call(r));
    r->arguments_size = 0;
    return tx_json_append(r->calls, tx_json_pack("{s:s%, s:s%}", "name", piece->text, piece->size, "id",
                                                 piece->id ? piece->id : "", piece->id ? piece->id_size : 0));
}

static tx_status feed(tx_chat_parser *parser, const tx_json *answer)
{
    for (size_t i = 0; i < tx_json_size(answer); i++) {
        const tx_json *item = tx_json_at(answer, i);
        const bool special = tx_json_type_of(item) == TX_JSON_OBJECT;
        const char *text;
        size_t size;
        TX_TRY(special ? tx_json_get_text(item, "special", &text, &size) : tx_json_as_text(item, "", &text, &size));
        TX_TRY(tx_chat_parser_add(parser, text, size, special));
    }
    return TX_OK;
}

static tx_status parse(const tx_chat *chat, const tx_json *line, result *r, bool *malformed)
{
    const char *prompt;
    size_t size;
    tx_chat_parsing how = {.context = r, .piece = on_piece};
    tx_chat_parser *parser = NULL;
    TX_TRY(tx_json_get_text(line, "prompt", &prompt, &size));
    TX_TRY(tx_json_get_bool(line, "thoughts", &how.thoughts));
    int32_t *ids = calloc(size + 1, sizeof *ids);
    for (size_t i = 0; i < size && ids; i++)
        ids[i] = (unsigned char)prompt[i];
    how.prompt = ids;
    how.count = size;
    how.tools = tx_json_has(line, "tools") ? tx_json_find(line, "tools") : NULL;
    tx_status status = tx_chat_parser_create(chat, &how, &parser);
    free(ids);
    TX_THEN(status, feed(parser, tx_json_find(line, "answer")));
    TX_THEN(status, tx_chat_parser_end(parser, malformed));
    TX_THEN(status, end_call(r));
    tx_chat_parser_free(parser);
    return status;
}

static tx_status answer(const tx_chat *chat, const char *line)
{
    tx_json *json = NULL, *out = tx_json_object();
    result r = {.calls = tx_json_array()};
    bool malformed = false;
    tx_status status = tx_json_parse_line(line, strlen(line), "line", &json);
    TX_THEN(status, parse(chat, json, &r, &malformed));
    TX_THEN(status, tx_json_set_text(out, "content", r.text[0] ? r.text[0] : "", r.size[0]));
    TX_THEN(status, tx_json_set_text(out, "thought", r.text[1] ? r.text[1] : "", r.size[1]));
    TX_THEN(status, tx_json_set(out, "calls", tx_json_copy(r.calls)));
    TX_THEN(status, tx_json_set_bool(out, "malformed", malformed));
    TX_THEN(status, tx_json_set_int(out, "pieces", r.pieces));
    char *made = status ? NULL : tx_json_text(out, TX_JSON_LINE);
    puts(made ? made : tx_error());
    free(made);
    free(r.text[0]);
    free(r.text[1]);
    free(r.arguments);
    tx_json_free(r.calls);
    tx_json_free(json);
    tx_json_free(out);
    return status;
}

int main(int argc, char **argv)
{
    tx_tokenizer *tokenizer = NULL;
    tx_chat *chat = NULL;
    char *line = NULL;
    size_t room = 0;
    tx_status status = tx_tokenizer_bytes(&tokenizer);
    TX_THEN(status, tx_chat_create(argc > 1 ? argv[1] : "chatml", tokenizer, NULL, &chat));
    while (!status && getline(&line, &room, stdin) > 0)
        status = answer(chat, line);
    if (status)
        fprintf(stderr, "parse_answers: %s\n", tx_error());
    free(line);
    tx_chat_free(chat);
    tx_tokenizer_free(tokenizer);
    return status != TX_OK;
}
