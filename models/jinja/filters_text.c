/* SPDX-License-Identifier: Apache-2.0
 * Filters that return texts. */
#include "models/jinja/method.h"

#include "api/base/number.h"

#include <stdio.h>
#include <string.h>

tx_jinja_value tx_jinja_do_string(const tx_jinja_call *c)
{
    const tx_jinja_string *s = tx_jinja_self(c);
    return tx_jinja_cut(c->arena, s, 0, s->size);
}

/* ---- HTML ----------------------------------------------------------------------------------------------- */

static tx_jinja_value as_safe(tx_jinja_value v)
{
    if (v.kind == TX_JINJA_STRING)
        v.string->safe = true;
    return v;
}

tx_jinja_value tx_jinja_do_safe(const tx_jinja_call *c)
{
    return as_safe(tx_jinja_do_string(c));
}

static tx_jinja_value escaped(tx_jinja_arena *a, const tx_jinja_string *s)
{
    static const char special[] = "&<>'\"", *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    tx_jinja_sink sink = tx_jinja_sink_of(a);
    for (size_t i = 0; i < s->size && tx_jinja_step(a, 1) && !sink.bytes.status; i++) {
        const char *found = s->safe ? NULL : memchr(special, s->bytes[i], sizeof special - 1);
        const char *text = found ? names[found - special] : s->bytes + i;
        tx_jinja_write(&sink, text, found ? strlen(text) : 1, s->flags ? s->flags[i] : s->all);
    }
    return as_safe(tx_jinja_written(a, &sink));
}

tx_jinja_value tx_jinja_do_escape(const tx_jinja_call *c)
{
    return escaped(c->arena, tx_jinja_self(c));
}

tx_jinja_value tx_jinja_added(tx_jinja_arena *a, const tx_jinja_string *x, const tx_jinja_string *y)
{
    if (!x->safe && !y->safe)
        return tx_jinja_joined(a, x, y);
    const tx_jinja_value first = escaped(a, x), second = escaped(a, y);
    return a->status ? TX_JINJA_NOTHING : as_safe(tx_jinja_joined(a, first.string, second.string));
}

/* ---- Lists and words ------------------------------------------------------------------------------------ */

/* The attribute of a value if an attribute is named, else the value. */
static tx_jinja_value attribute_of(const tx_jinja_call *c, tx_jinja_value v, size_t index)
{
    const tx_jinja_value name = tx_jinja_argument_of(c, index, "attribute");
    return name.kind == TX_JINJA_UNDEFINED || name.kind == TX_JINJA_NONE ? v : tx_jinja_member(c->arena, v, name);
}

tx_jinja_value tx_jinja_do_join(const tx_jinja_call *c)
{
    const tx_jinja_list *list = tx_jinja_elements(c->arena, c->self);
    const tx_jinja_string *between = tx_jinja_str(c->arena, tx_jinja_argument_of(c, 0, "d"));
    tx_jinja_sink sink = tx_jinja_sink_of(c->arena);
    for (size_t i = 0; list && i < list->count && tx_jinja_step(c->arena, 1) && !sink.bytes.status; i++) {
        if (i)
            tx_jinja_write_string(&sink, between);
        tx_jinja_write_value(c->arena, &sink, attribute_of(c, list->at[i], 1));
    }
    return tx_jinja_written(c->arena, &sink);
}

tx_jinja_value tx_jinja_do_wordcount(const tx_jinja_call *c)
{
    const tx_jinja_string *s = tx_jinja_self(c);
    const tx_jinja_call split = {.arena = c->arena, .self = {TX_JINJA_STRING, {.string = (tx_jinja_string *)s}}};
    const tx_jinja_value words = tx_jinja_do_split(&split);
    return words.kind == TX_JINJA_LIST ? tx_jinja_integer((int64_t)words.list->count) : words;
}

/* ---- Lines ---------------------------------------------------------------------------------------------- */

/* Jinja's indent: indents every line except the first; blank lines only with `blank`. */
tx_jinja_value tx_jinja_do_indent(const tx_jinja_call *c)
{
    const tx_jinja_string *s = tx_jinja_self(c);
    const tx_jinja_value width = tx_jinja_argument_of(c, 0, "width");
    const int64_t count = width.kind == TX_JINJA_STRING ? 1 : tx_jinja_integer_of(c, 0, "width", 4);
    static const tx_jinja_string blank_text = {.bytes = " ", .size = 1};
    const tx_jinja_string *step = width.kind == TX_JINJA_STRING ? width.string : &blank_text;
    const bool first = tx_jinja_truth(tx_jinja_argument_of(c, 1, "first"));
    const bool blank = tx_jinja_truth(tx_jinja_argument_of(c, 2, "blank"));
    tx_jinja_sink sink = tx_jinja_sink_of(c->arena);
    for (size_t begin = 0, end; begin <= s->size && tx_jinja_step(c->arena, 1); begin = end + 1) {
        const char *newline = s->size - begin ? memchr(s->bytes + begin, '\n', s->size - begin) : NULL;
        end = newline ? (size_t)(newline - s->bytes) : s->size;
        const bool indents = begin == 0 ? first : blank || end > begin;
        for (int64_t i = 0; i < count && indents && tx_jinja_step(c->arena, 1); i++)
            tx_jinja_write_string(&sink, step);
        const tx_jinja_value line = tx_jinja_cut(c->arena, s, begin, newline ? end + 1 : end);
        if (line.kind == TX_JINJA_STRING)
            tx_jinja_write_string(&sink, line.string);
    }
    return tx_jinja_written(c->arena, &sink);
}

/* ---- JSON ----------------------------------------------------------------------------------------------- */

tx_jinja_value tx_jinja_do_tojson(const tx_jinja_call *c)
{
    const tx_jinja_value separators = tx_jinja_argument_of(c, 2, "separators");
    tx_jinja_json_form form = {
        .ascii = tx_jinja_truth(tx_jinja_argument_of(c, 0, "ensure_ascii")),
        .indent = (int)tx_jinja_integer_of(c, 1, "indent", -1),
        .sorted = tx_jinja_truth(tx_jinja_argument_of(c, 3, "sort_keys")),
    };
    form.indent = form.indent > TX_JINJA_DEPTH ? TX_JINJA_DEPTH : form.indent;
    if ((separators.kind == TX_JINJA_TUPLE || separators.kind == TX_JINJA_LIST) && separators.list->count == 2) {
        form.between = tx_jinja_str(c->arena, separators.list->at[0]);
        form.colon = tx_jinja_str(c->arena, separators.list->at[1]);
    }
    return tx_jinja_dump(c->arena, c->self, &form);
}

/* ---- Formats -------------------------------------------------------------------------------------------- */

/* Writes a value by a conversion of printf. `spec` is the conversion without its letter, such as "%-5.2". */
static void convert(tx_jinja_arena *a, tx_jinja_sink *sink, const char *spec, char letter, tx_jinja_value v)
{
    char format[24], text[512];
    int size;
    if (letter == 's' || letter == 'r') {
        if (spec[1])
            tx_jinja_fail(a, TX_UNSUPPORTED, "%s%c: a width of texts is not supported", spec, letter);
        tx_jinja_write_value(a, sink, v);
        return;
    }
    if (!tx_jinja_is_number(v)) {
        tx_jinja_fail(a, TX_FORMAT, "%s%c needs a number, not a %s", spec, letter, tx_jinja_kind_name(v));
        return;
    }
    if (strchr("dixX", letter)) {
        const double most = 9e18, number = tx_jinja_as_number(v);
        const int64_t whole = v.kind == TX_JINJA_INTEGER        ? v.integer
                              : number > -most && number < most ? (int64_t)number
                                                                : 0;
        snprintf(format, sizeof format, "%sll%c", spec, letter == 'i' ? 'd' : letter);
        size = snprintf(text, sizeof text, format, (long long)whole);
    } else {
        snprintf(format, sizeof format, "%s%c", spec, letter);
        size = tx_format(text, sizeof text, format, tx_jinja_as_number(v));
    }
    if (size < 0 || (size_t)size >= sizeof text)
        tx_jinja_fail(a, TX_UNSUPPORTED, "%s%c: a number of more than %zu characters", spec, letter, sizeof text - 1);
    else
        tx_jinja_write(sink, text, (size_t)size, 0);
}

tx_jinja_value tx_jinja_percent(tx_jinja_arena *a, const tx_jinja_string *format, const tx_jinja_list *arguments)
{
    tx_jinja_sink sink = tx_jinja_sink_of(a);
    size_t used = 0;
    for (size_t at = 0; at < format->size && tx_jinja_step(a, 1);) {
        const char *percent = memchr(format->bytes + at, '%', format->size - at);
        const size_t begin = percent ? (size_t)(percent - format->bytes) : format->size;
        const tx_jinja_value plain = tx_jinja_cut(a, format, at, begin);
        if (plain.kind == TX_JINJA_STRING)
            tx_jinja_write_string(&sink, plain.string);
        if (!percent)
            break;
        char spec[12];
        size_t size = 1, end = begin + 1;
        while (end < format->size && size + 2 < sizeof spec && format->bytes[end] &&
               strchr("-+ #0123456789.", format->bytes[end]))
            spec[size++] = format->bytes[end++];
        spec[0] = '%';
        spec[size] = '\0';
        const char letter = end < format->size ? format->bytes[end] : '\0';
        if (letter == '%')
            tx_jinja_write(&sink, "%", 1, 0);
        else if (!letter || !strchr("srdixXfeEgG", letter))
            tx_jinja_fail(a, TX_UNSUPPORTED, "format: unknown conversion %s%c", spec, letter ? letter : ' ');
        else if (used == arguments->count)
            tx_jinja_fail(a, TX_FORMAT, "format: not enough arguments");
        else
            convert(a, &sink, spec, letter, arguments->at[used++]);
        at = end + 1;
    }
    if (used < arguments->count)
        tx_jinja_fail(a, TX_FORMAT, "format: not all arguments are used");
    return tx_jinja_written(a, &sink);
}

tx_jinja_value tx_jinja_do_format_percent(const tx_jinja_call *c)
{
    const tx_jinja_value list = tx_jinja_list_new(c->arena, true);
    for (size_t i = 0; i < c->count && !c->arena->status; i++)
        tx_jinja_append(c->arena, list.list, c->at[i].value);
    return c->arena->status ? TX_JINJA_NOTHING : tx_jinja_percent(c->arena, tx_jinja_self(c), list.list);
}

/* The argument that "{}", "{0}" or "{name}" refers to. */
static tx_jinja_value named(const tx_jinja_call *c, const char *name, size_t *next)
{
    const size_t digits = strspn(name, "0123456789");
    size_t index = 0;
    if (!*name)
        return tx_jinja_argument_of(c, (*next)++, "");
    for (size_t i = 0; i < digits && digits < 4; i++)
        index = 10 * index + (size_t)(name[i] - '0');
    return tx_jinja_argument_of(c, name[digits] ? SIZE_MAX : index, name);
}

tx_jinja_value tx_jinja_do_format_braces(const tx_jinja_call *c)
{
    const tx_jinja_string *s = tx_jinja_self(c);
    tx_jinja_sink sink = tx_jinja_sink_of(c->arena);
    size_t next = 0;
    for (size_t at = 0; at < s->size && tx_jinja_step(c->arena, 1); at++) {
        const char byte = s->bytes[at];
        if ((byte == '{' || byte == '}') && at + 1 < s->size && s->bytes[at + 1] == byte) {
            at++;
        } else if (byte == '{') {
            char name[64] = "";
            const char *end = memchr(s->bytes + at, '}', s->size - at);
            const size_t size = end ? (size_t)(end - (s->bytes + at)) - 1 : sizeof name;
            if (size >= sizeof name || memchr(s->bytes + at, ':', size + 1) || memchr(s->bytes + at, '!', size + 1))
                tx_jinja_fail(c->arena, TX_UNSUPPORTED, "format: only {}, {0} and {name} are supported");
            else
                memcpy(name, s->bytes + at + 1, size);
            const tx_jinja_value v = named(c, name, &next);
            if (v.kind == TX_JINJA_UNDEFINED)
                tx_jinja_fail(c->arena, TX_FORMAT, "format: there is no argument for {%s}", name);
            tx_jinja_write_value(c->arena, &sink, v);
            at += size + 1;
            continue;
        }
        const tx_jinja_value one = tx_jinja_cut(c->arena, s, at, at + 1);
        if (one.kind == TX_JINJA_STRING)
            tx_jinja_write_string(&sink, one.string);
    }
    return tx_jinja_written(c->arena, &sink);
}
