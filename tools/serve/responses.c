/* SPDX-License-Identifier: Apache-2.0
 * Translates requests of /v1/responses to those of chats. */
#include "tools/serve/txserve.h"

#include <stdlib.h>
#include <string.h>

/* ---- Messages ------------------------------------------------------------------------------------------- */

static bool is_text(const char *type)
{
    static const char *const types[] = {"input_text", "output_text", "text", "reasoning_text", "summary_text"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

/* Returns the content of a message in the form of chats, whose parts have other types. */
static tx_status read_content(const tx_json *item, const char *key, tx_json **content)
{
    const tx_json *given = tx_json_find(item, key);
    const char *type = "", *text;
    size_t size;
    if (tx_json_type_of(given) == TX_JSON_STRING) {
        *content = tx_json_copy(given);
        return *content ? TX_OK : TX_MEMORY;
    }
    if (tx_json_type_of(given) != TX_JSON_ARRAY)
        return tx_fail(TX_FORMAT, "%s: expected a text or an array", key);
    tx_json *parts = tx_json_array();
    tx_status status = TX_OK;
    for (size_t i = 0; i < tx_json_size(given) && !status; i++) {
        const tx_json *part = tx_json_at(given, i);
        status = tx_json_type_of(part) == TX_JSON_OBJECT ? tx_json_get_string(part, "type", &type)
                                                         : tx_fail(TX_FORMAT, "expected objects");
        const bool refuses = !status && strcmp(type, "refusal") == 0;
        if (!status && !refuses && !is_text(type))
            status = tx_fail(TX_INVALID, "type %.40s is not supported: TX reads only text", type);
        TX_THEN(status, tx_json_get_text(part, refuses ? "refusal" : "text", &text, &size));
        TX_THEN(status, tx_json_append(parts, tx_json_pack("{s:s, s:s%}", "type", "text", "text", text, size)));
    }
    if (status)
        tx_json_free(parts);
    else
        *content = parts;
    return tx_fail_in(status, "%s", key);
}

/* The last message if it is the assistant's, and NULL otherwise. Items of one turn become one message. */
static tx_json *last_answer(const tx_json *messages)
{
    tx_json *last = tx_json_at(messages, tx_json_size(messages) - 1);
    const char *role = "";
    return !tx_json_get_string(last, "role", &role) && strcmp(role, "assistant") == 0 ? last : NULL;
}

static tx_status add_message(const tx_json *item, tx_json *messages)
{
    const char *role;
    tx_json *content = NULL, *last = last_answer(messages);
    TX_TRY(tx_json_get_string(item, "role", &role));
    TX_TRY(read_content(item, "content", &content));
    if (last && strcmp(role, "assistant") == 0 && tx_json_is_empty(tx_json_find(last, "content")) &&
        !tx_json_has(last, "tool_calls"))
        return tx_json_set(last, "content", content); /* of a thought */
    return tx_json_append(messages, tx_json_pack("{s:s, s:o}", "role", role, "content", content));
}

/* A thought without text, such as an encrypted one, has no part in the prompt. */
static tx_status add_thought(const tx_json *item, tx_json *messages)
{
    const char *key = tx_json_is_empty(tx_json_find(item, "content")) ? "summary" : "content", *text;
    tx_json *parts = NULL;
    serve_bytes thought = {0};
    size_t size;
    if (tx_json_is_empty(tx_json_find(item, key)))
        return TX_OK;
    TX_TRY(read_content(item, key, &parts));
    tx_status status =
        tx_json_type_of(parts) == TX_JSON_ARRAY ? TX_OK : tx_fail(TX_FORMAT, "%s: expected an array", key);
    for (size_t i = 0; i < tx_json_size(parts) && !status; i++) {
        status = tx_json_get_text(tx_json_at(parts, i), "text", &text, &size);
        TX_THEN(status, serve_append(&thought, text, size));
    }
    TX_THEN(status, tx_json_append(messages, tx_json_pack("{s:s, s:s, s:s%}", "role", "assistant", "content", "",
                                                          "reasoning_content", thought.data, thought.size)));
    free(thought.data);
    tx_json_free(parts);
    return status;
}

static tx_status add_call(const tx_json *item, tx_json *messages)
{
    const char *id, *name, *arguments;
    size_t size;
    TX_TRY(tx_json_get_string(item, "call_id", &id));
    TX_TRY(tx_json_get_string(item, "name", &name));
    TX_TRY(tx_json_get_text(item, "arguments", &arguments, &size));
    tx_json *last = last_answer(messages);
    if (!last) {
        TX_TRY(tx_json_append(messages, tx_json_pack("{s:s, s:n}", "role", "assistant", "content")));
        last = last_answer(messages);
    }
    if (!tx_json_has(last, "tool_calls"))
        TX_TRY(tx_json_set(last, "tool_calls", tx_json_array()));
    return tx_json_append(tx_json_find(last, "tool_calls"),
                          tx_json_pack("{s:s, s:s, s:{s:s, s:s%}}", "id", id, "type", "function", "function", "name",
                                       name, "arguments", arguments, size));
}

static tx_status add_result(const tx_json *item, tx_json *messages)
{
    const char *id;
    tx_json *content = NULL;
    TX_TRY(tx_json_get_string(item, "call_id", &id));
    TX_TRY(read_content(item, "output", &content));
    return tx_json_append(messages,
                          tx_json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", id, "content", content));
}

static tx_status add_item(const tx_json *item, tx_json *messages)
{
    static const struct {
        const char *type;
        tx_status (*add)(const tx_json *item, tx_json *messages);
    } rows[] = {{"message", add_message},
                {"reasoning", add_thought},
                {"function_call", add_call},
                {"function_call_output", add_result}};
    const char *type = "message";
    if (tx_json_type_of(item) != TX_JSON_OBJECT)
        return tx_fail(TX_FORMAT, "expected an object");
    TX_TRY(TX_JSON_OPTIONAL(string, item, "type", &type));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(type, rows[i].type) == 0)
            return rows[i].add(item, messages);
    return tx_fail(TX_INVALID, "type %.40s is not supported", type);
}

static tx_status read_input(const tx_json *asked, tx_json *messages)
{
    const tx_json *input = tx_json_find(asked, "input");
    const char *text;
    size_t size;
    if (tx_json_has(asked, "instructions")) {
        TX_TRY(tx_json_get_text(asked, "instructions", &text, &size));
        TX_TRY(tx_json_append(messages, tx_json_pack("{s:s, s:s%}", "role", "system", "content", text, size)));
    }
    if (tx_json_type_of(input) != TX_JSON_ARRAY) {
        TX_TRY(tx_json_get_text(asked, "input", &text, &size));
        return tx_json_append(messages, tx_json_pack("{s:s, s:s%}", "role", "user", "content", text, size));
    }
    for (size_t i = 0; i < tx_json_size(input); i++)
        TX_TRY(tx_fail_in(add_item(tx_json_at(input, i), messages), "input: item %zu", i + 1));
    return TX_OK;
}

/* ---- Settings ------------------------------------------------------------------------------------------- */

/* In chats the function is a member of the tool. */
static tx_status read_tools(const tx_json *asked, tx_json *chat)
{
    const tx_json *given = tx_json_find(asked, "tools");
    if (tx_json_type_of(given) != TX_JSON_ARRAY)
        return TX_OK; /* refused as in chats */
    tx_json *tools = tx_json_array();
    tx_status status = TX_OK;
    for (size_t i = 0; i < tx_json_size(given) && !status; i++) {
        tx_json *tool = tx_json_copy(tx_json_at(given, i));
        const char *type = NULL;
        status = tx_fail_in(tx_json_type_of(tool) == TX_JSON_OBJECT ? tx_json_get_string(tool, "type", &type)
                                                                    : tx_fail(TX_FORMAT, "expected an object"),
                            "tools: tool %zu", i + 1);
        tx_json *made = status ? NULL : tx_json_pack("{s:s, s:O}", "type", type, "function", tool);
        if (!status)
            tx_json_unset(tool, "type");
        tx_json_free(tool);
        TX_THEN(status, tx_json_append(tools, made));
    }
    if (!status)
        return tx_json_set(chat, "tools", tools);
    tx_json_free(tools);
    return status;
}

static tx_status read_choice(const tx_json *asked, tx_json *chat)
{
    const tx_json *choice = tx_json_find(asked, "tool_choice");
    const char *type, *name;
    if (tx_json_type_of(choice) != TX_JSON_OBJECT)
        return TX_OK;
    TX_TRY(tx_json_get_string(choice, "type", &type));
    if (strcmp(type, "function") != 0)
        return tx_fail(TX_INVALID, "type %.40s is not supported: use function", type);
    TX_TRY(tx_json_get_string(choice, "name", &name));
    return tx_json_set(chat, "tool_choice", tx_json_pack("{s:s, s:{s:s}}", "type", type, "function", "name", name));
}

/* {"format": {"type": "json_schema", "name": .., "schema": ..}} is response_format of chats. */
static tx_status read_text(const tx_json *asked, tx_json *chat)
{
    tx_json *text = NULL, *format = NULL;
    const char *type;
    if (!tx_json_has(asked, "text"))
        return TX_OK;
    TX_TRY(tx_json_get(asked, "text", TX_JSON_OBJECT, &text));
    if (!tx_json_has(text, "format"))
        return TX_OK;
    TX_TRY(tx_json_get(text, "format", TX_JSON_OBJECT, &format));
    TX_TRY(tx_json_get_string(format, "type", &type));
    return tx_json_set(chat, "response_format", tx_json_pack("{s:s, s:O}", "type", type, "json_schema", format));
}

static tx_status read_reasoning(const tx_json *asked, tx_json *chat)
{
    tx_json *reasoning = NULL;
    if (!tx_json_has(asked, "reasoning"))
        return TX_OK;
    TX_TRY(tx_json_get(asked, "reasoning", TX_JSON_OBJECT, &reasoning));
    return tx_json_has(reasoning, "effort")
               ? tx_json_set(chat, "reasoning_effort", tx_json_copy(tx_json_find(reasoning, "effort")))
               : TX_OK;
}

tx_status serve_read_response(serve_call *c)
{
    static const char *const own[] = {"input",      "instructions", "max_output_tokens", "text", "reasoning",
                                      "truncation", "store"};
    const tx_json *asked = c->body;
    int64_t most = 0;
    tx_json *chat = tx_json_copy(asked), *messages = tx_json_array();
    tx_status status = chat ? TX_OK : TX_MEMORY;
    for (size_t i = 0; i < sizeof own / sizeof own[0] && !status; i++)
        tx_json_unset(chat, own[i]);
    TX_THEN(status, read_input(asked, messages));
    TX_THEN(status, TX_JSON_OPTIONAL(int, asked, "max_output_tokens", 1, INT32_MAX, &most));
    if (most)
        TX_THEN(status, tx_json_set_int(chat, "max_completion_tokens", most));
    TX_THEN(status, read_tools(asked, chat));
    TX_THEN(status, tx_fail_in(read_choice(asked, chat), "tool_choice"));
    TX_THEN(status, tx_fail_in(read_text(asked, chat), "text"));
    TX_THEN(status, tx_fail_in(read_reasoning(asked, chat), "reasoning"));
    if (status) {
        tx_json_free(messages);
        tx_json_free(chat);
        return status;
    }
    c->asked = c->body;
    c->body = chat;
    tx_json_unset(c->asked, "input");
    c->kind = SERVE_CHAT;
    return tx_json_set(chat, "messages", messages);
}
