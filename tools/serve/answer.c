/* SPDX-License-Identifier: Apache-2.0
 * Turns tokens into the JSON of answers and of server-sent events. */
#include "tools/serve/txserve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* JSON has no infinity; OpenAI reports this for a probability of 0. */
#define NO_CHANCE (-9999.0)

tx_status serve_append(serve_bytes *to, const char *bytes, size_t size)
{
    TX_TRY(tx_array_reserve(&to->data, &to->room, to->size + size + 1, 1, "bytes of an answer"));
    if (size)
        memcpy(to->data + to->size, bytes, size);
    to->size += size;
    to->data[to->size] = 0;
    return TX_OK;
}

bool serve_is_end(const tx_generation *how, int32_t id)
{
    for (int32_t i = 0; i < how->eos_count; i++)
        if (how->eos_token_id[i] == id)
            return true;
    return false;
}

/* ---- Errors --------------------------------------------------------------------------------------------- */

tx_json *serve_error(int status, const char *message)
{
    const char *type = status == 401   ? "authentication_error"
                       : status == 429 ? "rate_limit_error"
                       : status < 500  ? "invalid_request_error"
                                       : "server_error";
    tx_json *object = tx_json_object(), *error = tx_json_object();
    tx_status made = tx_json_set(object, "error", error);
    TX_THEN(made, tx_json_set_text(error, "message", message, strlen(message)));
    TX_THEN(made, tx_json_set_string(error, "type", type));
    TX_THEN(made, tx_json_set_null(error, "param"));
    TX_THEN(made, status == 404 ? tx_json_set_string(error, "code", "not_found") : tx_json_set_null(error, "code"));
    return object;
}

/* ---- Shown text ----------------------------------------------------------------------------------------- */

/* Bytes at the end that begin a character without completing it. */
static size_t partial_character(const char *text, size_t size)
{
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        const unsigned char byte = (unsigned char)text[size - back];
        if ((byte & 0xC0) != 0x80) {
            const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
            return length > back ? back : 0;
        }
    }
    return 0;
}

/* Bytes of the text before its first stop string, and before an end that may become one. Bytes that are sent already
 * cannot be part of one. */
static size_t before_stops(const serve_text *t, bool whole)
{
    const serve_bytes *a = &t->answer;
    const size_t from = t->shown > t->begin ? t->shown : t->begin;
    size_t upto = a->size;
    for (int32_t i = 0; i < t->call->how.stop_count; i++) {
        const char *stop = t->call->how.stop_strings[i];
        const size_t length = strlen(stop);
        for (size_t at = from; at < upto; at++) {
            const size_t rest = a->size - at, most = rest < length ? rest : length;
            if ((!whole || rest >= length) && memcmp(a->data + at, stop, most) == 0)
                upto = at;
        }
    }
    return upto;
}

/* Bytes of the text that can be sent. */
static size_t showable(const serve_text *t)
{
    const serve_call *c = t->call;
    if (t->finish)
        return t->cut;
    size_t upto = before_stops(t, false);
    if (c->kind == SERVE_CHAT && t->answer.size) {
        const size_t held = tx_chat_held_back(c->server->chat, t->answer.data, t->answer.size);
        upto = upto < t->answer.size - held ? upto : t->answer.size - held;
    }
    return upto - partial_character(t->answer.data, upto);
}

/* ---- Log-probabilities ---------------------------------------------------------------------------------- */

static double clamped(double logprob)
{
    return isfinite(logprob) ? logprob : NO_CHANCE;
}

/* The bytes of a token. A model may have more ids than its tokenizer; those have none. */
static void piece(const serve_text *t, int32_t id, bool skip_special, const char **bytes, size_t *count)
{
    if (tx_tokenizer_piece(t->call->server->tokenizer, id, skip_special, bytes, count)) {
        *bytes = "";
        *count = 0;
    }
}

/* The text of a token, special tokens too; the caller frees it. */
static tx_status token_text(const serve_text *t, int32_t id, char **text, size_t *size, const char **bytes,
                            size_t *count)
{
    piece(t, id, false, bytes, count);
    return tx_utf8_replace(*bytes, *count, text, size);
}

/* Appends an object with token, logprob and bytes to a list, and returns it in `*entry`. */
static tx_status add_entry(const serve_text *t, tx_json *to, int32_t id, double logprob, tx_json **entry)
{
    char *text = NULL;
    const char *bytes;
    size_t size, count = 0;
    tx_json *list = tx_json_array();
    *entry = tx_json_object();
    tx_status status = tx_json_append(to, *entry);
    status = status ? (tx_json_free(list), status) : tx_json_set(*entry, "bytes", list);
    TX_THEN(status, token_text(t, id, &text, &size, &bytes, &count));
    TX_THEN(status, tx_json_set_text(*entry, "token", text, size));
    TX_THEN(status, tx_json_set_number(*entry, "logprob", clamped(logprob)));
    for (size_t i = 0; i < count && !status; i++)
        status = tx_json_append_int(list, (unsigned char)bytes[i]);
    free(text);
    return status;
}

static tx_status add_chat_entry(const serve_text *t, tx_json *to, const tx_batch_token *token)
{
    tx_json *entry, *top = NULL, *content, *likely;
    TX_TRY(tx_json_get(to, "content", TX_JSON_ARRAY, &content));
    TX_TRY(add_entry(t, content, token->id, token->logprob, &entry));
    TX_TRY(tx_json_set(entry, "top_logprobs", top = tx_json_array()));
    for (int32_t i = 0; i < token->top_count; i++)
        TX_TRY(add_entry(t, top, token->top[i].id, token->top[i].logprob, &likely));
    return TX_OK;
}

/* Alternatives as an object of texts; of two with the same text the more likely remains. */
static tx_status top_object(const serve_text *t, const tx_batch_token *token, tx_json *object)
{
    tx_status status = TX_OK;
    for (int32_t i = token->top_count - 1; i >= 0 && !status; i--) {
        char *text = NULL;
        const char *bytes;
        size_t size, count;
        status = token_text(t, token->top[i].id, &text, &size, &bytes, &count);
        if (!status && strlen(text) == size)
            status = tx_json_set_number(object, text, clamped(token->top[i].logprob));
        free(text);
    }
    return status;
}

static tx_status add_columns(const serve_text *t, tx_json *to, const tx_batch_token *token)
{
    tx_json *tokens, *logprobs, *tops, *offsets, *top = NULL;
    char *text = NULL;
    const char *bytes;
    size_t size, count;
    TX_TRY(tx_json_get(to, "tokens", TX_JSON_ARRAY, &tokens));
    TX_TRY(tx_json_get(to, "token_logprobs", TX_JSON_ARRAY, &logprobs));
    TX_TRY(tx_json_get(to, "top_logprobs", TX_JSON_ARRAY, &tops));
    TX_TRY(tx_json_get(to, "text_offset", TX_JSON_ARRAY, &offsets));
    tx_status status = token_text(t, token->id, &text, &size, &bytes, &count);
    TX_THEN(status, tx_json_append_string(tokens, strlen(text) == size ? text : ""));
    free(text);
    TX_THEN(status, tx_json_append_int(offsets, t->letters));
    if (status)
        return status;
    if (isnan(token->logprob)) { /* the first token of a prompt */
        TX_TRY(tx_json_append_null(logprobs));
        return tx_json_append_null(tops);
    }
    TX_TRY(tx_json_append_number(logprobs, clamped(token->logprob)));
    TX_TRY(tx_json_append(tops, top = tx_json_object()));
    return top_object(t, token, top);
}

static tx_status add_logprobs(serve_text *t, const tx_batch_token *token)
{
    static const char *const columns[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    const bool chat = t->call->kind == SERVE_CHAT;
    if (!t->logprobs) {
        t->logprobs = tx_json_object();
        for (size_t i = 0; i < (chat ? 1 : sizeof columns / sizeof columns[0]); i++)
            TX_TRY(tx_json_set(t->logprobs, chat ? "content" : columns[i], tx_json_array()));
    }
    return chat ? add_chat_entry(t, t->logprobs, token) : add_columns(t, t->logprobs, token);
}

/* ---- Objects -------------------------------------------------------------------------------------------- */

/* Sets the bytes first..last-1 of a text. */
static tx_status set_part(tx_json *object, const char *key, const serve_text *t, size_t first, size_t last)
{
    char *text = NULL;
    size_t size = 0;
    tx_status status = tx_utf8_replace(t->answer.data ? t->answer.data + first : "", last - first, &text, &size);
    TX_THEN(status, tx_json_set_text(object, key, text, size));
    free(text);
    return status;
}

/* Writes the unsent part of a text to its choice, and its log-probabilities. */
static tx_status fill_choice(serve_text *t, size_t upto, tx_json *choice)
{
    const serve_call *c = t->call;
    tx_json *logprobs = t->logprobs, *message = choice;
    const char *key = c->kind == SERVE_CHAT ? "content" : "text";
    tx_status status = tx_json_set_int(choice, "index", t->index);
    t->logprobs = NULL;
    if (c->kind == SERVE_CHAT) {
        message = tx_json_object();
        TX_THEN(status, tx_json_set(choice, c->stream ? "delta" : "message", message));
        if (!t->greeted)
            TX_THEN(status, tx_json_set_string(message, "role", "assistant"));
        t->greeted = true;
    }
    if (!c->stream || c->kind == SERVE_COMPLETION || upto > t->shown)
        TX_THEN(status, set_part(message, key, t, t->shown, upto));
    t->shown = upto;
    if (status) {
        tx_json_free(logprobs);
        return status;
    }
    TX_TRY(logprobs ? tx_json_set(choice, "logprobs", logprobs) : tx_json_set_null(choice, "logprobs"));
    return t->finish ? tx_json_set_string(choice, "finish_reason", t->finish)
                     : tx_json_set_null(choice, "finish_reason");
}

tx_status serve_set_usage(const serve_call *c, tx_json *object)
{
    tx_json *usage = tx_json_object();
    tx_status status = tx_json_set(object, "usage", usage);
    TX_THEN(status, tx_json_set_int(usage, "prompt_tokens", c->prompt_tokens));
    TX_THEN(status, tx_json_set_int(usage, "completion_tokens", c->tokens));
    TX_THEN(status, tx_json_set_int(usage, "total_tokens", c->prompt_tokens + c->tokens));
    return status;
}

tx_status serve_write(serve_call *c, tx_json *object, tx_status status)
{
    char *text = status ? NULL : tx_json_text(object, TX_JSON_LINE);
    tx_json_free(object);
    status = status || text ? status : TX_MEMORY;
    if (c->stream)
        TX_THEN(status, serve_append(&c->out, "data: ", 6));
    TX_THEN(status, serve_append(&c->out, text, strlen(text)));
    TX_THEN(status, serve_append(&c->out, "\n\n", c->stream ? 2 : 1));
    free(text);
    return status;
}

/* Appends an answer or an event with the choices first..first+count-1 to the output. */
static tx_status write_object(serve_call *c, int32_t first, int32_t count, size_t upto, bool usage)
{
    static const char *const names[2][2] = {{"text_completion", "text_completion"},
                                            {"chat.completion", "chat.completion.chunk"}};
    tx_json *object = tx_json_object(), *choices = tx_json_array();
    tx_status status = tx_json_set_string(object, "id", c->id);
    TX_THEN(status, tx_json_set_string(object, "object", names[c->kind][c->stream]));
    TX_THEN(status, tx_json_set_int(object, "created", c->created));
    TX_THEN(status, tx_json_set_string(object, "model", c->server->name));
    TX_THEN(status, tx_json_set(object, "choices", choices));
    for (int32_t i = first; i < first + count && !status; i++) {
        tx_json *choice = tx_json_object();
        status = tx_json_append(choices, choice);
        TX_THEN(status, fill_choice(&c->text[i], c->stream ? upto : c->text[i].cut, choice));
    }
    if (usage)
        TX_THEN(status, serve_set_usage(c, object));
    return serve_write(c, object, status);
}

/* ---- Tokens --------------------------------------------------------------------------------------------- */

void serve_fail(serve_call *c, int status, const char *message)
{
    if (c->status >= 400)
        return;
    c->status = status;
    snprintf(c->error, sizeof c->error, "%s", message);
}

/* Appends a token's bytes. The first token of a text may have a blank less than its piece. */
static tx_status add_bytes(serve_text *t, const tx_batch_token *token)
{
    const tx_tokenizer *tokenizer = t->call->server->tokenizer;
    const char *bytes = NULL;
    char *first = NULL;
    size_t size = 0;
    if (token->prompt && !t->answer.size) {
        if (tx_tokenizer_decode(tokenizer, &token->id, 1, true, &first, &size) == TX_OK)
            bytes = first;
    } else {
        piece(t, token->id, true, &bytes, &size);
    }
    const tx_status status = serve_append(&t->answer, bytes, size);
    for (size_t i = 0; i < size; i++)
        t->letters += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    free(first);
    t->begin = token->prompt ? t->answer.size : t->begin;
    return status;
}

bool serve_add_token(serve_text *text, const tx_batch_token *token)
{
    serve_call *c = text->call;
    const bool end = !token->prompt && serve_is_end(&c->how, token->id);
    tx_status status = TX_OK;
    if (c->status >= 400)
        return false;
    if (!token->prompt) {
        text->generated++;
        c->tokens++;
        c->server->counters.tokens++;
    }
    if (c->logprobs && !(end && c->kind == SERVE_CHAT)) /* as OpenAI: a chat has none for its end */
        status = add_logprobs(text, token);
    if (!end)
        TX_THEN(status, add_bytes(text, token));
    const size_t upto = status ? 0 : showable(text);
    if (c->stream && !status && (upto > text->shown || (!text->greeted && c->kind == SERVE_CHAT))) {
        status = write_object(c, (int32_t)text->index, 1, upto, false);
        c->server->wake(c);
    }
    if (status)
        serve_fail(c, 500, tx_error());
    return status == TX_OK;
}

/* Completes the output of a call. */
static void complete(serve_call *c)
{
    tx_status status = TX_OK;
    if (c->status < 400 && !c->stream && !c->inputs)
        status = write_object(c, 0, c->count, 0, true);
    if (c->status < 400 && c->stream && c->usage)
        status = write_object(c, 0, 0, 0, true);
    if (status)
        serve_fail(c, 500, tx_error());
    if (c->status >= 400 && c->stream)
        serve_write(c, serve_error(c->status, c->error), TX_OK);
    if (c->stream)
        serve_append(&c->out, "data: [DONE]\n\n", 14);
    if (!c->status)
        c->status = 200;
}

void serve_end_text(serve_text *text, tx_batch_end end)
{
    serve_call *c = text->call;
    if (end == TX_BATCH_FAILED)
        serve_fail(c, 500, tx_error());
    text->cut = end == TX_BATCH_STOPPED ? before_stops(text, true) : text->answer.size;
    if (c->kind == SERVE_CHAT && text->answer.size)
        text->cut = tx_chat_trim(c->server->chat, text->answer.data, text->cut);
    text->cut = text->cut > text->shown ? text->cut : text->shown;
    text->finish = end == TX_BATCH_STOPPED ? "stop" : "length";
    if (c->stream && c->status < 400 && write_object(c, (int32_t)text->index, 1, text->cut, false))
        serve_fail(c, 500, tx_error());
    if (--c->left == 0)
        complete(c);
    c->server->wake(c);
}
