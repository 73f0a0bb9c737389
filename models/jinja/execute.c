/* SPDX-License-Identifier: Apache-2.0
 * Executes the statements of a template, and renders it. */
#include "models/jinja/run.h"

#include <stdlib.h>
#include <string.h>

/* ---- Scopes --------------------------------------------------------------------------------------------- */

tx_jinja_scope *tx_jinja_scope_new(tx_jinja_run *r, tx_jinja_scope *parent)
{
    tx_jinja_scope *scope = tx_jinja_take(&r->arena, 1, sizeof *scope);
    if (!scope)
        return NULL;
    scope->parent = parent;
    tx_jinja_keep(&r->arena, scope);
    return scope;
}

void tx_jinja_set(tx_jinja_run *r, tx_jinja_scope *scope, tx_jinja_string name, tx_jinja_value value)
{
    for (size_t i = 0; i < scope->count; i++)
        if (scope->at[i].name.size == name.size && memcmp(scope->at[i].name.bytes, name.bytes, name.size) == 0) {
            scope->at[i].value = value;
            return;
        }
    if (scope->count == scope->room) {
        const size_t more = scope->room ? 2 * scope->room : 4;
        tx_jinja_argument *at = tx_jinja_take(&r->arena, more, sizeof *at);
        if (!at)
            return;
        if (scope->count)
            memcpy(at, scope->at, scope->count * sizeof *at);
        scope->at = at;
        scope->room = more;
    }
    scope->at[scope->count++] = (tx_jinja_argument){name, value};
}

tx_jinja_value tx_jinja_capture(tx_jinja_run *r, const tx_jinja_node *body, tx_jinja_scope *scope, uint8_t more)
{
    tx_jinja_scope *outer = r->scope;
    tx_jinja_sink sink = tx_jinja_sink_of(&r->arena), *out = r->out;
    if (!scope)
        return TX_JINJA_NOTHING;
    sink.more = more;
    r->scope = scope;
    r->out = &sink;
    tx_jinja_execute(r, body);
    r->scope = outer;
    r->out = out;
    return tx_jinja_written(&r->arena, &sink);
}

/* ---- Targets -------------------------------------------------------------------------------------------- */

static void set_attribute(tx_jinja_run *r, const tx_jinja_node *target, tx_jinja_value value)
{
    const tx_jinja_value of = tx_jinja_evaluate(r, target->a);
    const tx_jinja_value name = {TX_JINJA_STRING, {.string = (tx_jinja_string *)&target->name}};
    r->arena.line = target->line;
    if (of.kind != TX_JINJA_NAMESPACE)
        tx_jinja_fail(&r->arena, TX_FORMAT, "only a namespace has attributes that can be set");
    else if (target->name.bytes[0] == '_')
        tx_jinja_fail(&r->arena, TX_FORMAT, "a namespace has no attribute that begins with \"_\"");
    else
        tx_jinja_put(&r->arena, of.dict, name, value);
}

static void assign(tx_jinja_run *r, const tx_jinja_node *target, tx_jinja_value value)
{
    if (r->arena.status)
        return;
    if (target->kind == TX_JINJA_NAME) {
        tx_jinja_set(r, r->scope, target->name, value);
    } else if (target->kind == TX_JINJA_ATTRIBUTE) {
        set_attribute(r, target, value);
    } else {
        const tx_jinja_list *list = tx_jinja_elements(&r->arena, value);
        size_t i = 0;
        for (const tx_jinja_node *n = target->args; n && list; n = n->next, i++)
            if (i < list->count)
                assign(r, n->a, list->at[i]);
        r->arena.line = target->line;
        if (list && i != list->count)
            tx_jinja_fail(&r->arena, TX_FORMAT, "%zu values for %zu names", list->count, i);
    }
}

/* ---- Loops ---------------------------------------------------------------------------------------------- */

/* Records the bytes that the body of a loop wrote for a message. */
static void note_turn(tx_jinja_run *r, tx_jinja_value item, size_t begin)
{
    tx_jinja_text *t = r->text;
    const size_t end = r->whole.bytes.size;
    if (r->arena.status || r->out != &r->whole || item.kind != TX_JINJA_DICT || !item.dict->message || end == begin)
        return;
    const size_t room = t->room;
    r->arena.status = tx_array_reserve(&t->turn, &t->room, t->turns + 1, sizeof *t->turn, "turns");
    if (!r->arena.status && tx_jinja_charge(&r->arena, (t->room - room) * sizeof *t->turn))
        t->turn[t->turns++] = (tx_jinja_turn){item.dict->message - 1, begin, end};
}

/* Makes `loop`. turn_loop sets its first eight members for each element. depth belongs to recursive loops. */
static tx_jinja_dict *make_loop(tx_jinja_run *r, size_t count)
{
    static const char *const names[] = {"index",    "index0",   "revindex", "revindex0", "first", "last",
                                        "previtem", "nextitem", "length",   "depth",     "depth0"};
    const tx_jinja_value result = tx_jinja_dict_new(&r->arena);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !r->arena.status; i++)
        tx_jinja_put(&r->arena, result.dict, tx_jinja_share(&r->arena, names[i], strlen(names[i]), NULL, 0),
                     tx_jinja_integer(i == 8 ? (int64_t)count : i == 9));
    return r->arena.status ? NULL : result.dict;
}

/* Sets the first members of a loop, in the order of make_loop. */
static void turn_loop(tx_jinja_dict *loop, const tx_jinja_list *list, size_t i)
{
    const int64_t index = (int64_t)i, left = (int64_t)(list->count - i);
    const tx_jinja_value values[] = {
        tx_jinja_integer(index + 1),
        tx_jinja_integer(index),
        tx_jinja_integer(left),
        tx_jinja_integer(left - 1),
        tx_jinja_bool(i == 0),
        tx_jinja_bool(left == 1),
        i ? list->at[i - 1] : TX_JINJA_NOTHING,
        left > 1 ? list->at[i + 1] : TX_JINJA_NOTHING,
    };
    for (size_t k = 0; k < sizeof values / sizeof values[0]; k++)
        loop->at[k].value = values[k];
}

/* The elements for which the loop's condition holds. */
static const tx_jinja_list *chosen(tx_jinja_run *r, const tx_jinja_node *node, const tx_jinja_list *list)
{
    tx_jinja_scope *outer = r->scope;
    const tx_jinja_value result = tx_jinja_keep_value(&r->arena, tx_jinja_list_new(&r->arena, false));
    tx_jinja_scope *own = tx_jinja_scope_new(r, outer);
    const size_t keeps = r->arena.keeps;
    for (size_t i = 0; i < list->count && own && tx_jinja_step(&r->arena, 1); i++) {
        r->arena.keeps = keeps;
        r->scope = own;
        own->count = 0;
        assign(r, node->a, list->at[i]);
        if (!r->arena.status && tx_jinja_truth(tx_jinja_evaluate(r, node->c)))
            tx_jinja_append(&r->arena, result.list, list->at[i]);
    }
    r->scope = outer;
    return r->arena.status ? NULL : result.list;
}

static void execute_for(tx_jinja_run *r, const tx_jinja_node *node)
{
    const tx_jinja_value of = tx_jinja_evaluate(r, node->b);
    const tx_jinja_list *list = r->arena.status ? NULL : tx_jinja_elements(&r->arena, of);
    tx_jinja_keep(&r->arena, list);
    if (list && node->c)
        list = chosen(r, node, list);
    if (!list)
        return;
    tx_jinja_scope *outer = r->scope, *own = tx_jinja_scope_new(r, outer);
    tx_jinja_dict *loop = make_loop(r, list->count);
    tx_jinja_keep(&r->arena, loop);
    const size_t keeps = r->arena.keeps;
    for (size_t i = 0; i < list->count && loop && own && tx_jinja_step(&r->arena, 1); i++) {
        const size_t begin = r->whole.bytes.size;
        r->arena.keeps = keeps;
        r->scope = own;
        own->count = 0;
        turn_loop(loop, list, i);
        tx_jinja_set(r, r->scope, (tx_jinja_string){.bytes = "loop", .size = 4},
                     (tx_jinja_value){TX_JINJA_NAMESPACE, {.dict = loop}});
        assign(r, node->a, list->at[i]);
        tx_jinja_execute(r, node->args);
        note_turn(r, list->at[i], begin);
        const bool breaks = r->leaves == TX_JINJA_BREAKS;
        r->leaves = TX_JINJA_STAYS;
        if (breaks)
            break;
    }
    if (own)
        own->count = 0; /* its variables end here, also for a macro that was made inside */
    r->scope = outer;
    if (!list->count)
        tx_jinja_execute(r, node->d);
}

/* ---- Other statements ------------------------------------------------------------------------------------- */

static const tx_jinja_macro *make_macro(tx_jinja_run *r, const tx_jinja_node *node)
{
    tx_jinja_macro *macro = tx_jinja_take(&r->arena, 1, sizeof *macro);
    if (macro)
        *macro = (tx_jinja_macro){node->a, node->args, node->name, r->scope};
    tx_jinja_keep(&r->arena, macro);
    return macro;
}

static void execute_with(tx_jinja_run *r, const tx_jinja_node *node)
{
    tx_jinja_scope *outer = r->scope, *inner = tx_jinja_scope_new(r, outer);
    for (const tx_jinja_node *n = node->a; n && inner && !r->arena.status; n = n->next)
        tx_jinja_set(r, inner, n->a->name, tx_jinja_evaluate(r, n->b));
    r->scope = inner ? inner : outer;
    tx_jinja_execute(r, node->args);
    r->scope = outer;
}

/* Executes a block `generation` in its own scope. It writes to the current output, so that turns inside are recorded.
 */
static void execute_generation(tx_jinja_run *r, const tx_jinja_node *node)
{
    tx_jinja_scope *outer = r->scope;
    const uint8_t more = r->out->more;
    r->scope = tx_jinja_scope_new(r, outer);
    if (r->scope) {
        r->out->more |= TX_JINJA_GENERATION;
        tx_jinja_execute(r, node->args);
        r->out->more = more;
    }
    r->scope = outer;
}

static void execute_block(tx_jinja_run *r, const tx_jinja_node *node)
{
    tx_jinja_value text = tx_jinja_capture(r, node->args, tx_jinja_scope_new(r, r->scope), 0);
    tx_jinja_keep_value(&r->arena, text);
    if (node->b && !r->arena.status)
        text = tx_jinja_evaluate_filters(r, node->b, text);
    if (node->kind == TX_JINJA_SET_BLOCK)
        assign(r, node->a, text);
    else if (!r->arena.status)
        tx_jinja_write_value(&r->arena, r->out, text);
}

static void execute_one(tx_jinja_run *r, const tx_jinja_node *node)
{
    tx_jinja_value value;
    const tx_jinja_macro *macro;
    switch (node->kind) {
    case TX_JINJA_DATA:
        tx_jinja_write_string(r->out, node->literal.string);
        break;
    case TX_JINJA_OUTPUT:
        value = tx_jinja_evaluate(r, node->a);
        if (!r->arena.status)
            tx_jinja_write_value(&r->arena, r->out, value);
        break;
    case TX_JINJA_IF:
        tx_jinja_execute(r, tx_jinja_truth(tx_jinja_evaluate(r, node->a)) ? node->args : node->d);
        break;
    case TX_JINJA_FOR:
        execute_for(r, node);
        break;
    case TX_JINJA_SET:
        assign(r, node->a, tx_jinja_evaluate(r, node->b));
        break;
    case TX_JINJA_SET_BLOCK:
    case TX_JINJA_FILTER_BLOCK:
        execute_block(r, node);
        break;
    case TX_JINJA_MACRO_NODE:
        macro = make_macro(r, node);
        tx_jinja_set(r, r->scope, node->name, (tx_jinja_value){TX_JINJA_MACRO, {.macro = macro}});
        break;
    case TX_JINJA_CALL_BLOCK:
        macro = make_macro(r, node);
        value = macro ? tx_jinja_call_node(r, node->b, macro) : TX_JINJA_NOTHING;
        if (!r->arena.status)
            tx_jinja_write_value(&r->arena, r->out, value);
        break;
    case TX_JINJA_WITH:
        execute_with(r, node);
        break;
    case TX_JINJA_GENERATION_BLOCK:
        execute_generation(r, node);
        break;
    default:
        r->leaves = node->kind == TX_JINJA_BREAK ? TX_JINJA_BREAKS : TX_JINJA_CONTINUES;
    }
}

void tx_jinja_execute(tx_jinja_run *r, const tx_jinja_node *body)
{
    const size_t keeps = r->arena.keeps;
    tx_jinja_deeper(r);
    for (const tx_jinja_node *n = body; n && !r->leaves && tx_jinja_step(&r->arena, 1); n = n->next) {
        r->arena.line = n->line;
        execute_one(r, n);
        if (!r->arena.status)
            r->arena.status = r->out->bytes.status ? r->out->bytes.status : r->out->flags.status;
        r->arena.keeps = keeps;
        tx_jinja_collect(&r->arena);
    }
    r->depth--;
}

/* ---- Rendering ------------------------------------------------------------------------------------------ */

void tx_jinja_text_free(tx_jinja_text *text)
{
    free(text->bytes.data);
    free(text->flags.data);
    free(text->turn);
    *text = (tx_jinja_text){0};
}

static void set_variables(tx_jinja_run *r, const tx_json *json, uint8_t flags)
{
    for (void *i = tx_json_first(json); i && !r->arena.status; i = tx_json_next(json, i)) {
        const char *key = tx_json_key(i);
        const tx_jinja_value value = tx_jinja_from_json(&r->arena, tx_json_value(i), flags);
        if (r->arena.status)
            return;
        for (size_t k = 0; value.kind == TX_JINJA_LIST && k < value.list->count && !strcmp(key, "messages"); k++)
            if (value.list->at[k].kind == TX_JINJA_DICT)
                value.list->at[k].dict->message = k + 1;
        tx_jinja_set(r, r->scope, (tx_jinja_string){.bytes = key, .size = strlen(key)}, value);
    }
}

/* They are fixed, so that a larger request does not get more of them. 16,000 turns of 4 MB in all need 60 MiB, and a
 * tenth of the steps with most templates. */
#define MOST_STEPS 300000000u
#define MOST_BYTES ((size_t)1 << 27)

tx_status tx_jinja_render(const tx_jinja *jinja, const tx_json *said, const tx_json *given, tx_jinja_text *text)
{
    tx_jinja_run r = {.arena = {.limit = MOST_BYTES, .most_steps = MOST_STEPS, .line = 1}, .text = text};
    text->turns = 0;
    tx_buffer_clear(&text->bytes);
    tx_buffer_clear(&text->flags);
    r.whole = tx_jinja_sink_of(&r.arena);
    r.scope = tx_jinja_scope_new(&r, NULL);
    if (r.scope) {
        set_variables(&r, said, TX_JINJA_SAID);
        set_variables(&r, given, 0);
    }
    r.arena.collects = true;
    r.scope = r.scope ? tx_jinja_scope_new(&r, r.scope) : NULL; /* the template's own variables */
    r.whole.bytes = text->bytes;
    r.whole.flags = text->flags;
    r.out = &r.whole;
    if (r.scope)
        tx_jinja_execute(&r, jinja->body);
    text->bytes = r.whole.bytes;
    text->flags = r.whole.flags;
    tx_jinja_arena_free(&r.arena);
    return r.arena.status;
}
