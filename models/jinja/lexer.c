/* SPDX-License-Identifier: Apache-2.0
 * Splits a template into tokens: the text between tags, and the tokens inside a tag. */
#include "models/jinja/node.h"

#include "api/base/number.h"
#include "models/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char space[] = " \t\n\r\f\v";

static bool is_at(const tx_jinja_parser *p, const char *text)
{
    const size_t size = strlen(text);
    return p->size - p->at >= size && memcmp(p->text + p->at, text, size) == 0;
}

static void skip(tx_jinja_parser *p, size_t count)
{
    for (; count > 0 && p->at < p->size; count--)
        p->arena->line += p->text[p->at++] == '\n';
}

static void skip_space(tx_jinja_parser *p)
{
    while (p->at < p->size && p->text[p->at] && strchr(space, p->text[p->at]))
        skip(p, 1);
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* ---- Text between tags ---------------------------------------------------------------------------------- */

/* Skips white space after the end of a block or a comment. `mark` is the character before the end, such as '-'. */
static void end_tag(tx_jinja_parser *p, char mark)
{
    if (mark == '-')
        skip_space(p);
    else if (mark != '+' && p->at < p->size && p->text[p->at] == '\n' && p->tag != TX_JINJA_OUTPUT_TAG)
        skip(p, 1);
    p->line_begins = p->at > 0 && p->text[p->at - 1] == '\n';
}

/* Adds the text before a tag, without the white space that the tag's mark removes. */
static void add_text(tx_jinja_parser *p, size_t begin, size_t end, char mark, bool block, tx_jinja_sink *data)
{
    size_t kept = end;
    while (kept > begin && p->text[kept - 1] && strchr(mark == '-' ? space : " \t\f\v\r", p->text[kept - 1]))
        kept--;
    const bool whole_line = kept > begin ? p->text[kept - 1] == '\n' : p->line_begins;
    if (mark != '-' && !(block && mark != '+' && whole_line))
        kept = end;
    tx_jinja_write(data, p->text + begin, kept - begin, 0);
}

static void skip_comment(tx_jinja_parser *p)
{
    while (p->at < p->size && !is_at(p, "#}"))
        skip(p, 1);
    if (p->at == p->size) {
        tx_jinja_fail(p->arena, TX_FORMAT, "a comment is not closed");
        return;
    }
    const char mark = p->text[p->at - 1];
    skip(p, 2);
    end_tag(p, mark);
}

/* At "{%": returns the length of a tag that contains only `word`, or 0. `*mark` receives the mark before its end. */
static size_t word_tag(const tx_jinja_parser *p, const char *word, char *mark)
{
    const char *at = p->text + p->at + 2, *end = p->text + p->size;
    at += at < end && (*at == '-' || *at == '+');
    while (at < end && *at && strchr(space, *at))
        at++;
    const size_t size = strlen(word);
    if ((size_t)(end - at) < size || memcmp(at, word, size) != 0)
        return 0;
    at += size;
    while (at < end && *at && strchr(space, *at))
        at++;
    *mark = at < end && (*at == '-' || *at == '+') ? *at++ : '\0';
    return end - at >= 2 && memcmp(at, "%}", 2) == 0 ? (size_t)(at + 2 - (p->text + p->at)) : 0;
}

/* Reads the text of a block `raw`, after its first tag. */
static void add_raw(tx_jinja_parser *p, tx_jinja_sink *data)
{
    const size_t begin = p->at;
    for (; p->at < p->size; skip(p, 1)) {
        char mark;
        const size_t size = is_at(p, "{%") ? word_tag(p, "endraw", &mark) : 0;
        if (size) {
            add_text(p, begin, p->at, p->text[p->at + 2], true, data);
            skip(p, size);
            end_tag(p, mark);
            return;
        }
    }
    tx_jinja_fail(p->arena, TX_FORMAT, "a block raw is not closed");
}

tx_jinja_tag tx_jinja_next_tag(tx_jinja_parser *p, tx_jinja_sink *data)
{
    for (size_t begin = p->at; !p->arena->status;) {
        while (p->at < p->size && !is_at(p, "{{") && !is_at(p, "{%") && !is_at(p, "{#"))
            skip(p, 1);
        const char kind = p->at < p->size ? p->text[p->at + 1] : '\0';
        const char after = p->size - p->at > 2 ? p->text[p->at + 2] : '\0';
        const char mark = after == '-' || after == '+' ? after : '\0';
        add_text(p, begin, p->at, mark, kind != '{' && kind, data);
        p->tag = kind == '{' ? TX_JINJA_OUTPUT_TAG : kind == '%' ? TX_JINJA_BLOCK_TAG : TX_JINJA_NO_TAG;
        p->line_begins = false;
        char end_mark;
        const size_t raw = kind == '%' ? word_tag(p, "raw", &end_mark) : 0;
        if (raw) {
            skip(p, raw);
            end_tag(p, end_mark);
            add_raw(p, data);
        } else if (kind == '#') {
            skip(p, 2);
            skip_comment(p);
        } else {
            skip(p, kind ? 2 + (mark != '\0') : 0);
            p->nesting = 0;
            if (kind)
                tx_jinja_next(p);
            return p->tag;
        }
        begin = p->at;
    }
    return TX_JINJA_NO_TAG;
}

/* ---- Tokens of a tag ------------------------------------------------------------------------------------ */

/* Reads a number whose digits may be separated by "_", as in Python. */
static void read_number(tx_jinja_parser *p)
{
    char digits[64];
    size_t count = 0;
    bool fraction = false;
    const size_t begin = p->at;
    for (; p->at < p->size && count + 1 < sizeof digits; p->at++) {
        const char c = p->text[p->at], next = p->at + 1 < p->size ? p->text[p->at + 1] : '\0';
        const bool exponent = (c == 'e' || c == 'E') && ((next >= '0' && next <= '9') || next == '+' || next == '-');
        const bool sign = (c == '+' || c == '-') && (p->text[p->at - 1] | 0x20) == 'e' && p->at > begin;
        if (c == '.' ? !(next >= '0' && next <= '9') : !(c >= '0' && c <= '9') && c != '_' && !exponent && !sign)
            break;
        fraction = fraction || c == '.' || exponent;
        if (c != '_')
            digits[count++] = c;
    }
    digits[count] = '\0';
    p->token.kind = TX_JINJA_TOKEN_LITERAL;
    p->token.literal =
        fraction ? tx_jinja_number(tx_number_read(digits, NULL)) : tx_jinja_integer(strtoll(digits, NULL, 10));
}

/* Adds the character of an escape sequence; `*size` receives the length of the sequence. */
static void add_escape(tx_jinja_parser *p, const char *at, size_t left, tx_jinja_sink *sink, size_t *size)
{
    static const char names[] = "abfnrtv\\'\"", codes[] = "\a\b\f\n\r\t\v\\'\"";
    const char *named = at[1] ? strchr(names, at[1]) : NULL;
    const size_t digits = at[1] == 'x' ? 2 : at[1] == 'u' ? 4 : at[1] == 'U' ? 8 : 0;
    char text[16] = "", result[TX_UTF8_MAX];
    *size = 2 + digits;
    if (named) {
        tx_jinja_write(sink, &codes[named - names], 1, 0);
    } else if (digits && left >= 2 + digits) {
        memcpy(text, at + 2, digits);
        char *end;
        const unsigned long code = strtoul(text, &end, 16);
        if (*end || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
            tx_jinja_fail(p->arena, TX_FORMAT, "\\%c%s is not a character", at[1], text);
        else
            tx_jinja_write(sink, result, tx_utf8_write((uint32_t)code, result), 0);
    } else if (at[1] != '\n') { /* an unknown escape is kept; a line end is removed */
        *size = 2;
        tx_jinja_write(sink, at, 2, 0);
    }
}

static void read_string(tx_jinja_parser *p)
{
    const char quote = p->text[p->at];
    tx_jinja_sink sink = tx_jinja_sink_of(p->arena);
    skip(p, 1);
    while (p->at < p->size && p->text[p->at] != quote && !p->arena->status) {
        size_t size = 1;
        if (p->text[p->at] == '\\' && p->size - p->at > 1)
            add_escape(p, p->text + p->at, p->size - p->at, &sink, &size);
        else
            tx_jinja_write(&sink, p->text + p->at, 1, 0);
        skip(p, size);
    }
    if (p->at == p->size)
        tx_jinja_fail(p->arena, TX_FORMAT, "a string is not closed");
    skip(p, 1);
    p->token.kind = TX_JINJA_TOKEN_LITERAL;
    p->token.literal = tx_jinja_written(p->arena, &sink);
}

static bool ends_tag(const tx_jinja_parser *p, char *mark)
{
    const char *end = p->tag == TX_JINJA_OUTPUT_TAG ? "}}" : "%}";
    const char first = p->at < p->size ? p->text[p->at] : '\0';
    *mark = first == '-' || first == '+' ? first : '\0';
    const size_t at = p->at + (*mark != '\0');
    return p->nesting == 0 && p->size - at >= 2 && at < p->size && memcmp(p->text + at, end, 2) == 0;
}

static void read_operator(tx_jinja_parser *p)
{
    static const char pairs[][3] = {"//", "**", "==", "!=", "<=", ">="};
    size_t size = 1;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (is_at(p, pairs[i]))
            size = 2;
    const char c = p->text[p->at];
    if (size == 1 && (!c || !strchr("+-*/%~<>=.:|,()[]{}", c))) {
        tx_jinja_fail(p->arena, TX_FORMAT, "unexpected character '%c'", c);
        return;
    }
    p->nesting += strchr("([{", c) != NULL;
    p->nesting -= strchr(")]}", c) != NULL && p->nesting > 0;
    p->token.kind = TX_JINJA_TOKEN_OP;
    p->token.text = (tx_jinja_string){.bytes = p->text + p->at, .size = size};
    p->at += size;
}

void tx_jinja_next(tx_jinja_parser *p)
{
    char mark;
    skip_space(p);
    p->token = (tx_jinja_token){TX_JINJA_END_OF_TEXT, {0}, TX_JINJA_NOTHING};
    if (p->at == p->size || p->arena->status) {
        tx_jinja_fail(p->arena, TX_FORMAT, "the text ends inside a tag");
    } else if (ends_tag(p, &mark)) {
        skip(p, 2 + (mark != '\0'));
        end_tag(p, mark);
        p->token.kind = TX_JINJA_END_OF_TAG;
    } else if (p->text[p->at] >= '0' && p->text[p->at] <= '9') {
        read_number(p);
    } else if (p->text[p->at] == '"' || p->text[p->at] == '\'') {
        read_string(p);
    } else if (is_word(p->text[p->at])) {
        const size_t begin = p->at;
        while (p->at < p->size && is_word(p->text[p->at]))
            p->at++;
        p->token.kind = TX_JINJA_TOKEN_NAME;
        p->token.text = (tx_jinja_string){.bytes = p->text + begin, .size = p->at - begin};
    } else {
        read_operator(p);
    }
}

bool tx_jinja_sees(const tx_jinja_parser *p, const char *text)
{
    const tx_jinja_token *t = &p->token;
    return (t->kind == TX_JINJA_TOKEN_NAME || t->kind == TX_JINJA_TOKEN_OP) && t->text.size == strlen(text) &&
           memcmp(t->text.bytes, text, t->text.size) == 0;
}

bool tx_jinja_accept(tx_jinja_parser *p, const char *text)
{
    const bool sees = tx_jinja_sees(p, text) && !p->arena->status;
    if (sees)
        tx_jinja_next(p);
    return sees;
}

tx_jinja_value tx_jinja_unexpected(tx_jinja_parser *p)
{
    if (p->token.kind == TX_JINJA_END_OF_TAG)
        return tx_jinja_fail(p->arena, TX_FORMAT, "a tag ends too early");
    if (p->token.kind == TX_JINJA_TOKEN_LITERAL)
        return tx_jinja_fail(p->arena, TX_FORMAT, "unexpected literal");
    return tx_jinja_fail(p->arena, TX_FORMAT, "unexpected \"%.*s\"", (int)p->token.text.size, p->token.text.bytes);
}

void tx_jinja_expect(tx_jinja_parser *p, const char *text)
{
    if (!tx_jinja_accept(p, text))
        tx_jinja_unexpected(p);
}
