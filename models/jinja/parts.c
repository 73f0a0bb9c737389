/* SPDX-License-Identifier: Apache-2.0
 * Methods that search, split, replace, join and pad strings. */
#include "models/jinja/method.h"

#include "models/tokenizer/utf8.h"

#include <string.h>

typedef const tx_jinja_string *str;

static void append_cut(const tx_jinja_call *c, tx_jinja_value list, size_t begin, size_t end)
{
    if (!c->arena->status)
        tx_jinja_append(c->arena, list.list, tx_jinja_cut(c->arena, tx_jinja_self(c), begin, end));
}

/* ---- Searching ------------------------------------------------------------------------------------------ */

/* Position of the last occurrence of a part that ends at or before `end`. */
static int64_t search_last(const tx_jinja_call *c, str s, str part, size_t end)
{
    for (size_t at = end + 1; at-- > part->size && tx_jinja_step(c->arena, 1 + part->size / 64);)
        if (part->size == 0 || memcmp(s->bytes + at - part->size, part->bytes, part->size) == 0)
            return (int64_t)(at - part->size);
    return part->size ? -1 : (int64_t)end;
}

/* Index of the character that begins at a byte; -1 is kept. */
static tx_jinja_value as_index(const tx_jinja_call *c, str s, int64_t byte)
{
    const tx_jinja_string before = {.bytes = s->bytes, .size = byte < 0 ? 0 : (size_t)byte};
    return tx_jinja_integer(byte < 0 ? -1 : (int64_t)tx_jinja_length(c->arena, &before));
}

tx_jinja_value tx_jinja_do_find(const tx_jinja_call *c)
{
    str s = tx_jinja_self(c);
    const int64_t start = tx_jinja_integer_of(c, 1, "start", 0);
    const int64_t from = start < 0 ? start + (int64_t)tx_jinja_length(c->arena, s) : start;
    return as_index(c, s,
                    tx_jinja_search(c->arena, s, tx_jinja_needed(c, 0, "sub"),
                                    tx_jinja_offset(c->arena, s, from < 0 ? 0 : (size_t)from)));
}

tx_jinja_value tx_jinja_do_rfind(const tx_jinja_call *c)
{
    str s = tx_jinja_self(c);
    return as_index(c, s, search_last(c, s, tx_jinja_needed(c, 0, "sub"), s->size));
}

tx_jinja_value tx_jinja_do_index_of(const tx_jinja_call *c)
{
    const tx_jinja_value x = tx_jinja_argument_of(c, 0, "value");
    if (c->self.kind == TX_JINJA_STRING) {
        const tx_jinja_value found = tx_jinja_do_find(c);
        return found.integer < 0 ? tx_jinja_fail(c->arena, TX_FORMAT, "substring not found") : found;
    }
    for (size_t i = 0; i < c->self.list->count && !c->arena->status; i++)
        if (tx_jinja_equal(c->arena, c->self.list->at[i], x))
            return tx_jinja_integer((int64_t)i);
    return tx_jinja_fail(c->arena, TX_FORMAT, "the list does not contain the value");
}

tx_jinja_value tx_jinja_do_count_of(const tx_jinja_call *c)
{
    int64_t count = 0;
    if (c->self.kind != TX_JINJA_STRING) {
        const tx_jinja_value x = tx_jinja_argument_of(c, 0, "value");
        for (size_t i = 0; i < c->self.list->count && !c->arena->status; i++)
            count += tx_jinja_equal(c->arena, c->self.list->at[i], x);
        return tx_jinja_integer(count);
    }
    str s = tx_jinja_self(c), part = tx_jinja_needed(c, 0, "sub");
    if (!part->size)
        return tx_jinja_integer((int64_t)tx_jinja_length(c->arena, s) + 1);
    for (int64_t at = 0; (at = tx_jinja_search(c->arena, s, part, (size_t)at)) >= 0; at += (int64_t)part->size)
        count++;
    return tx_jinja_integer(count);
}

/* ---- Replacing ------------------------------------------------------------------------------------------ */

static void write_cut(tx_jinja_sink *sink, str s, size_t begin, size_t end)
{
    const tx_jinja_string part = {s->bytes + begin, end - begin, s->flags ? s->flags + begin : NULL, s->all, false};
    tx_jinja_write_string(sink, &part);
}

tx_jinja_value tx_jinja_do_replace(const tx_jinja_call *c)
{
    str s = tx_jinja_self(c), old = tx_jinja_str(c->arena, tx_jinja_argument_of(c, 0, "old"));
    str new = tx_jinja_str(c->arena, tx_jinja_argument_of(c, 1, "new"));
    int64_t left = tx_jinja_integer_of(c, 2, "count", -1), found = -1;
    tx_jinja_sink sink = tx_jinja_sink_of(c->arena);
    size_t at = 0;
    while (left-- != 0 && tx_jinja_step(c->arena, 1) && at <= s->size && !sink.bytes.status) {
        found = tx_jinja_search(c->arena, s, old, at);
        if (found < 0)
            break;
        write_cut(&sink, s, at, (size_t)found);
        tx_jinja_write_string(&sink, new);
        at = (size_t)found + old->size;
        if (!old->size) { /* before every character, and at the end */
            const size_t size = at < s->size ? tx_utf8_read(s->bytes + at, s->size - at, NULL) : 0;
            write_cut(&sink, s, at, at + size);
            at += size ? size : 1;
        }
    }
    if (at < s->size)
        write_cut(&sink, s, at, s->size);
    return tx_jinja_written(c->arena, &sink);
}

/* ---- Splitting ------------------------------------------------------------------------------------------ */

/* Skips characters that are (or are not) white space. */
static size_t skip(str s, size_t at, bool space)
{
    uint32_t code;
    size_t size;
    while (at < s->size && (size = tx_utf8_read(s->bytes + at, s->size - at, &code)) &&
           tx_jinja_is_space(code) == space)
        at += size;
    return at;
}

/* Splits at white space, at most `most` times unless it is negative. */
static tx_jinja_value split_words(const tx_jinja_call *c, tx_jinja_value list, int64_t most)
{
    str s = tx_jinja_self(c);
    size_t size, end = 0;
    uint32_t code;
    for (size_t begin = skip(s, 0, true); begin < s->size && tx_jinja_step(c->arena, 1); begin = skip(s, end, true)) {
        end = skip(s, begin, false);
        if (most-- == 0)
            for (end = s->size; (size = tx_utf8_read_last(s->bytes, end, &code)) && tx_jinja_is_space(code);)
                end -= size;
        append_cut(c, list, begin, end);
    }
    return list;
}

tx_jinja_value tx_jinja_do_split(const tx_jinja_call *c)
{
    str s = tx_jinja_self(c), sep = tx_jinja_string_of(c, 0, "sep");
    int64_t left = tx_jinja_integer_of(c, 1, "maxsplit", -1), found;
    const tx_jinja_value list = tx_jinja_list_new(c->arena, false);
    size_t begin = 0;
    if (sep && !sep->size)
        return tx_jinja_fail(c->arena, TX_FORMAT, "empty separator");
    if (!sep)
        return split_words(c, list, left < 0 ? INT64_MAX : left);
    while (left-- != 0 && (found = tx_jinja_search(c->arena, s, sep, begin)) >= 0) {
        append_cut(c, list, begin, (size_t)found);
        begin = (size_t)found + sep->size;
    }
    append_cut(c, list, begin, s->size);
    return list;
}

tx_jinja_value tx_jinja_do_rsplit(const tx_jinja_call *c)
{
    str s = tx_jinja_self(c), sep = tx_jinja_string_of(c, 0, "sep");
    int64_t left = tx_jinja_integer_of(c, 1, "maxsplit", -1), found;
    const tx_jinja_value list = tx_jinja_list_new(c->arena, false);
    size_t end = s->size;
    if (!sep || !sep->size)
        return sep || left >= 0 ? tx_jinja_fail(c->arena, TX_UNSUPPORTED, "rsplit needs a separator")
                                : tx_jinja_do_split(c);
    while (left-- != 0 && (found = search_last(c, s, sep, end)) >= 0) {
        append_cut(c, list, (size_t)found + sep->size, end);
        end = (size_t)found;
    }
    append_cut(c, list, 0, end);
    if (!c->arena->status)
        tx_jinja_reverse(list.list);
    return list;
}

tx_jinja_value tx_jinja_do_splitlines(const tx_jinja_call *c)
{
    str s = tx_jinja_self(c);
    const tx_jinja_value list = tx_jinja_list_new(c->arena, false);
    const bool keeps = tx_jinja_truth(tx_jinja_argument_of(c, 0, "keepends"));
    for (size_t begin = 0, end, next; begin < s->size && tx_jinja_step(c->arena, 1); begin = next) {
        uint32_t code = 0;
        next = end = begin;
        for (bool ends = false; next < s->size && !ends;) {
            const size_t size = tx_jinja_read(s, next, &code);
            ends = (code >= '\n' && code <= '\r') || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
                   code == 0x2029;
            end = ends ? next : next + size;
            next += size;
            if (code == '\r' && next < s->size && s->bytes[next] == '\n')
                next++;
        }
        append_cut(c, list, begin, keeps ? next : end);
    }
    return list;
}

tx_jinja_value tx_jinja_do_partition(const tx_jinja_call *c)
{
    const bool last = c->form == TX_JINJA_BACK;
    str s = tx_jinja_self(c), sep = tx_jinja_needed(c, 0, "sep");
    const tx_jinja_value list = tx_jinja_list_new(c->arena, true);
    if (!sep->size)
        return tx_jinja_fail(c->arena, TX_FORMAT, "empty separator");
    const int64_t found = last ? search_last(c, s, sep, s->size) : tx_jinja_search(c->arena, s, sep, 0);
    const size_t begin = found >= 0 ? (size_t)found : last ? 0 : s->size, end = found >= 0 ? begin + sep->size : begin;
    append_cut(c, list, 0, begin);
    append_cut(c, list, begin, end);
    append_cut(c, list, end, s->size);
    return list;
}

/* ---- Joining and padding -------------------------------------------------------------------------------- */

tx_jinja_value tx_jinja_do_join_of(const tx_jinja_call *c)
{
    const tx_jinja_list *list = tx_jinja_elements(c->arena, tx_jinja_argument_of(c, 0, "iterable"));
    tx_jinja_sink sink = tx_jinja_sink_of(c->arena);
    for (size_t i = 0; list && i < list->count && tx_jinja_step(c->arena, 1); i++) {
        if (list->at[i].kind != TX_JINJA_STRING)
            tx_jinja_fail(c->arena, TX_FORMAT, "join: expected a str, not a %s", tx_jinja_kind_name(list->at[i]));
        if (i)
            tx_jinja_write_string(&sink, tx_jinja_self(c));
        tx_jinja_write_value(c->arena, &sink, list->at[i]);
    }
    return tx_jinja_written(c->arena, &sink);
}

/* Pads to `width` characters, at the beginning or at the end. */
static tx_jinja_value pad(const tx_jinja_call *c, str fill, bool before)
{
    str s = tx_jinja_self(c);
    const int64_t width = tx_jinja_integer_of(c, 0, "width", 0), length = (int64_t)tx_jinja_length(c->arena, s);
    tx_jinja_sink sink = tx_jinja_sink_of(c->arena);
    if (!before)
        tx_jinja_write_string(&sink, s);
    for (int64_t i = length; i < width && tx_jinja_step(c->arena, 1); i++)
        tx_jinja_write_string(&sink, fill);
    if (before)
        tx_jinja_write_string(&sink, s);
    return tx_jinja_written(c->arena, &sink);
}

tx_jinja_value tx_jinja_do_just(const tx_jinja_call *c)
{
    static const tx_jinja_string blank = {.bytes = " ", .size = 1};
    str fill = tx_jinja_string_of(c, 1, "fillchar");
    return pad(c, fill ? fill : &blank, c->form == TX_JINJA_FRONT);
}

tx_jinja_value tx_jinja_do_zfill(const tx_jinja_call *c)
{
    static const tx_jinja_string zero = {.bytes = "0", .size = 1};
    return pad(c, &zero, true);
}
