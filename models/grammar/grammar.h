/* SPDX-License-Identifier: Apache-2.0
 *
 * Grammars as expressions over bytes. Expressions are numbers, are never changed, and may be parts of several others.
 * Only rules refer to expressions that are made later. Functions that make expressions do not fail at once: the grammar
 * keeps the first failure until tx_grammar_seal. */
#ifndef TX_GRAMMAR_GRAMMAR_H
#define TX_GRAMMAR_GRAMMAR_H

#include "models/tx_grammar.h"

enum {
    TX_GRAMMAR_EXPRESSIONS = 1 << 17, /* the most in a grammar */
    TX_GRAMMAR_RULES = 4096,
    TX_GRAMMAR_REPEATS = 1 << 16, /* the largest bound of a repetition */
    TX_GRAMMAR_DEPTH = 64,        /* of groups */
    TX_GRAMMAR_RANGES = 128,      /* of a class of characters */
    TX_GRAMMAR_BYTES = 1 << 18    /* of a regular expression, a grammar or a schema */
};
#define TX_GRAMMAR_FOREVER UINT32_MAX

/* NEVER is number 0, EMPTY number 1. */
typedef enum tx_expr_kind { TX_NEVER, TX_EMPTY, TX_BYTE, TX_SEQ, TX_ALT, TX_LOOP, TX_RULE } tx_expr_kind;

typedef struct tx_expr {
    uint8_t kind, low, high; /* the range of a byte */
    bool nullable, possible; /* it matches the empty text; it matches a text */
    uint32_t a, b, c;        /* SEQ, ALT: a and b; LOOP: a, b to c times; RULE: rule a */
} tx_expr;

struct tx_grammar {
    const tx_vocabulary *vocabulary;
    tx_expr *expr;
    uint32_t count;
    uint32_t *rule; /* [rules]: expressions */
    uint32_t rules, start;
    tx_status status;
    char error[256];
};

/* A set of characters: ranges of code points. Begin with {0}. */
typedef struct tx_class {
    struct {
        uint32_t low, high;
    } range[TX_GRAMMAR_RANGES];
    uint32_t count;
} tx_class;

/* How an expression writes characters. */
typedef enum tx_spell { TX_PLAIN, TX_IN_JSON /* as in a string of JSON */ } tx_spell;

/* ---- expressions.c -------------------------------------------------------------------------------------- */

/* Makes the expressions NEVER and EMPTY. */
void tx_grammar_begin(tx_grammar *g);

uint32_t tx_expr_byte(tx_grammar *g, uint8_t low, uint8_t high);
uint32_t tx_expr_seq(tx_grammar *g, uint32_t first, uint32_t second);
uint32_t tx_expr_alt(tx_grammar *g, uint32_t one, uint32_t other);
/* Repeats an expression; `most` may be TX_GRAMMAR_FOREVER. */
uint32_t tx_expr_loop(tx_grammar *g, uint32_t body, uint32_t least, uint32_t most);
uint32_t tx_expr_text(tx_grammar *g, const char *text, size_t size);
/* A new rule, whose expression the caller sets in g->rule; and the expression that is a rule. */
uint32_t tx_grammar_rule(tx_grammar *g);
uint32_t tx_expr_rule(tx_grammar *g, uint32_t rule);
/* Adds a range to a class. Returns false if the class is full. */
bool tx_class_add(tx_class *set, uint32_t low, uint32_t high);
/* Sorts the ranges of a class, and with `negate` replaces it by its complement. */
void tx_class_seal(tx_class *set, bool negate);
/* One character of a sealed class, in UTF-8. */
uint32_t tx_expr_class(tx_grammar *g, const tx_class *set, tx_spell spell);

/* ---- syntax.c ------------------------------------------------------------------------------------------- */

/* A regular expression. With `search` it may match a part of the text, as a JSON schema's pattern. */
tx_status tx_grammar_regex(tx_grammar *g, const char *pattern, size_t size, tx_spell spell, bool search, uint32_t *e);
/* A grammar in GBNF. `names` are the rules whose expressions `e` receives, up to NULL. */
tx_status tx_grammar_gbnf(tx_grammar *g, const char *text, size_t size, const char *const *names, uint32_t *e);

/* ---- schema.c, schema_text.c ---------------------------------------------------------------------------- */

/* The rules of any JSON. */
typedef struct tx_json_rules {
    uint32_t space, value, object, array, string, letter, number, integer, key_letter;
} tx_json_rules;

tx_status tx_grammar_json(tx_grammar *g, tx_json_rules *rules);
tx_status tx_grammar_schema(tx_grammar *g, const tx_json *schema, uint32_t *e);
/* The decimal numbers from `least` to `most`; with `fraction` also those between them that are not whole. Infinite
 * bounds stand for none. */
uint32_t tx_expr_numbers(tx_grammar *g, double least, double most, bool fraction);
/* A string of JSON in a format; TX_UNSUPPORTED if it is unknown. */
tx_status tx_expr_format(tx_grammar *g, const char *format, uint32_t *e);
/* The letters of a key that is none of the names. */
uint32_t tx_expr_other_key(tx_grammar *g, const tx_json_rules *rules, const char *const *names, size_t count);

#endif
