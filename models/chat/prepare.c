/* SPDX-License-Identifier: Apache-2.0
 * Fits conversations to templates: finds out how a template reads contents, and which messages it does not render. */
#include "models/chat/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Texts of messages ---------------------------------------------------------------------------------- */

/* A marker after the text of message `index`. If the rendered text has it, the template rendered the message. It ends
 * with a space, which templates that remove white space remove. */
#define MARK_BEGIN "\xEE\x80\x80" /* U+E000, for private use */
#define MARK_END "\xEE\x80\x81"
#define MARK_ROOM 40

static size_t write_mark(char mark[MARK_ROOM], size_t index)
{
    return (size_t)snprintf(mark, MARK_ROOM, MARK_BEGIN "%zu" MARK_END " ", index);
}

/* Finds the text of a message: its content, or the last text in its list of parts. Returns the object and key that have
 * it, or NULL if it is empty. */
static tx_json *find_text(const tx_json *message, const char **key)
{
    const tx_json *list = tx_json_find(message, "content");
    tx_json *found = (tx_json *)(uintptr_t)message;
    *key = "content";
    for (size_t i = tx_json_type_of(list) == TX_JSON_ARRAY ? tx_json_size(list) : 0; i > 0 && found == message; i--)
        if (tx_json_type_of(tx_json_find(tx_json_at(list, i - 1), "text")) == TX_JSON_STRING) {
            found = tx_json_at(list, i - 1);
            *key = "text";
        }
    const tx_json *text = tx_json_find(found, *key);
    return tx_json_type_of(text) == TX_JSON_STRING && !tx_json_is_empty(text) ? found : NULL;
}

/* Appends the marker of message `index` to its text. */
static tx_status mark(const tx_json *said, size_t index)
{
    char end[MARK_ROOM];
    const char *key, *text;
    size_t size;
    tx_buffer all = {0};
    tx_json *object = find_text(tx_json_at(tx_json_find(said, "messages"), index), &key);
    if (!object)
        return TX_OK;
    TX_TRY(tx_json_get_text(object, key, &text, &size));
    tx_buffer_add(&all, text, size);
    tx_buffer_add(&all, end, write_mark(end, index));
    tx_status status = all.status;
    TX_THEN(status, tx_json_set_text(object, key, all.data, all.size));
    free(all.data);
    return status;
}

/* The first place of a word in begin .. end - 1, or `end`. */
static const char *find(const char *begin, const char *end, const char *word, size_t size)
{
    for (; (size_t)(end - begin) >= size; begin++) {
        begin = memchr(begin, *word, (size_t)(end - begin));
        if (!begin || (size_t)(end - begin) < size)
            return end;
        if (memcmp(begin, word, size) == 0)
            return begin;
    }
    return end;
}

static bool contains(const tx_buffer *text, const char *word)
{
    const char *end = text->data + text->size;
    return text->size && find(text->data, end, word, strlen(word)) != end;
}

/* ---- Habits of templates -------------------------------------------------------------------------------- */

#define NEEDLE "needle"

/* Returns true if the template renders messages with the needle and without `bad`. Takes the messages. */
static bool renders(const tx_chat *chat, tx_json *messages, const char *bad)
{
    tx_jinja_text text = {0};
    tx_json *said = tx_json_pack("{s:o, s:n, s:n}", "messages", messages, "tools", "documents");
    const bool good = said && !tx_jinja_render(chat->jinja, said, chat->given[1], &text) &&
                      contains(&text.bytes, NEEDLE) && !contains(&text.bytes, bad);
    tx_jinja_text_free(&text);
    tx_json_free(said);
    return good;
}

/* A question, a tool call next to an empty content, and its result. `arguments` is taken. */
static tx_json *make_call(bool null, tx_json *arguments)
{
    return tx_json_pack("[{s:s, s:s}, {s:s, s:s?, s:[{s:s, s:s, s:{s:s, s:o}}]}, {s:s, s:s, s:s, s:s}]", "role", "user",
                        "content", "a", "role", "assistant", "content", null ? NULL : "", "tool_calls", "id",
                        "call00001", "type", "function", "function", "name", NEEDLE, "arguments", arguments, "role",
                        "tool", "content", "b", "name", NEEDLE, "tool_call_id", "call00001");
}

static bool renders_call(const tx_chat *chat, bool null)
{
    return renders(chat, make_call(null, tx_json_pack("{s:s}", "c", "d")), "None") ||
           renders(chat, make_call(null, tx_json_pack("s", "{\"c\": \"d\"}")), "None");
}

tx_status tx_chat_find_habits(tx_chat *chat)
{
    chat->parts = renders(
        chat, tx_json_pack("[{s:s, s:[{s:s, s:s}]}]", "role", "user", "content", "type", "text", "text", NEEDLE),
        "'text'"); /* a list as Python prints it */
    chat->only_parts =
        chat->parts && !renders(chat, tx_json_pack("[{s:s, s:s}]", "role", "user", "content", NEEDLE), "'text'");
    chat->null = !renders_call(chat, false) && renders_call(chat, true);
    chat->objects =
        renders(chat, make_call(chat->null, tx_json_pack("{s:s}", "c", "d")), "{'c'"); /* as Python prints */
    return TX_OK;
}

/* ---- Preparing ------------------------------------------------------------------------------------------ */

static bool is_among(const char *key, const char *const *keys)
{
    while (*keys && strcmp(*keys, key) != 0)
        keys++;
    return *keys != NULL;
}

/* Refuses parts of the conversation that the template does not read, and notes other keys as ignored. */
static tx_status check_keys(const tx_chat *chat, const tx_json *object, tx_conversation *c)
{
    static const char *const parts[] = {"tools", "documents", "tool_calls", "reasoning_content", "tool_plan", NULL};
    /* The library's own keys, and duplicates of a checked key. */
    static const char *const silent[] = {"role", "thinking", "reasoning", "instruction", "input", "weight", NULL};
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i)) {
        const char *key = tx_json_key(i);
        if (strstr(chat->text, key) || tx_json_is_empty(tx_json_value(i)))
            continue;
        if (is_among(key, parts))
            return tx_fail(TX_FORMAT, "%s: the chat template does not render it", key);
        if (!is_among(key, silent))
            tx_conversation_ignore(c, key);
    }
    return TX_OK;
}

/* Replaces a list of parts in `content` by their texts. */
static tx_status join_parts(tx_json *message)
{
    const tx_json *list = tx_json_find(message, "content");
    tx_buffer all = {0};
    for (size_t i = 0; i < tx_json_size(list); i++) {
        const char *type = "", *text = "";
        size_t size = 0;
        tx_status status = tx_json_get_string(tx_json_at(list, i), "type", &type);
        TX_THEN(status,
                strcmp(type, "text") == 0
                    ? tx_json_get_text(tx_json_at(list, i), "text", &text, &size)
                    : tx_fail(TX_FORMAT, "content: the chat template does not render parts of type \"%.40s\"", type));
        if (status) {
            free(all.data);
            return status == TX_NOT_FOUND ? TX_FORMAT : status;
        }
        tx_buffer_add(&all, text, size);
    }
    tx_status status = all.status;
    TX_THEN(status, tx_json_set_text(message, "content", all.data ? all.data : "", all.size));
    free(all.data);
    return status;
}

/* Replaces a text in `content` by a list of one part. */
static tx_status split_text(tx_json *message)
{
    const char *text;
    size_t size;
    TX_TRY(tx_json_get_text(message, "content", &text, &size));
    return tx_json_set(message, "content", tx_json_pack("[{s:s, s:s%}]", "type", "text", "text", text, size));
}

/* Next to tool calls, null, "" and no content mean the same. Each template fails with, or does not render, some of
 * them. */
static tx_status set_empty(const tx_chat *chat, tx_json *message)
{
    const tx_json *content = tx_json_find(message, "content"), *calls = tx_json_find(message, "tool_calls");
    if (!calls || tx_json_is_empty(calls) || (content && !tx_json_is_empty(content)))
        return TX_OK;
    return chat->null ? tx_json_set_null(message, "content") : tx_json_set_string(message, "content", "");
}

static bool has_list(const tx_json *message)
{
    return tx_json_type_of(tx_json_find(message, "content")) == TX_JSON_ARRAY;
}

tx_status tx_chat_prepare(const tx_chat *chat, tx_conversation *c)
{
    TX_TRY(check_keys(chat, c->said, c));
    for (void *i = tx_json_first(c->said); i; i = tx_json_next(c->said, i))
        if (tx_json_find(chat->given[0], tx_json_key(i)))
            return tx_fail(TX_FORMAT, "chat_template_kwargs: %s is set by the tokenizer or has a key of its own",
                           tx_json_key(i));
    for (size_t i = 0; i < c->count; i++) {
        tx_json *message = tx_conversation_message(c, i);
        tx_status status = check_keys(chat, message, c);
        TX_THEN(status, set_empty(chat, message));
        if (!status && !chat->parts && has_list(message))
            status = join_parts(message);
        if (!status && chat->only_parts && tx_json_type_of(tx_json_find(message, "content")) == TX_JSON_STRING)
            status = split_text(message);
        TX_TRY(tx_fail_in(status, "message %zu", i + 1));
    }
    return TX_OK;
}

/* Replaces arguments of calls that are the text of a JSON object by the object. */
static tx_status parse_arguments(const tx_json *calls)
{
    for (size_t i = 0; i < tx_json_size(calls); i++) {
        tx_json *function = tx_json_find(tx_json_at(calls, i), "function"), *arguments = NULL;
        const char *text;
        size_t size;
        if (tx_json_type_of(tx_json_find(function, "arguments")) != TX_JSON_STRING)
            continue;
        TX_TRY(tx_json_get_text(function, "arguments", &text, &size));
        if (tx_json_parse(text, size, "arguments", &arguments) || tx_json_type_of(arguments) != TX_JSON_OBJECT)
            tx_json_free(arguments); /* it stays a text */
        else
            TX_TRY(tx_json_set(function, "arguments", arguments));
    }
    return TX_OK;
}

tx_status tx_chat_accept(const tx_chat *chat, tx_conversation *c)
{
    static const char thought[] = "reasoning_content";
    chat = tx_chat_with(chat, tx_json_has(c->said, "tools"));
    for (size_t i = 0; i < c->count; i++) {
        tx_json *message = tx_conversation_message(c, i);
        if (chat->objects)
            TX_TRY(parse_arguments(tx_json_find(message, "tool_calls")));
        if (!tx_json_has(message, thought) || strstr(chat->text, thought))
            continue;
        tx_json_unset(message, thought);
        if (!strstr(chat->text, "thinking"))
            tx_conversation_ignore(c, thought);
    }
    return TX_OK;
}

tx_status tx_chat_adapt(const tx_chat *chat, tx_conversation *c, bool *changed)
{
    *changed = false;
    for (size_t i = 0; i < c->count; i++) {
        tx_json *message = tx_conversation_message(c, i);
        const bool list = has_list(message) && !chat->only_parts;
        const bool renamed = strcmp(tx_conversation_role(c, i), "developer") == 0 && !strstr(chat->text, "developer");
        tx_status status = renamed ? tx_json_set_string(message, "role", "system") : TX_OK;
        TX_THEN(status, list ? join_parts(message) : TX_OK);
        TX_TRY(tx_fail_in(status, "message %zu", i + 1));
        *changed = *changed || list || renamed;
    }
    return TX_OK;
}

/* ---- Lost messages -------------------------------------------------------------------------------------- */

/* Sets `seen` for each message whose marker is in a rendered text. */
static void find_marks(const tx_buffer *text, size_t count, bool *seen)
{
    const char *end = text->data + text->size;
    for (const char *at = text->data; at != end; at++) {
        size_t index = 0;
        at = find(at, end, MARK_BEGIN, sizeof MARK_BEGIN - 1);
        if (at == end)
            return;
        for (const char *digit = at + sizeof MARK_BEGIN - 1; digit < end && *digit >= '0' && *digit <= '9'; digit++)
            index = index < count ? index * 10 + (size_t)(*digit - '0') : index;
        if (index < count)
            seen[index] = true;
    }
}

tx_status tx_chat_find_lost(const tx_chat *chat, tx_conversation *c, bool asks)
{
    const char *key;
    tx_jinja_text text = {0};
    tx_json *said = tx_json_copy(c->said);
    bool *seen = calloc(c->count + 1, sizeof *seen);
    tx_status status = said && seen ? TX_OK : tx_fail(TX_MEMORY, "no memory for messages");
    for (size_t i = 0; i < c->count && !status; i++)
        status = mark(said, i);
    c->lost = 0;
    if (!status && tx_jinja_render(chat->jinja, said, chat->given[asks], &text) == TX_OK) {
        find_marks(&text.bytes, c->count, seen);
        for (size_t i = 0; i < c->count && !c->lost; i++) {
            const tx_json *message = tx_conversation_message(c, i), *calls = tx_json_find(message, "tool_calls");
            /* Some templates write only the calls of a message. */
            if (!seen[i] && find_text(message, &key) && (!calls || tx_json_is_empty(calls)))
                c->lost = i + 1;
        }
    }
    tx_jinja_text_free(&text);
    tx_json_free(said);
    free(seen);
    return status;
}

/* ---- Continued messages --------------------------------------------------------------------------------- */

tx_status tx_chat_render_open(const tx_chat *chat, const tx_conversation *c, tx_jinja_text *text)
{
    char end[MARK_ROOM];
    const char *key;
    const size_t last = c->count - 1, size = write_mark(end, last);
    if (!find_text(tx_conversation_message(c, last), &key))
        return tx_fail(TX_FORMAT, "continue_final_message: message %zu has no text to continue", c->count);
    tx_json *said = tx_json_copy(c->said);
    tx_status status = said ? mark(said, last) : tx_fail(TX_MEMORY, "no memory for messages");
    TX_THEN(status, tx_jinja_render(chat->jinja, said, chat->given[0], text));
    tx_json_free(said);
    TX_TRY(status);
    const char *bytes = text->bytes.data, *all = bytes + text->bytes.size;
    const char *at = text->bytes.size ? find(bytes, all, end, size - 1) : all;
    if (at == all)
        return tx_fail(TX_FORMAT, "continue_final_message: the chat template does not render the text of message %zu",
                       c->count);
    const bool spaced = at + size <= all && at[size - 1] == ' ';
    while (!spaced && at > bytes && strchr(" \n\t\r", at[-1])) /* the template removed the white space at the end */
        at--;
    text->bytes.size = text->flags.size = (size_t)(at - bytes);
    for (size_t i = 0; i < text->turns; i++)
        text->turn[i].end = text->turn[i].end < text->bytes.size ? text->turn[i].end : text->bytes.size;
    return TX_OK;
}
