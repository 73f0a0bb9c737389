/* SPDX-License-Identifier: Apache-2.0
 * Parses expressions into trees, by Jinja's precedence: condition, or, and, not, comparison, +, ~, *, unary, **, then
 * attributes, calls, filters and tests. */
#include "models/jinja/method.h"
#include "models/jinja/node.h"

tx_jinja_node *tx_jinja_node_new(tx_jinja_parser *p, tx_jinja_node_kind kind)
{
    tx_jinja_node *node = tx_jinja_take(p->arena, 1, sizeof *node);
    node = node ? node : &p->spare;
    *node = (tx_jinja_node){.kind = kind, .line = p->arena->line};
    return node;
}

bool tx_jinja_enter(tx_jinja_parser *p)
{
    if (++p->depth > TX_JINJA_DEPTH)
        tx_jinja_fail(p->arena, TX_UNSUPPORTED, "it is nested deeper than %d", TX_JINJA_DEPTH);
    return !p->arena->status;
}

tx_jinja_string tx_jinja_parse_name(tx_jinja_parser *p)
{
    const tx_jinja_string name = p->token.text;
    if (p->token.kind != TX_JINJA_TOKEN_NAME)
        tx_jinja_unexpected(p);
    else
        tx_jinja_next(p);
    return name;
}

static tx_jinja_node *unary(tx_jinja_parser *p, tx_jinja_node_kind kind, tx_jinja_node *a)
{
    tx_jinja_node *node = tx_jinja_node_new(p, kind);
    node->a = a;
    return node;
}

static tx_jinja_node *binary(tx_jinja_parser *p, tx_jinja_node_kind kind, tx_jinja_op op, tx_jinja_node *a,
                             tx_jinja_node *b)
{
    tx_jinja_node *node = unary(p, kind, a);
    node->op = op;
    node->b = b;
    return node;
}

static tx_jinja_node *literal(tx_jinja_parser *p, tx_jinja_value value)
{
    tx_jinja_node *node = tx_jinja_node_new(p, TX_JINJA_LITERAL);
    node->literal = value;
    return node;
}

/* ---- Primaries ----------------------------------------------------------------------------------------- */

/* Adjacent string literals are concatenated. */
static tx_jinja_node *parse_literal(tx_jinja_parser *p)
{
    tx_jinja_value value = p->token.literal;
    tx_jinja_next(p);
    while (p->token.kind == TX_JINJA_TOKEN_LITERAL && !p->arena->status) {
        tx_jinja_sink sink = tx_jinja_sink_of(p->arena);
        if (value.kind != TX_JINJA_STRING || p->token.literal.kind != TX_JINJA_STRING) {
            tx_jinja_unexpected(p);
            break;
        }
        tx_jinja_write_string(&sink, value.string);
        tx_jinja_write_string(&sink, p->token.literal.string);
        value = tx_jinja_written(p->arena, &sink);
        tx_jinja_next(p);
    }
    return literal(p, value);
}

static tx_jinja_node *parse_name_node(tx_jinja_parser *p)
{
    tx_jinja_node *node = tx_jinja_node_new(p, TX_JINJA_NAME);
    node->name = tx_jinja_parse_name(p);
    const tx_jinja_value name = {TX_JINJA_STRING, {.string = &node->name}};
    if (tx_jinja_is_text(name, "true") || tx_jinja_is_text(name, "True"))
        return literal(p, tx_jinja_bool(true));
    if (tx_jinja_is_text(name, "false") || tx_jinja_is_text(name, "False"))
        return literal(p, tx_jinja_bool(false));
    if (tx_jinja_is_text(name, "none") || tx_jinja_is_text(name, "None"))
        return literal(p, (tx_jinja_value){TX_JINJA_NONE, {0}});
    return node;
}

/* Parses the elements after "[" or "{" up to `end`. */
static tx_jinja_node *parse_elements(tx_jinja_parser *p, tx_jinja_node_kind kind, const char *end)
{
    tx_jinja_node *node = tx_jinja_node_new(p, kind), **last = &node->args;
    tx_jinja_next(p);
    while (!tx_jinja_sees(p, end) && !p->arena->status) {
        tx_jinja_node *a = tx_jinja_parse_expression(p), *b = NULL;
        if (kind == TX_JINJA_DICT_NODE) {
            tx_jinja_expect(p, ":");
            b = tx_jinja_parse_expression(p);
        }
        *last = binary(p, b ? TX_JINJA_PAIR : TX_JINJA_ARGUMENT, TX_JINJA_NO_OP, a, b);
        last = &(*last)->next;
        if (!tx_jinja_accept(p, ","))
            break;
    }
    tx_jinja_expect(p, end);
    return node;
}

static tx_jinja_node *parse_primary(tx_jinja_parser *p)
{
    if (p->token.kind == TX_JINJA_TOKEN_NAME)
        return parse_name_node(p);
    if (p->token.kind == TX_JINJA_TOKEN_LITERAL)
        return parse_literal(p);
    if (tx_jinja_sees(p, "["))
        return parse_elements(p, TX_JINJA_LIST_NODE, "]");
    if (tx_jinja_sees(p, "{"))
        return parse_elements(p, TX_JINJA_DICT_NODE, "}");
    if (tx_jinja_accept(p, "(")) {
        tx_jinja_node *node =
            tx_jinja_sees(p, ")") ? tx_jinja_node_new(p, TX_JINJA_TUPLE_NODE) : tx_jinja_parse_tuple(p, true);
        tx_jinja_expect(p, ")");
        return node;
    }
    tx_jinja_unexpected(p);
    return tx_jinja_node_new(p, TX_JINJA_LITERAL);
}

/* ---- Postfix expressions ------------------------------------------------------------------------------ */

void tx_jinja_parse_arguments(tx_jinja_parser *p, tx_jinja_node *call)
{
    tx_jinja_node **last = &call->args;
    while (!tx_jinja_sees(p, ")") && !p->arena->status) {
        tx_jinja_node *argument = unary(p, TX_JINJA_ARGUMENT, tx_jinja_parse_expression(p));
        if (tx_jinja_sees(p, "=") && argument->a->kind == TX_JINJA_NAME) {
            tx_jinja_next(p);
            argument->name = argument->a->name;
            argument->a = tx_jinja_parse_expression(p);
        }
        *last = argument;
        last = &argument->next;
        if (!tx_jinja_accept(p, ","))
            break;
    }
    tx_jinja_expect(p, ")");
}

static tx_jinja_node *parse_subscript(tx_jinja_parser *p, tx_jinja_node *of)
{
    tx_jinja_node *part[3] = {NULL};
    int colons = 0;
    while (!tx_jinja_sees(p, "]") && !p->arena->status) {
        if (!tx_jinja_accept(p, ":"))
            part[colons] = tx_jinja_parse_tuple(p, true);
        else if (++colons > 2)
            tx_jinja_unexpected(p);
        if (part[colons > 2 ? 2 : colons] && !tx_jinja_sees(p, ":") && !tx_jinja_sees(p, "]"))
            tx_jinja_unexpected(p);
    }
    if (!colons && !part[0])
        tx_jinja_unexpected(p);
    tx_jinja_expect(p, "]");
    tx_jinja_node *node = binary(p, colons ? TX_JINJA_SLICE : TX_JINJA_ITEM, TX_JINJA_NO_OP, of, part[0]);
    node->c = part[1];
    node->d = part[2];
    return node;
}

/* Parses the name of a filter or a test, without its arguments. An unknown one fails when it is applied. */
static tx_jinja_node *parse_method(tx_jinja_parser *p, tx_jinja_node_kind kind, tx_jinja_node *of)
{
    tx_jinja_node *node = unary(p, kind, of);
    node->name = tx_jinja_parse_name(p);
    node->method = tx_jinja_method_find(kind == TX_JINJA_FILTER ? TX_JINJA_A_FILTER : TX_JINJA_A_TEST, &node->name);
    return node;
}

tx_jinja_node *tx_jinja_parse_filters(tx_jinja_parser *p, tx_jinja_node *of)
{
    do {
        of = parse_method(p, TX_JINJA_FILTER, of);
        if (tx_jinja_accept(p, "("))
            tx_jinja_parse_arguments(p, of);
    } while (tx_jinja_accept(p, "|"));
    return of;
}

static tx_jinja_node *parse_postfix(tx_jinja_parser *p, tx_jinja_node *node)
{
    while (!p->arena->status) {
        if (tx_jinja_accept(p, ".")) {
            if (p->token.kind == TX_JINJA_TOKEN_LITERAL && p->token.literal.kind == TX_JINJA_INTEGER) {
                node = binary(p, TX_JINJA_ITEM, TX_JINJA_NO_OP, node, literal(p, p->token.literal));
                tx_jinja_next(p);
            } else {
                node = unary(p, TX_JINJA_ATTRIBUTE, node);
                node->name = tx_jinja_parse_name(p);
            }
        } else if (tx_jinja_accept(p, "[")) {
            node = parse_subscript(p, node);
        } else if (tx_jinja_accept(p, "(")) {
            node = unary(p, TX_JINJA_CALL, node);
            tx_jinja_parse_arguments(p, node);
        } else {
            break;
        }
    }
    return node;
}

/* Returns true if an argument without parentheses follows, as in "is divisibleby 3". */
static bool begins_argument(const tx_jinja_parser *p)
{
    static const char *const others[] = {"else", "or", "and", "is", "if", "in", "not"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (tx_jinja_sees(p, others[i]))
            return false;
    return p->token.kind == TX_JINJA_TOKEN_NAME || p->token.kind == TX_JINJA_TOKEN_LITERAL || tx_jinja_sees(p, "[") ||
           tx_jinja_sees(p, "{");
}

static tx_jinja_node *parse_test(tx_jinja_parser *p, tx_jinja_node *of)
{
    const bool negated = tx_jinja_accept(p, "not");
    tx_jinja_node *node = parse_method(p, TX_JINJA_TEST, of);
    if (tx_jinja_accept(p, "("))
        tx_jinja_parse_arguments(p, node);
    else if (begins_argument(p))
        node->args = unary(p, TX_JINJA_ARGUMENT, parse_postfix(p, parse_primary(p)));
    return negated ? unary(p, TX_JINJA_NOT, node) : node;
}

static tx_jinja_node *parse_unary(tx_jinja_parser *p, bool with_filters)
{
    tx_jinja_node *node;
    if (!tx_jinja_enter(p))
        node = tx_jinja_node_new(p, TX_JINJA_LITERAL);
    else if (tx_jinja_accept(p, "-"))
        node = unary(p, TX_JINJA_NEGATE, parse_unary(p, false));
    else
        node = tx_jinja_accept(p, "+") ? parse_unary(p, false) : parse_primary(p);
    node = parse_postfix(p, node);
    while (with_filters && !p->arena->status) {
        if (tx_jinja_accept(p, "|"))
            node = tx_jinja_parse_filters(p, node);
        else if (tx_jinja_accept(p, "is"))
            node = parse_test(p, node);
        else if (tx_jinja_sees(p, "(")) /* a call of the result of a filter */
            node = parse_postfix(p, node);
        else
            break;
    }
    p->depth--;
    return node;
}

/* ---- Operators ----------------------------------------------------------------------------------------- */

typedef struct level {
    const char *sign;
    tx_jinja_op op;
} level;

/* The operators of a level of precedence, loosest first; ** binds tightest. */
static const level levels[][5] = {
    {{"+", TX_JINJA_ADD}, {"-", TX_JINJA_SUBTRACT}},
    {{"~", TX_JINJA_CONCAT}},
    {{"*", TX_JINJA_MULTIPLY}, {"/", TX_JINJA_DIVIDE}, {"//", TX_JINJA_FLOOR_DIVIDE}, {"%", TX_JINJA_MODULO}},
    {{"**", TX_JINJA_POWER}},
};
#define LEVELS (sizeof levels / sizeof levels[0])

static tx_jinja_node *parse_level(tx_jinja_parser *p, size_t k)
{
    tx_jinja_node *node = k == LEVELS ? parse_unary(p, true) : parse_level(p, k + 1);
    for (bool found = k < LEVELS; found && !p->arena->status;) {
        found = false;
        for (const level *l = levels[k]; l->sign && !found; l++)
            if (tx_jinja_accept(p, l->sign)) {
                node = binary(p, TX_JINJA_BINARY, l->op, node, parse_level(p, k + 1));
                found = true;
            }
    }
    return node;
}

static tx_jinja_op parse_comparison(tx_jinja_parser *p)
{
    static const level signs[] = {{"==", TX_JINJA_EQ}, {"!=", TX_JINJA_NE}, {"<", TX_JINJA_LT}, {"<=", TX_JINJA_LE},
                                  {">", TX_JINJA_GT},  {">=", TX_JINJA_GE}, {"in", TX_JINJA_IN}};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (tx_jinja_accept(p, signs[i].sign))
            return signs[i].op;
    if (!tx_jinja_accept(p, "not"))
        return TX_JINJA_NO_OP;
    tx_jinja_expect(p, "in");
    return TX_JINJA_NOT_IN;
}

static tx_jinja_node *parse_compare(tx_jinja_parser *p)
{
    tx_jinja_node *first = parse_level(p, 0), *node = first;
    tx_jinja_node **last = NULL;
    for (tx_jinja_op op; !p->arena->status && (op = parse_comparison(p)) != TX_JINJA_NO_OP;) {
        if (!last) {
            node = unary(p, TX_JINJA_COMPARE, first);
            last = &node->args;
        }
        *last = binary(p, TX_JINJA_ARGUMENT, op, parse_level(p, 0), NULL);
        last = &(*last)->next;
    }
    return node;
}

static tx_jinja_node *parse_not(tx_jinja_parser *p)
{
    bool negated = false;
    while (tx_jinja_accept(p, "not"))
        negated = !negated;
    tx_jinja_node *node = parse_compare(p);
    return negated ? unary(p, TX_JINJA_NOT, node) : node;
}

static tx_jinja_node *parse_and(tx_jinja_parser *p)
{
    tx_jinja_node *node = parse_not(p);
    while (tx_jinja_accept(p, "and"))
        node = binary(p, TX_JINJA_AND, TX_JINJA_NO_OP, node, parse_not(p));
    return node;
}

static tx_jinja_node *parse_or(tx_jinja_parser *p)
{
    tx_jinja_node *node = parse_and(p);
    while (tx_jinja_accept(p, "or"))
        node = binary(p, TX_JINJA_OR, TX_JINJA_NO_OP, node, parse_and(p));
    return node;
}

static tx_jinja_node *parse_condition(tx_jinja_parser *p, bool condition)
{
    tx_jinja_node *node = tx_jinja_enter(p) ? parse_or(p) : tx_jinja_node_new(p, TX_JINJA_LITERAL);
    while (condition && tx_jinja_accept(p, "if")) {
        node = binary(p, TX_JINJA_CONDITION, TX_JINJA_NO_OP, node, parse_or(p));
        if (tx_jinja_accept(p, "else"))
            node->c = parse_condition(p, true);
    }
    p->depth--;
    return node;
}

tx_jinja_node *tx_jinja_parse_expression(tx_jinja_parser *p)
{
    return parse_condition(p, true);
}

static bool ends_tuple(const tx_jinja_parser *p)
{
    return p->token.kind == TX_JINJA_END_OF_TAG || tx_jinja_sees(p, ")") || tx_jinja_sees(p, "]") ||
           tx_jinja_sees(p, "=") || tx_jinja_sees(p, "in") || tx_jinja_sees(p, ":");
}

tx_jinja_node *tx_jinja_parse_tuple(tx_jinja_parser *p, bool condition)
{
    tx_jinja_node *first = parse_condition(p, condition);
    if (!tx_jinja_sees(p, ","))
        return first;
    tx_jinja_node *node = tx_jinja_node_new(p, TX_JINJA_TUPLE_NODE);
    tx_jinja_node **last = &node->args;
    *last = unary(p, TX_JINJA_ARGUMENT, first);
    while (tx_jinja_accept(p, ",") && !ends_tuple(p) && !p->arena->status) {
        last = &(*last)->next;
        *last = unary(p, TX_JINJA_ARGUMENT, parse_condition(p, condition));
    }
    return node;
}

static tx_jinja_node *parse_name_target(tx_jinja_parser *p)
{
    tx_jinja_node *node = parse_name_node(p);
    if (node->kind != TX_JINJA_NAME)
        tx_jinja_unexpected(p);
    return node;
}

tx_jinja_node *tx_jinja_parse_target(tx_jinja_parser *p, bool attribute)
{
    tx_jinja_node *node = parse_name_target(p), **last;
    if (attribute && tx_jinja_accept(p, ".")) {
        node = unary(p, TX_JINJA_ATTRIBUTE, node);
        node->name = tx_jinja_parse_name(p);
    } else if (tx_jinja_sees(p, ",")) {
        tx_jinja_node *tuple = tx_jinja_node_new(p, TX_JINJA_TUPLE_NODE);
        tuple->args = unary(p, TX_JINJA_ARGUMENT, node);
        last = &tuple->args->next;
        while (tx_jinja_accept(p, ",") && !ends_tuple(p) && !p->arena->status) {
            *last = unary(p, TX_JINJA_ARGUMENT, parse_name_target(p));
            last = &(*last)->next;
        }
        return tuple;
    }
    return node;
}
