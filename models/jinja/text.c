/* SPDX-License-Identifier: Apache-2.0
 * Writes values as text: Python's str(), repr() and json.dumps(). */
#include "models/jinja/value.h"

#include "api/base/number.h"
#include "models/tokenizer/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Sinks --------------------------------------------------------------------------------------------- */

static void write_flags(tx_jinja_sink *sink, size_t size, uint8_t flags)
{
    if (!tx_buffer_reserve(&sink->flags, size) && size) {
        memset(sink->flags.data + sink->flags.size, flags | sink->more, size);
        sink->flags.size += size;
    }
}

void tx_jinja_write(tx_jinja_sink *sink, const char *bytes, size_t size, uint8_t flags)
{
    const size_t room = sink->bytes.room + sink->flags.room;
    tx_buffer_add(&sink->bytes, bytes, size);
    write_flags(sink, size, flags);
    tx_jinja_charge(sink->arena, sink->bytes.room + sink->flags.room - room);
}

static void write_part(tx_jinja_sink *sink, const tx_jinja_string *s, size_t begin, size_t end)
{
    tx_jinja_write(sink, s->bytes + begin, end - begin, s->all);
    if (!s->flags || sink->flags.status)
        return;
    char *flags = sink->flags.data + sink->flags.size - (end - begin);
    for (size_t i = begin; i < end; i++)
        flags[i - begin] = (char)(s->flags[i] | sink->more);
}

void tx_jinja_write_string(tx_jinja_sink *sink, const tx_jinja_string *s)
{
    write_part(sink, s, 0, s->size);
}

static void write_text(tx_jinja_sink *sink, const char *text, uint8_t flags)
{
    tx_jinja_write(sink, text, strlen(text), flags);
}

tx_jinja_value tx_jinja_written(tx_jinja_arena *a, tx_jinja_sink *sink)
{
    tx_jinja_value result = TX_JINJA_NOTHING;
    if (!a->status)
        a->status = sink->bytes.status ? sink->bytes.status : sink->flags.status;
    const size_t size = sink->bytes.size;
    char *bytes = tx_jinja_take(a, size, 2);
    if (bytes && size) {
        memcpy(bytes, sink->bytes.data, size);
        memcpy(bytes + size, sink->flags.data, size);
    }
    if (bytes && tx_jinja_step(a, size / 16))
        result = tx_jinja_share(a, bytes, size, (const uint8_t *)bytes + size, 0);
    a->used -= sink->bytes.room + sink->flags.room;
    free(sink->bytes.data);
    free(sink->flags.data);
    *sink = (tx_jinja_sink){0};
    return result;
}

tx_jinja_value tx_jinja_concatenated(tx_jinja_arena *a, const tx_jinja_list *list)
{
    tx_jinja_sink sink = tx_jinja_sink_of(a);
    for (size_t i = 0; i < list->count; i++)
        tx_jinja_write_string(&sink, list->at[i].string);
    return tx_jinja_written(a, &sink);
}

/* ---- Python's texts ------------------------------------------------------------------------------------ */

/* Writes the shortest decimal number that reads back the same, in Python's form: 1.0, 1e+16, 1e-05. */
static void write_number(tx_jinja_sink *sink, double number)
{
    char text[40];
    int digits = 1;
    if (!isfinite(number)) {
        write_text(sink, isnan(number) ? "nan" : number > 0 ? "inf" : "-inf", 0);
        return;
    }
    do
        tx_format(text, sizeof text, "%.*e", digits - 1, number);
    while (tx_number_read(text, NULL) != number && ++digits <= 17);
    const int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= 16 || exponent < -4)
        tx_format(text, sizeof text, "%.*e", digits - 1, number);
    else
        tx_format(text, sizeof text, "%.*f", digits - 1 - exponent > 1 ? digits - 1 - exponent : 1, number);
    write_text(sink, text, 0);
}

/* Writes a string in quotes as repr() does: in ' unless it contains ' and no ". */
static void write_quoted(tx_jinja_sink *sink, const tx_jinja_string *s)
{
    const bool single = memchr(s->bytes ? s->bytes : "", '\'', s->size) && !memchr(s->bytes, '"', s->size);
    const char quote = single ? '"' : '\'';
    write_text(sink, single ? "\"" : "'", 0);
    for (size_t at = 0, size; at < s->size; at += size) {
        uint32_t code = 0;
        char text[16] = "";
        size = tx_jinja_read(s, at, &code);
        const char *named = memchr("\\\n\r\t", (int)code, 4);
        if (code == (uint32_t)quote || (named && code))
            snprintf(text, sizeof text, "\\%c",
                     code == '\n'   ? 'n'
                     : code == '\r' ? 'r'
                     : code == '\t' ? 't'
                                    : (char)code);
        else if (code < 0x20 || code == 0x7F || (code >= 0x80 && code <= 0xA0) || code == 0xAD)
            snprintf(text, sizeof text, "\\x%02x", (unsigned)code);
        else if (code > 0xFF && (tx_unicode_is_control(code) || tx_unicode_is_space(code)) && code < 0x10000)
            snprintf(text, sizeof text, "\\u%04x", (unsigned)code);
        else if (code > 0xFFFF && tx_unicode_is_control(code))
            snprintf(text, sizeof text, "\\U%08x", (unsigned)code);
        if (*text)
            write_text(sink, text, tx_jinja_flags_at(s, at));
        else
            write_part(sink, s, at, at + size);
    }
    write_text(sink, single ? "\"" : "'", 0);
}

static void write_repr(tx_jinja_arena *a, tx_jinja_sink *sink, tx_jinja_value v, int depth);

static void write_list(tx_jinja_arena *a, tx_jinja_sink *sink, tx_jinja_value v, int depth)
{
    const bool tuple = v.kind == TX_JINJA_TUPLE;
    write_text(sink, tuple ? "(" : "[", 0);
    for (size_t i = 0; i < v.list->count && tx_jinja_step(a, 1); i++) {
        write_text(sink, i ? ", " : "", 0);
        write_repr(a, sink, v.list->at[i], depth + 1);
    }
    write_text(sink, tuple ? v.list->count == 1 ? ",)" : ")" : "]", 0);
}

static void write_dict(tx_jinja_arena *a, tx_jinja_sink *sink, const tx_jinja_dict *d, int depth)
{
    write_text(sink, "{", 0);
    for (size_t i = 0; i < d->count && tx_jinja_step(a, 1); i++) {
        write_text(sink, i ? ", " : "", 0);
        write_repr(a, sink, d->at[i].key, depth + 1);
        write_text(sink, ": ", 0);
        write_repr(a, sink, d->at[i].value, depth + 1);
    }
    write_text(sink, "}", 0);
}

static void write_repr(tx_jinja_arena *a, tx_jinja_sink *sink, tx_jinja_value v, int depth)
{
    char text[32];
    if (depth > TX_JINJA_DEPTH) {
        tx_jinja_fail(a, TX_UNSUPPORTED, "a value is nested deeper than %d", TX_JINJA_DEPTH);
        return;
    }
    switch (v.kind) {
    case TX_JINJA_UNDEFINED:
        write_text(sink, "Undefined", 0);
        break;
    case TX_JINJA_NONE:
        write_text(sink, "None", 0);
        break;
    case TX_JINJA_BOOL:
        write_text(sink, v.truth ? "True" : "False", 0);
        break;
    case TX_JINJA_INTEGER:
        snprintf(text, sizeof text, "%" PRId64, v.integer);
        write_text(sink, text, 0);
        break;
    case TX_JINJA_NUMBER:
        write_number(sink, v.number);
        break;
    case TX_JINJA_STRING:
        write_quoted(sink, v.string);
        break;
    case TX_JINJA_LIST:
    case TX_JINJA_TUPLE:
        write_list(a, sink, v, depth);
        break;
    case TX_JINJA_DICT:
        write_dict(a, sink, v.dict, depth);
        break;
    default:
        snprintf(text, sizeof text, "<%s>", tx_jinja_kind_name(v));
        write_text(sink, text, 0);
    }
}

void tx_jinja_write_value(tx_jinja_arena *a, tx_jinja_sink *sink, tx_jinja_value v)
{
    if (v.kind == TX_JINJA_STRING)
        tx_jinja_write_string(sink, v.string);
    else if (v.kind != TX_JINJA_UNDEFINED)
        write_repr(a, sink, v, 0);
}

const tx_jinja_string *tx_jinja_str(tx_jinja_arena *a, tx_jinja_value v)
{
    static const tx_jinja_string empty;
    tx_jinja_sink sink = tx_jinja_sink_of(a);
    if (v.kind == TX_JINJA_STRING)
        return v.string;
    tx_jinja_write_value(a, &sink, v);
    v = tx_jinja_written(a, &sink);
    return v.kind == TX_JINJA_STRING ? v.string : &empty;
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

/* Structure and numbers get the flag of untrusted text, because they describe untrusted values. */
static void write_json_string(tx_jinja_sink *sink, const tx_jinja_string *s, bool ascii)
{
    write_text(sink, "\"", TX_JINJA_SAID);
    for (size_t at = 0, size; at < s->size; at += size) {
        static const char named[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
        uint32_t code = 0;
        char text[16] = "";
        size = tx_jinja_read(s, at, &code);
        const char *found = code && code < 0x80 ? strchr(named, (int)code) : NULL;
        if (found)
            snprintf(text, sizeof text, "\\%c", letters[found - named]);
        else if (code < 0x20 || (ascii && code > 0x7E && code < 0x10000))
            snprintf(text, sizeof text, "\\u%04x", (unsigned)code);
        else if (ascii && code >= 0x10000)
            snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD7C0u + (unsigned)(code >> 10),
                     0xDC00u + (unsigned)(code & 0x3FFu));
        if (*text)
            write_text(sink, text, tx_jinja_flags_at(s, at));
        else
            write_part(sink, s, at, at + size);
    }
    write_text(sink, "\"", TX_JINJA_SAID);
}

static void write_break(tx_jinja_sink *sink, const tx_jinja_json_form *form, int depth)
{
    if (form->indent < 0)
        return;
    write_text(sink, "\n", TX_JINJA_SAID);
    for (int i = 0; i < depth * form->indent; i++)
        write_text(sink, " ", TX_JINJA_SAID);
}

static void write_json(tx_jinja_arena *a, tx_jinja_sink *sink, tx_jinja_value v, const tx_jinja_json_form *form,
                       int depth);

/* Writes the separator of two elements. */
static void write_between(tx_jinja_sink *sink, const tx_jinja_json_form *form, int depth)
{
    if (form->between)
        tx_jinja_write_string(sink, form->between);
    else
        write_text(sink, form->indent < 0 ? ", " : ",", TX_JINJA_SAID);
    write_break(sink, form, depth);
}

static void write_json_dict(tx_jinja_arena *a, tx_jinja_sink *sink, const tx_jinja_dict *d,
                            const tx_jinja_json_form *form, int depth)
{
    tx_jinja_pair *pair = tx_jinja_take(a, 2 * d->count, sizeof *pair);
    if (pair && d->count)
        memcpy(pair, d->at, d->count * sizeof *pair);
    if (pair && form->sorted)
        tx_jinja_sort(a, pair, pair + d->count, d->count, false);
    write_text(sink, "{", TX_JINJA_SAID);
    for (size_t i = 0; pair && i < d->count && tx_jinja_step(a, 1); i++) {
        if (i)
            write_between(sink, form, depth + 1);
        else
            write_break(sink, form, depth + 1);
        write_json_string(sink, tx_jinja_str(a, pair[i].key), form->ascii);
        if (form->colon)
            tx_jinja_write_string(sink, form->colon);
        else
            write_text(sink, ": ", TX_JINJA_SAID);
        write_json(a, sink, pair[i].value, form, depth + 1);
    }
    if (d->count)
        write_break(sink, form, depth);
    write_text(sink, "}", TX_JINJA_SAID);
}

static void write_json_list(tx_jinja_arena *a, tx_jinja_sink *sink, const tx_jinja_list *list,
                            const tx_jinja_json_form *form, int depth)
{
    write_text(sink, "[", TX_JINJA_SAID);
    for (size_t i = 0; i < list->count && tx_jinja_step(a, 1); i++) {
        if (i)
            write_between(sink, form, depth + 1);
        else
            write_break(sink, form, depth + 1);
        write_json(a, sink, list->at[i], form, depth + 1);
    }
    if (list->count)
        write_break(sink, form, depth);
    write_text(sink, "]", TX_JINJA_SAID);
}

static void write_json(tx_jinja_arena *a, tx_jinja_sink *sink, tx_jinja_value v, const tx_jinja_json_form *form,
                       int depth)
{
    if (depth > TX_JINJA_DEPTH)
        tx_jinja_fail(a, TX_UNSUPPORTED, "a value is nested deeper than %d", TX_JINJA_DEPTH);
    else if (v.kind == TX_JINJA_STRING)
        write_json_string(sink, v.string, form->ascii);
    else if (v.kind == TX_JINJA_DICT)
        write_json_dict(a, sink, v.dict, form, depth);
    else if (v.kind == TX_JINJA_LIST || v.kind == TX_JINJA_TUPLE)
        write_json_list(a, sink, v.list, form, depth);
    else if (v.kind == TX_JINJA_NONE)
        write_text(sink, "null", TX_JINJA_SAID);
    else if (v.kind == TX_JINJA_BOOL)
        write_text(sink, v.truth ? "true" : "false", TX_JINJA_SAID);
    else if (tx_jinja_is_number(v))
        write_repr(a, sink, v, depth);
    else
        tx_jinja_fail(a, TX_FORMAT, "tojson: a %s has no JSON", tx_jinja_kind_name(v));
}

tx_jinja_value tx_jinja_dump(tx_jinja_arena *a, tx_jinja_value v, const tx_jinja_json_form *form)
{
    tx_jinja_sink sink = tx_jinja_sink_of(a);
    write_json(a, &sink, v, form, 0);
    return tx_jinja_written(a, &sink);
}
