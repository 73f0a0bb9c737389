/* SPDX-License-Identifier: Apache-2.0
 * The keywords of JSON schemas. */
#include "models/grammar/schema.h"

#include <stdio.h>
#include <string.h>

/* Keywords that TX enforces, by the types that they limit. Those of no type only describe. */
static const struct {
    int types;
    const char *names;
} keywords[] = {
    {0,
     " $schema $id $anchor $comment $defs definitions title description default example examples deprecated readOnly "
     "writeOnly "},
    {TX_SCHEMA_ANY, " type enum const anyOf oneOf allOf $ref "},
    {TX_SCHEMA_OBJECT, " properties required additionalProperties "},
    {TX_SCHEMA_ARRAY, " items prefixItems minItems maxItems "},
    {TX_SCHEMA_STRING, " minLength maxLength pattern format "},
    {TX_SCHEMA_INTEGER | TX_SCHEMA_NUMBER, " minimum maximum exclusiveMinimum exclusiveMaximum "},
};

tx_status tx_schema_complain(const tx_schema_compiler *c, tx_status status, const char *keyword, const char *what)
{
    return tx_fail(status, "schema %s: %.60s %s", c->path, keyword, what);
}

/* The row of a keyword, or -1. */
static int find(const char *name)
{
    char word[64];
    int row = (int)(sizeof keywords / sizeof keywords[0]) - 1;
    snprintf(word, sizeof word, " %.60s ", name);
    while (row >= 0 && !strstr(keywords[row].names, word))
        row--;
    return row;
}

bool tx_schema_describes(const char *keyword)
{
    return find(keyword) == 0;
}

tx_status tx_schema_check_keywords(const tx_schema_compiler *c, const tx_json *schema, int *limited)
{
    *limited = 0;
    for (void *m = tx_json_first(schema); m; m = tx_json_next(schema, m)) {
        const int row = find(tx_json_key(m));
        bool unique = true;
        if (row < 0 && strcmp(tx_json_key(m), "uniqueItems") == 0)
            TX_TRY(tx_json_as_bool(tx_json_value(m), "uniqueItems", &unique));
        if (row < 0 && unique)
            return tx_schema_complain(c, TX_UNSUPPORTED, tx_json_key(m), "is not supported: leave it out");
        if (row > 1)
            *limited |= keywords[row].types;
    }
    return TX_OK;
}

tx_status tx_schema_check_alone(const tx_schema_compiler *c, const tx_json *schema, const char *keyword,
                                const char *also)
{
    for (void *m = tx_json_first(schema); m; m = tx_json_next(schema, m)) {
        const int row = find(tx_json_key(m));
        if (row > 0 && strcmp(tx_json_key(m), keyword) != 0 && strcmp(tx_json_key(m), also) != 0)
            return tx_schema_complain(c, TX_UNSUPPORTED, tx_json_key(m),
                                      "is not supported next to $ref, anyOf, oneOf, enum or const");
    }
    return TX_OK;
}
