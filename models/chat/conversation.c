/* SPDX-License-Identifier: Apache-2.0
 * Conversations: adding messages, and reading objects of instruction data. */
#include "models/chat/chat.h"

#include "api/base/needs.h"
#include "models/data/lines.h"
#include "models/names.h"
#include "models/tokenizer/buffer.h"

#include <stdlib.h>
#include <string.h>

#define VARIABLES "chat_template_kwargs"

/* ---- Messages -------------------------------------------------------------------------------------------- */

void tx_conversation_free(tx_conversation *conversation)
{
    if (!conversation)
        return;
    tx_json_free(conversation->said);
    free(conversation->learnt);
    *conversation = (tx_conversation){0};
}

static tx_status set_variables(const tx_conversation *c, const tx_json *variables)
{
    static const char *const own[] = {"messages", "tools", "documents"};
    for (void *i = tx_json_first(variables); i; i = tx_json_next(variables, i)) {
        for (size_t k = 0; k < sizeof own / sizeof own[0]; k++)
            if (strcmp(own[k], tx_json_key(i)) == 0)
                return tx_fail(TX_FORMAT, VARIABLES ": %s is a key of its own", own[k]);
        TX_TRY(tx_json_set(c->said, tx_json_key(i), tx_json_copy(tx_json_value(i))));
    }
    return TX_OK;
}

/* Makes an object without messages and with the `tools` and `documents` of `from`. */
static tx_status clear(tx_conversation *c, const tx_json *from)
{
    static const char *const others[] = {"tools", "documents"};
    tx_json *said = tx_json_object(), *variables = NULL;
    tx_status status = tx_json_set(said, "messages", tx_json_array());
    for (size_t i = 0; i < sizeof others / sizeof others[0] && !status; i++)
        status = from && tx_json_has(from, others[i])
                     ? tx_json_set(said, others[i], tx_json_copy(tx_json_find(from, others[i])))
                     : tx_json_set_null(said, others[i]);
    tx_json_free(c->said);
    c->said = said;
    c->count = c->prompt = 0;
    c->weighted = false;
    if (!status && from && tx_json_has(from, VARIABLES))
        status = tx_json_get(from, VARIABLES, TX_JSON_OBJECT, &variables);
    return status ? status : set_variables(c, variables);
}

tx_status tx_conversation_set(tx_conversation *c, const tx_json *variables)
{
    TX_NEEDS(c, TX_INVALID);
    if (!c->said)
        TX_TRY(clear(c, NULL));
    return set_variables(c, variables);
}
/* Appends a message, which the conversation owns from here on. */
static tx_status append(tx_conversation *c, tx_json *message, bool learnt)
{
    tx_status status = message ? TX_OK : tx_fail(TX_MEMORY, "no memory for a message");
    if (!status && !c->said)
        status = clear(c, NULL);
    TX_THEN(status, tx_array_reserve(&c->learnt, &c->room, c->count + 1, sizeof *c->learnt, "messages"));
    if (status) {
        tx_json_free(message);
        return status;
    }
    TX_TRY(tx_json_append(tx_json_find(c->said, "messages"), message));
    c->learnt[c->count++] = learnt;
    return TX_OK;
}

static tx_json *make_message(const char *role)
{
    tx_json *result = tx_json_object();
    if (!tx_json_set_string(result, "role", role))
        return result;
    tx_json_free(result);
    return NULL;
}

tx_status tx_conversation_add(tx_conversation *c, const char *role, const char *text, size_t size)
{
    TX_NEEDS(c && role && (text || !size), TX_INVALID);
    char *whole = NULL;
    tx_json *result = make_message(role);
    tx_status status = tx_utf8_replace(text ? text : "", size, &whole, &size);
    TX_THEN(status, tx_json_set_text(result, "content", whole, size));
    free(whole);
    if (status)
        tx_json_free(result);
    return status ? status : append(c, result, false);
}

tx_status tx_conversation_copy(tx_conversation *c, const tx_conversation *from, size_t index)
{
    TX_NEEDS(c && from && index < from->count, TX_INVALID);
    return append(c, tx_json_copy(tx_conversation_message(from, index)), from->learnt[index]);
}

tx_json *tx_conversation_message(const tx_conversation *c, size_t index)
{
    return tx_json_at(tx_json_find(c->said, "messages"), index);
}

const char *tx_conversation_role(const tx_conversation *c, size_t index)
{
    TX_NEEDS(c && index < c->count, NULL);
    const char *role = "";
    return tx_json_get_string(tx_conversation_message(c, index), "role", &role) ? "" : role;
}

void tx_conversation_remove(tx_conversation *c, size_t first, size_t count)
{
    for (size_t i = 0; c && i < count && first < c->count; i++) {
        tx_json_remove(tx_json_find(c->said, "messages"), first);
        memmove(c->learnt + first, c->learnt + first + 1, (--c->count - first) * sizeof *c->learnt);
    }
}

/* ---- Keys ------------------------------------------------------------------------------------------------ */

static bool is_text(const tx_json *object, const char *key)
{
    const tx_json *value = tx_json_find(object, key);
    return value && tx_json_type_of(value) == TX_JSON_STRING;
}

/* The key of a conversation in ShareGPT's format, or NULL. */
static const char *find_talk(const tx_json *object)
{
    static const char *const keys[] = {"conversations", "conversation"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (tx_json_has(object, keys[i]))
            return keys[i];
    return NULL;
}

tx_chat_form tx_chat_form_of(const tx_json *object)
{
    if (tx_json_has(object, "messages"))
        return TX_CHAT_MESSAGES;
    if (tx_json_has(object, "prompt"))
        return is_text(object, "prompt") ? TX_CHAT_PLAIN : TX_CHAT_PAIR;
    if (tx_json_has(object, "instruction"))
        return TX_CHAT_INSTRUCTION;
    return find_talk(object) && !tx_json_has(object, "text") ? TX_CHAT_SHAREGPT : TX_CHAT_FORMS;
}

void tx_conversation_ignore(tx_conversation *c, const char *key)
{
    const size_t size = strlen(key);
    for (const char *at = c->ignored, *end; *at; at = *end ? end + 2 : end) {
        end = strstr(at, ", ");
        end = end ? end : at + strlen(at);
        if ((size_t)(end - at) == size && strncmp(at, key, size) == 0)
            return;
    }
    if (strlen(c->ignored) + size + 4 <= sizeof c->ignored)
        tx_list_add(c->ignored, sizeof c->ignored, ", ", "%s", key);
}

/* Refuses keys with a part of the conversation that no text template renders. */
static tx_status refuse_parts(const tx_json *object)
{
    static const char *const parts[] = {"functions", "function_call", "image",  "images", "audio",
                                        "audios",    "video",         "videos", "history"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (tx_json_find(object, parts[i]) && !tx_json_is_empty(tx_json_find(object, parts[i])))
            return tx_fail(TX_FORMAT, "%s: TX cannot render it: remove the line, or write it as text into content",
                           parts[i]);
    return TX_OK;
}

/* Notes keys that are not in `read`, which ends with NULL. */
static void note_keys(const tx_json *object, const char *const *read, tx_conversation *c)
{
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i)) {
        const char *const *known = read;
        while (*known && strcmp(*known, tx_json_key(i)) != 0)
            known++;
        if (!*known && !tx_json_is_empty(tx_json_value(i)))
            tx_conversation_ignore(c, tx_json_key(i));
    }
}

tx_status tx_chat_foreign(const tx_json *object)
{
    if (!tx_json_has(object, "chosen") && !tx_json_has(object, "rejected"))
        return TX_OK;
    return tx_fail(TX_FORMAT,
                   "chosen and rejected are preferences: give --task_name dpo to learn from them; other tasks read "
                   "{\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, {\"role\": \"assistant\", \"content\": "
                   "\"...\"}]}, or {\"prompt\": \"...\", \"completion\": \"...\"}");
}

static tx_status fail_form(const tx_json *object)
{
    char keys[256];
    tx_list_keys(object, keys, sizeof keys);
    return tx_fail(TX_FORMAT, "its keys are of no form: %s; " TX_LINES_FORMS, *keys ? keys : "it has none");
}

/* ---- Reading ---------------------------------------------------------------------------------------------- */

/* As transformers does, sets reasoning_content from its older names, and thinking, which templates of gpt-oss read. */
static tx_status name_reasoning(tx_json *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const tx_json *found = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !found; i++)
        found = tx_json_has(message, names[i]) ? tx_json_find(message, names[i]) : NULL;
    if (!found)
        return TX_OK;
    tx_json *copies[] = {tx_json_copy(found), tx_json_copy(found)};
    tx_status status = tx_json_set(message, names[0], copies[0]);
    if (!status && !tx_json_has(message, names[1]))
        return tx_json_set(message, names[1], copies[1]);
    tx_json_free(copies[1]);
    return status;
}

/* Converts ShareGPT's "from" and "value" to "role" and "content". */
static tx_status rename_turn(const tx_json *item, tx_json **created)
{
    static const char *const roles[][2] = {
        {"human", "user"},
        {"user", "user"},
        {"gpt", "assistant"},
        {"assistant", "assistant"},
        {"bing", "assistant"},
        {"bard", "assistant"},
        {"chatgpt", "assistant"},
        {"model", "assistant"},
        {"system", "system"},
        {"tool", "tool"},
        {"function", "tool"},
        {"observation", "tool"},
        {"function_response", "tool"},
    };
    const char *from, *text;
    size_t size, i = 0;
    TX_TRY(tx_json_get_string(item, "from", &from));
    TX_TRY(tx_json_get_text(item, "value", &text, &size));
    while (i < sizeof roles / sizeof roles[0] && strcmp(roles[i][0], from) != 0)
        i++;
    if (i == sizeof roles / sizeof roles[0])
        return tx_fail(TX_FORMAT, "from: \"%.40s\" is not one of human, gpt, system and tool", from);
    *created = make_message(roles[i][1]);
    tx_status status = tx_json_set_text(*created, "content", text, size);
    if (status)
        tx_json_free(*created);
    return status;
}

/* Refuses parts that are no text: templates would render a mark without its content. */
static tx_status refuse_media(const tx_json *content)
{
    static const char *const media[] = {"image", "video", "audio"};
    const char *type;
    for (size_t i = 0; tx_json_type_of(content) == TX_JSON_ARRAY && i < tx_json_size(content); i++)
        for (size_t k = 0; k < sizeof media / sizeof media[0]; k++)
            if (!tx_json_get_string(tx_json_at(content, i), "type", &type) && strstr(type, media[k]))
                return tx_fail(TX_FORMAT, "content: part %zu is of type \"%.40s\", and TX reads only text: remove it",
                               i + 1, type);
    return TX_OK;
}

static tx_status read_message(const tx_json *item, bool learnt, tx_conversation *c)
{
    const char *role;
    if (tx_json_type_of(item) != TX_JSON_OBJECT)
        return tx_fail(TX_FORMAT, "expected an object");
    if (c->form == TX_CHAT_SHAREGPT && tx_json_has(item, "from")) {
        tx_json *created = NULL;
        TX_TRY(rename_turn(item, &created));
        const bool answers = tx_json_get_string(created, "role", &role) == TX_OK && strcmp(role, "assistant") == 0;
        return append(c, created, learnt && answers);
    }
    TX_TRY(refuse_parts(item));
    TX_TRY(tx_json_get_string(item, "role", &role));
    const tx_json *content = tx_json_find(item, "content"), *calls = tx_json_find(item, "tool_calls");
    const tx_json_type type = content ? tx_json_type_of(content) : TX_JSON_NULL;
    if (type == TX_JSON_NULL && (!calls || tx_json_is_empty(calls)))
        return tx_fail(TX_FORMAT, "content is missing, and there are no tool_calls");
    if (type != TX_JSON_NULL && type != TX_JSON_STRING && type != TX_JSON_ARRAY)
        return tx_fail(TX_FORMAT, "content: expected a text or a list of parts");
    TX_TRY(refuse_media(content));
    int64_t weight = 1;
    TX_TRY(TX_JSON_OPTIONAL(int, item, "weight", 0, 1, &weight));
    tx_json *created = tx_json_copy(item);
    const tx_status status = created ? name_reasoning(created) : TX_OK;
    if (status)
        tx_json_free(created);
    c->weighted = c->weighted || !weight;
    return status ? status : append(c, created, learnt && weight && strcmp(role, "assistant") == 0);
}

/* Appends the messages of the list `key`. */
static tx_status read_list(const tx_json *object, const char *key, bool learnt, tx_conversation *c)
{
    tx_json *list;
    TX_TRY(tx_json_get(object, key, TX_JSON_ARRAY, &list));
    for (size_t i = 0; i < tx_json_size(list); i++)
        TX_TRY(tx_fail_in(read_message(tx_json_at(list, i), learnt, c), "%s: message %zu", key, i + 1));
    return TX_OK;
}

/* The keys of instruction data: Alpaca's, or Dolly's. */
static const char *answer_key(const tx_json *object)
{
    return !tx_json_has(object, "output") && tx_json_has(object, "response") ? "response" : "output";
}

static const char *input_key(const tx_json *object)
{
    return !tx_json_has(object, "input") && tx_json_has(object, "context") ? "context" : "input";
}

/* Appends an instruction with an input. `content` has both; templates for such data also find them separately. */
static tx_status set_input(const tx_json *object, tx_json *message, const char *text, size_t size)
{
    const char *input = "";
    size_t input_size = 0;
    tx_buffer both = {0};
    TX_TRY(TX_JSON_OPTIONAL(text, object, input_key(object), &input, &input_size));
    if (!input_size)
        return TX_OK;
    tx_buffer_add(&both, text, size);
    tx_buffer_add(&both, "\n\n", 2);
    tx_buffer_add(&both, input, input_size);
    tx_status status = both.status;
    TX_THEN(status, tx_json_set_text(message, "content", both.data, both.size));
    TX_THEN(status, tx_json_set_text(message, "instruction", text, size));
    TX_THEN(status, tx_json_set_text(message, "input", input, input_size));
    free(both.data);
    return status;
}

static tx_status read_text(const tx_json *object, const char *key, const char *role, tx_conversation *c)
{
    const char *text = NULL;
    size_t size = 0;
    TX_TRY(tx_json_get_text(object, key, &text, &size));
    tx_json *result = make_message(role);
    const bool asks = strcmp(role, "user") == 0;
    tx_status status = tx_json_set_text(result, "content", text, size);
    if (!status && asks && c->form == TX_CHAT_INSTRUCTION)
        status = set_input(object, result, text, size);
    if (status)
        tx_json_free(result);
    return status ? status : append(c, result, !asks);
}

static tx_status read_form(const tx_json *object, bool answered, tx_conversation *c)
{
    if (c->form == TX_CHAT_MESSAGES || c->form == TX_CHAT_SHAREGPT)
        return read_list(object, c->form == TX_CHAT_MESSAGES ? "messages" : find_talk(object), true, c);
    const char *answer = c->form == TX_CHAT_INSTRUCTION ? answer_key(object) : "completion";
    const bool rest = answered || tx_json_has(object, answer);
    if (c->form == TX_CHAT_PAIR) {
        TX_TRY(read_list(object, "prompt", true, c));
        c->prompt = c->count;
        return rest ? read_list(object, answer, true, c) : TX_OK;
    }
    TX_TRY(read_text(object, c->form == TX_CHAT_PLAIN ? "prompt" : "instruction", "user", c));
    return rest ? read_text(object, answer, "assistant", c) : TX_OK;
}

tx_status tx_conversation_read(const tx_json *object, bool answered, tx_conversation *c)
{
    TX_NEEDS(object && c, TX_INVALID);
    if (tx_json_type_of(object) != TX_JSON_OBJECT)
        return tx_fail(TX_FORMAT, "expected an object");
    TX_TRY(clear(c, object));
    c->form = tx_chat_form_of(object);
    const char *const keys[][6] = {
        [TX_CHAT_MESSAGES] = {"messages", "tools", "documents", VARIABLES},
        [TX_CHAT_SHAREGPT] = {"conversations", "conversation", "tools", "documents", VARIABLES},
        [TX_CHAT_PAIR] = {"prompt", "completion", "tools", "documents", VARIABLES},
        [TX_CHAT_PLAIN] = {"prompt", "completion"},
        [TX_CHAT_INSTRUCTION] = {"instruction", answer_key(object), input_key(object), VARIABLES}};
    const bool in_parts = c->form == TX_CHAT_PAIR || c->form == TX_CHAT_PLAIN || c->form == TX_CHAT_INSTRUCTION;
    if (c->form == TX_CHAT_FORMS || (in_parts && !tx_json_has(object, keys[c->form][1])))
        TX_TRY(tx_chat_foreign(object));
    if (c->form == TX_CHAT_FORMS)
        return fail_form(object);
    note_keys(object, keys[c->form], c);
    tx_status status = refuse_parts(object);
    TX_THEN(status, read_form(object, answered, c));
    if (status) /* a missing key means a malformed file */
        return status == TX_NOT_FOUND ? TX_FORMAT : status;
    return c->count ? TX_OK : tx_fail(TX_FORMAT, "there are no messages");
}

/* Appends the messages, or the text, of key `key`. */
static tx_status read_part(const tx_json *object, const char *key, const char *role, tx_conversation *c)
{
    const tx_json *value = tx_json_find(object, key);
    const tx_json_type type = value ? tx_json_type_of(value) : TX_JSON_NULL;
    const bool plain = c->form == TX_CHAT_PLAIN;
    if (type == TX_JSON_NULL)
        return tx_fail(TX_FORMAT, "%s is missing", key);
    if (type != (plain ? TX_JSON_STRING : TX_JSON_ARRAY))
        return tx_fail(TX_FORMAT, "%s: expected %s, because prompt is %s", key, plain ? "a text" : "a list of messages",
                       plain ? "a text" : "such a list");
    return plain ? read_text(object, key, role, c) : read_list(object, key, strcmp(role, "assistant") == 0, c);
}

tx_status tx_conversation_read_side(const tx_json *object, const char *side, tx_conversation *c)
{
    static const char *const keys[] = {"prompt",     "chosen", "rejected", "tools",   "documents",
                                       "completion", "label",  "margin",   VARIABLES, NULL};
    const tx_json *prompt = tx_json_find(object, keys[0]);
    if (prompt && tx_json_type_of(prompt) != TX_JSON_STRING && tx_json_type_of(prompt) != TX_JSON_ARRAY)
        return tx_fail(TX_FORMAT, "prompt: expected a text or a list of messages");
    TX_TRY(clear(c, object));
    c->form = prompt && tx_json_type_of(prompt) == TX_JSON_STRING ? TX_CHAT_PLAIN : TX_CHAT_PAIR;
    note_keys(object, keys, c);
    tx_status status = refuse_parts(object);
    TX_THEN(status, read_part(object, "prompt", "user", c));
    if (!status && !c->count)
        status = tx_fail(TX_FORMAT, "prompt: there are no messages");
    if (side)
        TX_THEN(status, read_part(object, side, "assistant", c));
    return status == TX_NOT_FOUND ? TX_FORMAT : status;
}
