/* SPDX-License-Identifier: Apache-2.0
 * Values in tool calls: finds their ends, and converts them to JSON. */
#include "models/chat/parser.h"

#include <stdlib.h>
#include <string.h>

tx_scanned tx_json_scan_byte(tx_json_scan *s, char c)
{
    if (s->string) {
        s->string = s->escape || c != '"';
        s->escape = !s->escape && c == '\\';
        return s->string || s->depth ? TX_SCAN_INSIDE : TX_SCAN_LAST;
    }
    if (c == '"')
        s->string = true;
    else if (c == '{' || c == '[')
        s->depth++;
    else if (c == '}' || c == ']')
        return !s->depth ? TX_SCAN_AFTER : --s->depth ? TX_SCAN_INSIDE : TX_SCAN_LAST;
    else if (!s->depth && (c == ',' || tx_is_blank(c)))
        return TX_SCAN_AFTER;
    return TX_SCAN_INSIDE;
}

tx_scanned tx_python_scan_byte(tx_json_scan *s, char c)
{
    if (s->quote) {
        s->quote = s->escape || c != s->quote ? s->quote : 0;
        s->escape = !s->escape && c == '\\';
        return TX_SCAN_INSIDE;
    }
    if (c == '"' || c == '\'')
        s->quote = c;
    else if (c == '(' || c == '[' || c == '{')
        s->depth++;
    else if (c == ')' || c == ']' || c == '}')
        return !s->depth ? TX_SCAN_AFTER : --s->depth ? TX_SCAN_INSIDE : TX_SCAN_LAST;
    return s->depth || c != ',' ? TX_SCAN_INSIDE : TX_SCAN_AFTER;
}

bool tx_is_json(const char *text, size_t size, bool object)
{
    tx_json *json = NULL;
    const bool is = tx_json_parse_line(text ? text : "", size, "a value", &json) == TX_OK &&
                    (!object || tx_json_type_of(json) == TX_JSON_OBJECT);
    tx_json_free(json);
    return is;
}

void tx_add_json_string(tx_buffer *to, const char *text, size_t size)
{
    tx_json *string = tx_json_pack("s%", text ? text : "", size);
    char *json = string ? tx_json_text(string, TX_JSON_LINE) : NULL;
    if (json)
        tx_buffer_add(to, json, strlen(json));
    else
        to->status = TX_MEMORY;
    free(json);
    tx_json_free(string);
}

/* ---- Python ---------------------------------------------------------------------------------------------- */

/* Appends a string of Python, without its quotes. JSON lacks the escapes \' and \xHH; Python keeps unknown ones. */
static void add_python_string(tx_buffer *to, const char *text, size_t size)
{
    tx_buffer_add(to, "\"", 1);
    for (size_t i = 0; i < size; i++) {
        const bool escaped = text[i] == '\\' && i + 1 < size;
        const char c = text[i + escaped];
        if (escaped && c == 'x')
            tx_buffer_add(to, "\\u00", 4);
        else if (escaped && c != '\'')
            tx_buffer_add(to, strchr("\"\\/bfnrtu", c) ? "" : "\\", strchr("\"\\/bfnrtu", c) ? 0 : 1);
        else if (c == '"' || c == '\n' || c == '\t')
            tx_buffer_add(to, "\\", 1);
        if (escaped && c != '\'' && c != 'x')
            tx_buffer_add(to, text + i, 2);
        else if (!escaped || c != 'x')
            tx_buffer_add(to, c == '\n' ? "n" : c == '\t' ? "t" : &c, 1);
        i += escaped;
    }
    tx_buffer_add(to, "\"", 1);
}

static size_t string_end(const char *text, size_t size, size_t at)
{
    const char quote = text[at++];
    while (at < size && text[at] != quote)
        at += text[at] == '\\' && at + 1 < size ? 2 : 1;
    return at;
}

void tx_add_python(tx_buffer *to, const char *text, size_t size)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"' || text[i] == '\'') {
            const size_t end = string_end(text, size, i);
            add_python_string(to, text + i + 1, (end < size ? end : size) - i - 1);
            i = end;
            continue;
        }
        size_t k = 0;
        while (k < 3 && (size - i < strlen(words[k][0]) || memcmp(text + i, words[k][0], strlen(words[k][0])) != 0))
            k++;
        if (k < 3) {
            tx_buffer_add(to, words[k][1], strlen(words[k][1]));
            i += strlen(words[k][0]) - 1;
            continue;
        }
        const char c = text[i] == '(' ? '[' : text[i] == ')' ? ']' : text[i];
        tx_buffer_add(to, &c, 1);
    }
}

/* ---- Schemas --------------------------------------------------------------------------------------------- */

const tx_json *tx_find_tool(const tx_json *tools, const char *name, size_t size)
{
    for (size_t i = 0; i < tx_json_size(tools); i++) {
        const tx_json *tool = tx_json_find(tx_json_at(tools, i), "function");
        const char *own = "";
        if (!tx_json_get_string(tool, "name", &own) && strlen(own) == size && memcmp(own, name, size) == 0)
            return tool;
    }
    return NULL;
}

/* Whether the schema of a parameter makes a text a string. */
static bool is_string(const tx_json *tool, const char *key, bool null)
{
    const tx_json *type =
        tx_json_find(tx_json_find(tx_json_find(tx_json_find(tool, "parameters"), "properties"), key), "type");
    const char *name = "";
    for (size_t i = 0; tx_json_type_of(type) == TX_JSON_ARRAY && !null && i < tx_json_size(type); i++)
        if (!tx_json_as_string(tx_json_at(type, i), "type", &name) && strcmp(name, "string") == 0)
            return true;
    return tx_json_type_of(type) == TX_JSON_STRING && !tx_json_as_string(type, "type", &name) &&
           strcmp(name, "string") == 0;
}

void tx_add_value(tx_buffer *to, const tx_json *tools, const tx_buffer *name, const tx_buffer *key, const char *text,
                  size_t size)
{
    tx_buffer literal = {0};
    const bool null = size == 4 && memcmp(text, "null", 4) == 0;
    const bool string = key->data && is_string(tx_find_tool(tools, name->data, name->size), key->data, null);
    tx_add_python(&literal, text, size);
    if (string || !(tx_is_json(text, size, false) || tx_is_json(literal.data, literal.size, false)))
        tx_add_json_string(to, text, size);
    else if (tx_is_json(text, size, false))
        tx_buffer_add(to, text, size);
    else
        tx_buffer_add(to, literal.data, literal.size);
    free(literal.data);
}
