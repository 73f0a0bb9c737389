/* SPDX-License-Identifier: Apache-2.0
 * Options from a JSON file, as transformers' HfArgumentParser reads them. */
#include "tools/cli/option_value.h"

#include "api/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT (1 << 24)

/* The text of a scalar as the command line would hold it; NULL for other values. `number` is room for numbers. */
static const char *scalar(const tx_json *json, char number[32])
{
    int64_t whole;
    double real;
    bool flag;
    const char *text;
    switch (tx_json_type_of(json)) {
    case TX_JSON_BOOL:
        return tx_json_as_bool(json, "", &flag) ? NULL : flag ? "true" : "false";
    case TX_JSON_INTEGER:
        if (tx_json_as_int(json, "", INT64_MIN, INT64_MAX, &whole))
            return NULL;
        snprintf(number, 32, "%" PRId64, whole);
        return number;
    case TX_JSON_NUMBER:
        if (tx_json_as_number(json, "", -HUGE_VAL, HUGE_VAL, &real))
            return NULL;
        snprintf(number, 32, "%.17g", real);
        return number;
    case TX_JSON_STRING:
        return tx_json_as_string(json, "", &text) ? NULL : text;
    default:
        return NULL;
    }
}

/* Stores an object as its text, for options whose value is JSON. */
static int store_object(const tx_option_source *p, const tx_option *option, const tx_json *json)
{
    char *text = tx_json_text(json, TX_JSON_LINE);
    if (!tx_option_keep(text, NULL)) {
        free(text);
        return tx_complain(p->program, TX_EXIT_FAILURE, "%s: out of memory", p->file);
    }
    return tx_option_store(p, option, text);
}

/* Stores one scalar; the types of JSON must fit the option. */
static int store_scalar(const tx_option_source *p, const tx_option *option, const tx_json *json)
{
    static const char *const wanted[] = {
        [TX_OPTION_FLAG] = "true or false", [TX_OPTION_INTEGER] = "a whole number", [TX_OPTION_REAL] = "a number",
        [TX_OPTION_TEXT] = "a string",      [TX_OPTION_OPTIONAL] = "a string",      [TX_OPTION_CHOICE] = "a string",
        [TX_OPTION_LIST] = "strings",       [TX_OPTION_WORDS] = "strings",
    };
    char number[32];
    const char *value = scalar(json, number);
    tx_json_type type = tx_json_type_of(json);
    bool numeric = option->kind == TX_OPTION_INTEGER || option->kind == TX_OPTION_REAL;
    if (option->kind == TX_OPTION_OPTIONAL && type == TX_JSON_BOOL) {
        *(const char **)(void *)(p->values + option->offset) = value && tx_option_truth(value) == 1 ? "" : NULL;
        return TX_GO_ON;
    }
    /* A string may spell any value, as on the command line. */
    if (value && (type == TX_JSON_STRING || (numeric && type != TX_JSON_BOOL) || option->kind == TX_OPTION_FLAG))
        return tx_option_store(p, option, value);
    return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s: must be %s", TX_OPTION_PLACE(p, option->name),
                       wanted[option->kind]);
}

static int parse_member(const tx_option_source *p, const char *key, const tx_json *value)
{
    char name[TX_OPTION_NAME + 1] = "", number[32];
    const tx_option *option = tx_option_spell(key, name) ? tx_option_find(p->program, name) : NULL;
    if (!option) {
        const tx_foreign *foreign = tx_option_find_foreign(p->program, name);
        if (!foreign)
            return tx_option_unknown(p, key);
        /* An empty list or object asks for nothing, as null does. */
        bool empty = (tx_json_type_of(value) == TX_JSON_ARRAY || tx_json_type_of(value) == TX_JSON_OBJECT) &&
                     tx_json_size(value) == 0;
        if (empty || tx_json_type_of(value) == TX_JSON_NULL)
            return TX_GO_ON;
        return tx_option_judge_foreign(p, foreign, scalar(value, number));
    }
    if (tx_json_type_of(value) == TX_JSON_NULL)
        return TX_GO_ON;
    bool several = option->kind == TX_OPTION_LIST || option->kind == TX_OPTION_WORDS;
    if (option->kind == TX_OPTION_LIST)
        *(uint32_t *)(void *)(p->values + option->offset) = 0;
    if (tx_json_type_of(value) == TX_JSON_OBJECT && option->choices && strcmp(option->choices, "JSON") == 0)
        return store_object(p, option, value);
    if (!several || tx_json_type_of(value) != TX_JSON_ARRAY)
        return store_scalar(p, option, value);
    int status = TX_GO_ON;
    for (size_t i = 0; i < tx_json_size(value) && status == TX_GO_ON; i++)
        status = store_scalar(p, option, tx_json_at(value, i));
    return status;
}

int tx_option_read_file(const tx_option_source *line, const char *path)
{
    tx_json *json;
    if (tx_json_read(path, FILE_LIMIT, &json))
        return tx_complain(line->program, TX_EXIT_FAILURE, "%s", tx_error());
    if (!tx_option_keep(NULL, json)) {
        tx_json_free(json);
        return tx_complain(line->program, TX_EXIT_FAILURE, "%s: out of memory", path);
    }
    if (tx_json_type_of(json) != TX_JSON_OBJECT)
        return tx_complain(line->program, TX_EXIT_USAGE, "%s: must hold one object, {\"option\": value, ...}", path);
    tx_option_source p = {line->program, path, line->values};
    int status = TX_GO_ON;
    for (void *i = tx_json_first(json); i && status == TX_GO_ON; i = tx_json_next(json, i))
        status = parse_member(&p, tx_json_key(i), tx_json_value(i));
    return status;
}
