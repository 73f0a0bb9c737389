/* SPDX-License-Identifier: Apache-2.0
 *
 * Syntax trees of templates: statements and expressions. lexer.c makes the tokens; expressions.c
 * and statements.c make the trees. */
#ifndef TX_JINJA_NODE_H
#define TX_JINJA_NODE_H

#include "models/jinja/value.h"

typedef enum tx_jinja_node_kind {
    /* Statements; `args` is the first statement of the body. */
    TX_JINJA_DATA,         /* literal: the text */
    TX_JINJA_OUTPUT,       /* a */
    TX_JINJA_IF,           /* a: condition; d: the other body */
    TX_JINJA_FOR,          /* a: target, b: elements, c: condition or NULL; d: body if there are none */
    TX_JINJA_SET,          /* a: target, b: value */
    TX_JINJA_SET_BLOCK,    /* a: target, b: filters or NULL */
    TX_JINJA_MACRO_NODE,   /* name, a: parameters */
    TX_JINJA_CALL_BLOCK,   /* a: parameters of caller, b: call */
    TX_JINJA_FILTER_BLOCK, /* b: filters */
    TX_JINJA_WITH,         /* a: SET nodes */
    TX_JINJA_GENERATION_BLOCK,
    TX_JINJA_BREAK,
    TX_JINJA_CONTINUE,
    /* Expressions; `args` is the first ARGUMENT or PAIR. */
    TX_JINJA_LITERAL,
    TX_JINJA_NAME,
    TX_JINJA_LIST_NODE,
    TX_JINJA_TUPLE_NODE,
    TX_JINJA_DICT_NODE,
    TX_JINJA_ARGUMENT,  /* a: value; name, if it has one */
    TX_JINJA_PAIR,      /* a: key, b: value */
    TX_JINJA_ATTRIBUTE, /* a.name */
    TX_JINJA_ITEM,      /* a[b] */
    TX_JINJA_SLICE,     /* a[b:c:d], each but a may be NULL */
    TX_JINJA_CALL,      /* a(args) */
    TX_JINJA_FILTER,    /* a | method(args); without a: the text of a block */
    TX_JINJA_TEST,      /* a is method(args) */
    TX_JINJA_NOT,
    TX_JINJA_NEGATE,
    TX_JINJA_AND,
    TX_JINJA_OR,
    TX_JINJA_COMPARE,  /* a, then args: ARGUMENTs with an op each */
    TX_JINJA_BINARY,   /* a op b */
    TX_JINJA_CONDITION /* a if b else c; c may be NULL */
} tx_jinja_node_kind;

typedef enum tx_jinja_op {
    TX_JINJA_NO_OP,
    TX_JINJA_ADD,
    TX_JINJA_SUBTRACT,
    TX_JINJA_MULTIPLY,
    TX_JINJA_DIVIDE,
    TX_JINJA_FLOOR_DIVIDE,
    TX_JINJA_MODULO,
    TX_JINJA_POWER,
    TX_JINJA_CONCAT,
    TX_JINJA_EQ,
    TX_JINJA_NE,
    TX_JINJA_LT,
    TX_JINJA_LE,
    TX_JINJA_GT,
    TX_JINJA_GE,
    TX_JINJA_IN,
    TX_JINJA_NOT_IN
} tx_jinja_op;

typedef struct tx_jinja_node {
    tx_jinja_node_kind kind;
    tx_jinja_op op;
    int line;
    struct tx_jinja_node *a, *b, *c, *d, *args;
    struct tx_jinja_node *next; /* of a body, or of arguments */
    tx_jinja_string name;
    tx_jinja_value literal;
    const struct tx_jinja_method *method;
} tx_jinja_node;

struct tx_jinja {
    tx_jinja_arena arena;
    tx_jinja_node *body;
    bool marks_generation;
};

/* ---- Tokens (lexer.c) ----------------------------------------------------------------------------------- */

typedef enum tx_jinja_token_kind {
    TX_JINJA_END_OF_TEXT,
    TX_JINJA_END_OF_TAG,
    TX_JINJA_TOKEN_NAME,
    TX_JINJA_TOKEN_LITERAL, /* a string or a number */
    TX_JINJA_TOKEN_OP       /* one or two characters */
} tx_jinja_token_kind;

typedef struct tx_jinja_token {
    tx_jinja_token_kind kind;
    tx_jinja_string text; /* NAME, OP */
    tx_jinja_value literal;
} tx_jinja_token;

typedef enum tx_jinja_tag { TX_JINJA_NO_TAG, TX_JINJA_OUTPUT_TAG, TX_JINJA_BLOCK_TAG } tx_jinja_tag;

typedef struct tx_jinja_parser {
    tx_jinja_arena *arena; /* of the nodes; its line is that of the token */
    const char *text;
    size_t size, at;
    tx_jinja_tag tag; /* the tag that is being parsed */
    int nesting;      /* open brackets of the tag */
    bool line_begins; /* `at` is at the beginning of a line */
    tx_jinja_token token;
    int depth, loops;    /* nesting of statements and expressions; nesting of loops, for break and continue */
    tx_jinja_node spare; /* returned by tx_jinja_node_new after a failure */
    bool marks_generation;
} tx_jinja_parser;

/* Reads the text up to the next tag, without comments, into `*data`. Returns the tag, whose first token is then read.
 */
tx_jinja_tag tx_jinja_next_tag(tx_jinja_parser *p, tx_jinja_sink *data);
void tx_jinja_next(tx_jinja_parser *p); /* the next token of the tag */
/* Returns true if the token is this operator or name. tx_jinja_accept then reads the next token. */
bool tx_jinja_sees(const tx_jinja_parser *p, const char *text);
bool tx_jinja_accept(tx_jinja_parser *p, const char *text);
void tx_jinja_expect(tx_jinja_parser *p, const char *text); /* fails if the token is another one */
tx_jinja_value tx_jinja_unexpected(tx_jinja_parser *p);     /* fails; the message names the token */

/* ---- Trees ----------------------------------------------------------------------------------------------- */

tx_jinja_node *tx_jinja_node_new(tx_jinja_parser *p, tx_jinja_node_kind kind); /* p->spare after a failure */
tx_jinja_node *tx_jinja_parse_expression(tx_jinja_parser *p);
tx_jinja_node *tx_jinja_parse_tuple(tx_jinja_parser *p, bool condition); /* a, b; without parentheses */
tx_jinja_node *tx_jinja_parse_target(tx_jinja_parser *p, bool attribute);
tx_jinja_node *tx_jinja_parse_filters(tx_jinja_parser *p, tx_jinja_node *of); /* name(args) | ... */
void tx_jinja_parse_arguments(tx_jinja_parser *p, tx_jinja_node *call);       /* after "(" */
tx_jinja_string tx_jinja_parse_name(tx_jinja_parser *p);
bool tx_jinja_enter(tx_jinja_parser *p); /* increments p->depth, which the caller decrements; false if too deep */

#endif
