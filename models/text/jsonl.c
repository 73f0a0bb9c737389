/* SPDX-License-Identifier: Apache-2.0
 * The text of a line of JSON. jansson holds a long string twice beside its line, and takes as long as tokenising it:
 * such a text is left out of what it reads, and spelled out here. */
#include "models/text/lines.h"
#include "models/text/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a line that jansson reads whole. */
#define SHORT 1024

/* ---- Finding the text -------------------------------------------------------------------------------- */

/* Index of the quote that ends a string, or `size`. */
static size_t string_end(const char *line, size_t size, size_t at)
{
    while (at < size && line[at] != '"')
        at += line[at] == '\\' ? 2 : 1;
    return at < size ? at : size;
}

/* What lies between the quotes of a member "text" of the object, if there is one that is a string. */
static bool find_text(const char *line, size_t size, size_t *begin, size_t *end)
{
    enum { ELSEWHERE, NAMED, COLON } state = ELSEWHERE;
    int64_t depth = 0;
    for (size_t i = 0; i < size; i++) {
        const char c = line[i];
        if (c == '"') {
            size_t from = i + 1, close = string_end(line, size, from);
            if (close < size && state == COLON) {
                *begin = from;
                *end = close;
                return true;
            }
            state = depth == 1 && close - from == 4 && memcmp(line + from, "text", 4) == 0 ? NAMED : ELSEWHERE;
            i = close;
        } else if (c == ':' && state == NAMED) {
            state = COLON;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            depth += c == '{' || c == '[';
            depth -= c == '}' || c == ']';
            state = ELSEWHERE;
        }
    }
    return false;
}

/* ---- Spelling it out --------------------------------------------------------------------------------- */

/* The code of \uXXXX; false where no such thing is there. */
static bool read_code(const char *text, size_t size, uint32_t *code)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    if (size < 6 || text[0] != '\\' || text[1] != 'u')
        return false;
    *code = 0;
    for (size_t i = 2; i < 6; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return false;
        *code = *code << 4 | (uint32_t)((digit - digits) & 15);
    }
    return true;
}

/* Bytes of the escape that the text begins with, and the character that it stands for; 0 where it is none. */
static size_t read_escape(const char *text, size_t size, uint32_t *code)
{
    static const char letters[] = "\"\\/bfnrt", characters[] = "\"\\/\b\f\n\r\t";
    uint32_t low;
    const char *letter = size > 1 && text[1] ? strchr(letters, text[1]) : NULL;
    if (letter) {
        *code = (unsigned char)characters[letter - letters];
        return 2;
    }
    if (!read_code(text, size, code) || (*code >= 0xDC00 && *code < 0xE000))
        return 0;
    if (*code < 0xD800 || *code >= 0xE000)
        return 6;
    if (!read_code(text + 6, size - 6, &low) || low < 0xDC00 || low >= 0xE000)
        return 0;
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return 12;
}

/* Bytes at the beginning that stand for themselves. */
static size_t plain(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size && text[at] != '\\' && (unsigned char)text[at] >= 0x20)
        at++;
    return at;
}

/* Spells a string out, with `write` in its place: no escape is shorter than its character. What is wrong with it, or
 * NULL; `*length` is then its size, else the place of the fault. */
static const char *spell(char *text, size_t size, bool write, size_t *length)
{
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code;
        char spelled[TX_UTF8_MAX];
        size_t run = plain(text + at, size - at), good = write ? run : tx_utf8_prefix(text + at, run);
        if (write)
            memmove(text + used, text + at, run);
        used += run;
        at += good;
        *length = at;
        if (good < run)
            return "not UTF-8";
        if (at == size)
            break;
        size_t escape = text[at] == '\\' ? read_escape(text + at, size - at, &code) : 0;
        if (!escape)
            return text[at] == '\\' ? "an escape that is none" : "a control character";
        at += escape;
        size_t bytes = tx_utf8_write(code, spelled);
        if (write)
            memcpy(text + used, spelled, bytes);
        used += bytes;
    }
    *length = used;
    return NULL;
}

/* ---- Both ---------------------------------------------------------------------------------------------- */

/* The object, and its text as far as that is in it. */
static tx_status parse(const char *line, size_t size, const char *where, tx_json **json, const char **text,
                       size_t *length)
{
    tx_json *object = NULL;
    TX_TRY(tx_json_parse_line(line, size, where, &object));
    tx_status status = TX_OK;
    if (tx_json_type_of(object) != TX_JSON_OBJECT)
        status = tx_fail(TX_FORMAT, "%s: expected an object {\"text\": ...}", where);
    else if (tx_json_get_text(object, "text", text, length))
        status = tx_fail_in(TX_FORMAT, "%s", where);
    return TX_RETURN(status, object, json, tx_json_free);
}

/* The object without the text between two places. */
static tx_status parse_rest(const char *line, size_t size, size_t begin, size_t end, const char *where, tx_json **json)
{
    const char *empty;
    char place[4096];
    size_t none, rest = size - (end - begin);
    char *short_line = malloc(rest);
    if (!short_line)
        return tx_fail(TX_MEMORY, "%s: no memory to read its JSON", where);
    memcpy(short_line, line, begin);
    memcpy(short_line + begin, line + end, size - end);
    snprintf(place, sizeof place, "%s, the text left out", where);
    tx_status status = parse(short_line, rest, place, json, &empty, &none);
    free(short_line);
    return status;
}

tx_status tx_jsonl_text(char *line, size_t size, const char *where, tx_json **json, const char **text, size_t *length)
{
    size_t begin, end, bytes;
    if (size <= SHORT || !find_text(line, size, &begin, &end))
        return parse(line, size, where, json, text, length);
    const char *fault = spell(line + begin, end - begin, false, &bytes);
    if (fault)
        return tx_fail(TX_FORMAT, "%s: not valid JSON: %s at byte %zu of the line", where, fault, begin + bytes + 1);
    TX_TRY(parse_rest(line, size, begin, end, where, json));
    spell(line + begin, end - begin, true, length);
    *text = line + begin;
    return TX_OK;
}
