/* SPDX-License-Identifier: Apache-2.0
 * Reads tool calls in the forms of forms.def. */
#include "models/chat/parser.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The longest name. */
#define NAME_BYTES 256

static bool read_name(tx_chat_parser *p);
static bool read_pairs(tx_chat_parser *p);
static bool read_member(tx_chat_parser *p);
static bool read_python(tx_chat_parser *p);

static bool to(tx_chat_parser *p, tx_parser_state state)
{
    p->state = state;
    return true;
}

/* Whether calls are objects with the keys name and arguments. */
static bool has_objects(const tx_chat_parser *p)
{
    return p->form->kind == TX_CALLS_JSON || p->form->kind == TX_CALLS_BARE || p->form->kind == TX_CALLS_PYTHON;
}

/* These bytes are no call: they are text. */
static bool fail(tx_chat_parser *p)
{
    tx_parser_flush(p, TX_CHAT_CONTENT, p->at);
    return tx_parser_to_content(p, false);
}

/* ---- Pieces ---------------------------------------------------------------------------------------------- */

void tx_calls_announce(tx_chat_parser *p)
{
    static const char prefix[] = "functions.", mark[] = "[CALL_ID]";
    tx_chat_piece piece = {.kind = TX_CHAT_CALL};
    p->announced = p->open = true;
    p->arguments.size = 0;
    tx_buffer_add(&p->name, "", 1); /* for strstr */
    if (p->name.status || p->status)
        return;
    p->name.size--;
    char *name = p->name.data, *colon = strrchr(name, ':'), *id = strstr(name, mark);
    if (id) { /* Mistral's NAME[CALL_ID]ID */
        piece.id = id + sizeof mark - 1;
        piece.id_size = p->name.size - (size_t)(piece.id - name);
        p->name.size = (size_t)(id - name);
    } else if (colon && strncmp(name, prefix, sizeof prefix - 1) == 0) { /* Kimi's id, functions.NAME:0 */
        piece.id = name;
        piece.id_size = p->name.size;
    }
    piece.text = name;
    piece.size = p->name.size;
    if (piece.id == name) {
        piece.text += sizeof prefix - 1;
        piece.size = (size_t)(colon - piece.text);
    }
    p->status = p->how.piece(p->how.context, &piece);
}

/* Reports a part of the arguments. */
static void add_arguments(tx_chat_parser *p, const char *text, size_t size)
{
    tx_buffer_add(&p->arguments, text, size);
    tx_parser_report(p, TX_CHAT_ARGUMENTS, text, size);
}

/* Reports the held bytes up to `at` as arguments. */
static void flush_arguments(tx_chat_parser *p)
{
    tx_buffer_add(&p->arguments, p->held.data + p->from, p->at - p->from);
    tx_parser_flush(p, TX_CHAT_ARGUMENTS, p->at);
}

static void check_arguments(tx_chat_parser *p)
{
    p->open = false;
    p->malformed = p->malformed || !tx_is_json(p->arguments.data, p->arguments.size, true);
}

/* The mark after the arguments of a call. It can begin with blanks, and blanks can precede it. */
static bool end_call(tx_chat_parser *p)
{
    const tx_calls_form *f = p->form;
    tx_match match = TX_MATCH_HALF;
    for (; p->at < p->held.size; p->at++)
        if ((match = tx_parser_match(p, p->at, f->end)) != TX_MATCH_NO || !tx_is_blank(p->held.data[p->at]))
            break;
    if (match == TX_MATCH_HALF || p->at == p->held.size)
        return false;
    p->from = p->at += match == TX_MATCH ? strlen(f->end) : 0;
    return f->kind == TX_CALLS_CHANNELS ? tx_parser_to_content(p, true) : to(p, tx_calls_between);
}

void tx_calls_end(tx_chat_parser *p)
{
    if (p->open) {
        p->at = p->held.size;
        flush_arguments(p);
        p->malformed = true;
    } else if (p->announced) { /* the object around the arguments does not end */
        p->from = p->held.size;
    }
}

/* ---- Between calls --------------------------------------------------------------------------------------- */

bool tx_calls_between(tx_chat_parser *p)
{
    const tx_calls_form *f = p->form;
    const bool objects = has_objects(p);
    if (!tx_parser_skip(p, objects ? ",;[]" : f->kind == TX_CALLS_NAMED ? "," : ""))
        return false;
    const tx_match begin = tx_parser_match(p, p->at, f->begin), close = tx_parser_match(p, p->at, f->close);
    if (begin == TX_MATCH_HALF || close == TX_MATCH_HALF)
        return false;
    if (close == TX_MATCH && (p->announced || f->kind == TX_CALLS_PYTHON)) {
        p->from = p->at += strlen(f->close);
        return tx_parser_to_content(p, true);
    }
    p->from = p->announced ? p->at : p->from;
    p->late = p->announced = false;
    p->name.size = p->arguments.size = p->key.size = 0;
    p->scan = (tx_json_scan){0};
    if (objects && p->held.data[p->at] == '{') {
        p->at++;
        return to(p, read_member);
    }
    p->value = p->at + strlen(f->begin);
    if (begin == TX_MATCH || f->kind == TX_CALLS_PYTHON) {
        p->at = p->value;
        return to(p, f->kind == TX_CALLS_PYTHON ? read_python : read_name);
    }
    return p->from == p->at ? tx_parser_to_content(p, true) : fail(p);
}

/* ---- Arguments in JSON ------------------------------------------------------------------------------------ */

bool tx_calls_arguments(tx_chat_parser *p)
{
    const char *end = p->form->end;
    if (!p->arguments.size && !p->scan.depth && !p->scan.string) { /* blanks before them */
        if (!tx_parser_skip(p, ""))
            return false;
        p->from = p->at;
    }
    for (; p->at < p->held.size; p->at++) {
        const tx_match match = p->scan.string || *end == '}' ? TX_MATCH_NO : tx_parser_match(p, p->at, end);
        if (match == TX_MATCH_HALF)
            break;
        const tx_scanned scanned = match == TX_MATCH ? TX_SCAN_AFTER : tx_json_scan_byte(&p->scan, p->held.data[p->at]);
        if (scanned == TX_SCAN_INSIDE)
            continue;
        p->at += scanned == TX_SCAN_LAST;
        flush_arguments(p);
        check_arguments(p);
        return to(p, has_objects(p) ? read_member : end_call);
    }
    flush_arguments(p);
    return false;
}

/* ---- Objects with the keys name and arguments ------------------------------------------------------------ */

static bool is_key(const tx_chat_parser *p, const char *one, const char *two)
{
    return strcmp(p->key.data, one) == 0 || strcmp(p->key.data, two) == 0;
}

/* Whether the object can be a call. Without a mark only calls of known tools are. */
static bool is_call(const tx_chat_parser *p)
{
    return p->name.size && (!p->bare || tx_find_tool(p->how.tools, p->name.data, p->name.size));
}

/* Appends a JSON value; a string without its quotes and escapes. */
static void set_value(tx_buffer *to, const char *text, size_t size)
{
    tx_json *json = NULL;
    const char *value = text;
    to->size = 0;
    if (*text == '"' && !tx_json_parse_line(text, size, "a value", &json))
        (void)tx_json_as_text(json, "a value", &value, &size);
    tx_buffer_add(to, value, size);
    tx_json_free(json);
}

/* The value of a member. */
static bool read_value(tx_chat_parser *p)
{
    for (; p->at < p->held.size; p->at++) {
        const tx_scanned scanned = tx_json_scan_byte(&p->scan, p->held.data[p->at]);
        if (scanned == TX_SCAN_INSIDE)
            continue;
        p->at += scanned == TX_SCAN_LAST;
        const bool names = is_key(p, "name", "tool_name"), has = is_key(p, "arguments", "parameters");
        if (names || has)
            set_value(names ? &p->name : &p->arguments, p->held.data + p->value, p->at - p->value);
        p->late = p->late || has;
        return to(p, read_member);
    }
    return false;
}

/* The colon after a key, and the first byte of the value. */
static bool read_colon(tx_chat_parser *p)
{
    if (!tx_parser_skip(p, ":"))
        return false;
    p->value = p->at;
    p->scan = (tx_json_scan){0};
    if (p->announced || !is_key(p, "arguments", "parameters") || !is_call(p) || p->held.data[p->at] != '{')
        return to(p, read_value);
    tx_calls_announce(p);
    p->from = p->at;
    return to(p, tx_calls_arguments);
}

static bool read_key(tx_chat_parser *p)
{
    for (; p->at < p->held.size; p->at++)
        if (tx_json_scan_byte(&p->scan, p->held.data[p->at]) == TX_SCAN_LAST) {
            p->key.size = 0;
            tx_buffer_add(&p->key, p->held.data + p->value + 1, p->at - p->value - 1);
            tx_buffer_add(&p->key, "", 1);
            p->at++;
            return to(p, read_colon);
        }
    return false;
}

/* The next member of an object, or its end. */
static bool read_member(tx_chat_parser *p)
{
    if (!tx_parser_skip(p, ","))
        return false;
    const char c = p->held.data[p->at];
    p->value = p->at;
    p->scan = (tx_json_scan){0};
    if (c == '"')
        return to(p, read_key);
    if (c != '}' || (!p->announced && (!is_call(p) || (p->bare && !p->late)))) {
        p->at += c == '}';
        return p->announced ? to(p, tx_calls_between) : fail(p);
    }
    p->at++;
    if (!p->announced) {
        tx_buffer late = p->arguments;
        p->arguments = (tx_buffer){0};
        tx_calls_announce(p);
        add_arguments(p, late.size ? late.data : "{}", late.size ? late.size : 2);
        check_arguments(p);
        free(late.data);
    }
    p->from = p->at;
    return to(p, tx_calls_between);
}

/* ---- Names, and keys with values ------------------------------------------------------------------------- */

/* Moves `at` to the first of some marks. Returns its index, or -1 if there is none yet. */
static int seek(tx_chat_parser *p, const char *const *marks, int count)
{
    for (; p->at < p->held.size; p->at++)
        for (int i = 0; i < count; i++) {
            const tx_match match = tx_parser_match(p, p->at, marks[i]);
            if (match != TX_MATCH_NO)
                return match == TX_MATCH ? i : -1;
        }
    return -1;
}

/* The brace before arguments in JSON. */
static bool read_brace(tx_chat_parser *p)
{
    if (!tx_parser_skip(p, ""))
        return false;
    if (p->held.data[p->at] != '{')
        return fail(p);
    tx_calls_announce(p);
    p->from = p->at;
    p->scan = (tx_json_scan){0};
    return to(p, tx_calls_arguments);
}

static bool read_name(tx_chat_parser *p)
{
    const tx_calls_form *f = p->form;
    const char *const marks[] = {f->name_end, "\n", f->key, f->end}; /* a form without name_end has the others */
    const int found = seek(p, marks, *f->name_end ? 1 : 4);
    if (p->at - p->value > NAME_BYTES)
        return fail(p);
    if (found < 0)
        return false;
    size_t size = p->at - p->value;
    while (size && tx_is_blank(p->held.data[p->value + size - 1]))
        size--;
    if (!size)
        return fail(p);
    tx_buffer_add(&p->name, p->held.data + p->value, size);
    p->at += found < 2 ? strlen(marks[found]) : 0;
    if (f->kind == TX_CALLS_NAMED)
        return to(p, read_brace);
    tx_calls_announce(p);
    add_arguments(p, "{", 1);
    p->from = p->at;
    return to(p, read_pairs);
}

/* The value of a key, from p->value to `at`. */
static void add_pair(tx_chat_parser *p, size_t end)
{
    const char *text = p->held.data + p->value;
    size_t size = end - p->value;
    tx_buffer pair = {0};
    const bool lines = strcmp(p->form->key_end, ">") == 0; /* the template can write line ends around the value */
    const size_t first = lines && size && *text == '\n';
    text += first;
    size -= first + (lines && size > first && p->held.data[end - 1] == '\n');
    if (p->arguments.size > 1)
        tx_buffer_add(&pair, ", ", 2);
    tx_add_json_string(&pair, p->key.data, p->key.size);
    tx_buffer_add(&pair, ": ", 2);
    tx_buffer_add(&p->key, "", 1);
    tx_add_value(&pair, p->how.tools, &p->name, &p->key, text, size);
    add_arguments(p, pair.data, pair.size);
    p->status = p->status ? p->status : pair.status;
    free(pair.data);
}

static bool read_pair_value(tx_chat_parser *p)
{
    const tx_calls_form *f = p->form;
    if (seek(p, &f->value_end, 1) < 0)
        return false;
    add_pair(p, p->at);
    p->from = p->at += strlen(f->value_end);
    return to(p, read_pairs);
}

/* The bytes between a key and its value. */
static bool read_pair_begin(tx_chat_parser *p)
{
    const tx_calls_form *f = p->form;
    if (*f->value && seek(p, &f->value, 1) < 0)
        return false;
    p->value = p->at += strlen(f->value);
    return to(p, read_pair_value);
}

static bool read_pair_key(tx_chat_parser *p)
{
    const tx_calls_form *f = p->form;
    if (seek(p, &f->key_end, 1) < 0)
        return false;
    p->key.size = 0;
    tx_buffer_add(&p->key, p->held.data + p->value, p->at - p->value);
    p->at += strlen(f->key_end);
    return to(p, read_pair_begin);
}

/* The next key, or the end of the call. */
static bool read_pairs(tx_chat_parser *p)
{
    const tx_calls_form *f = p->form;
    if (!tx_parser_skip(p, ""))
        return false;
    const tx_match key = tx_parser_match(p, p->at, f->key), end = tx_parser_match(p, p->at, f->end);
    if (key == TX_MATCH_HALF || end == TX_MATCH_HALF)
        return false;
    if (key == TX_MATCH) {
        p->value = p->at += strlen(f->key);
        return to(p, read_pair_key);
    }
    if (end == TX_MATCH) {
        add_arguments(p, "}", 1);
        check_arguments(p);
        p->from = p->at += strlen(f->end);
        return to(p, tx_calls_between);
    }
    p->malformed = true; /* text between keys: arguments up to the end of the call */
    p->scan = (tx_json_scan){.string = false, .depth = 1};
    return to(p, tx_calls_arguments);
}

/* ---- Calls in Python ------------------------------------------------------------------------------------- */

/* Reports the call NAME(KEY=VALUE, ...), whose name ends before p->value, and whose last bracket is at `at`. */
static void add_python_call(tx_chat_parser *p)
{
    const char *at = p->held.data + p->value, *end = p->held.data + p->at;
    tx_buffer all = {0};
    tx_buffer_add(&all, "{", 1);
    for (const char *equal; (equal = memchr(at, '=', (size_t)(end - at))) != NULL;) {
        tx_json_scan scan = {0};
        const char *value = equal + 1;
        while (at < equal && tx_is_blank(*at))
            at++;
        tx_add_json_string(&all, at, (size_t)(equal - at));
        tx_buffer_add(&all, ": ", 2);
        for (at = value; at < end && tx_python_scan_byte(&scan, *at) != TX_SCAN_AFTER;)
            at++;
        tx_add_python(&all, value, (size_t)(at - value));
        if (at < end) {
            at++;
            tx_buffer_add(&all, ", ", 2);
        }
    }
    tx_buffer_add(&all, "}", 1);
    tx_calls_announce(p);
    add_arguments(p, all.data, all.size);
    check_arguments(p);
    free(all.data);
}

static bool read_python(tx_chat_parser *p)
{
    for (; !p->scan.depth && p->at < p->held.size; p->at++) {
        const char c = p->held.data[p->at];
        if (c != '(' && !isalnum((unsigned char)c) && !strchr("_.-", c))
            return fail(p);
        if (c != '(')
            continue;
        tx_buffer_add(&p->name, p->held.data + p->value, p->at - p->value);
        p->value = p->at + 1;
        p->scan.depth = 1;
    }
    for (; p->at < p->held.size; p->at++)
        if (tx_python_scan_byte(&p->scan, p->held.data[p->at]) == TX_SCAN_LAST) {
            add_python_call(p);
            p->from = ++p->at;
            return to(p, tx_calls_between);
        }
    return false;
}
