/* SPDX-License-Identifier: Apache-2.0
 * The texts inside JSON: its tokens, numbers between bounds, formats of strings, keys. */
#include "models/grammar/grammar.h"

#include "models/tokenizer/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Blanks are bounded, and so are digits, so that a model cannot write them forever. Escapes of half characters are left
 * out: a string then has as many characters as Python counts. */
static const char rules_of_json[] =
    "space ::= (\" \" | \"\\n\" \" \"{0,20})?\n"
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
    "object ::= \"{\" space (member (\",\" space member)*)? \"}\"\n"
    "member ::= string \":\" space value space\n"
    "array ::= \"[\" space (value space (\",\" space value space)*)? \"]\"\n"
    "string ::= \"\\\"\" letter* \"\\\"\"\n"
    "letter ::= key-letter | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" ([0-9a-cA-CefEF] hex | [dD] [0-7]) hex hex)\n"
    "hex ::= [0-9a-fA-F]\n"
    "key-letter ::= [^\"\\\\\\x00-\\x1F]\n"
    "number ::= integer (\".\" [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,14})\n";

tx_status tx_grammar_json(tx_grammar *g, tx_json_rules *rules)
{
    static const char *const names[] = {"space",  "value",  "object",  "array",      "string",
                                        "letter", "number", "integer", "key-letter", NULL};
    uint32_t e[sizeof names / sizeof names[0]];
    TX_TRY(tx_grammar_gbnf(g, rules_of_json, strlen(rules_of_json), names, e));
    *rules = (tx_json_rules){e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7], e[8]};
    return TX_OK;
}

/* ---- Numbers --------------------------------------------------------------------------------------------- */

/* The largest whole number that is written: doubles hold all up to it. */
#define LARGEST INT64_C(999999999999999)

/* The numerals of `least` to `most`, without a sign: ranges of a digit after equal ones and before any. */
static uint32_t numerals(tx_grammar *g, int64_t least, int64_t most)
{
    uint32_t all = TX_NEVER;
    while (least <= most) {
        int64_t unit = 1, digits = 0;
        /* The largest block of numerals of one length that begins here. */
        while (least > 0 && least % (unit * 10) == 0 && least + unit * 10 - 1 <= most) {
            unit *= 10;
            digits++;
        }
        int64_t last = least / unit, high = last % 10;
        while (high < 9 && (last + 1) * unit + unit - 1 <= most) {
            last++;
            high++;
        }
        char before[24] = "";
        const int size = last >= 10 ? snprintf(before, sizeof before, "%" PRId64, last / 10) : 0;
        const uint8_t first = (uint8_t)('0' + least / unit % 10);
        uint32_t e = tx_expr_loop(g, tx_expr_byte(g, '0', '9'), (uint32_t)digits, (uint32_t)digits);
        e = tx_expr_seq(g, tx_expr_byte(g, first, (uint8_t)('0' + high)), e);
        all = tx_expr_alt(g, all, tx_expr_seq(g, tx_expr_text(g, before, (size_t)size), e));
        least = (last + 1) * unit;
    }
    return all;
}

/* The same with a fraction after all but the last one, if `most` is a bound. */
static uint32_t fractions(tx_grammar *g, int64_t least, int64_t most)
{
    const uint32_t digits = tx_expr_loop(g, tx_expr_byte(g, '0', '9'), 1, 15);
    const uint32_t fraction = tx_expr_seq(g, tx_expr_byte(g, '.', '.'), digits);
    return tx_expr_alt(g, numerals(g, least, most), tx_expr_seq(g, numerals(g, least, most - 1), fraction));
}

uint32_t tx_expr_numbers(tx_grammar *g, double least, double most, bool fraction)
{
    const int64_t low = least < -(double)LARGEST  ? -LARGEST
                        : least > (double)LARGEST ? LARGEST + 1
                                                  : (int64_t)ceil(least);
    const int64_t high = most > (double)LARGEST    ? LARGEST
                         : most < -(double)LARGEST ? -LARGEST - 1
                                                   : (int64_t)floor(most);
    uint32_t (*const write)(tx_grammar *, int64_t, int64_t) = fraction ? fractions : numerals;
    uint32_t e = write(g, low > 0 ? low : 0, high);
    if (low < 0)
        e = tx_expr_alt(g, e, tx_expr_seq(g, tx_expr_byte(g, '-', '-'), write(g, high < 0 ? -high : 1, -low)));
    return e;
}

/* ---- Strings --------------------------------------------------------------------------------------------- */

#define YEAR "(?:19|20)[0-9]{2}"
#define DATE                                                                                                           \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|" \
    "1[0-9]|2[0-8])))"
#define TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[-+](?:0[0-9]|1[0-3]):[0-5][0-9])"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email", "[a-z0-9]+(?:[._+-][a-z0-9]+)*@[a-z0-9]+(?:-[a-z0-9]+)*(?:\\.[a-z0-9]+)*\\.[a-z]{2,12}"},
    {"ipv4", OCTET "(?:\\." OCTET "){3}"},
};

tx_status tx_expr_format(tx_grammar *g, const char *format, uint32_t *e)
{
    char known[128] = "";
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(format, formats[i].name) == 0)
            return tx_grammar_regex(g, formats[i].pattern, strlen(formats[i].pattern), TX_IN_JSON, false, e);
        tx_list_add(known, sizeof known, ", ", "%s", formats[i].name);
    }
    return tx_fail(TX_UNSUPPORTED, "format %.40s is not supported; TX knows %s", format, known);
}

/* ---- Keys ------------------------------------------------------------------------------------------------ */

/* The rest of a key, after the first `depth` bytes of the `count` names, which all have them. */
static uint32_t other_key(tx_grammar *g, const tx_json_rules *rules, const char *const *names, size_t count,
                          size_t depth)
{
    const uint32_t rest = tx_expr_loop(g, rules->key_letter, 0, TX_GRAMMAR_FOREVER);
    uint32_t all = TX_EMPTY, same = TX_NEVER;
    tx_class taken = {0};
    bool ends = false;
    tx_class_add(&taken, 0, 0x1F);
    tx_class_add(&taken, '"', '"');
    tx_class_add(&taken, '\\', '\\');
    for (size_t i = 0; i < count;) {
        uint32_t code = 0;
        const char *at = names[i] + depth;
        const size_t size = tx_utf8_read(at, strlen(at), &code), first = i;
        while (i < count && strncmp(names[i] + depth, at, size ? size : 1) == 0) /* the names are sorted */
            i++;
        ends = ends || !*at;
        if (!*at || code < 0x20 || code == '"' || code == '\\') /* such a key is never written */
            continue;
        if (!tx_class_add(&taken, code, code) || depth > 256)
            return TX_NEVER; /* others would need too large a class: none of them is written */
        const uint32_t next = other_key(g, rules, names + first, i - first, depth + size);
        same = tx_expr_alt(g, same, tx_expr_seq(g, tx_expr_text(g, at, size), next));
    }
    tx_class_seal(&taken, true);
    all = tx_expr_alt(g, same, tx_expr_seq(g, tx_expr_class(g, &taken, TX_PLAIN), rest));
    return ends ? all : tx_expr_alt(g, TX_EMPTY, all);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

uint32_t tx_expr_other_key(tx_grammar *g, const tx_json_rules *rules, const char *const *names, size_t count)
{
    const char **sorted = malloc((count + 1) * sizeof *sorted);
    uint32_t e = TX_NEVER;
    if (!sorted)
        return e;
    memcpy(sorted, names, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_name);
    e = other_key(g, rules, sorted, count, 0);
    free(sorted);
    return e;
}
