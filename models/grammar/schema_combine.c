/* SPDX-License-Identifier: Apache-2.0
 * Combines schemas: references, alternatives, and several that hold together. */
#include "models/grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Parts ----------------------------------------------------------------------------------------------- */

tx_status tx_schema_compile_part(tx_schema_compiler *c, const char *keyword, const char *name, const tx_json *part,
                                 uint32_t *e)
{
    const size_t size = strlen(c->path);
    snprintf(c->path + size, sizeof c->path - size, "/%.60s%s%.60s", keyword, *name ? "/" : "", name);
    const tx_status status = c->compile(c, part, e);
    if (!status) /* a failure keeps the path for its message */
        c->path[size] = 0;
    return status;
}

/* ---- References ------------------------------------------------------------------------------------------ */

/* Follows a JSON pointer (RFC 6901) from the root. */
static const tx_json *follow(const tx_schema_compiler *c, const char *ref)
{
    const tx_json *at = *ref == '#' && (!ref[1] || ref[1] == '/') ? c->root : NULL;
    for (const char *part = ref + 1; at && *part == '/';) {
        char name[256];
        size_t size = 0;
        for (part++; *part && *part != '/' && size + 1 < sizeof name; part++) {
            const bool tilde = *part == '~' && (part[1] == '0' || part[1] == '1');
            part += tilde;
            name[size++] = !tilde ? *part : *part == '0' ? '~' : '/';
        }
        name[size] = 0;
        const bool list = tx_json_type_of(at) == TX_JSON_ARRAY;
        at = *part && *part != '/' ? NULL : list ? tx_json_at(at, strtoul(name, NULL, 10)) : tx_json_find(at, name);
    }
    return at;
}

static tx_status find_target(const tx_schema_compiler *c, const tx_json *schema, const tx_json **target,
                             const char **ref)
{
    TX_TRY(tx_json_get_string(schema, "$ref", ref));
    *target = follow(c, *ref);
    return *target ? TX_OK : tx_fail(TX_INVALID, "schema %s: $ref %.100s: there is no such schema here", c->path, *ref);
}

tx_status tx_schema_compile_ref(tx_schema_compiler *c, const tx_json *schema, uint32_t *e)
{
    const tx_json *target;
    const char *ref;
    size_t i = 0;
    TX_TRY(tx_schema_check_alone(c, schema, "$ref", ""));
    TX_TRY(find_target(c, schema, &target, &ref));
    while (i < c->targets && c->target[i].schema != target)
        i++;
    if (i == TX_SCHEMA_TARGETS)
        return tx_schema_complain(c, TX_INVALID, "$ref", "names too many schemas");
    if (i == c->targets) {
        c->target[i].schema = target;
        c->target[i].ref = ref;
        c->target[c->targets++].rule = tx_grammar_rule(c->g);
    }
    *e = tx_expr_rule(c->g, c->target[i].rule);
    return TX_OK;
}

/* ---- Combinations ---------------------------------------------------------------------------------------- */

tx_status tx_schema_compile_any(tx_schema_compiler *c, const tx_json *schema, const char *keyword, uint32_t *e)
{
    tx_json *list;
    uint32_t one;
    *e = TX_NEVER;
    TX_TRY(tx_schema_check_alone(c, schema, keyword, ""));
    TX_TRY(tx_json_get(schema, keyword, TX_JSON_ARRAY, &list));
    for (size_t i = 0; i < tx_json_size(list); i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        TX_TRY(tx_schema_compile_part(c, keyword, number, tx_json_at(list, i), &one));
        *e = tx_expr_alt(c->g, *e, one);
    }
    return TX_OK;
}

static bool is_same(const tx_json *a, const tx_json *b)
{
    char *one = tx_json_text(a, TX_JSON_SORTED), *two = tx_json_text(b, TX_JSON_SORTED);
    const bool same = one && two && strcmp(one, two) == 0;
    free(one);
    free(two);
    return same;
}

/* Adds a member to `all`, which must be equal if `all` has it. */
static tx_status add_member(const tx_schema_compiler *c, tx_json *all, const char *key, const tx_json *value)
{
    const tx_json *old = tx_json_find(all, key);
    if (!old)
        return tx_json_set(all, key, tx_json_copy(value));
    return is_same(old, value) ? TX_OK
                               : tx_schema_complain(c, TX_UNSUPPORTED, key, "differs between the schemas of allOf");
}

/* Adds the members of a schema to `all`: properties and required join, others must be equal. */
static tx_status merge(const tx_schema_compiler *c, tx_json *all, const tx_json *schema)
{
    for (void *m = tx_json_first(schema); m; m = tx_json_next(schema, m)) {
        const char *key = tx_json_key(m);
        const tx_json *value = tx_json_value(m);
        tx_json *old = tx_json_find(all, key);
        const bool joins = old && tx_json_type_of(old) == tx_json_type_of(value);
        if (strcmp(key, "allOf") == 0 || tx_schema_describes(key) || (old && is_same(old, value)))
            continue;
        if (strcmp(key, "additionalProperties") == 0)
            return tx_schema_complain(c, TX_UNSUPPORTED, key, "is not supported in allOf");
        if (joins && strcmp(key, "properties") == 0)
            for (void *p = tx_json_first(value); p; p = tx_json_next(value, p))
                TX_TRY(add_member(c, old, tx_json_key(p), tx_json_value(p)));
        else if (joins && strcmp(key, "required") == 0)
            for (size_t i = 0; i < tx_json_size(value); i++)
                TX_TRY(tx_json_append(old, tx_json_copy(tx_json_at(value, i))));
        else
            TX_TRY(add_member(c, all, key, value));
    }
    return TX_OK;
}

tx_status tx_schema_compile_all(tx_schema_compiler *c, const tx_json *schema, uint32_t *e)
{
    tx_json *list, *all;
    TX_TRY(tx_json_get(schema, "allOf", TX_JSON_ARRAY, &list));
    if (tx_json_size(list) == 1 && !tx_schema_check_alone(c, schema, "allOf", ""))
        return tx_schema_compile_part(c, "allOf", "0", tx_json_at(list, 0), e);
    if (c->merges == TX_SCHEMA_MERGED)
        return tx_schema_complain(c, TX_INVALID, "allOf", "occurs too often");
    all = c->merged[c->merges++] = tx_json_object(); /* freed at the end: targets may point into it */
    TX_TRY(merge(c, all, schema));
    for (size_t i = 0; i < tx_json_size(list); i++) {
        const tx_json *part = tx_json_at(list, i);
        const char *ref;
        for (int depth = 0; tx_json_has(part, "$ref") && depth < TX_JSON_DEPTH; depth++)
            TX_TRY(find_target(c, part, &part, &ref));
        if (tx_json_type_of(part) != TX_JSON_OBJECT || tx_json_has(part, "allOf") || tx_json_has(part, "$ref"))
            return tx_schema_complain(c, TX_UNSUPPORTED, "allOf",
                                      "is only supported for schemas without allOf and true");
        TX_TRY(merge(c, all, part));
    }
    return c->compile(c, all, e);
}
