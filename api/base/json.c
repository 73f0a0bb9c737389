/* SPDX-License-Identifier: Apache-2.0
 * A wrapper of jansson: strict parsing, typed access, writing. */
#include "tx_json.h"

#include "api/base/file.h"
#include "api/base/json_mark.h"
#include "api/base/needs.h"
#include "api/base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Parsing ----------------------------------------------------------------------------------- */

/* Whether the value at the start of `text` is nested deeper than TX_JSON_DEPTH. The result is undefined for invalid
 * JSON. jansson recurses, so this is checked first. */
static bool too_deep(const char *text, size_t size)
{
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (quoted) {
            if (c == '\\')
                i++;
            else if (c == '"')
                quoted = false;
        } else if (c == '[' || c == '{') {
            if (++depth > TX_JSON_DEPTH)
                return true;
        } else if (c == ']' || c == '}') {
            if (--depth <= 0)
                return false;
        } else if (depth == 0 && !strchr(" \t\r\n", c)) {
            return false; /* a scalar */
        } else {
            quoted = c == '"';
        }
    }
    return false;
}

/* jansson refuses integers beyond int64. They are read as the nearest numbers, as in other languages. Real files have
 * them: transformers writes 10^30 for an unlimited length. With `words`, Python's words for numbers are read, too. */
static json_t *load(const char *text, size_t size, size_t flags, bool words, json_error_t *error)
{
    json_t *value = json_loadb(text, size, flags, error);
    const enum json_error_code code = json_error_code(error);
    if (value || (code != json_error_numeric_overflow && !(words && code == json_error_invalid_syntax)))
        return value;
    json_error_t again;
    char *marked = tx_json_mark(text, words, &size);
    value = marked && !too_deep(marked, size) ? json_loadb(marked, size, flags, &again) : NULL;
    free(marked);
    return value;
}

static tx_status parse(const char *text, size_t size, const char *where, size_t flags, bool words, tx_json **json,
                       size_t *used)
{
    if (too_deep(text, size))
        return tx_fail(TX_FORMAT, "%s: JSON nested deeper than %d levels", where, TX_JSON_DEPTH);
    json_error_t error;
    flags |= JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
    /* `used` counts bytes of the original text, not of a copy. */
    json_t *value = used ? json_loadb(text, size, flags, &error) : load(text, size, flags, words, &error);
    if (!value) /* a failed allocation looks like a syntax error to jansson, but only a syntax error occurs twice */
        value = json_loadb(text, size, flags, &error);
    if (!value && (json_error_code(&error) == json_error_out_of_memory || !error.text[0]))
        return tx_fail(TX_MEMORY, "%s: no memory to read its JSON", where);
    if (!value && flags & JSON_ALLOW_NUL) /* text that may contain NUL is one line */
        return tx_fail(TX_FORMAT, "%s: not valid JSON: column %d: %s", where, error.column, error.text);
    if (!value)
        return tx_fail(TX_FORMAT, "%s: not valid JSON: line %d, column %d: %s", where, error.line, error.column,
                       error.text);
    if (used)
        *used = (size_t)error.position;
    *json = value;
    return TX_OK;
}

tx_status tx_json_parse(const char *text, size_t size, const char *where, tx_json **json)
{
    TX_NEEDS(text && where && json, TX_INVALID);
    return parse(text, size, where, 0, false, json, NULL);
}

tx_status tx_json_parse_file(const char *text, size_t size, const char *where, tx_json **json)
{
    TX_NEEDS(text && where && json, TX_INVALID);
    return parse(text, size, where, 0, true, json, NULL);
}

tx_status tx_json_parse_prefix(const char *text, size_t size, const char *where, tx_json **json, size_t *used)
{
    TX_NEEDS(text && where && json && used, TX_INVALID);
    return parse(text, size, where, JSON_DISABLE_EOF_CHECK, false, json, used);
}

tx_status tx_json_parse_line(const char *text, size_t size, const char *where, tx_json **json)
{
    TX_NEEDS(text && where && json, TX_INVALID);
    return parse(text, size, where, JSON_ALLOW_NUL, false, json, NULL);
}

tx_status tx_json_read(const char *path, int64_t limit, tx_json **json)
{
    char *text;
    size_t size;
    TX_TRY(tx_file_read(path, limit, &text, &size));
    const tx_status status = tx_json_parse_file(text, size, path, json);
    free(text);
    return status;
}

void tx_json_free(tx_json *json)
{
    json_decref(json);
}

tx_json *tx_json_copy(const tx_json *json)
{
    tx_json *copy = json_deep_copy(json);
    if (!copy)
        tx_fail(TX_MEMORY, "no memory for a copy of a JSON value");
    return copy;
}

/* ---- Access ---------------------------------------------------------------------------------- */

static const char *const type_names[] = {
#define X(name, text) [TX_JSON_##name] = text,
    TX_JSON_TYPE_MAP(X)
#undef X
};

tx_json_type tx_json_type_of(const tx_json *json)
{
    static const tx_json_type types[] = {
        [JSON_OBJECT] = TX_JSON_OBJECT,   [JSON_ARRAY] = TX_JSON_ARRAY, [JSON_STRING] = TX_JSON_STRING,
        [JSON_INTEGER] = TX_JSON_INTEGER, [JSON_REAL] = TX_JSON_NUMBER, [JSON_TRUE] = TX_JSON_BOOL,
        [JSON_FALSE] = TX_JSON_BOOL,      [JSON_NULL] = TX_JSON_NULL,
    };
    return json ? types[json_typeof(json)] : TX_JSON_NULL;
}

/* "KEY is missing", or "KEY: expected EXPECTED, found VALUE" */
static tx_status fail_value(const char *what, const char *expected, const tx_json *found)
{
    if (!found)
        return tx_fail(TX_NOT_FOUND, "%s is missing", what);
    tx_json_type type = tx_json_type_of(found);
    bool scalar = type != TX_JSON_ARRAY && type != TX_JSON_OBJECT;
    char *text = scalar ? json_dumps(found, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    tx_fail(TX_FORMAT, "%s: expected %s, found %.60s", what, expected, text ? text : type_names[type]);
    free(text);
    return TX_FORMAT;
}

tx_status tx_json_as_bool(const tx_json *json, const char *what, bool *value)
{
    TX_NEEDS(what && value, TX_INVALID);
    if (!json_is_boolean(json))
        return fail_value(what, type_names[TX_JSON_BOOL], json);
    *value = json_is_true(json);
    return TX_OK;
}

tx_status tx_json_as_int(const tx_json *json, const char *what, int64_t min, int64_t max, int64_t *value)
{
    TX_NEEDS(what && value, TX_INVALID);
    int64_t found = json_integer_value(json);
    if (!json_is_integer(json) || found < min || found > max) {
        char expected[96];
        if (max == INT64_MAX)
            snprintf(expected, sizeof expected, "an integer of at least %" PRId64, min);
        else
            snprintf(expected, sizeof expected, "an integer from %" PRId64 " to %" PRId64, min, max);
        return fail_value(what, expected, json);
    }
    *value = found;
    return TX_OK;
}

tx_status tx_json_as_number(const tx_json *json, const char *what, double min, double max, double *value)
{
    TX_NEEDS(what && value, TX_INVALID);
    double found = json_number_value(json);
    if (!json_is_number(json) || !(found >= min && found <= max)) {
        char expected[96];
        tx_format(expected, sizeof expected, "a number from %g to %g", min, max);
        return fail_value(what, expected, json);
    }
    *value = found;
    return TX_OK;
}

tx_status tx_json_as_string(const tx_json *json, const char *what, const char **value)
{
    TX_NEEDS(what && value, TX_INVALID);
    if (!json_is_string(json))
        return fail_value(what, type_names[TX_JSON_STRING], json);
    if (strlen(json_string_value(json)) < json_string_length(json))
        return fail_value(what, "a string without U+0000", json);
    *value = json_string_value(json);
    return TX_OK;
}

tx_status tx_json_get(const tx_json *object, const char *key, tx_json_type type, tx_json **value)
{
    TX_NEEDS(key && value && type <= TX_JSON_OBJECT, TX_INVALID);
    tx_json *found = tx_json_find(object, key);
    if (!found || tx_json_type_of(found) != type)
        return fail_value(key, type_names[type], found);
    *value = found;
    return TX_OK;
}

tx_status tx_json_get_bool(const tx_json *object, const char *key, bool *value)
{
    return tx_json_as_bool(tx_json_find(object, key), key, value);
}

tx_status tx_json_get_int(const tx_json *object, const char *key, int64_t min, int64_t max, int64_t *value)
{
    return tx_json_as_int(tx_json_find(object, key), key, min, max, value);
}

tx_status tx_json_get_number(const tx_json *object, const char *key, double min, double max, double *value)
{
    return tx_json_as_number(tx_json_find(object, key), key, min, max, value);
}

tx_status tx_json_get_string(const tx_json *object, const char *key, const char **value)
{
    return tx_json_as_string(tx_json_find(object, key), key, value);
}

tx_status tx_json_as_text(const tx_json *json, const char *what, const char **value, size_t *size)
{
    TX_NEEDS(what && value && size, TX_INVALID);
    if (!json_is_string(json))
        return fail_value(what, type_names[TX_JSON_STRING], json);
    *value = json_string_value(json);
    *size = json_string_length(json);
    return TX_OK;
}

tx_status tx_json_get_text(const tx_json *object, const char *key, const char **value, size_t *size)
{
    return tx_json_as_text(tx_json_find(object, key), key, value, size);
}

tx_json *tx_json_find(const tx_json *object, const char *key)
{
    return json_object_get(object, key);
}

bool tx_json_has(const tx_json *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value);
}

bool tx_json_is_empty(const tx_json *json)
{
    const bool has_value = json_is_number(json) || json_is_true(json); /* they have neither size nor length */
    return !has_value && tx_json_size(json) == 0 && json_string_length(json) == 0;
}

size_t tx_json_size(const tx_json *json)
{
    return json_is_array(json) ? json_array_size(json) : json_object_size(json);
}

tx_json *tx_json_at(const tx_json *array, size_t index)
{
    return json_array_get(array, index);
}

/* jansson's iterators need a mutable object but do not change it. */
static tx_json *unchanged(const tx_json *json)
{
    return (tx_json *)(uintptr_t)json;
}

void *tx_json_first(const tx_json *object)
{
    return json_object_iter(unchanged(object));
}

void *tx_json_next(const tx_json *object, void *iterator)
{
    return json_object_iter_next(unchanged(object), iterator);
}

const char *tx_json_key(void *iterator)
{
    return json_object_iter_key(iterator);
}

tx_json *tx_json_value(void *iterator)
{
    return json_object_iter_value(iterator);
}

/* ---- Building ---------------------------------------------------------------------------------- */

tx_json *tx_json_object(void)
{
    return json_object();
}

tx_json *tx_json_array(void)
{
    return json_array();
}

tx_json *tx_json_pack(const char *format, ...)
{
    json_error_t error;
    va_list values;
    va_start(values, format);
    json_t *made = json_vpack_ex(&error, 0, format, values);
    va_end(values);
    const enum json_error_code code = made ? json_error_unknown : json_error_code(&error);
    const bool memory = code == json_error_out_of_memory || code == json_error_null_value; /* as in tx_json_set */
    if (!made)
        tx_fail(memory ? TX_MEMORY : TX_INVALID, "%s: %s", memory ? "no memory for JSON" : "JSON", error.text);
    return made;
}

/* Fails with the reason why jansson refused a text: it is not UTF-8, or memory ran out. */
static tx_status refuse_text(const char *text, size_t size)
{
    json_t *good = json_stringn(text, size), *any = good ? good : json_stringn_nocheck(text, size);
    json_decref(any);
    return any && !good ? tx_fail(TX_INVALID, "a string for JSON is not UTF-8: %.60s", text)
                        : tx_fail(TX_MEMORY, "no memory for a string of JSON");
}

/* A NULL container or value is a failed allocation. */
tx_status tx_json_set(tx_json *object, const char *key, tx_json *value)
{
    bool memory = object && value;
    if (json_object_set_new(object, key, value) == 0)
        return TX_OK;
    TX_NEEDS(key, TX_INVALID);
    if (!memory)
        return tx_fail(TX_MEMORY, "no memory for the JSON member %s", key);
    if (!json_is_object(object))
        return tx_fail(TX_INVALID, "the JSON member %s cannot be set: the value is not an object", key);
    return tx_fail_in(refuse_text(key, strlen(key)), "the name of a JSON member");
}

tx_status tx_json_append(tx_json *array, tx_json *value)
{
    const bool memory = array && value; /* appending takes the value */
    return json_array_append_new(array, value) == 0 ? TX_OK
           : memory ? tx_fail(TX_INVALID, "a JSON value can only be appended to an array")
                    : tx_fail(TX_MEMORY, "no memory for an element of a JSON array");
}

tx_status tx_json_set_null(tx_json *object, const char *key)
{
    return tx_json_set(object, key, json_null());
}

tx_status tx_json_set_bool(tx_json *object, const char *key, bool value)
{
    return tx_json_set(object, key, json_boolean(value));
}

tx_status tx_json_set_int(tx_json *object, const char *key, int64_t value)
{
    return tx_json_set(object, key, json_integer(value));
}

tx_status tx_json_set_number(tx_json *object, const char *key, double value)
{
    return isfinite(value) ? tx_json_set(object, key, json_real(value))
                           : tx_fail(TX_INVALID, "%s: JSON has no number for %f", key, value);
}

tx_status tx_json_set_text(tx_json *object, const char *key, const char *value, size_t size)
{
    tx_json *made = json_stringn(value, size);
    return made ? tx_json_set(object, key, made) : tx_fail_in(refuse_text(value, size), "%s", key);
}

tx_status tx_json_set_string(tx_json *object, const char *key, const char *value)
{
    return tx_json_set_text(object, key, value, value ? strlen(value) : 0);
}

void tx_json_unset(tx_json *object, const char *key)
{
    json_object_del(object, key);
}

void tx_json_remove(tx_json *array, size_t index)
{
    json_array_remove(array, index);
}

tx_status tx_json_append_null(tx_json *array)
{
    return tx_json_append(array, json_null());
}

tx_status tx_json_append_int(tx_json *array, int64_t value)
{
    return tx_json_append(array, json_integer(value));
}

tx_status tx_json_append_number(tx_json *array, double value)
{
    return isfinite(value) ? tx_json_append(array, json_real(value))
                           : tx_fail(TX_INVALID, "JSON has no number for %f", value);
}

tx_status tx_json_append_string(tx_json *array, const char *value)
{
    tx_json *made = json_string(value);
    return made ? tx_json_append(array, made) : refuse_text(value, value ? strlen(value) : 0);
}

/* ---- Writing ----------------------------------------------------------------------------------- */

/* Returns the whole text with the fewest digits, 15 to 17, with which every number reads back the same. */
char *tx_json_text(const tx_json *json, tx_json_form form)
{
    const size_t flags =
        JSON_ENCODE_ANY | (form == TX_JSON_LINE ? 0 : JSON_INDENT(2)) | (form == TX_JSON_SORTED ? JSON_SORT_KEYS : 0);
    for (size_t digits = 15;; digits++) {
        char *text = json_dumps(json, flags | JSON_REAL_PRECISION(digits));
        if (!text) {
            tx_fail(TX_MEMORY, "no memory for the text of a JSON value");
            return NULL;
        }
        json_t *back = json_loads(text, JSON_DECODE_ANY, NULL);
        bool same = json_equal(back, json);
        json_decref(back);
        if (same || digits == 17)
            return text;
        free(text);
    }
}

tx_status tx_json_write(const char *path, const tx_json *json, tx_json_form form)
{
    TX_NEEDS(path, TX_INVALID);
    char *text = tx_json_text(json, form);
    if (!text)
        return tx_fail_in(TX_MEMORY, "%s", path);
    size_t size = strlen(text);
    text[size] = '\n'; /* replaces the NUL */
    const tx_status status = tx_file_write(path, text, size + 1);
    free(text);
    return status;
}
