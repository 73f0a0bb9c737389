/* SPDX-License-Identifier: Apache-2.0
 * Reads the constraints of requests: response_format as OpenAI, guided_json and others as vLLM, grammar and json_schema
 * as llama.cpp. */
#include "tools/serve/txserve.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *key;
    tx_grammar_kind kind;
} rows[] = {
    {"guided_json", TX_GRAMMAR_SCHEMA},   {"json_schema", TX_GRAMMAR_SCHEMA},  {"guided_regex", TX_GRAMMAR_REGEX},
    {"guided_choice", TX_GRAMMAR_CHOICE}, {"guided_grammar", TX_GRAMMAR_GBNF}, {"grammar", TX_GRAMMAR_GBNF},
};

/* Reads response_format. Returns its part, or one of no text if it is "text". */
static tx_status read_format(const tx_json *body, tx_grammar_part *part, bool *found)
{
    tx_json *format = NULL, *inner = NULL;
    const char *type = "";
    TX_TRY(tx_json_get(body, "response_format", TX_JSON_OBJECT, &format));
    TX_TRY(tx_fail_in(tx_json_get_string(format, "type", &type), "response_format"));
    *found = strcmp(type, "text") != 0;
    part->kind = TX_GRAMMAR_SCHEMA;
    if (strcmp(type, "json_object") == 0)
        part->json = tx_json_find(format, "schema"); /* of llama.cpp; or none */
    else if (strcmp(type, "json_schema") == 0)
        TX_TRY(tx_fail_in(tx_json_get(format, "json_schema", TX_JSON_OBJECT, &inner), "response_format"));
    else if (*found)
        return tx_fail(TX_INVALID, "response_format %.40s is not supported: use text, json_object or json_schema",
                       type);
    if (inner && !(part->json = tx_json_find(inner, "schema")))
        return tx_fail(TX_INVALID, "response_format: json_schema has no schema");
    return TX_OK;
}

tx_status serve_read_grammar(serve_call *c)
{
    tx_grammar_part part = {.kind = TX_GRAMMAR_SCHEMA};
    tx_json *owned = NULL;
    const char *key = NULL;
    bool found = false;
    if (tx_json_has(c->body, "response_format"))
        TX_TRY(read_format(c->body, &part, &found));
    key = found ? "response_format" : NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const tx_json *value = tx_json_find(c->body, rows[i].key);
        if (tx_json_type_of(value) == TX_JSON_NULL ||
            (tx_json_type_of(value) == TX_JSON_STRING && tx_json_is_empty(value)))
            continue;
        if (key)
            return tx_fail(TX_INVALID, "%s and %s exclude each other", key, rows[i].key);
        key = rows[i].key;
        part = (tx_grammar_part){.kind = rows[i].kind, .json = value};
        if (part.kind == TX_GRAMMAR_REGEX || part.kind == TX_GRAMMAR_GBNF)
            TX_TRY(tx_json_as_string(value, key, &part.text));
    }
    if (!key)
        return TX_OK;
    const char *text;
    size_t size;
    tx_status status = TX_OK;
    if (part.kind == TX_GRAMMAR_SCHEMA && tx_json_type_of(part.json) == TX_JSON_STRING) { /* vLLM accepts a text, too */
        status = tx_json_as_text(part.json, key, &text, &size);
        TX_THEN(status, tx_json_parse(text, size, key, &owned));
        part.json = owned;
    }
    TX_THEN(status, tx_fail_in(tx_grammar_create(&part, 1, c->server->vocabulary, &c->grammar), "%s", key));
    tx_json_free(owned);
    c->how.grammar = c->grammar;
    return status;
}
