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

/* Returns true if a letter after `before` begins a word. */
static bool begins_word(int how, uint32_t before)
{
    if (how == TX_JINJA_TITLE_WORDS) /* Jinja's filter */
        return before == '-' || before == '(' || before == '{' || before == '[' || before == '<' ||
               tx_jinja_is_space(before);
    return how == TX_JINJA_TITLE_LETTERS && !tx_unicode_is_upper(before) && !tx_unicode_is_lower(before);
}

tx_jinja_value tx_jinja_do_letters(const tx_jinja_call *c)
{
    str s = tx_jinja_self(c);
    tx_jinja_sink sink = tx_jinja_sink_of(c->arena);
    uint32_t before = ' ';
    tx_buffer result = {0};
    for (size_t at = 0, size; at < s->size && tx_jinja_step(c->arena, 1); at += size) {
        uint32_t code = 0;
        result.size = 0;
        size = tx_jinja_read(s, at, &code);
        const bool first = c->form == TX_JINJA_CAPITALIZE ? at == 0 : begins_word(c->form, before);
        if (c->form == TX_JINJA_UPPER || first)
            tx_unicode_upper(code, &result);
        else
            tx_unicode_lower(code, &result);
        if (result.size)
            tx_jinja_write(&sink, result.data, result.size, tx_jinja_flags_at(s, at));
        before = code;
    }
    free(result.data);
    return tx_jinja_written(c->arena, &sink);
}

static bool is_letter_or_digit(uint32_t code)
{
    return tx_unicode_is_letter(code) || tx_unicode_is_number(code);
}

static bool is_digit(uint32_t code)
{
    return code >= '0' && code <= '9';
}

/* Returns true if there are characters and all are of one kind. */
tx_jinja_value tx_jinja_do_are_all(const tx_jinja_call *c)
{
    static bool (*const kinds[])(uint32_t code) = {[TX_JINJA_LETTERS] = tx_unicode_is_letter,
                                                   [TX_JINJA_DIGITS] = is_digit,
                                                   [TX_JINJA_LETTERS_OR_DIGITS] = is_letter_or_digit,
                                                   [TX_JINJA_SPACES] = tx_jinja_is_space};
    str s = tx_jinja_self(c);
    bool all = s->size > 0;
    for (size_t at = 0; at < s->size && all && tx_jinja_step(c->arena, 1);) {
        uint32_t code = 0;
        at += tx_jinja_read(s, at, &code);
        all = kinds[c->form](code);
    }
    return tx_jinja_bool(all);
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

tx_jinja_value tx_jinja_do_strip(const tx_jinja_call *c)
{
    str s = tx_jinja_self(c), chars = tx_jinja_string_of(c, 0, "chars");
    size_t begin = 0, end = s->size, size;
    uint32_t code;
    while (c->form & TX_JINJA_FRONT && begin < end && (size = tx_utf8_read(s->bytes + begin, end - begin, &code)) &&
           is_stripped(chars, s->bytes + begin, size, code) && tx_jinja_step(c->arena, 1))
        begin += size;
    while (c->form & TX_JINJA_BACK && end > begin && (size = tx_utf8_read_last(s->bytes + begin, end - begin, &code)) &&
           is_stripped(chars, s->bytes + end - size, size, code) && tx_jinja_step(c->arena, 1))
        end -= size;
    return cut(c, begin, end);
}

static bool has_end(str s, str part, bool last)
{
    return part->size <= s->size &&
           (part->size == 0 || memcmp(s->bytes + (last ? s->size - part->size : 0), part->bytes, part->size) == 0);
}

/* Tests one string, or each string of a tuple. */
tx_jinja_value tx_jinja_do_has_end(const tx_jinja_call *c)
{
    const bool last = c->form == TX_JINJA_BACK;
    const tx_jinja_value parts = tx_jinja_argument_of(c, 0, "prefix");
    bool found = false;
    if (parts.kind != TX_JINJA_TUPLE)
        return tx_jinja_bool(has_end(tx_jinja_self(c), tx_jinja_needed(c, 0, "prefix"), last));
    for (size_t i = 0; i < parts.list->count && !found; i++)
        found = parts.list->at[i].kind == TX_JINJA_STRING && has_end(tx_jinja_self(c), parts.list->at[i].string, last);
    return tx_jinja_bool(found);
}

tx_jinja_value tx_jinja_do_remove_end(const tx_jinja_call *c)
{
    const bool last = c->form == TX_JINJA_BACK;
    str s = tx_jinja_self(c), part = tx_jinja_needed(c, 0, last ? "suffix" : "prefix");
    const size_t size = has_end(s, part, last) ? part->size : 0;
    return last ? cut(c, 0, s->size - size) : cut(c, size, s->size);
}
