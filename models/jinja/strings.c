/* SPDX-License-Identifier: Apache-2.0
 * Methods of strings; some are also filters. */
#include "models/jinja/method.h"

#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

typedef const tx_jinja_string *str;

static tx_jinja_value cut(const tx_jinja_call *c, size_t begin, size_t end)
{
    return tx_jinja_cut(c->arena, tx_jinja_self(c), begin, end);
}

/* ---- Case ----------------------------------------------------------------------------------------------- */

typedef enum letter_case { LOWER, UPPER, CAPITALIZE, TITLE_WORDS, TITLE_LETTERS } letter_case;

/* Returns true if a letter after `before` begins a word. */
static bool begins_word(letter_case how, uint32_t before)
{
    if (how == TITLE_WORDS) /* Jinja's filter */
        return before == '-' || before == '(' || before == '{' || before == '[' || before == '<' ||
               tx_jinja_is_space(before);
    return how == TITLE_LETTERS && !tx_unicode_is_upper(before) && !tx_unicode_is_lower(before);
}

static tx_jinja_value with_case(const tx_jinja_call *c, letter_case how)
{
    str s = tx_jinja_self(c);
    tx_jinja_sink sink = tx_jinja_sink_of(c->arena);
    uint32_t before = ' ';
    tx_buffer made = {0};
    for (size_t at = 0, size; at < s->size && tx_jinja_step(c->arena, 1); at += size) {
        uint32_t code = 0;
        made.size = 0;
        size = tx_jinja_read(s, at, &code);
        const bool first = how == CAPITALIZE ? at == 0 : begins_word(how, before);
        if (how == UPPER || first)
            tx_unicode_upper(code, &made);
        else
            tx_unicode_lower(code, &made);
        if (made.size)
            tx_jinja_write(&sink, made.data, made.size, tx_jinja_flags_at(s, at));
        before = code;
    }
    free(made.data);
    return tx_jinja_written(c->arena, &sink);
}

tx_jinja_value tx_jinja_do_lower(const tx_jinja_call *c)
{
    return with_case(c, LOWER);
}

tx_jinja_value tx_jinja_do_upper(const tx_jinja_call *c)
{
    return with_case(c, UPPER);
}

tx_jinja_value tx_jinja_do_capitalize(const tx_jinja_call *c)
{
    return with_case(c, CAPITALIZE);
}

tx_jinja_value tx_jinja_do_title(const tx_jinja_call *c)
{
    return with_case(c, TITLE_WORDS);
}

tx_jinja_value tx_jinja_do_title_of(const tx_jinja_call *c)
{
    return with_case(c, TITLE_LETTERS);
}

/* Returns true if there are characters and all are of one kind. */
static tx_jinja_value all_are(const tx_jinja_call *c, bool (*is)(uint32_t code))
{
    str s = tx_jinja_self(c);
    bool all = s->size > 0;
    for (size_t at = 0; at < s->size && all && tx_jinja_step(c->arena, 1);) {
        uint32_t code = 0;
        at += tx_jinja_read(s, at, &code);
        all = is(code);
    }
    return tx_jinja_bool(all);
}

static bool is_letter_or_digit(uint32_t code)
{
    return tx_unicode_is_letter(code) || tx_unicode_is_number(code);
}

static bool is_digit(uint32_t code)
{
    return code >= '0' && code <= '9';
}

tx_jinja_value tx_jinja_do_isalnum(const tx_jinja_call *c)
{
    return all_are(c, is_letter_or_digit);
}

tx_jinja_value tx_jinja_do_isalpha(const tx_jinja_call *c)
{
    return all_are(c, tx_unicode_is_letter);
}

tx_jinja_value tx_jinja_do_isdigit(const tx_jinja_call *c)
{
    return all_are(c, is_digit);
}

tx_jinja_value tx_jinja_do_isspace(const tx_jinja_call *c)
{
    return all_are(c, tx_jinja_is_space);
}

/* ---- Ends ----------------------------------------------------------------------------------------------- */

/* Returns true if a character is stripped: it is in `chars`, or white space if there are none. */
static bool is_stripped(str chars, const char *bytes, size_t size, uint32_t code)
{
    if (!chars)
        return tx_jinja_is_space(code);
    for (size_t at = 0, length; at < chars->size; at += length) {
        length = tx_jinja_read(chars, at, NULL);
        if (length == size && memcmp(chars->bytes + at, bytes, size) == 0)
            return true;
    }
    return false;
}

static tx_jinja_value strip_ends(const tx_jinja_call *c, bool left, bool right)
{
    str s = tx_jinja_self(c), chars = tx_jinja_string_of(c, 0, "chars");
    size_t begin = 0, end = s->size, size;
    uint32_t code;
    while (left && begin < end && (size = tx_utf8_read(s->bytes + begin, end - begin, &code)) &&
           is_stripped(chars, s->bytes + begin, size, code) && tx_jinja_step(c->arena, 1))
        begin += size;
    while (right && end > begin && (size = tx_utf8_read_last(s->bytes + begin, end - begin, &code)) &&
           is_stripped(chars, s->bytes + end - size, size, code) && tx_jinja_step(c->arena, 1))
        end -= size;
    return cut(c, begin, end);
}

tx_jinja_value tx_jinja_do_strip(const tx_jinja_call *c)
{
    return strip_ends(c, true, true);
}

tx_jinja_value tx_jinja_do_lstrip(const tx_jinja_call *c)
{
    return strip_ends(c, true, false);
}

tx_jinja_value tx_jinja_do_rstrip(const tx_jinja_call *c)
{
    return strip_ends(c, false, true);
}

static bool has_end(str s, str part, bool last)
{
    return part->size <= s->size &&
           (part->size == 0 || memcmp(s->bytes + (last ? s->size - part->size : 0), part->bytes, part->size) == 0);
}

/* Tests one string, or each string of a tuple. */
static tx_jinja_value with_end(const tx_jinja_call *c, bool last)
{
    const tx_jinja_value parts = tx_jinja_argument_of(c, 0, "prefix");
    bool found = false;
    if (parts.kind != TX_JINJA_TUPLE)
        return tx_jinja_bool(has_end(tx_jinja_self(c), tx_jinja_needed(c, 0, "prefix"), last));
    for (size_t i = 0; i < parts.list->count && !found; i++)
        found = parts.list->at[i].kind == TX_JINJA_STRING && has_end(tx_jinja_self(c), parts.list->at[i].string, last);
    return tx_jinja_bool(found);
}

tx_jinja_value tx_jinja_do_startswith(const tx_jinja_call *c)
{
    return with_end(c, false);
}

tx_jinja_value tx_jinja_do_endswith(const tx_jinja_call *c)
{
    return with_end(c, true);
}

tx_jinja_value tx_jinja_do_removeprefix(const tx_jinja_call *c)
{
    str s = tx_jinja_self(c), part = tx_jinja_needed(c, 0, "prefix");
    return cut(c, has_end(s, part, false) ? part->size : 0, s->size);
}

tx_jinja_value tx_jinja_do_removesuffix(const tx_jinja_call *c)
{
    str s = tx_jinja_self(c), part = tx_jinja_needed(c, 0, "suffix");
    return cut(c, 0, s->size - (has_end(s, part, true) ? part->size : 0));
}
