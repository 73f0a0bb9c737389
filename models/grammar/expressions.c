/* SPDX-License-Identifier: Apache-2.0
 * Makes the expressions of grammars. */
#include "models/grammar/grammar.h"

#include "api/base/grow.h"
#include "models/tokenizer/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Expressions ---------------------------------------------------------------------------------------- */

static void fail(tx_grammar *g, tx_status status, const char *message)
{
    if (g->status)
        return;
    g->status = status;
    snprintf(g->error, sizeof g->error, "%s", message);
}

static uint32_t add(tx_grammar *g, tx_expr expr)
{
    if (g->status)
        return TX_NEVER;
    if (g->count == TX_GRAMMAR_EXPRESSIONS) {
        fail(g, TX_INVALID, "the grammar is too large: make it shorter, or its repetitions of long parts smaller");
        return TX_NEVER;
    }
    tx_expr *grown = tx_grown(g->expr, (int32_t)g->count, sizeof *grown);
    if (!grown) {
        fail(g, TX_MEMORY, "no memory for a grammar");
        return TX_NEVER;
    }
    g->expr = grown;
    g->expr[g->count] = expr;
    return g->count++;
}

uint32_t tx_expr_byte(tx_grammar *g, uint8_t low, uint8_t high)
{
    return add(g, (tx_expr){.kind = TX_BYTE, .low = low, .high = high});
}

uint32_t tx_expr_seq(tx_grammar *g, uint32_t first, uint32_t second)
{
    if (first == TX_NEVER || second == TX_NEVER)
        return TX_NEVER;
    return first == TX_EMPTY    ? second
           : second == TX_EMPTY ? first
                                : add(g, (tx_expr){.kind = TX_SEQ, .a = first, .b = second});
}

uint32_t tx_expr_alt(tx_grammar *g, uint32_t one, uint32_t other)
{
    if (one == TX_NEVER || one == other)
        return other;
    return other == TX_NEVER ? one : add(g, (tx_expr){.kind = TX_ALT, .a = one, .b = other});
}

uint32_t tx_expr_loop(tx_grammar *g, uint32_t body, uint32_t least, uint32_t most)
{
    const tx_expr inner = g->status ? (tx_expr){0} : g->expr[body];
    if (body <= TX_EMPTY || most == 0)
        return body == TX_NEVER && least > 0 ? TX_NEVER : TX_EMPTY;
    if (least == 1 && most == 1)
        return body;
    /* Loops of loops would be ambiguous: (x*){m,n} is x*, (x+){m,n} is x{m,}, and (x?){m,n} is x{0,n}. */
    if (inner.kind == TX_LOOP && inner.b <= 1 && inner.c == TX_GRAMMAR_FOREVER)
        return tx_expr_loop(g, inner.a, inner.b * least, TX_GRAMMAR_FOREVER);
    if (inner.kind == TX_LOOP && inner.b == 0 && inner.c == 1)
        return tx_expr_loop(g, inner.a, 0, most);
    return add(g, (tx_expr){.kind = TX_LOOP, .a = body, .b = least, .c = most});
}

uint32_t tx_expr_text(tx_grammar *g, const char *text, size_t size)
{
    uint32_t e = TX_EMPTY;
    while (size-- > 0)
        e = tx_expr_seq(g, tx_expr_byte(g, (uint8_t)text[size], (uint8_t)text[size]), e);
    return e;
}

uint32_t tx_grammar_rule(tx_grammar *g)
{
    if (g->rules == TX_GRAMMAR_RULES)
        fail(g, TX_INVALID, "the grammar has too many rules");
    if (g->status)
        return 0;
    g->rule[g->rules] = TX_NEVER;
    return g->rules++;
}

uint32_t tx_expr_rule(tx_grammar *g, uint32_t rule)
{
    return add(g, (tx_expr){.kind = TX_RULE, .a = rule});
}

/* ---- Classes of characters ------------------------------------------------------------------------------ */

bool tx_class_add(tx_class *set, uint32_t low, uint32_t high)
{
    if (set->count == TX_GRAMMAR_RANGES)
        return false;
    set->range[set->count].low = low;
    set->range[set->count++].high = high;
    return true;
}

static int by_low(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void tx_class_seal(tx_class *set, bool negate)
{
    uint32_t count = 0, next = 0;
    qsort(set->range, set->count, sizeof set->range[0], by_low);
    for (uint32_t i = 0; i < set->count; i++) /* merges ranges that touch */
        if (count && set->range[i].low <= set->range[count - 1].high + 1) {
            if (set->range[i].high > set->range[count - 1].high)
                set->range[count - 1].high = set->range[i].high;
        } else {
            set->range[count++] = set->range[i];
        }
    set->count = count;
    if (!negate)
        return;
    tx_class others = {0};
    for (uint32_t i = 0; i < count; i++) {
        if (set->range[i].low > next)
            tx_class_add(&others, next, set->range[i].low - 1);
        next = set->range[i].high + 1;
    }
    if (next <= 0x10FFFF && !tx_class_add(&others, next, 0x10FFFF))
        others.range[others.count - 1].high = 0x10FFFF; /* not reached: merged ranges have gaps */
    *set = others;
}

/* The last code from `low` on, up to `high`, such that the codes between form one sequence of ranges of bytes. */
static uint32_t same_form(uint32_t low, uint32_t high)
{
    static const uint32_t last[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    int bytes = 1;
    while (low > last[bytes - 1])
        bytes++;
    high = high < last[bytes - 1] ? high : last[bytes - 1];
    for (int i = 1; i < bytes; i++) {
        const uint32_t mask = (UINT32_C(1) << 6 * i) - 1;
        if ((low & ~mask) == (high & ~mask))
            continue;
        if (low & mask)
            high = low | mask;
        else if ((high & mask) != mask)
            high = (high & ~mask) - 1;
    }
    return high;
}

static uint32_t utf8_range(tx_grammar *g, uint32_t low, uint32_t high)
{
    uint32_t all = TX_NEVER;
    while (low <= high) {
        char first[TX_UTF8_MAX], last[TX_UTF8_MAX];
        const uint32_t end = same_form(low, high);
        size_t size = tx_utf8_write(low, first);
        tx_utf8_write(end, last);
        uint32_t e = TX_EMPTY;
        while (size-- > 0)
            e = tx_expr_seq(g, tx_expr_byte(g, (uint8_t)first[size], (uint8_t)last[size]), e);
        all = tx_expr_alt(g, all, e);
        low = end + 1;
    }
    return all;
}

/* A character that JSON escapes. */
static uint32_t escaped(tx_grammar *g, uint32_t code)
{
    static const char short_forms[] = "\bb\tt\nn\ff\rr\"\"\\\\";
    char text[8];
    for (const char *s = short_forms; *s; s += 2)
        if ((uint32_t)*s == code)
            return tx_expr_text(g, (char[]){'\\', s[1]}, 2);
    return tx_expr_text(g, text, (size_t)snprintf(text, sizeof text, "\\u%04x", (unsigned)code & 0xFFFF));
}

uint32_t tx_expr_class(tx_grammar *g, const tx_class *set, tx_spell spell)
{
    static const struct {
        uint32_t low, high;
        bool escaped; /* in JSON */
    } parts[] = {{0, 0x1F, true},    {0x20, 0x21, false},   {'"', '"', true},         {0x23, 0x5B, false},
                 {'\\', '\\', true}, {0x5D, 0xD7FF, false}, {0xE000, 0x10FFFF, false}};
    uint32_t all = TX_NEVER;
    for (uint32_t i = 0; i < set->count; i++)
        for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
            const uint32_t from = set->range[i].low, to = set->range[i].high;
            const uint32_t low = from > parts[k].low ? from : parts[k].low;
            const uint32_t high = to < parts[k].high ? to : parts[k].high;
            if (low <= high && !(parts[k].escaped && spell == TX_IN_JSON))
                all = tx_expr_alt(g, all, utf8_range(g, low, high));
            for (uint32_t c = low; c <= high && parts[k].escaped && spell == TX_IN_JSON; c++)
                all = tx_expr_alt(g, all, escaped(g, c));
        }
    return all;
}

void tx_grammar_begin(tx_grammar *g)
{
    add(g, (tx_expr){.kind = TX_NEVER});
    add(g, (tx_expr){.kind = TX_EMPTY});
}
