/* SPDX-License-Identifier: Apache-2.0
 * The table of chat templates, and templates as JSON. */
#include "models/chat/template.h"

#include <stdio.h>
#include <string.h>

static const tx_chat_template templates[] = {
#define TX_CHAT(title, ...) {.name = title, __VA_ARGS__},
#include "models/chat/template.def"
};

static const char names[] =
#define TX_CHAT(title, ...) ", " title
#include "models/chat/template.def"
    ;

const tx_chat_template *tx_chat_template_find(const char *name)
{
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++)
        if (strcmp(templates[i].name, name) == 0)
            return &templates[i];
    return NULL;
}

const char *tx_chat_template_names(void)
{
    return names + 2;
}

/* ---- As JSON ------------------------------------------------------------------------------------------- */

static tx_status read_member(const tx_json *json, const char *key, tx_chat_template *made)
{
#define X(member)                  \
    if (strcmp(key, #member) == 0) \
        return tx_json_get_string(json, key, &made->member);
    X(name)
    TX_CHAT_TEXTS(X)
#undef X
#define X(member)                  \
    if (strcmp(key, #member) == 0) \
        return tx_json_get_bool(json, key, &made->member);
    TX_CHAT_FLAGS(X)
#undef X
    return tx_fail(TX_FORMAT, "there is no member %.40s", key);
}

tx_status tx_chat_template_read(const tx_json *json, tx_chat_template *made)
{
    *made = (tx_chat_template){.name = "custom"};
    if (tx_json_type_of(json) != TX_JSON_OBJECT)
        return tx_fail(TX_FORMAT, "expected an object");
    for (void *i = tx_json_first(json); i; i = tx_json_next(json, i))
        TX_TRY(read_member(json, tx_json_key(i), made));
    if (!made->end || !*made->end)
        return tx_fail(TX_FORMAT, "end is missing: what ends an answer?");
    return TX_OK;
}

static tx_status write_members(const tx_chat_template *t, tx_json *json)
{
#define X(member)  \
    if (t->member) \
        TX_TRY(tx_json_set_string(json, #member, t->member));
    X(name)
    TX_CHAT_TEXTS(X)
#undef X
#define X(member)  \
    if (t->member) \
        TX_TRY(tx_json_set_bool(json, #member, true));
    TX_CHAT_FLAGS(X)
#undef X
    return TX_OK;
}

tx_status tx_chat_template_json(const tx_chat_template *t, tx_json **json)
{
    tx_json *made = tx_json_object();
    tx_status status = write_members(t, made);
    return TX_GIVE(status, made, json, tx_json_free);
}
