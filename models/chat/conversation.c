/* SPDX-License-Identifier: Apache-2.0
 * Objects of instruction data as conversations. */
#include "models/chat/conversation.h"

#include <stdlib.h>
#include <string.h>

const char *const tx_chat_roles[] = {
    [TX_CHAT_SYSTEM] = "system", [TX_CHAT_USER] = "user", [TX_CHAT_ASSISTANT] = "assistant"};

void tx_conversation_free(tx_conversation *conversation)
{
    free(conversation->message);
    *conversation = (tx_conversation){0};
}

tx_status tx_conversation_add(tx_conversation *c, const tx_chat_message *message)
{
    TX_TRY(tx_array_reserve(&c->message, &c->room, c->count + 1, sizeof *c->message, "messages"));
    c->message[c->count++] = *message;
    return TX_OK;
}

static bool is_text(const tx_json *object, const char *key)
{
    const tx_json *value = tx_json_find(object, key);
    return value && tx_json_type_of(value) == TX_JSON_STRING;
}

tx_chat_form tx_chat_form_of(const tx_json *object)
{
    if (tx_json_has(object, "messages"))
        return TX_CHAT_MESSAGES;
    if (tx_json_has(object, "prompt"))
        return is_text(object, "prompt") ? TX_CHAT_PLAIN : TX_CHAT_PAIR;
    return tx_json_has(object, "instruction") ? TX_CHAT_INSTRUCTION : TX_CHAT_FORMS;
}

/* ---- Keys ------------------------------------------------------------------------------------------------- */

/* Keys that templates of published models render, and those here do not. */
static const struct {
    const char *key;
    bool of_object; /* also in the object that holds the messages */
} unrendered[] = {
    {"tool_calls", true}, {"tools", true},     {"functions", true},  {"function_call", true},
    {"documents", true},  {"image", true},     {"images", true},     {"audio", true},
    {"audios", true},     {"video", true},     {"videos", true},     {"reasoning_content", false},
    {"reasoning", false}, {"thinking", false}, {"tool_plan", false}, {"history", true},
};

/* Notes a key once, as long as there is room. */
static void note_ignored(tx_conversation *c, const char *key)
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

/* Looks at the keys that are none of `read`, which NULL ends. */
static tx_status check_keys(const tx_json *object, const char *const *read, bool is_message, tx_conversation *c)
{
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i)) {
        const char *key = tx_json_key(i);
        const char *const *known = read;
        while (*known && strcmp(*known, key) != 0)
            known++;
        if (*known || tx_json_is_empty(tx_json_value(i)))
            continue;
        for (size_t k = 0; k < sizeof unrendered / sizeof unrendered[0]; k++)
            if (strcmp(unrendered[k].key, key) == 0 && (is_message || unrendered[k].of_object))
                return tx_fail(TX_FORMAT,
                               "%s: TX does not render it: leave the line out, or write it as text into content", key);
        note_ignored(c, key);
    }
    return TX_OK;
}

tx_status tx_chat_foreign(const tx_json *object)
{
    static const char form[] =
        "TX reads {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, {\"role\": \"assistant\", "
        "\"content\": \"...\"}]}";
    static const char *const talks[] = {"conversations", "conversation", "dialog", "dialogue", "turns"};
    for (size_t i = 0; i < sizeof talks / sizeof talks[0]; i++)
        if (tx_json_has(object, talks[i]))
            return tx_fail(TX_FORMAT, "%s (as ShareGPT has it) is a key that TX does not know: %s", talks[i], form);
    if (tx_json_has(object, "chosen") || tx_json_has(object, "rejected"))
        return tx_fail(TX_FORMAT,
                       "chosen and rejected are preferences, from which TX does not learn: %s, or "
                       "{\"prompt\": \"...\", \"completion\": \"...\"}",
                       form);
    return TX_OK;
}

/* ---- Reading ---------------------------------------------------------------------------------------------- */

static tx_status read_role(const tx_json *object, tx_chat_role *role)
{
    const char *name;
    TX_TRY(tx_json_get_string(object, "role", &name));
    for (int i = TX_CHAT_SYSTEM; i <= TX_CHAT_ASSISTANT; i++)
        if (strcmp(name, tx_chat_roles[i]) == 0) {
            *role = (tx_chat_role)i;
            return TX_OK;
        }
    return tx_fail(TX_FORMAT, "role: \"%.40s\" is none of system, user and assistant", name);
}

/* Appends the messages of the list `key`. */
static tx_status read_list(const tx_json *object, const char *key, bool learnt, tx_conversation *c)
{
    static const char *const of_message[] = {"role", "content", NULL};
    tx_json *list;
    TX_TRY(tx_json_get(object, key, TX_JSON_ARRAY, &list));
    for (size_t i = 0; i < tx_json_size(list); i++) {
        const tx_json *item = tx_json_at(list, i);
        tx_chat_message m = {.learnt = learnt};
        tx_status status = tx_json_type_of(item) == TX_JSON_OBJECT ? TX_OK : tx_fail(TX_FORMAT, "expected an object");
        TX_THEN(status, check_keys(item, of_message, true, c));
        TX_THEN(status, read_role(item, &m.role));
        TX_THEN(status, tx_json_get_text(item, "content", &m.text, &m.size));
        if (status)
            return tx_fail_in(status, "%s: message %zu", key, i + 1);
        m.learnt = learnt && m.role == TX_CHAT_ASSISTANT;
        TX_TRY(tx_conversation_add(c, &m));
    }
    return TX_OK;
}

static tx_status read_text(const tx_json *object, const char *key, tx_chat_role role, tx_conversation *c)
{
    tx_chat_message m = {.role = role, .learnt = role == TX_CHAT_ASSISTANT};
    TX_TRY(tx_json_get_text(object, key, &m.text, &m.size));
    if (c->form == TX_CHAT_INSTRUCTION && role == TX_CHAT_USER && tx_json_has(object, "input"))
        TX_TRY(tx_json_get_text(object, "input", &m.input, &m.input_size));
    m.input = m.input_size ? m.input : NULL;
    return tx_conversation_add(c, &m);
}

static tx_status read_form(const tx_json *object, bool answered, tx_conversation *c)
{
    static const char *const answers[] = {
        [TX_CHAT_PAIR] = "completion", [TX_CHAT_PLAIN] = "completion", [TX_CHAT_INSTRUCTION] = "output"};
    if (c->form == TX_CHAT_MESSAGES)
        return read_list(object, "messages", true, c);
    const char *answer = answers[c->form];
    const bool rest = answered || tx_json_has(object, answer);
    if (c->form == TX_CHAT_PAIR) {
        TX_TRY(read_list(object, "prompt", false, c));
        return rest ? read_list(object, answer, true, c) : TX_OK;
    }
    TX_TRY(read_text(object, c->form == TX_CHAT_PLAIN ? "prompt" : "instruction", TX_CHAT_USER, c));
    return rest ? read_text(object, answer, TX_CHAT_ASSISTANT, c) : TX_OK;
}

tx_status tx_conversation_read(const tx_json *object, bool answered, tx_conversation *c)
{
    c->count = 0;
    if (tx_json_type_of(object) != TX_JSON_OBJECT)
        return tx_fail(TX_FORMAT, "expected an object");
    c->form = tx_chat_form_of(object);
    static const char *const keys[][4] = {[TX_CHAT_MESSAGES] = {"messages"},
                                          [TX_CHAT_PAIR] = {"prompt", "completion"},
                                          [TX_CHAT_PLAIN] = {"prompt", "completion"},
                                          [TX_CHAT_INSTRUCTION] = {"instruction", "output", "input"}};
    if (c->form == TX_CHAT_FORMS || (c->form != TX_CHAT_MESSAGES && !tx_json_has(object, keys[c->form][1])))
        TX_TRY(tx_chat_foreign(object));
    if (c->form == TX_CHAT_FORMS)
        return tx_fail(TX_FORMAT, "it has none of the keys messages, prompt and instruction");
    tx_status status = check_keys(object, keys[c->form], false, c);
    TX_THEN(status, read_form(object, answered, c));
    if (status) /* a key that is missing is a fault of the file's form */
        return status == TX_NOT_FOUND ? TX_FORMAT : status;
    return c->count ? TX_OK : tx_fail(TX_FORMAT, "there are no messages");
}
