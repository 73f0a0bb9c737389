/* SPDX-License-Identifier: Apache-2.0
 * Evaluates the expressions of a template. */
#include "models/jinja/run.h"

#include <math.h>
#include <string.h>

/* ---- Names, attributes, items --------------------------------------------------------------------------- */

static bool same_name(const tx_jinja_string *x, const tx_jinja_string *y)
{
    return x->size == y->size && memcmp(x->bytes, y->bytes, x->size) == 0;
}

static tx_jinja_value bound(tx_jinja_run *r, const tx_jinja_method *method, tx_jinja_value self)
{
    tx_jinja_bound *result = method ? tx_jinja_take(&r->arena, 1, sizeof *result) : NULL;
    if (!result)
        return TX_JINJA_NOTHING;
    *result = (tx_jinja_bound){method, self};
    return (tx_jinja_value){TX_JINJA_METHOD, {.bound = result}};
}

static tx_jinja_value look_up(tx_jinja_run *r, const tx_jinja_string *name)
{
    for (const tx_jinja_scope *s = r->scope; s; s = s->parent)
        for (size_t i = 0; i < s->count; i++)
            if (same_name(&s->at[i].name, name))
                return s->at[i].value;
    return bound(r, tx_jinja_method_find(TX_JINJA_A_GLOBAL, name), TX_JINJA_NOTHING);
}

static tx_jinja_value find_key(tx_jinja_run *r, const tx_jinja_dict *dict, const tx_jinja_string *name)
{
    tx_jinja_step(&r->arena, dict->count / 4);
    for (size_t i = 0; i < dict->count; i++)
        if (dict->at[i].key.kind == TX_JINJA_STRING && same_name(dict->at[i].key.string, name))
            return dict->at[i].value;
    return TX_JINJA_NOTHING;
}

/* The method of a value, as Python's getattr finds it; undefined if it has no method with this name. */
static tx_jinja_value method_of(tx_jinja_run *r, tx_jinja_value of, const tx_jinja_string *name)
{
    const bool list = of.kind == TX_JINJA_LIST || of.kind == TX_JINJA_TUPLE;
    const tx_jinja_method_kind kind = of.kind == TX_JINJA_STRING      ? TX_JINJA_OF_STRING
                                      : of.kind == TX_JINJA_DICT      ? TX_JINJA_OF_DICT
                                      : list                          ? TX_JINJA_OF_LIST
                                      : of.kind == TX_JINJA_NAMESPACE ? TX_JINJA_OF_LOOP
                                                                      : TX_JINJA_A_GLOBAL;
    return kind == TX_JINJA_A_GLOBAL ? TX_JINJA_NOTHING : bound(r, tx_jinja_method_find(kind, name), of);
}

static tx_jinja_value attribute(tx_jinja_run *r, tx_jinja_value of, const tx_jinja_string *name)
{
    tx_jinja_value found = of.kind == TX_JINJA_NAMESPACE ? find_key(r, of.dict, name) : method_of(r, of, name);
    if (found.kind == TX_JINJA_UNDEFINED && of.kind == TX_JINJA_NAMESPACE)
        found = method_of(r, of, name);
    else if (found.kind == TX_JINJA_UNDEFINED && of.kind == TX_JINJA_DICT)
        found = find_key(r, of.dict, name);
    return found;
}

static tx_jinja_value item(tx_jinja_run *r, tx_jinja_value of, tx_jinja_value key)
{
    const tx_jinja_value found = tx_jinja_member(&r->arena, of, key);
    return found.kind == TX_JINJA_UNDEFINED && key.kind == TX_JINJA_STRING ? attribute(r, of, key.string) : found;
}

/* Fails if a value whose member is read is undefined. */
static bool is_there(tx_jinja_run *r, tx_jinja_value of, const tx_jinja_node *node)
{
    r->arena.line = node->line;
    if (of.kind == TX_JINJA_UNDEFINED && node->a->name.size)
        tx_jinja_fail(&r->arena, TX_FORMAT, "'%.*s' is undefined", (int)node->a->name.size, node->a->name.bytes);
    else if (of.kind == TX_JINJA_UNDEFINED)
        tx_jinja_fail(&r->arena, TX_FORMAT, "an undefined value has no attributes or items");
    return !r->arena.status;
}

/* A bound of a slice, as Python's slice.indices() computes it; `usual` if it is left out. */
static int64_t bound_of(tx_jinja_run *r, const tx_jinja_node *node, int64_t usual, int64_t count, int64_t step)
{
    int64_t at;
    if (!node)
        return usual;
    const tx_jinja_value v = tx_jinja_evaluate(r, node);
    if (v.kind == TX_JINJA_NONE)
        return usual;
    if (!tx_jinja_as_index(v, &at)) {
        tx_jinja_fail(&r->arena, TX_FORMAT, "slice indices must be integers");
        return 0;
    }
    const int64_t least = step < 0 ? -1 : 0, most = step < 0 ? count - 1 : count;
    at += at < 0 ? count : 0;
    return at < least ? least : at > most ? most : at;
}

static tx_jinja_value slice(tx_jinja_run *r, const tx_jinja_node *node, tx_jinja_value of)
{
    tx_jinja_arena *a = &r->arena;
    const bool text = of.kind == TX_JINJA_STRING;
    if (!text && of.kind != TX_JINJA_LIST && of.kind != TX_JINJA_TUPLE)
        return tx_jinja_fail(a, TX_FORMAT, "a %s has no slices", tx_jinja_kind_name(of));
    const int64_t count = (int64_t)(text ? tx_jinja_length(a, of.string) : of.list->count);
    int64_t step = 1;
    if (node->d) {
        const tx_jinja_value v = tx_jinja_evaluate(r, node->d);
        if (v.kind != TX_JINJA_NONE && (!tx_jinja_as_index(v, &step) || step == 0))
            return tx_jinja_fail(a, TX_FORMAT, "the step of a slice must be an integer other than 0");
    }
    const int64_t begin = bound_of(r, node->b, step < 0 ? count - 1 : 0, count, step);
    const int64_t end = bound_of(r, node->c, step < 0 ? -1 : count, count, step);
    if (text && step == 1 && !a->status) {
        const size_t first = tx_jinja_offset(a, of.string, (size_t)begin);
        return tx_jinja_cut(a, of.string, first, begin < end ? tx_jinja_offset(a, of.string, (size_t)end) : first);
    }
    const tx_jinja_list *elements = tx_jinja_elements(a, of);
    const tx_jinja_value result = tx_jinja_list_new(a, of.kind == TX_JINJA_TUPLE);
    for (int64_t i = begin; (step < 0 ? i > end : i < end) && tx_jinja_step(a, 1);) {
        tx_jinja_append(a, result.list, elements->at[i]);
        if (step > 0 ? step > end - i : step < end - i) /* the next index is past the end and may overflow int64 */
            break;
        i += step;
    }
    return text && !a->status ? tx_jinja_concatenated(a, result.list) : result;
}

/* ---- Operators ------------------------------------------------------------------------------------------ */

static tx_jinja_value integers(tx_jinja_run *r, tx_jinja_op op, int64_t x, int64_t y)
{
    int64_t result = 0;
    bool fits = true;
    if (op == TX_JINJA_ADD)
        fits = !__builtin_add_overflow(x, y, &result);
    else if (op == TX_JINJA_SUBTRACT)
        fits = !__builtin_sub_overflow(x, y, &result);
    else if (op == TX_JINJA_MULTIPLY)
        fits = !__builtin_mul_overflow(x, y, &result);
    else if (x == INT64_MIN && y == -1)
        fits = false;
    else if (op == TX_JINJA_FLOOR_DIVIDE) /* Python rounds down, and the remainder has the sign of y */
        result = x / y - ((x % y != 0) && ((x < 0) != (y < 0)));
    else
        result = x % y + ((x % y != 0) && ((x < 0) != (y < 0)) ? y : 0);
    return fits ? tx_jinja_integer(result)
                : tx_jinja_fail(&r->arena, TX_UNSUPPORTED, "an integer does not fit in 64 bits");
}

static tx_jinja_value power(tx_jinja_run *r, tx_jinja_value x, tx_jinja_value y)
{
    if (x.kind == TX_JINJA_NUMBER || y.kind == TX_JINJA_NUMBER || tx_jinja_as_number(y) < 0)
        return tx_jinja_number(pow(tx_jinja_as_number(x), tx_jinja_as_number(y)));
    tx_jinja_value result = tx_jinja_integer(1);
    for (int64_t i = (int64_t)tx_jinja_as_number(y); i > 0 && tx_jinja_step(&r->arena, 1); i--)
        result = integers(r, TX_JINJA_MULTIPLY, result.integer, (int64_t)tx_jinja_as_number(x));
    return result;
}

static tx_jinja_value numbers(tx_jinja_run *r, tx_jinja_op op, tx_jinja_value x, tx_jinja_value y)
{
    const double p = tx_jinja_as_number(x), q = tx_jinja_as_number(y);
    int64_t i, k;
    if (op == TX_JINJA_POWER)
        return power(r, x, y);
    if (q == 0.0 && (op == TX_JINJA_DIVIDE || op == TX_JINJA_FLOOR_DIVIDE || op == TX_JINJA_MODULO))
        return tx_jinja_fail(&r->arena, TX_FORMAT, "division by zero");
    if (op != TX_JINJA_DIVIDE && tx_jinja_as_index(x, &i) && tx_jinja_as_index(y, &k))
        return integers(r, op, i, k);
    switch (op) {
    case TX_JINJA_ADD:
        return tx_jinja_number(p + q);
    case TX_JINJA_SUBTRACT:
        return tx_jinja_number(p - q);
    case TX_JINJA_MULTIPLY:
        return tx_jinja_number(p * q);
    case TX_JINJA_DIVIDE:
        return tx_jinja_number(p / q);
    case TX_JINJA_FLOOR_DIVIDE:
        return tx_jinja_number(floor(p / q));
    default:
        return tx_jinja_number(p - q * floor(p / q));
    }
}

/* A string or a list times a number. */
static tx_jinja_value repeated(tx_jinja_run *r, tx_jinja_value of, int64_t times)
{
    tx_jinja_arena *a = &r->arena;
    if (of.kind == TX_JINJA_STRING) {
        tx_jinja_sink sink = tx_jinja_sink_of(a);
        for (int64_t i = 0; i < times && of.string->size && tx_jinja_step(a, 1) && !sink.bytes.status; i++)
            tx_jinja_write_string(&sink, of.string);
        return tx_jinja_written(a, &sink);
    }
    const tx_jinja_value result = tx_jinja_list_new(a, of.kind == TX_JINJA_TUPLE);
    for (int64_t i = 0; i < times && of.list->count && !a->status; i++)
        for (size_t k = 0; k < of.list->count && tx_jinja_step(a, 1); k++)
            tx_jinja_append(a, result.list, of.list->at[k]);
    return result;
}

static tx_jinja_value joined_lists(tx_jinja_run *r, tx_jinja_value x, tx_jinja_value y)
{
    const size_t count = x.list->count + y.list->count;
    const tx_jinja_value result = tx_jinja_list_new(&r->arena, x.kind == TX_JINJA_TUPLE);
    tx_jinja_value *at = tx_jinja_take(&r->arena, count, sizeof *at);
    if (!at || !tx_jinja_step(&r->arena, count / 16))
        return TX_JINJA_NOTHING;
    if (x.list->count)
        memcpy(at, x.list->at, x.list->count * sizeof *at);
    if (y.list->count)
        memcpy(at + x.list->count, y.list->at, y.list->count * sizeof *at);
    *result.list = (tx_jinja_list){.at = at, .count = count, .room = count};
    return result;
}

static tx_jinja_value binary(tx_jinja_run *r, tx_jinja_op op, tx_jinja_value x, tx_jinja_value y)
{
    tx_jinja_arena *a = &r->arena;
    const bool lists = x.kind == y.kind && (x.kind == TX_JINJA_LIST || x.kind == TX_JINJA_TUPLE);
    int64_t times;
    if (a->status)
        return TX_JINJA_NOTHING;
    if (op == TX_JINJA_CONCAT)
        return tx_jinja_joined(a, tx_jinja_str(a, x), tx_jinja_str(a, y));
    if (tx_jinja_is_number(x) && tx_jinja_is_number(y))
        return numbers(r, op, x, y);
    if (op == TX_JINJA_ADD && x.kind == TX_JINJA_STRING && y.kind == TX_JINJA_STRING)
        return tx_jinja_added(a, x.string, y.string);
    if (op == TX_JINJA_ADD && lists)
        return joined_lists(r, x, y);
    if (op == TX_JINJA_MODULO && x.kind == TX_JINJA_STRING) {
        const bool tuple = y.kind == TX_JINJA_TUPLE;
        const tx_jinja_value list = tuple ? y : tx_jinja_list_new(a, true);
        if (!tuple)
            tx_jinja_append(a, list.list, y);
        return tx_jinja_percent(a, x.string, list.list);
    }
    const bool first = x.kind == TX_JINJA_STRING || x.kind == TX_JINJA_LIST || x.kind == TX_JINJA_TUPLE;
    if (op == TX_JINJA_MULTIPLY && tx_jinja_as_index(first ? y : x, &times) &&
        (first || y.kind == TX_JINJA_STRING || y.kind == TX_JINJA_LIST || y.kind == TX_JINJA_TUPLE))
        return repeated(r, first ? x : y, times);
    static const char *const signs[] = {"", "+", "-", "*", "/", "//", "%", "**", "~"};
    return tx_jinja_fail(a, TX_FORMAT, "%s: unsupported operands %s and %s", signs[op], tx_jinja_kind_name(x),
                         tx_jinja_kind_name(y));
}

static bool compares(tx_jinja_run *r, tx_jinja_op op, tx_jinja_value x, tx_jinja_value y)
{
    tx_jinja_arena *a = &r->arena;
    const bool number = tx_jinja_is_number(x) && tx_jinja_is_number(y);
    const bool nan = number && (isnan(tx_jinja_as_number(x)) || isnan(tx_jinja_as_number(y)));
    switch (op) {
    case TX_JINJA_EQ:
        return tx_jinja_equal(a, x, y);
    case TX_JINJA_NE:
        return !tx_jinja_equal(a, x, y);
    case TX_JINJA_IN:
        return tx_jinja_contains(a, y, x);
    case TX_JINJA_NOT_IN:
        return !tx_jinja_contains(a, y, x);
    case TX_JINJA_LT:
        return tx_jinja_compare(a, x, y) < 0 && !nan;
    case TX_JINJA_LE:
        return tx_jinja_compare(a, x, y) <= 0 && !nan;
    case TX_JINJA_GT:
        return tx_jinja_compare(a, x, y) > 0 && !nan;
    default:
        return tx_jinja_compare(a, x, y) >= 0 && !nan;
    }
}

static tx_jinja_value comparison(tx_jinja_run *r, const tx_jinja_node *node)
{
    tx_jinja_value x = tx_jinja_evaluate(r, node->a);
    for (const tx_jinja_node *n = node->args; n && !r->arena.status; n = n->next) {
        const tx_jinja_value y = tx_jinja_evaluate(r, n->a);
        if (r->arena.status || !compares(r, n->op, x, y))
            return tx_jinja_bool(false);
        x = y;
    }
    return tx_jinja_bool(true);
}

static tx_jinja_value negated(tx_jinja_run *r, tx_jinja_value v)
{
    if (v.kind == TX_JINJA_NUMBER)
        return tx_jinja_number(-v.number);
    return binary(r, TX_JINJA_SUBTRACT, tx_jinja_integer(0), v);
}

/* ---- Calls ---------------------------------------------------------------------------------------------- */

#define MOST_ARGUMENTS 32

/* Evaluates the arguments of a call and returns their number. */
static size_t arguments_of(tx_jinja_run *r, const tx_jinja_node *node, tx_jinja_argument *at)
{
    size_t count = 0;
    for (const tx_jinja_node *n = node->args; n && !r->arena.status; n = n->next) {
        if (count == MOST_ARGUMENTS) {
            tx_jinja_fail(&r->arena, TX_UNSUPPORTED, "a call has more than %d arguments", MOST_ARGUMENTS);
            break;
        }
        at[count++] = (tx_jinja_argument){n->name, tx_jinja_evaluate(r, n->a)};
    }
    return count;
}

static tx_jinja_value call_macro(tx_jinja_run *r, const tx_jinja_macro *m, const tx_jinja_argument *at, size_t count)
{
    tx_jinja_scope *scope = tx_jinja_scope_new(r, m->scope), *outer = r->scope;
    size_t index = 0, used = 0;
    for (const tx_jinja_node *p = m->parameters; p && scope && !r->arena.status; p = p->next, index++) {
        const tx_jinja_argument *found = NULL;
        for (size_t i = 0; i < count && !found; i++)
            if (at[i].name.size ? same_name(&at[i].name, &p->name) : i == index)
                found = &at[i];
        used += found != NULL;
        r->scope = scope; /* a default sees the parameters before it */
        tx_jinja_set(r, scope, p->name, found ? found->value : p->b ? tx_jinja_evaluate(r, p->b) : TX_JINJA_NOTHING);
    }
    for (size_t i = 0; i < count && scope; i++)
        if (at[i].name.size == 6 && memcmp(at[i].name.bytes, "caller", 6) == 0) {
            tx_jinja_set(r, scope, at[i].name, at[i].value);
            used++;
        }
    r->scope = outer;
    if (used < count)
        tx_jinja_fail(&r->arena, TX_FORMAT, "macro %.*s does not accept these arguments", (int)m->name.size,
                      m->name.bytes);
    return r->arena.status ? TX_JINJA_NOTHING : tx_jinja_capture(r, m->body, scope, 0);
}

static tx_jinja_value call(tx_jinja_run *r, tx_jinja_value callee, const tx_jinja_argument *at, size_t count)
{
    if (callee.kind == TX_JINJA_MACRO)
        return call_macro(r, callee.macro, at, count);
    if (callee.kind != TX_JINJA_METHOD)
        return tx_jinja_fail(&r->arena, TX_FORMAT, "a %s cannot be called", tx_jinja_kind_name(callee));
    const tx_jinja_method *method = callee.bound->method;
    const tx_jinja_call call = {tx_jinja_method_find, &r->arena, callee.bound->self, at, count, method->form};
    return method->function(&call);
}

tx_jinja_value tx_jinja_call_node(tx_jinja_run *r, const tx_jinja_node *node, const tx_jinja_macro *caller)
{
    tx_jinja_argument at[MOST_ARGUMENTS + 1];
    const tx_jinja_value callee = tx_jinja_evaluate(r, node->a);
    size_t count = arguments_of(r, node, at);
    if (caller)
        at[count++] = (tx_jinja_argument){{.bytes = "caller", .size = 6}, {TX_JINJA_MACRO, {.macro = caller}}};
    r->arena.line = node->line;
    if (!r->arena.status && callee.kind == TX_JINJA_UNDEFINED)
        return tx_jinja_fail(&r->arena, TX_FORMAT, "'%.*s' is undefined", (int)node->a->name.size, node->a->name.bytes);
    return r->arena.status ? TX_JINJA_NOTHING : call(r, callee, at, count);
}

/* Applies a filter or a test to `self`. */
static tx_jinja_value apply(tx_jinja_run *r, const tx_jinja_node *node, tx_jinja_value self)
{
    tx_jinja_argument at[MOST_ARGUMENTS];
    const int form = node->method ? node->method->form : 0;
    const tx_jinja_call call = {tx_jinja_method_find, &r->arena, self, at, arguments_of(r, node, at), form};
    r->arena.line = node->line;
    if (!node->method && !r->arena.status)
        return tx_jinja_fail(&r->arena, TX_UNSUPPORTED, "there is no %s %.*s",
                             node->kind == TX_JINJA_FILTER ? "filter" : "test", (int)node->name.size, node->name.bytes);
    return r->arena.status ? TX_JINJA_NOTHING : node->method->function(&call);
}

tx_jinja_value tx_jinja_evaluate_filters(tx_jinja_run *r, const tx_jinja_node *node, tx_jinja_value text)
{
    const bool goes_on = tx_jinja_deeper(r);
    if (goes_on && node->a)
        text = tx_jinja_evaluate_filters(r, node->a, text);
    r->depth--;
    return goes_on ? tx_jinja_keep_value(&r->arena, apply(r, node, text)) : TX_JINJA_NOTHING;
}

/* ---- Nodes ---------------------------------------------------------------------------------------------- */

static tx_jinja_value list_of(tx_jinja_run *r, const tx_jinja_node *node)
{
    const tx_jinja_value result =
        tx_jinja_keep_value(&r->arena, tx_jinja_list_new(&r->arena, node->kind == TX_JINJA_TUPLE_NODE));
    for (const tx_jinja_node *n = node->args; n && !r->arena.status; n = n->next)
        tx_jinja_append(&r->arena, result.list, tx_jinja_evaluate(r, n->a));
    return result;
}

static tx_jinja_value dict_of(tx_jinja_run *r, const tx_jinja_node *node)
{
    const tx_jinja_value result = tx_jinja_keep_value(&r->arena, tx_jinja_dict_new(&r->arena));
    for (const tx_jinja_node *n = node->args; n && !r->arena.status; n = n->next) {
        const tx_jinja_value key = tx_jinja_evaluate(r, n->a);
        tx_jinja_put(&r->arena, result.dict, key, tx_jinja_evaluate(r, n->b));
    }
    return result;
}

static tx_jinja_value condition(tx_jinja_run *r, const tx_jinja_node *node)
{
    if (tx_jinja_truth(tx_jinja_evaluate(r, node->b)))
        return tx_jinja_evaluate(r, node->a);
    return node->c ? tx_jinja_evaluate(r, node->c) : TX_JINJA_NOTHING;
}

/* Evaluates a node with an operand `a`, which is evaluated first. */
static tx_jinja_value evaluate_of(tx_jinja_run *r, const tx_jinja_node *node)
{
    const tx_jinja_value a = tx_jinja_evaluate(r, node->a);
    if (r->arena.status)
        return TX_JINJA_NOTHING;
    switch (node->kind) {
    case TX_JINJA_ATTRIBUTE:
        return is_there(r, a, node) ? attribute(r, a, &node->name) : TX_JINJA_NOTHING;
    case TX_JINJA_ITEM:
        return is_there(r, a, node) ? item(r, a, tx_jinja_evaluate(r, node->b)) : TX_JINJA_NOTHING;
    case TX_JINJA_SLICE:
        return is_there(r, a, node) ? slice(r, node, a) : TX_JINJA_NOTHING;
    case TX_JINJA_FILTER:
    case TX_JINJA_TEST:
        return apply(r, node, a);
    case TX_JINJA_NOT:
        return tx_jinja_bool(!tx_jinja_truth(a));
    case TX_JINJA_NEGATE:
        return negated(r, a);
    case TX_JINJA_AND:
        return tx_jinja_truth(a) ? tx_jinja_evaluate(r, node->b) : a;
    case TX_JINJA_OR:
        return tx_jinja_truth(a) ? a : tx_jinja_evaluate(r, node->b);
    default:
        return binary(r, node->op, a, tx_jinja_evaluate(r, node->b));
    }
}

static tx_jinja_value evaluate(tx_jinja_run *r, const tx_jinja_node *node)
{
    switch (node->kind) {
    case TX_JINJA_LITERAL:
        return node->literal;
    case TX_JINJA_NAME:
        return look_up(r, &node->name);
    case TX_JINJA_LIST_NODE:
    case TX_JINJA_TUPLE_NODE:
        return list_of(r, node);
    case TX_JINJA_DICT_NODE:
        return dict_of(r, node);
    case TX_JINJA_CALL:
        return tx_jinja_call_node(r, node, NULL);
    case TX_JINJA_COMPARE:
        return comparison(r, node);
    case TX_JINJA_CONDITION:
        return condition(r, node);
    default:
        return evaluate_of(r, node);
    }
}

#define MOST_DEPTH 1000 /* of nested expressions and of macros that call each other */

bool tx_jinja_deeper(tx_jinja_run *r)
{
    if (++r->depth > MOST_DEPTH)
        tx_jinja_fail(&r->arena, TX_UNSUPPORTED,
                      "its expressions are nested, or its macros call each other, too deeply");
    return tx_jinja_step(&r->arena, 1);
}

tx_jinja_value tx_jinja_evaluate(tx_jinja_run *r, const tx_jinja_node *node)
{
    const tx_jinja_value result = tx_jinja_deeper(r) ? evaluate(r, node) : TX_JINJA_NOTHING;
    r->depth--;
    return tx_jinja_keep_value(&r->arena, result);
}
