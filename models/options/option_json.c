/* SPDX-License-Identifier: Apache-2.0
 * Reads options from JSON as transformers' HfArgumentParser does, writes them as JSON, and returns values by name. */
#include "models/options/option.h"

#include "api/base/needs.h"
#include "api/base/number.h"
#include "models/names.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT (1 << 24)
#define NUMBER_TEXT 32

/* ---- Reading ------------------------------------------------------------------------------------------- */

/* The text of a scalar as a command line would have it, or NULL for other values. `number` is a buffer for numbers. */
static const char *scalar(const tx_json *json, char number[NUMBER_TEXT])
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
        snprintf(number, NUMBER_TEXT, "%" PRId64, whole);
        return number;
    case TX_JSON_NUMBER:
        if (tx_json_as_number(json, "", -HUGE_VAL, HUGE_VAL, &real))
            return NULL;
        tx_format(number, NUMBER_TEXT, "%.17g", real);
        return number;
    case TX_JSON_STRING:
        return tx_json_as_string(json, "", &text) ? NULL : text;
    default:
        return NULL;
    }
}

/* Stores the JSON text of an object or array. */
static tx_status store_json(tx_option_values *to, const char *file, const tx_option *option, const tx_json *json)
{
    char *text = tx_json_text(json, TX_JSON_LINE);
    tx_status status = text ? tx_option_store(to, file, option, text) : TX_MEMORY;
    free(text);
    return status;
}

/* Stores one scalar. Its JSON type must fit the option. */
static tx_status store_scalar(tx_option_values *to, const char *file, const tx_option *option, const tx_json *json)
{
    static const char *const wanted[] = {
        [TX_OPTION_FLAG] = "true or false", [TX_OPTION_INTEGER] = "a whole number", [TX_OPTION_REAL] = "a number",
        [TX_OPTION_TEXT] = "a string",      [TX_OPTION_OPTIONAL] = "a string",      [TX_OPTION_CHOICE] = "a string",
        [TX_OPTION_LIST] = "strings",       [TX_OPTION_WORDS] = "strings",          [TX_OPTION_FOREIGN] = "left out",
    };
    char number[NUMBER_TEXT];
    const char *value = scalar(json, number);
    const tx_json_type type = tx_json_type_of(json);
    const bool numeric = option->kind == TX_OPTION_INTEGER || option->kind == TX_OPTION_REAL;
    /* Words of YAML: yes, no, on and off */
    const bool truth =
        value && tx_option_truth(value) >= 0 && (type == TX_JSON_BOOL || !isdigit((unsigned char)*value));
    if (truth && option->kind == TX_OPTION_OPTIONAL)
        return tx_option_truth(value) ? tx_option_store(to, file, option, "") : TX_OK;
    const bool word =
        option->kind == TX_OPTION_FLAG || option->kind == TX_OPTION_CHOICE || option->kind == TX_OPTION_LIST;
    /* A string may spell any value, as on a command line. */
    if (value && (type == TX_JSON_STRING || (numeric && type != TX_JSON_BOOL) || (word && type == TX_JSON_BOOL) ||
                  option->kind == TX_OPTION_FLAG))
        return tx_option_store(to, file, option, value);
    return tx_fail(TX_INVALID, "%s: %s: must be %s", file, option->name, wanted[option->kind]);
}

/* Stores the words of an array as one text with commas. A CHOICE takes an array of one word. */
static tx_status store_choices(tx_option_values *to, const char *file, const tx_option *option, const tx_json *json)
{
    char text[TX_OPTION_LIST_TEXT] = "", number[NUMBER_TEXT];
    for (size_t i = 0; i < tx_json_size(json); i++) {
        const char *word = scalar(tx_json_at(json, i), number);
        tx_list_add(text, sizeof text, ",", "%s", word ? word : "");
    }
    return tx_option_store(to, file, option, text);
}

static tx_status read_member(tx_option_values *to, const char *file, const char *key, const tx_json *value);

static tx_status read_foreign(tx_option_values *to, const char *file, const tx_option *option, const tx_json *value)
{
    char number[NUMBER_TEXT];
    const char *text = scalar(value, number);
    const tx_json_type type = tx_json_type_of(value);
    for (size_t i = 0; i < tx_json_size(value) && type == TX_JSON_ARRAY; i++)
        TX_TRY(read_foreign(to, file, option, tx_json_at(value, i)));
    if (type == TX_JSON_OBJECT && option->choices && strcmp(option->choices, "{}") == 0) {
        for (void *i = tx_json_first(value); i; i = tx_json_next(value, i))
            TX_TRY(read_member(to, file, tx_json_key(i), tx_json_value(i)));
        return TX_OK;
    }
    /* An empty list or object requests nothing. */
    if (type == TX_JSON_ARRAY || (type == TX_JSON_OBJECT && tx_json_size(value) == 0))
        return TX_OK;
    return tx_option_store(to, file, option, text ? text : "a list");
}

static tx_status read_member(tx_option_values *to, const char *file, const char *key, const tx_json *value)
{
    const tx_option *option = tx_option_find(&to->table, key);
    const tx_json_type type = tx_json_type_of(value);
    if (type == TX_JSON_NULL)
        return TX_OK;
    if (!option)
        return tx_option_unknown(&to->table, file, key);
    if (option->kind == TX_OPTION_FOREIGN)
        return read_foreign(to, file, option, value);
    if (type == TX_JSON_OBJECT && option->choices && strstr(option->choices, "JSON"))
        return store_json(to, file, option, value);
    if (type == TX_JSON_ARRAY && option->kind == TX_OPTION_OPTIONAL && tx_json_size(value) == 0)
        return TX_OK;
    if (type == TX_JSON_ARRAY &&
        (tx_option_is_list(option) || option->kind == TX_OPTION_CHOICE || option->kind == TX_OPTION_OPTIONAL))
        return store_choices(to, file, option, value);
    if (type != TX_JSON_ARRAY || option->kind != TX_OPTION_WORDS)
        return store_scalar(to, file, option, value);
    for (size_t i = 0; i < tx_json_size(value); i++)
        TX_TRY(store_scalar(to, file, option, tx_json_at(value, i)));
    return TX_OK;
}

/* Whether the options of the earlier run may set this option. */
static bool is_free(const tx_option_values *to, const char *key, const tx_option_marks *left_out)
{
    const tx_option *option = tx_option_find(&to->table, key);
    return !option || (!tx_option_given(to, option->offset) && !left_out->mark[option - to->table.option]);
}

/* Sets one option of a file and notes whether the value is the default. A file may spell an option in several ways. */
static tx_status read_own(tx_option_values *to, const char *path, const char *key, const tx_json *value)
{
    const tx_option *option = tx_option_find(&to->table, key);
    uint8_t *source = option ? &to->source[option - to->table.option] : NULL;
    if (!option || !tx_option_has_value(option))
        return read_member(to, path, key, value);
    const uint8_t had = *source;
    char *before = tx_option_text(to, option);
    tx_status status = before ? read_member(to, path, key, value) : TX_MEMORY;
    char *after = status ? NULL : tx_option_text(to, option);
    const bool same = after && strcmp(before, after) == 0;
    if (!status && *source == TX_OPTION_SET) {
        *source = same && had <= TX_OPTION_REPEATED ? TX_OPTION_REPEATED : TX_OPTION_FROM_FILE;
        if (had != TX_OPTION_UNSET && !same && option->kind != TX_OPTION_WORDS)
            status = tx_fail(TX_INVALID, "%s: %s: given twice, as %.100s and %.100s: give only one of them", path, key,
                             before, after ? after : "");
    }
    free(before);
    free(after);
    return status;
}

static bool is_yaml(const char *path)
{
    return tx_ends_with(path, ".yaml") || tx_ends_with(path, ".yml");
}

bool tx_option_is_file(const char *path)
{
    TX_NEEDS(path, false);
    return tx_ends_with(path, ".json") || is_yaml(path);
}

tx_status tx_option_file(const char *path, tx_json **json)
{
    TX_NEEDS(path && json, TX_INVALID);
    return is_yaml(path) ? tx_yaml_read(path, FILE_LIMIT, json) : tx_json_read(path, FILE_LIMIT, json);
}

static tx_status read_members(tx_option_values *to, const char *path, bool inherited, const tx_option_marks *left_out)
{
    tx_json *json = NULL;
    tx_status status = tx_option_file(path, &json);
    char refused[3072] = "";
    if (!status && tx_json_type_of(json) != TX_JSON_OBJECT)
        status = tx_fail(TX_INVALID, "%s: must hold one object, {\"option\": value, ...}", path);
    for (void *i = status ? NULL : tx_json_first(json); i; i = tx_json_next(json, i)) {
        if (inherited && !is_free(to, tx_json_key(i), left_out))
            continue;
        const tx_status one = read_own(to, path, tx_json_key(i), tx_json_value(i));
        if (one)
            tx_list_add(refused, sizeof refused, "; ", "%s", tx_error());
        status = one ? one : status;
    }
    tx_json_free(json);
    return *refused ? tx_fail(status, "%s", refused) : status;
}

tx_status tx_option_read(tx_option_values *to, const char *path)
{
    TX_NEEDS(to && path, TX_INVALID);
    return read_members(to, path, false, NULL);
}

/* Sets the options in an object, {"name": value, ...}, or in a file of them, the value of option `name`. */
static tx_status read_object(tx_option_values *to, const char *name, const char *value)
{
    tx_json *json = NULL;
    TX_TRY(*value == '{' ? tx_json_parse(value, strlen(value), name, &json) : tx_option_file(value, &json));
    tx_status status = TX_OK;
    for (void *i = tx_json_first(json); i && !status; i = tx_json_next(json, i))
        status = read_member(to, name, tx_json_key(i), tx_json_value(i));
    tx_json_free(json);
    return status;
}

tx_status tx_option_set(tx_option_values *to, const char *name, const char *value)
{
    TX_NEEDS(to && name && value, TX_INVALID);
    const tx_option *option = tx_option_find(&to->table, name);
    if (!option)
        return tx_option_unknown(&to->table, NULL, name);
    const bool object = option->kind == TX_OPTION_FOREIGN && option->choices && strcmp(option->choices, "{}") == 0;
    return object && (*value == '{' || tx_option_is_file(value)) ? read_object(to, name, value)
                                                                 : tx_option_store(to, NULL, option, value);
}

tx_status tx_option_inherit(tx_option_values *to, const char *path, const tx_option_marks *left_out)
{
    uint8_t source[sizeof to->source];
    memcpy(source, to->source, sizeof source);
    tx_status status = read_members(to, path, true, left_out);
    memcpy(to->source, source, sizeof source);
    return status;
}

/* ---- Writing ------------------------------------------------------------------------------------------- */

/* The choices whose bits are set, with commas between them. */
static tx_status write_choices(tx_json *json, const tx_option *o, uint32_t bits)
{
    char text[256] = "";
    for (const char *word = o->choices; bits; bits >>= 1) {
        const size_t length = tx_choice_length(word);
        if (bits & 1)
            tx_list_add(text, sizeof text, ",", "%.*s", (int)length, word);
        word += length + (word[length] == '|');
    }
    return tx_json_set_string(json, o->name, text);
}

static tx_status write_words(tx_json *json, const tx_option *o, const tx_words *words)
{
    tx_json *array = tx_json_array();
    tx_status status = TX_OK;
    for (int32_t i = 0; i < words->count && !status; i++)
        status = tx_json_append_string(array, words->word[i]);
    if (!status)
        return tx_json_set(json, o->name, array);
    tx_json_free(array);
    return status;
}

static tx_status write_value(tx_json *json, const tx_option *o, const void *at)
{
    switch (o->kind) {
    case TX_OPTION_FLAG:
        return tx_json_set_bool(json, o->name, *(const bool *)at);
    case TX_OPTION_INTEGER:
        return tx_json_set_int(json, o->name, *(const int64_t *)at);
    case TX_OPTION_REAL:
        return tx_json_set_number(json, o->name, *(const double *)at);
    case TX_OPTION_TEXT:
    case TX_OPTION_OPTIONAL: {
        const char *text = *(const char *const *)at;
        return text ? tx_json_set_string(json, o->name, text) : tx_json_set_null(json, o->name);
    }
    case TX_OPTION_CHOICE:
        return write_choices(json, o, UINT32_C(1) << *(const int32_t *)at);
    case TX_OPTION_LIST:
        return write_choices(json, o, *(const uint32_t *)at);
    case TX_OPTION_WORDS:
        return write_words(json, o, at);
    case TX_OPTION_HEADING:
    case TX_OPTION_FOREIGN:
        break;
    }
    return TX_OK;
}

/* The options that were given, or all options with these traits. */
static tx_json *write_all(const tx_option_values *from, bool given, uint32_t with, uint32_t without)
{
    tx_json *json = tx_json_object();
    for (int32_t i = 0; i < from->table.count && json; i++) {
        const tx_option *o = &from->table.option[i];
        const uint32_t traits = tx_option_traits(&from->table, o);
        const bool wanted = (with == 0 || (traits & with)) && !(traits & without);
        const bool chosen = given ? from->source[i] != TX_OPTION_UNSET : wanted && tx_option_has_value(o);
        if (chosen && write_value(json, o, (const char *)from->values + o->offset)) {
            tx_json_free(json);
            json = NULL;
        }
    }
    return json;
}

tx_json *tx_option_json(const tx_option_values *from, uint32_t with, uint32_t without)
{
    return write_all(from, false, with, without);
}

tx_json *tx_option_json_given(const tx_option_values *from)
{
    TX_NEEDS(from, NULL);
    return write_all(from, true, 0, 0);
}

char *tx_option_text(const tx_option_values *from, const tx_option *option)
{
    TX_NEEDS(from && option, NULL);
    tx_json *json = tx_json_object();
    const tx_status status = json ? write_value(json, option, (const char *)from->values + option->offset) : TX_MEMORY;
    void *member = status ? NULL : tx_json_first(json);
    char *text = member ? tx_json_text(tx_json_value(member), TX_JSON_LINE) : NULL;
    tx_json_free(json);
    return text;
}

/* ---- Values by name -------------------------------------------------------------------------------------- */

/* The value of the option of that name, or NULL if it is of neither kind. */
static const void *value_of(const tx_option_values *from, const char *name, tx_option_kind kind, tx_option_kind other)
{
    const tx_option *option = tx_option_find(&from->table, name);
    return option && (option->kind == kind || option->kind == other) ? (const char *)from->values + option->offset
                                                                     : NULL;
}

bool tx_option_flag(const tx_option_values *from, const char *name)
{
    TX_NEEDS(from && name, false);
    const bool *flag = value_of(from, name, TX_OPTION_FLAG, TX_OPTION_FLAG);
    return flag && *flag;
}

double tx_option_number(const tx_option_values *from, const char *name)
{
    TX_NEEDS(from && name, (double)NAN);
    const int64_t *whole = value_of(from, name, TX_OPTION_INTEGER, TX_OPTION_INTEGER);
    const double *real = value_of(from, name, TX_OPTION_REAL, TX_OPTION_REAL);
    return whole ? (double)*whole : real ? *real : (double)NAN;
}
