/* SPDX-License-Identifier: Apache-2.0
 * Requires a tool call: the begin of the answer, and the grammar of its rest. */
#include "models/chat/chat.h"
#include "models/chat/parser.h"
#include "models/tx_grammar.h"

#include "api/base/needs.h"

#include <stdlib.h>
#include <string.h>

/* The parts of the grammar for one tool. */
enum { PARTS = 4 };

static void add_text(tx_buffer *to, const char *text)
{
    tx_buffer_add(to, text, strlen(text));
}

static const char *name_of(const tx_json *function)
{
    const char *name = "";
    (void)tx_json_get_string(function, "name", &name);
    return name;
}

/* A call that is one JSON object: `{"name": "NAME", "arguments": ` up to the arguments. */
static char *begin_object(const tx_chat *chat, const char *name)
{
    const bool other = strstr(chat->text, "tool_name"), bare = chat->form->kind == TX_CALLS_BARE;
    tx_buffer text = {0};
    add_text(&text, other ? "{\"tool_name\": " : "{\"name\": ");
    tx_add_json_string(&text, name, strlen(name));
    add_text(&text, other || bare ? ", \"parameters\": " : ", \"arguments\": ");
    tx_buffer_add(&text, "", 1);
    if (!text.status)
        return text.data;
    free(text.data);
    return NULL;
}

/* The grammar of a call of each tool, or of the one called `name`. */
static tx_status make_grammar(const tx_chat *chat, const tx_json *tools, const char *name,
                              const tx_vocabulary *vocabulary, tx_grammar **grammar)
{
    const bool objects = chat->form->kind == TX_CALLS_JSON || chat->form->kind == TX_CALLS_BARE;
    const size_t most = tx_json_size(tools);
    tx_grammar_part *part = calloc(PARTS * most + 1, sizeof *part);
    char **begin = calloc(most + 1, sizeof *begin);
    tx_status status = part && begin ? TX_OK : tx_fail(TX_MEMORY, "no memory for a grammar");
    size_t count = 0;
    for (size_t i = 0; i < most && !status; i++) {
        const tx_json *function = tx_json_find(tx_json_at(tools, i), "function");
        const tx_json *schema = tx_json_find(function, "parameters");
        if (name && strcmp(name_of(function), name) != 0)
            continue;
        if (count)
            part[count++].kind = TX_GRAMMAR_OR;
        begin[i] = objects ? begin_object(chat, name_of(function)) : NULL;
        if (objects)
            part[count++] = (tx_grammar_part){.kind = TX_GRAMMAR_TEXT, .text = begin[i]};
        part[count++] = (tx_grammar_part){.kind = TX_GRAMMAR_SCHEMA,
                                          .json = tx_json_type_of(schema) == TX_JSON_OBJECT ? schema : NULL};
        if (objects)
            part[count++] = (tx_grammar_part){.kind = TX_GRAMMAR_TEXT, .text = "}"};
        status = objects && !begin[i] ? TX_MEMORY : TX_OK;
    }
    TX_THEN(status, tx_grammar_create(part, count, vocabulary, grammar));
    for (size_t i = 0; begin && i < most; i++)
        free(begin[i]);
    free(begin);
    free(part);
    return status;
}

/* The marks before a call. Those around names can be special tokens, which no grammar allows, so the name is there. */
static void add_marks(const tx_calls_form *form, const char *name, tx_buffer *prefix)
{
    add_text(prefix, form->open);
    if (form->kind == TX_CALLS_NAMED) {
        add_text(prefix, form->begin);
        add_text(prefix, name);
        add_text(prefix, form->name_end);
    } else if (form->kind == TX_CALLS_CHANNELS) {
        add_text(prefix, "commentary to=functions.");
        add_text(prefix, name);
        add_text(prefix, " <|constrain|>json");
        add_text(prefix, form->name_end);
    } else {
        add_text(prefix, form->kind == TX_CALLS_JSON ? "\n" : "");
    }
}

static tx_status check(const tx_calls_form *form, const tx_json *tools, const char **name)
{
    if (!form || form->kind == TX_CALLS_KEYED || form->kind == TX_CALLS_PYTHON)
        return tx_fail(TX_UNSUPPORTED, "a required tool call is not supported with this chat template, whose calls are "
                                       "not JSON: use auto");
    if (*name && !tx_find_tool(tools, *name, strlen(*name)))
        return tx_fail(TX_INVALID, "there is no tool %.60s", *name);
    if (!*name && tx_json_size(tools) == 1)
        *name = name_of(tx_json_find(tx_json_at(tools, 0), "function"));
    if (!*name && (form->kind == TX_CALLS_NAMED || form->kind == TX_CALLS_CHANNELS))
        return tx_fail(TX_UNSUPPORTED,
                       "one of several tools cannot be required with this chat template: name the tool");
    return TX_OK;
}

/* The begin of the answer: the end of a thought that the prompt begins, and the marks before the call. */
static tx_status make_prefix(const tx_chat *chat, const tx_chat_parsing *how, const char *name, char **prefix)
{
    bool thinks;
    tx_buffer text = {0};
    TX_TRY(tx_parser_opens_thought(chat, how, &thinks));
    if (thinks) {
        add_text(&text, "\n");
        add_text(&text, tx_chat_with(chat, true)->thought_end);
        add_text(&text, "\n\n");
    }
    add_marks(tx_chat_with(chat, true)->form, name, &text);
    tx_buffer_add(&text, "", 1);
    if (text.status)
        free(text.data);
    else
        *prefix = text.data;
    return text.status;
}

tx_status tx_chat_require(const tx_chat *chat, const tx_chat_parsing *how, const char *name,
                          const tx_vocabulary *vocabulary, char **prefix, tx_grammar **grammar)
{
    TX_NEEDS(chat && how && how->tools && vocabulary && prefix && grammar, TX_INVALID);
    const tx_chat *own = tx_chat_with(chat, true);
    char *begin = NULL;
    TX_TRY(check(own->form, how->tools, &name));
    TX_TRY(make_prefix(chat, how, name, &begin));
    const tx_status status = make_grammar(own, how->tools, name, vocabulary, grammar);
    if (status)
        free(begin);
    else
        *prefix = begin;
    return status;
}
