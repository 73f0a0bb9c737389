/* SPDX-License-Identifier: Apache-2.0
 * Chat templates in Jinja, which transformers renders: written from the members, known again by their text. */
#include "models/chat/template.h"

#include "models/files/digest.h"
#include "models/text/buffer.h"

#include <stdlib.h>
#include <string.h>

/* ---- Writing ------------------------------------------------------------------------------------------- */

static void add(tx_buffer *out, const char *text)
{
    tx_buffer_add(out, text, strlen(text));
}

/* Adds a text as a literal; JSON's are Jinja's as well. */
static tx_status add_literal(tx_buffer *out, const char *text, size_t size)
{
    tx_json *object = tx_json_object();
    char *made = NULL;
    tx_status status = tx_json_set_text(object, "x", text, size);
    TX_THEN(status, (made = tx_json_text(object, TX_JSON_LINE)) ? TX_OK : TX_MEMORY);
    if (!status) {
        const char *begin = strchr(made + 4, '"');
        tx_buffer_add(out, begin, strlen(begin) - 1);
    }
    free(made);
    tx_json_free(object);
    return status;
}

/* Adds an expression of a text of the template, "" where it is empty; `before` goes before what is not. */
static tx_status add_text(tx_buffer *out, const char *before, const char *text)
{
    const char *at = text ? text : "";
    while (*at) {
        const char *bos = strstr(at, "{bos}"), *eos = strstr(at, "{eos}");
        const char *next = bos && (!eos || bos < eos) ? bos : eos;
        const size_t plain = next ? (size_t)(next - at) : strlen(at);
        add(out, before);
        before = " ~ ";
        if (plain)
            TX_TRY(add_literal(out, at, plain));
        else
            add(out, next == bos ? "bos_token" : "eos_token");
        at += plain ? plain : 5;
    }
    return out->status;
}

/* Adds an output of two texts of the template around `middle`. */
static tx_status add_output(tx_buffer *out, const char *first, const char *second, const char *middle,
                            const char *third, const char *fourth)
{
    add(out, "{{- ''");
    TX_TRY(add_text(out, " ~ ", first));
    TX_TRY(add_text(out, " ~ ", second));
    add(out, middle);
    TX_TRY(add_text(out, " ~ ", third));
    TX_TRY(add_text(out, " ~ ", fourth));
    add(out, " -}}\n");
    return out->status;
}

/* What comes before the turns: `rest` are those, `system` is what the user's first has in front. */
static tx_status add_begin(tx_buffer *out, const tx_chat_template *t)
{
    TX_TRY(add_output(out, t->begin, NULL, "", NULL, NULL));
    add(out, "{%- set rest = messages -%}\n{%- set system = '' -%}\n");
    if (t->no_system)
        return out->status;
    add(out, "{%- if messages and messages[0]['role'] == 'system' -%}\n"
             "{%- set rest = messages[1:] -%}\n{%- set said = messages[0]['content'] -%}\n");
    if (t->default_system) {
        add(out, "{%- else -%}\n{%- set said = ");
        TX_TRY(add_literal(out, t->default_system, strlen(t->default_system)));
        add(out, " -%}\n");
    }
    add(out, "{%- endif -%}\n{%- if said is defined -%}\n{%- set system = ''");
    TX_TRY(add_text(out, " ~ ", t->system_before));
    add(out, t->trim && !t->system_in_user ? " ~ (said | trim)" : " ~ said");
    TX_TRY(add_text(out, " ~ ", t->system_after));
    add(out, " -%}\n{%- endif -%}\n");
    if (!t->system_in_user)
        add(out, "{{- system -}}\n{%- set system = '' -%}\n");
    return out->status;
}

static tx_status add_turns(tx_buffer *out, const tx_chat_template *t)
{
    add(out, "{%- for message in rest -%}\n");
    if (t->alternate)
        add(out, "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}\n"
                 "{{- raise_exception('user and assistant take turns, user first') -}}\n{%- endif -%}\n");
    add(out, "{%- set said = (system if loop.first else '') ~ message['content'] -%}\n");
    if (t->trim)
        add(out, "{%- set said = said | trim -%}\n");
    add(out, "{%- if message['role'] == 'user' -%}\n");
    TX_TRY(add_output(out, t->user_before, NULL, " ~ said", t->user_after, NULL));
    add(out, "{%- elif message['role'] == 'assistant' -%}\n");
    TX_TRY(add_output(out, t->prompt, t->answer_before, " ~ said", t->end, t->after));
    if (!t->no_system && !t->system_in_user && !t->alternate) {
        add(out, "{%- elif message['role'] == 'system' -%}\n");
        TX_TRY(add_output(out, t->system_before, NULL, " ~ said", t->system_after, NULL));
    }
    add(out, "{%- else -%}\n{{- raise_exception('no such role here: ' ~ message['role']) -}}\n{%- endif -%}\n"
             "{%- endfor -%}\n{%- if add_generation_prompt -%}\n");
    TX_TRY(add_output(out, t->prompt, NULL, "", NULL, NULL));
    add(out, "{%- endif -%}\n");
    return out->status;
}

#define COMMENT "{#- tx "

/* The members, in which no "#}" ends the comment. */
static tx_status add_comment(tx_buffer *out, const tx_chat_template *t)
{
    tx_json *json = NULL;
    TX_TRY(tx_chat_template_json(t, &json));
    char *text = tx_json_text(json, TX_JSON_LINE);
    add(out, COMMENT);
    for (const char *at = text ? text : ""; *at; at++)
        tx_buffer_add(out, *at == '#' ? "\\u0023" : at, *at == '#' ? 6 : 1);
    add(out, " -#}\n");
    tx_json_free(json);
    free(text);
    return text ? out->status : TX_MEMORY;
}

tx_status tx_chat_jinja_write(const tx_chat_template *t, char **text)
{
    tx_buffer out = {0};
    tx_status status = add_comment(&out, t);
    TX_THEN(status, add_begin(&out, t));
    TX_THEN(status, add_turns(&out, t));
    tx_buffer_add(&out, "", 1);
    TX_THEN(status, out.status);
    if (status)
        free(out.data);
    else
        *text = out.data;
    return status;
}

/* ---- Knowing again ------------------------------------------------------------------------------------- */

/* SHA-256 of the texts that models were published with, without the white space at their end. */
static const struct {
    const char *digest, *name;
} published[] = {
#define TX_PUBLISHED(name, digest) {digest, name},
#include "models/chat/published.def"
};

/* A text that was written by TX, and has not been changed since. */
static tx_status read_own(const char *text, size_t size, tx_chat_template *made, tx_json **json)
{
    const size_t begin = strlen(COMMENT);
    size_t used;
    char *again = NULL;
    TX_TRY(tx_json_parse_prefix(text + begin, size - begin, "its first line", json, &used));
    tx_status status = tx_chat_template_read(*json, made);
    TX_THEN(status, tx_chat_jinja_write(made, &again));
    if (!status && (strncmp(again, text, size) != 0 || strspn(again + size, " \n\r\t") != strlen(again + size)))
        status = tx_fail(TX_UNSUPPORTED, "the chat template is no longer what its first line says: name one with "
                                         "--chat_template");
    free(again);
    if (status) {
        tx_json_free(*json);
        *json = NULL;
    }
    return status;
}

tx_status tx_chat_jinja_read(const char *text, size_t size, tx_chat_template *made, tx_json **json)
{
    char digest[TX_DIGEST_TEXT];
    *json = NULL;
    if (memchr(text, '\0', size))
        return tx_fail(TX_FORMAT, "the chat template holds a NUL: it is no text");
    while (size && strchr(" \n\r\t", text[size - 1]))
        size--;
    if (size > strlen(COMMENT) && strncmp(text, COMMENT, strlen(COMMENT)) == 0)
        return read_own(text, size, made, json);
    TX_TRY(tx_digest_data(text, size, digest));
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++)
        if (strcmp(published[i].digest, digest) == 0) {
            *made = *tx_chat_template_find(published[i].name);
            return TX_OK;
        }
    return tx_fail(TX_UNSUPPORTED,
                   "the chat template is none that TX knows: name one with --chat_template: %s, or a file",
                   tx_chat_template_names());
}
