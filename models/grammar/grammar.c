/* SPDX-License-Identifier: Apache-2.0
 * Makes whole grammars of their parts, and checks them. */
#include "models/grammar/grammar.h"
#include "models/grammar/constraint.h"

#include "api/base/needs.h"

#include <stdlib.h>
#include <string.h>

/* How often the properties of all expressions are computed anew, which follows references between rules. */
#define SWEEPS 500

/* ---- Whole grammars ------------------------------------------------------------------------------------- */

/* Computes the properties of an expression from those of its parts. Returns true if they change. */
static bool update(tx_grammar *g, tx_expr *e)
{
    const tx_expr *a = &g->expr[e->kind == TX_RULE ? g->rule[e->a] : e->a],
                  *b = &g->expr[e->kind == TX_LOOP ? 0 : e->b];
    const tx_expr old = *e;
    switch (e->kind) {
    case TX_EMPTY:
        e->nullable = e->possible = true;
        break;
    case TX_BYTE:
        e->possible = true;
        break;
    case TX_SEQ:
        e->nullable = a->nullable && b->nullable;
        e->possible = a->possible && b->possible;
        break;
    case TX_ALT:
        e->nullable = a->nullable || b->nullable;
        e->possible = a->possible || b->possible;
        break;
    case TX_LOOP:
        e->b = a->nullable ? 0 : e->b; /* empty repetitions count, but are left out */
        e->nullable = e->b == 0;
        e->possible = e->b == 0 || a->possible;
        break;
    case TX_RULE:
        e->nullable = a->nullable;
        e->possible = a->possible;
        break;
    }
    return old.nullable != e->nullable || old.possible != e->possible;
}

/* The parts of an expression that may begin its text: returns part number `n`, or NEVER after the last. */
static uint32_t beginning(const tx_grammar *g, const tx_expr *e, uint32_t n)
{
    if (!e->possible || e->kind == TX_BYTE || e->kind <= TX_EMPTY)
        return TX_NEVER;
    if (n == 0)
        return e->kind == TX_RULE ? g->rule[e->a] : e->a;
    const bool both = e->kind == TX_ALT || (e->kind == TX_SEQ && g->expr[e->a].nullable);
    return n == 1 && both ? e->b : TX_NEVER;
}

/* Fails if an expression begins with itself: then its text would never begin. A search in depth without recursion. */
static tx_status check_recursion(const tx_grammar *g)
{
    typedef struct visit {
        uint32_t expr, next;
    } visit;
    visit *stack = malloc(g->count * sizeof *stack);
    uint8_t *seen = calloc(g->count, 1); /* 1 on the stack, 2 done */
    tx_status status = stack && seen ? TX_OK : tx_fail(TX_MEMORY, "no memory for a grammar");
    for (uint32_t root = 2, top; root < g->count && !status; root++) {
        if (seen[root])
            continue;
        stack[0] = (visit){root, 0};
        seen[root] = 1;
        for (top = 1; top > 0 && !status;) {
            visit *v = &stack[top - 1];
            const uint32_t next = beginning(g, &g->expr[v->expr], v->next);
            if (next == TX_NEVER) {
                seen[v->expr] = 2;
                top--;
                continue;
            }
            v->next++;
            if (seen[next] == 1 && next > TX_EMPTY)
                status = tx_fail(TX_INVALID, "a rule or $ref refers to itself before any text (left recursion): put "
                                             "text before it");
            else if (!seen[next]) {
                seen[next] = 1;
                stack[top++] = (visit){next, 0};
            }
        }
    }
    free(stack);
    free(seen);
    return status;
}

static tx_status seal(tx_grammar *g)
{
    bool changes = true;
    if (g->status)
        return tx_fail(g->status, "%s", g->error);
    for (int sweep = 0; changes; sweep++) {
        changes = false;
        for (uint32_t i = 0; i < g->count; i++)
            changes |= update(g, &g->expr[i]);
        if (sweep == SWEEPS)
            return tx_fail(TX_INVALID, "rules refer to each other in a chain that is too long");
    }
    if (!g->expr[g->start].possible)
        return tx_fail(TX_INVALID, "no finite text follows the grammar or the schema");
    return check_recursion(g);
}

static tx_status add_choices(tx_grammar *g, const tx_json *list, uint32_t *e)
{
    if (tx_json_type_of(list) != TX_JSON_ARRAY || !tx_json_size(list))
        return tx_fail(TX_INVALID, "expected an array of strings");
    *e = TX_NEVER;
    for (size_t i = 0; i < tx_json_size(list); i++) {
        const char *text;
        size_t size;
        TX_TRY(tx_json_as_text(tx_json_at(list, i), "a choice", &text, &size));
        *e = tx_expr_alt(g, *e, tx_expr_text(g, text, size));
    }
    return TX_OK;
}

static tx_status add_part(tx_grammar *g, const tx_grammar_part *part, uint32_t *e)
{
    static const char *const root[] = {"root", NULL};
    const size_t size = part->text ? strlen(part->text) : 0;
    if (!part->text &&
        (part->kind == TX_GRAMMAR_TEXT || part->kind == TX_GRAMMAR_REGEX || part->kind == TX_GRAMMAR_GBNF))
        return tx_fail(TX_INVALID, "tx_grammar_create: a part has no text");
    if (size > TX_GRAMMAR_BYTES)
        return tx_fail(TX_INVALID, "%zu bytes are more than %d", size, TX_GRAMMAR_BYTES);
    switch (part->kind) {
    case TX_GRAMMAR_TEXT:
        *e = tx_expr_text(g, part->text, size);
        return TX_OK;
    case TX_GRAMMAR_REGEX:
        return tx_grammar_regex(g, part->text, size, TX_PLAIN, false, e);
    case TX_GRAMMAR_GBNF:
        return tx_grammar_gbnf(g, part->text, size, root, e);
    case TX_GRAMMAR_CHOICE:
        return add_choices(g, part->json, e);
    case TX_GRAMMAR_SCHEMA:
        return tx_grammar_schema(g, part->json, e);
    default:
        return tx_fail(TX_INVALID, "tx_grammar_create: unknown kind %d of a part", (int)part->kind);
    }
}

tx_status tx_grammar_create(const tx_grammar_part *parts, size_t count, const tx_vocabulary *vocabulary,
                            tx_grammar **grammar)
{
    TX_NEEDS(parts && vocabulary && grammar, TX_INVALID);
    tx_grammar *g = calloc(1, sizeof *g);
    if (!g || !(g->rule = malloc(TX_GRAMMAR_RULES * sizeof *g->rule))) {
        tx_grammar_free(g);
        return tx_fail(TX_MEMORY, "no memory for a grammar");
    }
    g->vocabulary = vocabulary;
    tx_grammar_begin(g);
    uint32_t sequence = TX_EMPTY, e = TX_NEVER;
    tx_status status = TX_OK;
    for (size_t i = 0; i < count && !status; i++) {
        if (parts[i].kind == TX_GRAMMAR_OR) {
            g->start = tx_expr_alt(g, g->start, sequence);
            sequence = TX_EMPTY;
            continue;
        }
        status = add_part(g, &parts[i], &e);
        sequence = tx_expr_seq(g, sequence, e);
    }
    g->start = tx_expr_alt(g, g->start, sequence);
    TX_THEN(status, seal(g));
    TX_THEN(status, tx_constraint_probe(g));
    return TX_RETURN(status, g, grammar, tx_grammar_free);
}

void tx_grammar_free(tx_grammar *grammar)
{
    if (!grammar)
        return;
    free(grammar->expr);
    free(grammar->rule);
    free(grammar);
}
