/* SPDX-License-Identifier: Apache-2.0
 * Parses regular expressions, and grammars in GBNF: both are alternatives of sequences of repeated items. */
#include "models/grammar/grammar.h"

#include "api/base/grow.h"
#include "models/tokenizer/utf8.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A rule of a grammar by its name. */
typedef struct named {
    const char *name;
    size_t size;
    uint32_t rule;
    bool defined;
} named;

typedef struct parser {
    tx_grammar *g;
    const char *begin, *at, *end;
    bool gbnf, search;
    tx_spell spell;
    int depth;      /* of groups */
    uint32_t *item; /* of the sequences that are being read */
    int32_t items;
    named *rule; /* [TX_GRAMMAR_RULES] of a grammar in GBNF */
    size_t rules;
} parser;

static tx_status parse_alternatives(parser *p, uint32_t *e);

static tx_status complain(const parser *p, tx_status status, const char *what)
{
    return tx_fail(status, "%s at byte %td: %s", p->gbnf ? "the grammar" : "the regular expression", p->at - p->begin,
                   what);
}

static bool begins(const parser *p, const char *text)
{
    const size_t size = strlen(text);
    return (size_t)(p->end - p->at) >= size && memcmp(p->at, text, size) == 0;
}

static bool eat(parser *p, const char *text)
{
    const bool found = begins(p, text);
    p->at += found ? strlen(text) : 0;
    return found;
}

/* Skips blanks, line breaks and comments of a grammar. */
static void skip_blanks(parser *p)
{
    while (p->gbnf && p->at < p->end && (isspace((unsigned char)*p->at) || *p->at == '#'))
        if (*p->at++ == '#')
            while (p->at < p->end && *p->at != '\n')
                p->at++;
}

/* ---- Characters ------------------------------------------------------------------------------------------ */

static tx_status read_code(parser *p, uint32_t *code)
{
    const size_t size = p->at < p->end ? tx_utf8_read(p->at, (size_t)(p->end - p->at), code) : 0;
    p->at += size;
    return size ? TX_OK : complain(p, TX_INVALID, p->at < p->end ? "the text is not UTF-8" : "unexpected end");
}

/* Reads a code point of so many hexadecimal digits. */
static tx_status read_hex(parser *p, int digits, uint32_t *code)
{
    static const char all[] = "0123456789abcdef";
    *code = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        const char *found = p->at < p->end ? memchr(all, tolower((unsigned char)*p->at), 16) : NULL;
        if (!found)
            return complain(p, TX_INVALID, "expected hexadecimal digits");
        *code = *code * 16 + (uint32_t)(found - all);
    }
    return *code <= 0x10FFFF && (*code < 0xD800 || *code > 0xDFFF)
               ? TX_OK
               : complain(p, TX_INVALID, "this is no character of Unicode");
}

/* Adds the class of \d, \w or \s. Only ASCII, so that the characters belong to it in all languages. */
static bool add_known_class(tx_class *set, char letter)
{
    if (letter == 'd')
        return tx_class_add(set, '0', '9');
    if (letter == 's')
        return tx_class_add(set, ' ', ' ') && tx_class_add(set, '\t', '\r');
    return tx_class_add(set, '0', '9') && tx_class_add(set, 'A', 'Z') && tx_class_add(set, 'a', 'z') &&
           tx_class_add(set, '_', '_');
}

/* Adds the ASCII characters of \D, \W or \S. */
static bool add_complement(tx_class *set, char letter)
{
    tx_class known = {0};
    bool room = add_known_class(&known, letter);
    tx_class_seal(&known, true);
    for (uint32_t i = 0; i < known.count && room && known.range[i].low < 0x80; i++)
        room = tx_class_add(set, known.range[i].low, known.range[i].high < 0x80 ? known.range[i].high : 0x7F);
    return room;
}

/* Reads what follows a backslash: a character, or a class, which it adds to `set` and whose letter it returns. */
static tx_status read_escape(parser *p, bool in_class, tx_class *set, char *letter, uint32_t *code)
{
    static const char plain[] = "n\nr\rt\tf\fv\v0\0";
    if (p->at == p->end)
        return complain(p, TX_INVALID, "unexpected end after \\");
    const char c = *p->at;
    *letter = 0;
    if (!p->gbnf && memchr("dwsDWS", c, 6)) {
        *letter = c;
        p->at++;
        return (islower((unsigned char)c) ? add_known_class(set, c) : add_complement(set, (char)tolower(c)))
                   ? TX_OK
                   : complain(p, TX_INVALID, "a class has too many ranges");
    }
    for (const char *s = plain; *s; s += 2)
        if (c == *s && (c != '0' || !p->gbnf)) {
            *code = (unsigned char)s[1];
            p->at++;
            return TX_OK;
        }
    if (c == 'x' || c == 'u' || (c == 'U' && p->gbnf)) {
        p->at++;
        return read_hex(p, c == 'x' ? 2 : c == 'u' ? 4 : 8, code);
    }
    if (in_class && c == 'b' && !p->gbnf) {
        *code = '\b';
        p->at++;
        return TX_OK;
    }
    if (isalnum((unsigned char)c))
        return complain(p, TX_UNSUPPORTED, "this escape is not supported");
    return read_code(p, code);
}

/* Reads one end of a range, or a class such as \d, whose letter it returns. */
static tx_status read_member(parser *p, tx_class *set, char *letter, uint32_t *code)
{
    *letter = 0;
    return eat(p, "\\") ? read_escape(p, true, set, letter, code) : read_code(p, code);
}

/* Reads a class after its opening bracket. */
static tx_status parse_class(parser *p, uint32_t *e)
{
    tx_class set = {0};
    const bool negate = eat(p, "^");
    bool known = false;
    for (const char *first = p->at; !(begins(p, "]") && (p->gbnf || p->at > first));) {
        uint32_t low = 0, high = 0;
        char letter, other = 0;
        TX_TRY(read_member(p, &set, &letter, &low));
        high = low;
        known = known || letter;
        if (begins(p, "-") && p->at + 1 < p->end && p->at[1] != ']') {
            p->at++;
            TX_TRY(read_member(p, &set, &other, &high));
            if (letter || other || high < low)
                return complain(p, TX_INVALID, "a class has a range without an order");
        }
        if (!letter && !tx_class_add(&set, low, high))
            return complain(p, TX_INVALID, "a class has too many ranges");
    }
    p->at++;
    tx_class_seal(&set, negate);
    if (negate && known) { /* others may belong to \d, \w or \s in some languages */
        while (set.count && set.range[set.count - 1].low > 0x7F)
            set.count--;
        if (set.count && set.range[set.count - 1].high > 0x7F)
            set.range[set.count - 1].high = 0x7F;
    }
    *e = tx_expr_class(p->g, &set, p->spell);
    return TX_OK;
}

static uint32_t one_of(parser *p, tx_class *set, bool negate)
{
    tx_class_seal(set, negate);
    return tx_expr_class(p->g, set, p->spell);
}

/* A dot: any character; in a regular expression none that ends a line in some language. */
static uint32_t dot(parser *p)
{
    tx_class set = {0};
    if (!p->gbnf) {
        tx_class_add(&set, '\n', '\n');
        tx_class_add(&set, '\r', '\r');
        tx_class_add(&set, 0x85, 0x85);
        tx_class_add(&set, 0x2028, 0x2029);
    }
    return one_of(p, &set, true);
}

/* ---- Items ----------------------------------------------------------------------------------------------- */

/* Reads a string of a grammar after its opening quote. */
static tx_status parse_string(parser *p, uint32_t *e)
{
    tx_ids codes = {0};
    tx_status status = TX_OK;
    while (!status && !eat(p, "\"")) {
        uint32_t code = 0;
        char letter;
        status = tx_ids_reserve(&codes, 1);
        TX_THEN(status, eat(p, "\\") ? read_escape(p, false, NULL, &letter, &code) : read_code(p, &code));
        if (!status)
            codes.id[codes.count++] = (int32_t)code;
    }
    *e = TX_EMPTY;
    while (codes.count-- > 0) {
        char bytes[TX_UTF8_MAX];
        const size_t size = tx_utf8_write((uint32_t)codes.id[codes.count], bytes);
        *e = tx_expr_seq(p->g, tx_expr_text(p->g, bytes, size), *e);
    }
    free(codes.id);
    return status;
}

/* The length of a rule's name at a place. */
static size_t name_size(const parser *p, const char *at)
{
    size_t size = 0;
    while (at + size < p->end && (isalnum((unsigned char)at[size]) || at[size] == '-' || at[size] == '_'))
        size++;
    return size;
}

static tx_status find_rule(parser *p, const char *name, size_t size, named **rule)
{
    for (size_t i = 0; i < p->rules; i++)
        if (p->rule[i].size == size && memcmp(p->rule[i].name, name, size) == 0) {
            *rule = &p->rule[i];
            return TX_OK;
        }
    if (p->rules == TX_GRAMMAR_RULES)
        return complain(p, TX_INVALID, "the grammar has too many rules");
    *rule = &p->rule[p->rules++];
    **rule = (named){name, size, tx_grammar_rule(p->g), false};
    return TX_OK;
}

/* Reads a group after its opening parenthesis. */
static tx_status parse_group(parser *p, uint32_t *e)
{
    if (!p->gbnf && eat(p, "?") && !eat(p, ":")) {
        eat(p, "P");
        const size_t size = begins(p, "<") ? name_size(p, p->at + 1) : 0;
        if (!size || p->at + 1 + size == p->end || p->at[1 + size] != '>')
            return complain(p, TX_UNSUPPORTED, "lookaround, flags and conditions are not supported");
        p->at += size + 2;
    }
    if (++p->depth > TX_GRAMMAR_DEPTH)
        return complain(p, TX_INVALID, "groups are nested too deeply");
    TX_TRY(parse_alternatives(p, e));
    p->depth--;
    return eat(p, ")") ? TX_OK : complain(p, TX_INVALID, "a group has no end");
}

static tx_status parse_literal(parser *p, uint32_t *e)
{
    tx_class set = {0};
    uint32_t code = 0;
    char letter = 0;
    if (memchr("*+?)", *p->at, 4))
        return complain(p, TX_INVALID, *p->at == ')' ? "unexpected )" : "nothing to repeat");
    if (*p->at == '^' || *p->at == '$')
        return complain(p, TX_UNSUPPORTED, "^ and $ are only supported at the ends of the expression");
    TX_TRY(eat(p, "\\") ? read_escape(p, false, &set, &letter, &code) : read_code(p, &code));
    if (!letter)
        tx_class_add(&set, code, code);
    *e = one_of(p, &set, false);
    return TX_OK;
}

static tx_status parse_primary(parser *p, uint32_t *e)
{
    if (eat(p, "("))
        return parse_group(p, e);
    if (eat(p, "["))
        return parse_class(p, e);
    if (eat(p, ".")) {
        *e = dot(p);
        return TX_OK;
    }
    if (!p->gbnf)
        return parse_literal(p, e);
    if (eat(p, "\""))
        return parse_string(p, e);
    const size_t size = name_size(p, p->at);
    named *rule = NULL;
    if (!size)
        return complain(p, TX_INVALID, "expected a string, a class, a group or the name of a rule");
    TX_TRY(find_rule(p, p->at, size, &rule));
    p->at += size;
    *e = tx_expr_rule(p->g, rule->rule);
    return TX_OK;
}

/* Reads a number. Returns false if there is none. */
static bool read_count(parser *p, uint32_t *count)
{
    const char *first = p->at;
    *count = 0;
    while (p->at < p->end && isdigit((unsigned char)*p->at)) {
        const uint32_t more = *count * 10 + (uint32_t)(*p->at++ - '0');
        *count = more > TX_GRAMMAR_REPEATS ? TX_GRAMMAR_REPEATS + 1 : more;
    }
    return p->at > first;
}

/* Reads *, +, ?, {m}, {m,}, {,n} or {m,n}. Returns false, at the same place, if there is none. */
static bool read_bounds(parser *p, uint32_t *least, uint32_t *most)
{
    const char *before = p->at;
    *least = begins(p, "+");
    *most = begins(p, "?") ? 1 : TX_GRAMMAR_FOREVER;
    if (eat(p, "*") || eat(p, "+") || eat(p, "?"))
        return true;
    if (!eat(p, "{"))
        return false;
    const bool has_least = read_count(p, least), comma = eat(p, ","), has_most = comma && read_count(p, most);
    if ((has_least || has_most) && eat(p, "}")) {
        *most = has_most ? *most : comma ? TX_GRAMMAR_FOREVER : *least;
        return true;
    }
    p->at = before;
    return false;
}

static tx_status parse_item(parser *p, uint32_t *e)
{
    uint32_t least, most;
    TX_TRY(parse_primary(p, e));
    for (skip_blanks(p); read_bounds(p, &least, &most); skip_blanks(p)) {
        if (least > TX_GRAMMAR_REPEATS || (most != TX_GRAMMAR_FOREVER && most > TX_GRAMMAR_REPEATS) || most < least)
            return complain(p, TX_INVALID, "a repetition is above 65536 times, or its bounds are not in order");
        *e = tx_expr_loop(p->g, *e, least, most);
        if (!p->gbnf && eat(p, "?")) /* a lazy repetition matches the same texts */
            continue;
        if (!p->gbnf && p->at < p->end && memchr("*+", *p->at, 2))
            return complain(p, TX_UNSUPPORTED, "possessive repetitions are not supported");
    }
    return TX_OK;
}

/* ---- Sequences ------------------------------------------------------------------------------------------- */

/* Returns true at the end of a sequence; the next rule of a grammar ends one, too. */
static bool is_end(parser *p)
{
    skip_blanks(p);
    if (p->at == p->end || *p->at == '|' || (*p->at == ')' && p->depth > 0))
        return true;
    if (!p->gbnf || p->depth > 0 || !name_size(p, p->at))
        return false;
    parser next = *p;
    next.at += name_size(p, p->at);
    skip_blanks(&next);
    return begins(&next, "::=");
}

static tx_status push(parser *p, uint32_t e)
{
    uint32_t *grown = tx_grown(p->item, p->items, sizeof *grown);
    if (!grown)
        return tx_fail(TX_MEMORY, "no memory for a grammar");
    p->item = grown;
    p->item[p->items++] = e;
    return TX_OK;
}

static uint32_t anything(parser *p)
{
    tx_class none = {0};
    return tx_expr_loop(p->g, one_of(p, &none, true), 0, TX_GRAMMAR_FOREVER);
}

static tx_status parse_sequence(parser *p, uint32_t *e)
{
    const int32_t first = p->items;
    const bool outer = !p->gbnf && p->depth == 0, anchored = outer && eat(p, "^");
    bool closed = false;
    if (outer && p->search && !anchored)
        TX_TRY(push(p, anything(p)));
    while (!is_end(p)) {
        closed = outer && begins(p, "$") && (p->at + 1 == p->end || p->at[1] == '|');
        if (closed) {
            p->at++;
            break;
        }
        TX_TRY(parse_item(p, e));
        TX_TRY(push(p, *e));
        if (p->g->status)
            return tx_fail(p->g->status, "%s", p->g->error);
    }
    if (outer && p->search && !closed)
        TX_TRY(push(p, anything(p)));
    *e = TX_EMPTY;
    while (p->items > first)
        *e = tx_expr_seq(p->g, p->item[--p->items], *e);
    return TX_OK;
}

static tx_status parse_alternatives(parser *p, uint32_t *e)
{
    uint32_t all = TX_NEVER;
    do {
        TX_TRY(parse_sequence(p, e));
        all = tx_expr_alt(p->g, all, *e);
    } while (eat(p, "|"));
    *e = all;
    return TX_OK;
}

tx_status tx_grammar_regex(tx_grammar *g, const char *pattern, size_t size, tx_spell spell, bool search, uint32_t *e)
{
    parser p = {.g = g, .begin = pattern, .at = pattern, .end = pattern + size, .search = search, .spell = spell};
    const tx_status status = parse_alternatives(&p, e);
    free(p.item);
    return status;
}

static tx_status parse_rules(parser *p)
{
    for (skip_blanks(p); p->at < p->end; skip_blanks(p)) {
        const char *name = p->at;
        const size_t size = name_size(p, name);
        named *rule = NULL;
        uint32_t e = TX_NEVER;
        p->at += size;
        skip_blanks(p);
        if (!size || !eat(p, "::="))
            return complain(p, TX_INVALID, "expected a rule: name ::= ...");
        TX_TRY(parse_alternatives(p, &e));
        TX_TRY(find_rule(p, name, size, &rule));
        if (rule->defined)
            return tx_fail(TX_INVALID, "the grammar: rule %.*s is defined twice", (int)(size < 60 ? size : 60), name);
        rule->defined = true;
        if (!p->g->status)
            p->g->rule[rule->rule] = e;
    }
    for (size_t i = 0; i < p->rules; i++)
        if (!p->rule[i].defined)
            return tx_fail(TX_INVALID, "the grammar: rule %.*s is not defined",
                           (int)(p->rule[i].size < 60 ? p->rule[i].size : 60), p->rule[i].name);
    return TX_OK;
}

tx_status tx_grammar_gbnf(tx_grammar *g, const char *text, size_t size, const char *const *names, uint32_t *e)
{
    parser p = {.g = g, .begin = text, .at = text, .end = text + size, .gbnf = true};
    p.rule = malloc(TX_GRAMMAR_RULES * sizeof *p.rule);
    tx_status status = p.rule ? parse_rules(&p) : tx_fail(TX_MEMORY, "no memory for a grammar");
    for (size_t i = 0; names[i] && !status; i++) {
        named *rule = NULL;
        const size_t before = p.rules;
        status = find_rule(&p, names[i], strlen(names[i]), &rule);
        if (!status && p.rules > before)
            status = tx_fail(TX_INVALID, "the grammar has no rule %s", names[i]);
        else if (!status)
            e[i] = tx_expr_rule(g, rule->rule);
    }
    free(p.item);
    free(p.rule);
    return status;
}
