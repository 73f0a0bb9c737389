/* SPDX-License-Identifier: Apache-2.0
 * Reads the text of a line of JSON. jansson needs twice the memory of a long string and as much time as tokenising it.
 * Therefore a long text is decoded here, and jansson parses the line without it. */
#include "models/data/lines.h"
#include "models/names.h"
#include "models/tokenizer/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes up to which jansson parses the whole line. */
#define SHORT 1024

/* ---- Finding the text -------------------------------------------------------------------------------- */

/* Index of the quote that ends a string, or `size`. */
static size_t string_end(const char *line, size_t size, size_t at)
{
    while (at < size && line[at] != '"')
        at += line[at] == '\\' ? 2 : 1;
    return at < size ? at : size;
}

/* Finds the contents of the string member "text" of the object. */
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

/* ---- Decoding ---------------------------------------------------------------------------------------- */

/* Reads the code of \uXXXX. False if the text does not begin with one. */
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

/* Reads the escape at the beginning of the text. Returns its length and sets its character, or returns 0. */
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

/* Length of the prefix without escapes and control characters. */
static size_t plain_length(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size && text[at] != '\\' && (unsigned char)text[at] >= 0x20)
        at++;
    return at;
}

/* Decodes the contents of a string. With `write` it does so in place, which works because no escape is shorter than its
 * character. Returns NULL and sets `*length` to the new size, or returns the fault and sets `*length` to its position.
 */
static const char *decode(char *text, size_t size, bool write, size_t *length)
{
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code;
        char spelled[TX_UTF8_MAX];
        size_t run = plain_length(text + at, size - at), good = write ? run : tx_utf8_prefix(text + at, run);
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
            return text[at] == '\\' ? "an invalid escape" : "a control character";
        at += escape;
        size_t bytes = tx_utf8_write(code, spelled);
        if (write)
            memcpy(text + used, spelled, bytes);
        used += bytes;
    }
    *length = used;
    return NULL;
}

/* ---- Lines --------------------------------------------------------------------------------------------- */

/* The object has no key that a text could be in. */
static tx_status fail_form(const tx_json *object, const char *where)
{
    char keys[256];
    tx_list_keys(object, keys, sizeof keys);
    return tx_fail(TX_FORMAT,
                   "%s: text is missing from the keys %s: name the one to use by --text_column_name; " TX_LINES_FORMS,
                   where, *keys ? keys : "no keys");
}

/* Parses the object and finds its text. */
static tx_status parse(const char *line, size_t size, const char *where, tx_json **json, const char **text,
                       size_t *length)
{
    tx_json *object = NULL;
    TX_TRY(tx_json_parse_line(line, size, where, &object));
    tx_status status = TX_OK;
    if (tx_json_type_of(object) != TX_JSON_OBJECT)
        status = tx_fail(TX_FORMAT, "%s: expected an object {\"text\": ...}", where);
    else if (!tx_json_find(object, "text"))
        status = fail_form(object, where);
    else if (tx_json_get_text(object, "text", text, length))
        status = tx_fail_in(TX_FORMAT, "%s", where);
    return TX_RETURN(status, object, json, tx_json_free);
}

/* Parses the object without bytes begin..end-1, which are its text. */
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
    snprintf(place, sizeof place, "%s, without its text", where);
    tx_status status = parse(short_line, rest, place, json, &empty, &none);
    free(short_line);
    return status;
}

tx_status tx_jsonl_text(char *line, size_t size, const char *where, tx_json **json, const char **text, size_t *length)
{
    size_t begin, end, bytes;
    if (size <= SHORT || !find_text(line, size, &begin, &end))
        return parse(line, size, where, json, text, length);
    const char *fault = decode(line + begin, end - begin, false, &bytes);
    if (fault)
        return tx_fail(TX_FORMAT, "%s: not valid JSON: %s at byte %zu of the line", where, fault, begin + bytes + 1);
    TX_TRY(parse_rest(line, size, begin, end, where, json));
    decode(line + begin, end - begin, true, length);
    *text = line + begin;
    return TX_OK;
}

tx_status tx_jsonl_parse(const char *line, size_t size, const char *where, tx_json **json)
{
    size_t begin, end;
    return size > SHORT && find_text(line, size, &begin, &end) ? parse_rest(line, size, begin, end, where, json)
                                                               : tx_json_parse_line(line, size, where, json);
}
