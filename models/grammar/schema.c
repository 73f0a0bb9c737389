/* SPDX-License-Identifier: Apache-2.0
 * Makes a grammar of a JSON schema. Each schema becomes an expression of JSON; schemas that $ref names become rules,
 * which are made one after another, so that a chain of references needs no recursion. */
#include "models/grammar/schema.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most properties of an object. */
enum { PROPERTIES = 1024 };

static uint32_t text(tx_schema_compiler *c, const char *literal)
{
    return tx_expr_text(c->g, literal, strlen(literal));
}

static uint32_t seq3(tx_schema_compiler *c, uint32_t one, uint32_t two, uint32_t three)
{
    return tx_expr_seq(c->g, one, tx_expr_seq(c->g, two, three));
}

/* ---- Values ---------------------------------------------------------------------------------------------- */

static int type_of_value(const tx_json *value)
{
    static const int types[] = {TX_SCHEMA_NULL,   TX_SCHEMA_BOOLEAN, TX_SCHEMA_INTEGER | TX_SCHEMA_NUMBER,
                                TX_SCHEMA_NUMBER, TX_SCHEMA_STRING,  TX_SCHEMA_ARRAY,
                                TX_SCHEMA_OBJECT};
    return types[tx_json_type_of(value)];
}

/* The value itself, if it has one of the types. */
static tx_status add_value(tx_schema_compiler *c, const tx_json *value, int types, uint32_t *e)
{
    if (!(type_of_value(value) & types))
        return TX_OK;
    char *json = tx_json_text(value, TX_JSON_LINE);
    if (!json)
        return TX_MEMORY;
    *e = tx_expr_alt(c->g, *e, text(c, json));
    free(json);
    return TX_OK;
}

static tx_status compile_constant(tx_schema_compiler *c, const tx_json *schema, int types, uint32_t *e)
{
    const char *keyword = tx_json_find(schema, "const") ? "const" : "enum";
    tx_json *list;
    *e = TX_NEVER;
    TX_TRY(tx_schema_check_alone(c, schema, keyword, "type"));
    if (*keyword == 'c')
        return add_value(c, tx_json_find(schema, "const"), types, e);
    TX_TRY(tx_json_get(schema, "enum", TX_JSON_ARRAY, &list));
    for (size_t i = 0; i < tx_json_size(list); i++)
        TX_TRY(add_value(c, tx_json_at(list, i), types, e));
    return TX_OK;
}

/* Reads the bounds of a repetition. */
static tx_status read_bounds(const tx_schema_compiler *c, const tx_json *schema, const char *least, const char *most,
                             uint32_t *from, uint32_t *to)
{
    int64_t low = 0, high = -1;
    const tx_status status = TX_JSON_OPTIONAL(int, schema, least, 0, TX_GRAMMAR_REPEATS, &low);
    if (status || TX_JSON_OPTIONAL(int, schema, most, 0, INT64_MAX, &high))
        return tx_fail(TX_INVALID, "schema %s: %s and %s are whole numbers, and the first is at most %d", c->path,
                       least, most, TX_GRAMMAR_REPEATS);
    if (high >= 0 && high < low)
        return tx_schema_complain(c, TX_INVALID, most, "is below the smallest");
    *from = (uint32_t)low;
    *to = high < 0 || high > TX_GRAMMAR_REPEATS ? TX_GRAMMAR_FOREVER : (uint32_t)high;
    return high <= TX_GRAMMAR_REPEATS ? TX_OK : tx_schema_complain(c, TX_INVALID, most, "is above 65536: leave it out");
}

static tx_status compile_string(tx_schema_compiler *c, const tx_json *schema, uint32_t *e)
{
    const bool pattern = tx_json_has(schema, "pattern"), format = tx_json_has(schema, "format");
    const bool length = tx_json_has(schema, "minLength") || tx_json_has(schema, "maxLength");
    const char *expression = NULL;
    uint32_t least, most;
    tx_status status = TX_OK;
    if (pattern + format + length > 1)
        return tx_schema_complain(c, TX_UNSUPPORTED, pattern ? "pattern" : "format",
                                  "is not supported next to another keyword that limits the string");
    if (pattern || format)
        TX_TRY(tx_json_get_string(schema, pattern ? "pattern" : "format", &expression));
    TX_TRY(read_bounds(c, schema, "minLength", "maxLength", &least, &most));
    if (pattern)
        status = tx_grammar_regex(c->g, expression, strlen(expression), TX_IN_JSON, true, e);
    else if (format)
        status = tx_expr_format(c->g, expression, e);
    else
        *e = tx_expr_loop(c->g, c->json.letter, least, most);
    TX_TRY(tx_fail_in(status, "schema %s", c->path));
    *e = seq3(c, text(c, "\""), *e, text(c, "\""));
    return TX_OK;
}

static tx_status compile_number(tx_schema_compiler *c, const tx_json *schema, bool integer, uint32_t *e)
{
    static const char *const names[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
    double bound[4] = {-INFINITY, -INFINITY, INFINITY, INFINITY};
    bool bounded = false;
    for (int i = 0; i < 4; i++) {
        TX_TRY(TX_JSON_OPTIONAL(number, schema, names[i], -HUGE_VAL, HUGE_VAL, &bound[i]));
        bounded = bounded || tx_json_has(schema, names[i]);
    }
    const double least = fmax(bound[0], floor(bound[1]) + 1.0), most = fmin(bound[2], ceil(bound[3]) - 1.0);
    *e = bounded ? tx_expr_numbers(c->g, least, most, !integer) : integer ? c->json.integer : c->json.number;
    return TX_OK;
}

static tx_status compile_array(tx_schema_compiler *c, const tx_json *schema, uint32_t *e)
{
    const tx_json *items = tx_json_find(schema, "items");
    tx_json *first = NULL;
    uint32_t least, most, item, all = TX_EMPTY;
    const uint32_t comma = tx_expr_seq(c->g, text(c, ","), c->json.space);
    TX_TRY(read_bounds(c, schema, "minItems", "maxItems", &least, &most));
    if (tx_json_has(schema, "prefixItems"))
        TX_TRY(tx_json_get(schema, "prefixItems", TX_JSON_ARRAY, &first));
    const size_t count = tx_json_size(first);
    if (count > most || (count && least > count)) /* all of the first are written, and no others */
        return tx_schema_complain(c, TX_UNSUPPORTED, "prefixItems", "is only supported with as many items");
    for (size_t i = count; i-- > 0;) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        TX_TRY(tx_schema_compile_part(c, "prefixItems", number, tx_json_at(first, i), &item));
        all = tx_expr_seq(c->g, i ? comma : TX_EMPTY, seq3(c, item, c->json.space, all));
    }
    if (!count) {
        item = c->json.value;
        if (items)
            TX_TRY(tx_schema_compile_part(c, "items", "", items, &item));
        item = tx_expr_seq(c->g, item, c->json.space);
        all = tx_expr_loop(c->g, tx_expr_seq(c->g, comma, item), least ? least - 1 : 0,
                           most == TX_GRAMMAR_FOREVER || !most ? most : most - 1);
        all = most ? tx_expr_seq(c->g, item, all) : TX_EMPTY;
        all = least ? all : tx_expr_alt(c->g, all, TX_EMPTY);
    }
    *e = tx_expr_seq(c->g, text(c, "["), seq3(c, c->json.space, all, text(c, "]")));
    return TX_OK;
}

/* ---- Objects --------------------------------------------------------------------------------------------- */

typedef struct properties {
    const char *name[PROPERTIES];
    uint32_t pair[PROPERTIES]; /* name, colon, value */
    bool required[PROPERTIES];
    size_t count;
    uint32_t other; /* the value of others, or NEVER */
} properties;

static tx_status add_property(tx_schema_compiler *c, properties *p, const char *name, uint32_t value)
{
    if (p->count == PROPERTIES)
        return tx_schema_complain(c, TX_INVALID, "properties", "are more than 1024");
    tx_json *json = tx_json_pack("s", name);
    char *quoted = tx_json_text(json, TX_JSON_LINE);
    tx_json_free(json);
    if (!quoted)
        return TX_MEMORY;
    const uint32_t key = seq3(c, text(c, quoted), text(c, ":"), c->json.space);
    free(quoted);
    p->name[p->count] = name;
    p->pair[p->count++] = seq3(c, key, value, c->json.space);
    return TX_OK;
}

static tx_status read_properties(tx_schema_compiler *c, const tx_json *schema, properties *p)
{
    const tx_json *others = tx_json_find(schema, "additionalProperties");
    tx_json *known = NULL, *required = NULL;
    uint32_t value;
    if (tx_json_has(schema, "properties"))
        TX_TRY(tx_json_get(schema, "properties", TX_JSON_OBJECT, &known));
    if (tx_json_has(schema, "required"))
        TX_TRY(tx_json_get(schema, "required", TX_JSON_ARRAY, &required));
    if (others)
        TX_TRY(tx_schema_compile_part(c, "additionalProperties", "", others, &p->other));
    for (void *m = tx_json_first(known); m; m = tx_json_next(known, m)) {
        TX_TRY(tx_schema_compile_part(c, "properties", tx_json_key(m), tx_json_value(m), &value));
        TX_TRY(add_property(c, p, tx_json_key(m), value));
    }
    for (size_t i = 0, k; i < tx_json_size(required); i++) {
        const char *name;
        TX_TRY(tx_json_as_string(tx_json_at(required, i), "required", &name));
        for (k = 0; k < p->count && strcmp(p->name[k], name) != 0;)
            k++;
        if (k == p->count) /* it has the schema of other properties */
            TX_TRY(add_property(c, p, name, others ? p->other : c->json.value));
        p->required[k] = true;
    }
    return TX_OK;
}

/* The members in their order: `first` follows no other, `rest` follows one. */
static uint32_t members(tx_schema_compiler *c, const properties *p)
{
    const uint32_t comma = tx_expr_seq(c->g, text(c, ","), c->json.space);
    uint32_t first = TX_EMPTY, rest = TX_EMPTY;
    if (p->other) {
        uint32_t key = tx_expr_other_key(c->g, &c->json, p->name, p->count);
        key = seq3(c, text(c, "\""), key, seq3(c, text(c, "\":"), c->json.space, p->other));
        key = tx_expr_seq(c->g, key, c->json.space);
        rest = tx_expr_loop(c->g, tx_expr_seq(c->g, comma, key), 0, TX_GRAMMAR_FOREVER);
        first = tx_expr_alt(c->g, TX_EMPTY, tx_expr_seq(c->g, key, rest));
    }
    for (size_t i = p->count; i-- > 0;) {
        const uint32_t begin = tx_expr_seq(c->g, p->pair[i], rest), after = seq3(c, comma, p->pair[i], rest);
        first = p->required[i] ? begin : tx_expr_alt(c->g, begin, first);
        rest = p->required[i] ? after : tx_expr_alt(c->g, after, rest);
    }
    return first;
}

static tx_status compile_object(tx_schema_compiler *c, const tx_json *schema, uint32_t *e)
{
    const bool any = !tx_json_find(schema, "properties") && !tx_json_find(schema, "required") &&
                     !tx_json_find(schema, "additionalProperties");
    properties *p = any ? NULL : calloc(1, sizeof *p);
    *e = c->json.object;
    if (any)
        return TX_OK;
    const tx_status status = p ? read_properties(c, schema, p) : tx_fail(TX_MEMORY, "no memory for a schema");
    if (!status)
        *e = tx_expr_seq(c->g, text(c, "{"), seq3(c, c->json.space, members(c, p), text(c, "}")));
    free(p);
    return status;
}

/* ---- Schemas --------------------------------------------------------------------------------------------- */

/* Reads the types of a schema; without `type` those that its keywords limit, or any. */
static tx_status read_types(const tx_schema_compiler *c, const tx_json *schema, int limited, int *types)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    const tx_json *type = tx_json_find(schema, "type");
    const bool list = tx_json_type_of(type) == TX_JSON_ARRAY;
    const size_t count = list ? tx_json_size(type) : type != NULL;
    *types = type ? 0 : limited ? limited & ~TX_SCHEMA_INTEGER : TX_SCHEMA_ANY;
    for (size_t i = 0; i < count; i++) {
        const char *name;
        int k = 0;
        TX_TRY(tx_json_as_string(list ? tx_json_at(type, i) : type, "type", &name));
        while (k < 7 && strcmp(name, names[k]) != 0)
            k++;
        if (k == 7)
            return tx_fail(TX_INVALID, "schema %s: there is no type %.40s", c->path, name);
        *types |= 1 << k;
    }
    return TX_OK;
}

static tx_status compile_types(tx_schema_compiler *c, const tx_json *schema, int types, uint32_t *e)
{
    uint32_t one = TX_NEVER;
    *e = TX_NEVER;
    if (types & TX_SCHEMA_NULL)
        *e = text(c, "null");
    if (types & TX_SCHEMA_BOOLEAN)
        *e = tx_expr_alt(c->g, *e, tx_expr_alt(c->g, text(c, "true"), text(c, "false")));
    if (types & (TX_SCHEMA_INTEGER | TX_SCHEMA_NUMBER))
        TX_TRY(compile_number(c, schema, !(types & TX_SCHEMA_NUMBER), &one));
    *e = tx_expr_alt(c->g, *e, one);
    if (types & TX_SCHEMA_STRING) {
        TX_TRY(compile_string(c, schema, &one));
        *e = tx_expr_alt(c->g, *e, one);
    }
    if (types & TX_SCHEMA_ARRAY) {
        TX_TRY(compile_array(c, schema, &one));
        *e = tx_expr_alt(c->g, *e, one);
    }
    if (types & TX_SCHEMA_OBJECT) {
        TX_TRY(compile_object(c, schema, &one));
        *e = tx_expr_alt(c->g, *e, one);
    }
    return TX_OK;
}

static tx_status compile(tx_schema_compiler *c, const tx_json *schema, uint32_t *e)
{
    int limited, types;
    bool holds = true;
    if (c->g->status)
        return tx_fail(c->g->status, "%s", c->g->error);
    if (tx_json_type_of(schema) == TX_JSON_BOOL) {
        TX_TRY(tx_json_as_bool(schema, "schema", &holds));
        *e = holds ? c->json.value : TX_NEVER;
        return TX_OK;
    }
    if (tx_json_type_of(schema) != TX_JSON_OBJECT)
        return tx_schema_complain(c, TX_INVALID, "", "a schema is an object, true or false");
    TX_TRY(tx_schema_check_keywords(c, schema, &limited));
    TX_TRY(read_types(c, schema, limited, &types));
    if (tx_json_find(schema, "allOf"))
        return tx_schema_compile_all(c, schema, e);
    if (tx_json_find(schema, "$ref"))
        return tx_schema_compile_ref(c, schema, e);
    if (tx_json_find(schema, "anyOf") || tx_json_find(schema, "oneOf"))
        return tx_schema_compile_any(c, schema, tx_json_find(schema, "anyOf") ? "anyOf" : "oneOf", e);
    if (tx_json_find(schema, "enum") || tx_json_find(schema, "const"))
        return compile_constant(c, schema, types, e);
    *e = c->json.value;
    return types == TX_SCHEMA_ANY && !limited ? TX_OK : compile_types(c, schema, types, e);
}

static tx_status check_size(const tx_json *schema)
{
    char *all = tx_json_text(schema, TX_JSON_LINE);
    const size_t size = all ? strlen(all) : 0;
    free(all);
    return !all ? TX_MEMORY
           : size <= TX_GRAMMAR_BYTES
               ? TX_OK
               : tx_fail(TX_INVALID, "the schema has %zu bytes, more than %d", size, TX_GRAMMAR_BYTES);
}

tx_status tx_grammar_schema(tx_grammar *g, const tx_json *schema, uint32_t *e)
{
    tx_schema_compiler *c = calloc(1, sizeof *c);
    if (!c)
        return tx_fail(TX_MEMORY, "no memory for a schema");
    c->g = g;
    c->compile = compile;
    c->root = schema;
    snprintf(c->path, sizeof c->path, "#");
    tx_status status = schema ? check_size(schema) : TX_OK;
    TX_THEN(status, tx_grammar_json(g, &c->json));
    if (schema)
        TX_THEN(status, compile(c, schema, e));
    else
        *e = c->json.object;
    for (size_t i = 0; i < c->targets && !status; i++) {
        uint32_t expr = TX_NEVER;
        snprintf(c->path, sizeof c->path, "%.200s", c->target[i].ref);
        status = compile(c, c->target[i].schema, &expr);
        if (!status && !g->status)
            g->rule[c->target[i].rule] = expr;
    }
    *e = tx_expr_seq(g, c->json.space, *e); /* some tokenizers begin an answer with a blank */
    while (c->merges > 0)
        tx_json_free(c->merged[--c->merges]);
    free(c);
    return status;
}
