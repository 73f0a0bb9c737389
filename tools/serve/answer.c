/* SPDX-License-Identifier: Apache-2.0
 * Turns tokens into the JSON of answers and of server-sent events. */
#include "tools/serve/txserve.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* JSON has no infinity; OpenAI reports this for a probability of 0. */
#define NO_CHANCE (-9999.0)

/* ---- Errors --------------------------------------------------------------------------------------------- */

tx_json *serve_error(int status, const char *message)
{
    const char *type = status == 401   ? "authentication_error"
                       : status == 429 ? "rate_limit_error"
                       : status < 500  ? "invalid_request_error"
                                       : "server_error";
    char *text = NULL;
    size_t size;
    if (tx_utf8_replace(message, strlen(message), &text, &size)) /* it may end within a character */
        return NULL;
    tx_json *object = tx_json_pack("{s:{s:s, s:s, s:n, s:s?}}", "error", "message", text, "type", type, "param", "code",
                                   status == 404   ? "not_found"
                                   : status == 429 ? "rate_limit_exceeded"
                                                   : NULL);
    free(text);
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

/* Bytes of the text before its first stop string, and before an end that may become one. Places that cannot be the
 * begin of one are not searched again, so that the time is linear in the text. */
static size_t before_stops(serve_text *t, bool whole)
{
    const serve_bytes *a = &t->answer;
    size_t upto = a->size;
    for (int32_t i = 0; i < t->call->how.stop_count; i++) {
        const char *stop = t->call->how.stop_strings[i];
        const size_t length = strlen(stop);
        size_t at = t->clean[i] > t->begin ? t->clean[i] : t->begin;
        for (; at < a->size; at++) {
            const size_t rest = a->size - at, most = rest < length ? rest : length;
            if ((!whole || rest >= length) && memcmp(a->data + at, stop, most) == 0)
                break;
        }
        t->clean[i] = at;
        upto = at < upto ? at : upto;
    }
    return upto;
}

/* Bytes of the text that can be sent. */
static size_t showable(serve_text *t)
{
    const serve_call *c = t->call;
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

/* Returns an object for a token, with its alternatives unless `top` is NULL. Takes `top`. */
static tx_json *entry_of(const serve_text *t, int32_t id, double logprob, tx_json *top)
{
    char *text = NULL;
    const char *bytes;
    size_t size = 0, count = 0;
    tx_json *list = tx_json_array();
    tx_status status = token_text(t, id, &text, &size, &bytes, &count);
    for (size_t i = 0; i < count && !status; i++)
        status = tx_json_append_int(list, (unsigned char)bytes[i]);
    tx_json *entry = tx_json_pack("{s:o, s:s%, s:f, s:o*}", "bytes", list, "token", status ? NULL : text, size,
                                  "logprob", clamped(logprob), "top_logprobs", top);
    free(text);
    return entry;
}

static tx_status add_chat_entry(const serve_text *t, const tx_batch_token *token)
{
    tx_json *top = tx_json_array();
    for (int32_t i = 0; i < token->top_count; i++)
        if (tx_json_append(top, entry_of(t, token->top[i].id, token->top[i].logprob, NULL))) {
            tx_json_free(top);
            return TX_MEMORY;
        }
    return tx_json_append(tx_json_find(t->logprobs, "content"), entry_of(t, token->id, token->logprob, top));
}

/* Replaces `name` by the name of a token in a completion, which is its text. Part of a character is "bytes:\xf0", as
 * OpenAI writes it. A token without bytes, or whose name `taken` has, is "token_id:7", as vLLM writes it. */
static tx_status name_token(const serve_text *t, int32_t id, const tx_json *taken, serve_bytes *name)
{
    char *text = NULL, part[24];
    const char *bytes;
    size_t size, count;
    TX_TRY(token_text(t, id, &text, &size, &bytes, &count));
    const bool whole = size == count && !memchr(text, 0, size) && memcmp(text, bytes, size) == 0;
    name->size = 0;
    tx_status status = serve_append(name, whole ? text : "bytes:", whole ? size : 6);
    free(text);
    for (size_t i = 0; i < count && !whole && !status; i++) {
        snprintf(part, sizeof part, "\\x%02x", (unsigned char)bytes[i]);
        status = serve_append(name, part, 4);
    }
    if (status || (count && !tx_json_find(taken, name->data)))
        return status;
    name->size = 0;
    return serve_append(name, part, (size_t)snprintf(part, sizeof part, "token_id:%" PRId32, id));
}

/* Adds a token to the lists of a completion. Alternatives are members. The first token of a prompt has no probability.
 */
static tx_status add_columns(const serve_text *t, const tx_batch_token *token)
{
    const bool known = !isnan(token->logprob);
    tx_json *to = t->logprobs, *top = known ? tx_json_object() : tx_json_pack("n");
    serve_bytes name = {0};
    tx_status status = tx_json_append(tx_json_find(to, "top_logprobs"), top);
    TX_THEN(status, tx_json_append_int(tx_json_find(to, "text_offset"), t->letters));
    TX_THEN(status, tx_json_append(tx_json_find(to, "token_logprobs"),
                                   known ? tx_json_pack("f", clamped(token->logprob)) : tx_json_pack("n")));
    TX_THEN(status, name_token(t, token->id, NULL, &name));
    TX_THEN(status, tx_json_append_string(tx_json_find(to, "tokens"), name.data));
    for (int32_t i = 0; i < token->top_count && !status; i++) {
        status = name_token(t, token->top[i].id, top, &name);
        TX_THEN(status, tx_json_set_number(top, name.data, clamped(token->top[i].logprob)));
    }
    free(name.data);
    return status;
}

static tx_status add_logprobs(serve_text *t, const tx_batch_token *token)
{
    const bool chat = t->call->kind == SERVE_CHAT;
    if (!t->logprobs)
        t->logprobs =
            chat ? tx_json_pack("{s:[]}", "content")
                 : tx_json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs", "text_offset");
    return chat ? add_chat_entry(t, token) : add_columns(t, token);
}

/* ---- Objects -------------------------------------------------------------------------------------------- */

/* Returns the unsent part of a text with its log-probabilities and reason of the end. */
static tx_json *make_choice(serve_text *t)
{
    const serve_call *c = t->call;
    const bool chat = c->kind == SERVE_CHAT;
    const char *key = !chat ? "text" : c->stream ? "delta" : "message";
    tx_json *part = NULL, *logprobs = t->logprobs;
    char *text = NULL;
    size_t size = 0;
    if (chat) {
        part = serve_make_message(t);
    } else if (!tx_utf8_replace(t->answer.data ? t->answer.data + t->shown : "", t->upto - t->shown, &text, &size)) {
        part = tx_json_pack("s%", text, size);
        t->shown = t->upto;
    }
    free(text);
    t->greeted = true;
    t->logprobs = NULL;
    return tx_json_pack("{s:I, s:o, s:o?, s:s?}", "index", t->index, key, part, "logprobs", logprobs, "finish_reason",
                        t->finish);
}

tx_json *serve_usage(const serve_call *c)
{
    tx_json *details = c->inputs ? NULL : tx_json_pack("{s:I}", "cached_tokens", c->cached);
    return tx_json_pack("{s:I, s:I, s:I, s:o?}", "prompt_tokens", c->prompt_tokens, "completion_tokens", c->tokens,
                        "total_tokens", c->prompt_tokens + c->tokens, "prompt_tokens_details", details);
}

/* Appends the items of /v1/responses, which has one text. */
static tx_status write_response(serve_call *c, bool choice, bool ends)
{
    tx_json *made = choice ? make_choice(c->text) : NULL;
    tx_status status = choice && !made ? TX_MEMORY : TX_OK;
    if (choice)
        TX_THEN(status, serve_write_response(c, made));
    tx_json_free(made);
    return status || !ends ? status : serve_write_response(c, NULL);
}

/* Appends an answer or an event with the choices first..first+count-1 to the output. */
static tx_status write_object(serve_call *c, int32_t first, int32_t count, bool usage)
{
    static const char *const names[2][2] = {{"text_completion", "text_completion"},
                                            {"chat.completion", "chat.completion.chunk"}};
    if (c->asked)
        return write_response(c, count > 0, usage);
    tx_json *choices = tx_json_array();
    for (int32_t i = first; i < first + count; i++)
        if (tx_json_append(choices, make_choice(&c->text[i]))) {
            tx_json_free(choices);
            return TX_MEMORY;
        }
    return serve_write(c, tx_json_pack("{s:s, s:s, s:I, s:s, s:o, s:o*}", "id", c->id, "object",
                                       names[c->kind][c->stream], "created", c->created, "model", c->model, "choices",
                                       choices, "usage", usage ? serve_usage(c) : NULL));
}

/* Appends an event with the unsent part of a text to the output. */
static tx_status write_text(serve_text *t)
{
    return write_object(t->call, (int32_t)t->index, 1, false);
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
    tx_status status = serve_append(&t->answer, bytes, size);
    for (size_t i = 0; i < size; i++)
        t->letters += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    if (t->parser && !size)
        TX_THEN(status, serve_add_special(t, token->id));
    free(first);
    t->begin = token->prompt ? t->answer.size : t->begin;
    return status;
}

bool serve_add_token(serve_text *text, const tx_batch_token *token)
{
    serve_call *c = text->call;
    const bool end = !token->prompt && tx_generation_ends(&c->how, token->id);
    tx_status status = TX_OK;
    if (c->status >= 400)
        return false;
    if (!token->prompt) {
        c->cached += text->generated == 0 && text->sample == 0 ? token->cached : 0; /* a prompt counts once */
        text->generated++;
        c->tokens++;
    }
    if (c->logprobs && !(end && c->kind == SERVE_CHAT)) /* as OpenAI: a chat has none for its end */
        status = add_logprobs(text, token);
    if (!end)
        TX_THEN(status, add_bytes(text, token));
    const bool chat = c->kind == SERVE_CHAT;
    const size_t thought = text->part[TX_CHAT_THOUGHT].size, shown = text->shown;
    text->upto = !status && (chat || c->stream) ? showable(text) : text->shown;
    if (chat)
        TX_THEN(status, serve_parse_answer(text, text->upto, write_text));
    if (chat && text->shown > shown) { /* the tokens since then */
        c->response.thoughts += text->part[TX_CHAT_THOUGHT].size > thought ? text->generated - text->parsed : 0;
        text->parsed = text->generated;
    }
    if (c->stream && !status && (chat ? !text->greeted || serve_has_part(text) : text->upto > text->shown))
        status = write_text(text);
    if (status)
        serve_fail(c, 500, tx_error());
    return status == TX_OK && !text->done;
}

/* Completes the output of a call. */
static void complete(serve_call *c)
{
    tx_status status = TX_OK;
    if (c->status < 400 && !c->stream && !c->inputs)
        status = write_object(c, 0, c->count, true);
    if (c->status < 400 && c->stream && (c->usage || c->asked))
        status = write_object(c, 0, 0, true);
    if (status)
        serve_fail(c, 500, tx_error());
    if (c->status >= 400 && c->flows)
        serve_write(c, serve_error(c->status, c->error));
    if (!c->status)
        c->status = 200;
    serve_bytes done = {0};
    if (c->stream && !c->asked && !serve_append(&done, "data: [DONE]\n\n", 14))
        serve_put(c, &done);
}

void serve_end_text(serve_text *text, tx_batch_end end)
{
    serve_call *c = text->call;
    if (end == TX_BATCH_FAILED)
        serve_fail(c, 500, tx_error());
    text->upto = end == TX_BATCH_STOPPED ? before_stops(text, true) : text->answer.size;
    text->upto = text->upto > text->shown ? text->upto : text->shown;
    text->finish = end == TX_BATCH_STOPPED ? "stop" : "length";
    tx_status status =
        c->kind == SERVE_CHAT && c->status < 400 ? serve_end_message(text, text->upto, end, write_text) : TX_OK;
    if (c->stream && c->status < 400)
        TX_THEN(status, write_text(text));
    if (status)
        serve_fail(c, 500, tx_error());
    if (c->left == 1)
        complete(c);
}
