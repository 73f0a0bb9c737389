/* SPDX-License-Identifier: Apache-2.0
 * Translates the choices of chats to the items, events and answers of /v1/responses. */
#include "tools/serve/txserve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The kinds of items: the begin of ids, the name of their text in events, and the type of its part, which calls do not
 * have. */
static const struct {
    const char *id, *type, *text, *part, *key;
} kinds[] = {
    {NULL, NULL, NULL, NULL, NULL},
    {"rs", "reasoning", "reasoning_text", "reasoning_text", "text"},
    {"msg", "message", "output_text", "output_text", "text"},
    {"fc", "function_call", "function_call_arguments", NULL, "arguments"},
};
enum { NONE, THOUGHT, MESSAGE, CALL };

/* ---- Events --------------------------------------------------------------------------------------------- */

/* Sends an event of a stream, "response.NAME" or "response.NAME.SUFFIX". Takes `event`. */
static tx_status emit(serve_call *c, const char *name, const char *suffix, tx_json *event)
{
    char type[80];
    if (!c->stream) {
        tx_json_free(event);
        return TX_OK;
    }
    snprintf(type, sizeof type, "response.%s%s%s", name, *suffix ? "." : "", suffix);
    tx_status status = tx_json_set_string(event, "type", type);
    TX_THEN(status, tx_json_set_int(event, "sequence_number", c->response.events++));
    if (!status)
        return serve_write(c, event);
    tx_json_free(event);
    return status;
}

/* Returns an event of the open item. */
static tx_json *event_of(const serve_call *c, const tx_json *item)
{
    const int64_t index = (int64_t)tx_json_size(c->response.output) - 1;
    tx_json *event = tx_json_pack("{s:I, s:O}", "output_index", index, "item_id", tx_json_find(item, "id"));
    if (event && kinds[c->response.kind].part && tx_json_set_int(event, "content_index", 0)) {
        tx_json_free(event);
        return NULL;
    }
    return event;
}

/* Sends an event of the open item with one more member. Takes `value`. */
static tx_status emit_with(serve_call *c, const char *name, const char *suffix, const char *key, tx_json *value)
{
    const tx_json *item = tx_json_at(c->response.output, tx_json_size(c->response.output) - 1);
    tx_json *event = c->stream ? event_of(c, item) : NULL;
    if (!c->stream) {
        tx_json_free(value);
        return TX_OK;
    }
    tx_status status = tx_json_set(event, key, value);
    if (c->response.kind == MESSAGE && strcmp(name, "output_text") == 0)
        TX_THEN(status, tx_json_set(event, "logprobs", tx_json_array()));
    if (c->response.kind == CALL && strcmp(suffix, "done") == 0)
        TX_THEN(status, tx_json_set(event, "name", tx_json_copy(tx_json_find(item, "name"))));
    if (!status)
        return emit(c, name, suffix, event);
    tx_json_free(event);
    return status;
}

static tx_json *part_of(const serve_call *c, const char *text, size_t size)
{
    if (c->response.kind == THOUGHT)
        return tx_json_pack("{s:s, s:s%}", "type", kinds[THOUGHT].part, "text", text, size);
    return tx_json_pack("{s:s, s:s%, s:[], s:[]}", "type", kinds[MESSAGE].part, "text", text, size, "annotations",
                        "logprobs");
}

/* ---- Items ---------------------------------------------------------------------------------------------- */

static tx_status emit_item(serve_call *c, const char *suffix, const tx_json *item)
{
    const int64_t index = (int64_t)tx_json_size(c->response.output) - 1;
    return emit(c, "output_item", suffix,
                c->stream ? tx_json_pack("{s:I, s:o}", "output_index", index, "item", tx_json_copy(item)) : NULL);
}

/* Ends the open item, if there is one. */
static tx_status close_item(serve_call *c, bool complete)
{
    serve_response *r = &c->response;
    tx_json *item = tx_json_at(r->output, tx_json_size(r->output) - 1);
    const char *text = r->text.data ? r->text.data : "";
    const size_t size = r->text.size;
    const int kind = r->kind;
    if (kind == NONE)
        return TX_OK;
    TX_TRY(tx_json_set_string(item, "status", complete ? "completed" : "incomplete"));
    if (kind == CALL)
        TX_TRY(tx_json_set_text(item, "arguments", text, size));
    else
        TX_TRY(tx_json_append(tx_json_find(item, "content"), part_of(c, text, size)));
    TX_TRY(emit_with(c, kinds[kind].text, "done", kinds[kind].key, tx_json_pack("s%", text, size)));
    if (kind != CALL)
        TX_TRY(emit_with(c, "content_part", "done", "part", part_of(c, text, size)));
    TX_TRY(emit_item(c, "done", item));
    r->kind = NONE;
    r->text.size = 0;
    return TX_OK;
}

/* Begins an item; `call` is the call of a chat, or NULL. */
static tx_status open_item(serve_call *c, int kind, const tx_json *call)
{
    serve_response *r = &c->response;
    char id[64];
    TX_TRY(close_item(c, true));
    r->kind = kind;
    snprintf(id, sizeof id, "%s-%s-%zu", kinds[kind].id, c->id, tx_json_size(r->output));
    tx_json *item = tx_json_pack("{s:s, s:s, s:s}", "id", id, "type", kinds[kind].type, "status", "in_progress");
    tx_status status = item ? TX_OK : TX_MEMORY;
    if (kind == CALL) {
        const tx_json *function = tx_json_find(call, "function");
        TX_THEN(status, tx_json_set(item, "call_id", tx_json_copy(tx_json_find(call, "id"))));
        TX_THEN(status, tx_json_set(item, "name", tx_json_copy(tx_json_find(function, "name"))));
        TX_THEN(status, tx_json_set_string(item, "arguments", ""));
    } else {
        TX_THEN(status, kind == MESSAGE ? tx_json_set_string(item, "role", "assistant")
                                        : tx_json_set(item, "summary", tx_json_array()));
        TX_THEN(status, tx_json_set(item, "content", tx_json_array()));
    }
    if (status) {
        tx_json_free(item);
        return status;
    }
    TX_TRY(tx_json_append(r->output, item));
    TX_TRY(emit_item(c, "added", item));
    return kind == CALL ? TX_OK : emit_with(c, "content_part", "added", "part", part_of(c, "", 0));
}

/* Appends the text `key` of a message or call to the open item. */
static tx_status add_text(serve_call *c, const tx_json *object, const char *key)
{
    const char *text = "";
    size_t size = 0;
    TX_TRY(TX_JSON_OPTIONAL(text, object, key, &text, &size));
    if (!size)
        return TX_OK;
    TX_TRY(serve_append(&c->response.text, text, size));
    return emit_with(c, kinds[c->response.kind].text, "delta", "delta", tx_json_pack("s%", text, size));
}

/* Adds a message of a chat, or a part of it. */
static tx_status add_message(serve_call *c, const tx_json *message)
{
    static const char *const keys[] = {[THOUGHT] = "reasoning_content", [MESSAGE] = "content"};
    const tx_json *calls = tx_json_find(message, "tool_calls");
    for (int kind = THOUGHT; kind <= MESSAGE; kind++) {
        if (tx_json_is_empty(tx_json_find(message, keys[kind])))
            continue;
        if (c->response.kind != kind)
            TX_TRY(open_item(c, kind, NULL));
        TX_TRY(add_text(c, message, keys[kind]));
    }
    for (size_t i = 0; i < tx_json_size(calls); i++) {
        const tx_json *call = tx_json_at(calls, i);
        if (tx_json_has(call, "id")) /* the first part of a call */
            TX_TRY(open_item(c, CALL, call));
        TX_TRY(add_text(c, tx_json_find(call, "function"), "arguments"));
    }
    return TX_OK;
}

/* ---- Answers -------------------------------------------------------------------------------------------- */

/* Copies a member of the request into the answer; `fallback` stands for a missing one, which this function takes. */
static tx_status set_asked(const serve_call *c, tx_json *answer, const char *key, tx_json *fallback)
{
    if (!tx_json_has(c->asked, key))
        return tx_json_set(answer, key, fallback);
    tx_json_free(fallback);
    return tx_json_set(answer, key, tx_json_copy(tx_json_find(c->asked, key)));
}

static tx_json *usage_of(const serve_call *c)
{
    return tx_json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", c->prompt_tokens, "input_tokens_details",
                        "cached_tokens", c->cached, "output_tokens", c->tokens, "output_tokens_details",
                        "reasoning_tokens", c->response.thoughts, "total_tokens", c->prompt_tokens + c->tokens);
}

/* Returns the object of an answer; `finish` is the reason of a chat's end, or NULL while it runs. */
static tx_json *answer_of(const serve_call *c, const char *finish)
{
    const bool cut = finish && strcmp(finish, "length") == 0;
    tx_json *answer = tx_json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:n, s:o, s:o, s:f, s:f, s:s, s:n}", "id", c->id, "object", "response", "created_at",
        c->created, "model", c->model, "status",
        !finish ? "in_progress"
        : cut   ? "incomplete"
                : "completed",
        "error", "incomplete_details", cut ? tx_json_pack("{s:s}", "reason", "max_output_tokens") : tx_json_pack("n"),
        "output", tx_json_copy(c->response.output), "temperature", (double)c->how.temperature, "top_p",
        (double)c->how.top_p, "truncation", "disabled", "previous_response_id");
    tx_status status = answer ? tx_json_set_bool(answer, "store", false) : TX_MEMORY;
    TX_THEN(status, tx_json_set_bool(answer, "background", false));
    TX_THEN(status, tx_json_set_bool(answer, "parallel_tool_calls", !c->one_call));
    TX_THEN(status, set_asked(c, answer, "instructions", tx_json_pack("n")));
    TX_THEN(status, set_asked(c, answer, "max_output_tokens", tx_json_pack("n")));
    TX_THEN(status, set_asked(c, answer, "metadata", tx_json_object()));
    TX_THEN(status, set_asked(c, answer, "reasoning", tx_json_pack("{s:n, s:n}", "effort", "summary")));
    TX_THEN(status, set_asked(c, answer, "text", tx_json_pack("{s:{s:s}}", "format", "type", "text")));
    TX_THEN(status, set_asked(c, answer, "tool_choice", tx_json_pack("s", "auto")));
    TX_THEN(status, set_asked(c, answer, "tools", tx_json_array()));
    TX_THEN(status, tx_json_set(answer, "usage", finish ? usage_of(c) : tx_json_pack("n")));
    if (!status)
        return answer;
    tx_json_free(answer);
    return NULL;
}

tx_status serve_write_response(serve_call *c, const tx_json *choice)
{
    serve_response *r = &c->response;
    if (!r->output) {
        r->output = tx_json_array();
        TX_TRY(r->output ? TX_OK : TX_MEMORY);
        if (c->stream)
            for (int i = 0; i < 2; i++)
                TX_TRY(
                    emit(c, i ? "in_progress" : "created", "", tx_json_pack("{s:o}", "response", answer_of(c, NULL))));
    }
    if (choice)
        return add_message(c, tx_json_find(choice, c->stream ? "delta" : "message"));
    const char *finish = c->text->finish;
    if (!tx_json_size(r->output))
        TX_TRY(open_item(c, MESSAGE, NULL));
    TX_TRY(close_item(c, strcmp(finish, "stop") == 0 || strcmp(finish, "tool_calls") == 0));
    tx_json *answer = answer_of(c, finish);
    if (!c->stream)
        return serve_write(c, answer);
    return emit(c, strcmp(finish, "length") == 0 ? "incomplete" : "completed", "",
                answer ? tx_json_pack("{s:o}", "response", answer) : NULL);
}
