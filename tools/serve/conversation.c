/* SPDX-License-Identifier: Apache-2.0
 * Reads the conversations of requests, and renders them to prompts. */
#include "tools/serve/txserve.h"

#include <stdlib.h>
#include <string.h>

/* Checks tools before they are rendered. */
static tx_status check_tools(const tx_json *tools)
{
    if (tx_json_type_of(tools) != TX_JSON_ARRAY)
        return tx_fail(TX_INVALID, "expected an array");
    for (size_t i = 0; i < tx_json_size(tools); i++) {
        const char *text = "function";
        tx_json *function = NULL;
        tx_status status = tx_json_type_of(tx_json_at(tools, i)) == TX_JSON_OBJECT
                               ? TX_JSON_OPTIONAL(string, tx_json_at(tools, i), "type", &text)
                               : tx_fail(TX_INVALID, "expected an object");
        if (!status && strcmp(text, "function") != 0)
            status = tx_fail(TX_INVALID, "type %.40s is not supported: use function", text);
        TX_THEN(status, tx_json_get(tx_json_at(tools, i), "function", TX_JSON_OBJECT, &function));
        TX_THEN(status, tx_json_get_string(function, "name", &text));
        TX_TRY(tx_fail_in(status, "tool %zu", i + 1));
    }
    return TX_OK;
}

/* Reads a variable of many templates. Others follow only its default. */
static tx_status read_effort(const serve_call *c, tx_conversation *said)
{
    static const char key[] = "reasoning_effort";
    const char *effort = "medium";
    TX_TRY(TX_JSON_OPTIONAL(string, c->body, key, &effort));
    if (!tx_chat_reads(c->server->chat, key))
        return strcmp(effort, "medium") == 0
                   ? TX_OK
                   : tx_fail(TX_INVALID, "%s: the chat template does not read it: leave it out", key);
    return tx_json_has(c->body, key) ? tx_json_set_string(said->said, key, effort) : TX_OK;
}

/* Reads the variables of the template, and the end of the prompt. */
static tx_status read_variables(const serve_call *c, tx_conversation *said)
{
    bool asks = true, continues = false;
    tx_json *variables = NULL;
    TX_TRY(read_effort(c, said));
    if (tx_json_has(c->body, "chat_template_kwargs"))
        TX_TRY(tx_json_get(c->body, "chat_template_kwargs", TX_JSON_OBJECT, &variables));
    for (void *i = tx_json_first(variables); i; i = tx_json_next(variables, i))
        if (!tx_chat_reads(c->server->chat, tx_json_key(i)))
            return tx_fail(TX_INVALID, "chat_template_kwargs: the chat template does not read %.60s", tx_json_key(i));
    TX_TRY(tx_conversation_set(said, variables));
    TX_TRY(TX_JSON_OPTIONAL(bool, c->body, "continue_final_message", &continues));
    asks = !continues;
    TX_TRY(TX_JSON_OPTIONAL(bool, c->body, "add_generation_prompt", &asks));
    if (asks && continues)
        return tx_fail(TX_INVALID, "continue_final_message and add_generation_prompt exclude each other");
    said->suffix = continues ? TX_CHAT_CONTINUE_FINAL : asks ? TX_CHAT_GENERATION_PROMPT : TX_CHAT_NO_SUFFIX;
    return TX_OK;
}

/* Reads tool_choice, and the tools, which are NULL if it is "none" or there are none. */
static tx_status read_tools(serve_call *c, tx_json **tools)
{
    const char *choice = "auto";
    tx_json *named = NULL;
    *tools = tx_json_find(c->body, "tools");
    if (!tx_json_has(c->body, "tools") || tx_json_is_empty(*tools))
        *tools = NULL;
    if (tx_json_type_of(tx_json_find(c->body, "tool_choice")) == TX_JSON_OBJECT) {
        TX_TRY(tx_json_get(tx_json_find(c->body, "tool_choice"), "function", TX_JSON_OBJECT, &named));
        TX_TRY(tx_json_get_string(named, "name", &c->required));
    } else {
        TX_TRY(TX_JSON_OPTIONAL(string, c->body, "tool_choice", &choice));
        c->required = strcmp(choice, "required") == 0 ? "" : NULL;
        if (!c->required && strcmp(choice, "auto") != 0 && strcmp(choice, "none") != 0)
            return tx_fail(TX_INVALID, "%.40s is not supported: use auto, none, required, or the name of a function",
                           choice);
    }
    if (c->required && !*tools)
        return tx_fail(TX_INVALID, "a call is required, but the request has no tools");
    if (c->required && c->grammar)
        return tx_fail(TX_INVALID, "a required call and a constraint of the answer exclude each other");
    *tools = strcmp(choice, "none") == 0 ? NULL : *tools;
    return TX_OK;
}

/* Ends the prompt with the begin of the required call, and constrains the answer to the rest. */
static tx_status require_call(serve_call *c, tx_ids *ids)
{
    const tx_chat_parsing how = {.tools = c->tools, .prompt = ids->id, .count = ids->count};
    if (!c->required)
        return TX_OK;
    TX_TRY(tx_chat_require(c->server->chat, &how, *c->required ? c->required : NULL, c->server->vocabulary, &c->prefix,
                           &c->grammar));
    c->how.grammar = c->grammar;
    c->prefix_ids = ids->count;
    TX_TRY(tx_encoder_run(c->encoder, c->prefix, strlen(c->prefix), true, ids));
    c->prefix_ids = ids->count - c->prefix_ids;
    return TX_OK;
}

tx_status serve_read_conversation(serve_call *c, tx_ids *ids)
{
    bool parallel = true;
    int32_t end;
    tx_json *messages, *tools, *documents = tx_json_find(c->body, "documents");
    tx_conversation said = {0};
    if (!c->server->chat)
        return tx_fail(TX_INVALID,
                       "the model has no chat template that TX can use: use /v1/completions, or start txserve with "
                       "--chat_template");
    const char *text = tx_chat_end(c->server->chat, &end);
    TX_TRY(tx_json_get(c->body, "messages", TX_JSON_ARRAY, &messages));
    TX_TRY(tx_fail_in(read_tools(c, &tools), "tool_choice"));
    TX_TRY(TX_JSON_OPTIONAL(bool, c->body, "parallel_tool_calls", &parallel));
    c->one_call = !parallel;
    if (tools)
        TX_TRY(tx_fail_in(check_tools(tools), "tools"));
    tx_json *object = tx_json_pack("{s:O, s:O*, s:O*}", "messages", messages, "tools", tools, "documents", documents);
    tx_status status = object ? tx_conversation_read(object, false, &said) : TX_MEMORY;
    tx_json_free(object);
    TX_THEN(status, tx_json_set_null(c->body, "messages")); /* `said` has a copy */
    c->tools = tools;
    TX_THEN(status, read_variables(c, &said));
    TX_THEN(status, tx_chat_prompt(c->server->chat, c->encoder, &said, ids));
    TX_THEN(status, tx_fail_in(require_call(c, ids), "tool_choice"));
    TX_THEN(status, tx_generation_add_end(&c->how, end, text, c->stop)); /* read_stops left room for it */
    tx_conversation_free(&said);
    return status;
}
