/* SPDX-License-Identifier: Apache-2.0
 * YAML by libyaml's events: a value is built as it is parsed. */
#include "models/options/option.h"

#include "api/base/number.h"
#include "models/tokenizer/buffer.h"
#include "tx_file.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    const char *path;
    int depth;
} reader;

static tx_status read_value(reader *r, tx_json **json);

static tx_status fail(const reader *r, const char *fault, const char *what)
{
    return tx_fail(TX_FORMAT, "%s: line %zu: %s%s", r->path, r->event.start_mark.line + 1, fault, what);
}

/* Replaces the current event by the next one. */
static tx_status next_event(reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return TX_OK;
    memset(&r->event, 0, sizeof r->event);
    if (r->parser.error == YAML_MEMORY_ERROR)
        return tx_fail(TX_MEMORY, "%s: no memory to read it", r->path);
    return tx_fail(TX_FORMAT, "%s: line %zu: %s", r->path, r->parser.problem_mark.line + 1,
                   r->parser.problem ? r->parser.problem : "not YAML");
}

/* ---- Scalars ------------------------------------------------------------------------------------------------- */

/* Copies a text with each ${NAME} replaced. */
static tx_status expand(const reader *r, const char *text, tx_buffer *to)
{
    for (const char *at = text; *at;) {
        const char *mark = strstr(at, "${"), *end = mark ? strchr(mark, '}') : NULL;
        tx_buffer_add(to, at, end ? (size_t)(mark - at) : strlen(at));
        if (!end)
            break;
        char name[256];
        const size_t size = (size_t)(end - mark) - 2;
        if (size >= sizeof name)
            return fail(r, "the name of a variable is too long", "");
        memcpy(name, mark + 2, size);
        name[size] = '\0';
        const char *value = getenv(name);
        if (!value)
            return fail(r, "the environment has no variable ", name);
        tx_buffer_add(to, value, strlen(value));
        at = end + 1;
    }
    tx_buffer_add(to, "", 1);
    return to->status;
}

/* Whether a plain word is a number; an integer also sets `whole`. */
static bool is_number(const char *text, double *number, int64_t *integer, bool *whole)
{
    char *end = NULL;
    const char *digits = text + (*text == '-' || *text == '+');
    if (!isdigit((unsigned char)*digits) && !(*digits == '.' && isdigit((unsigned char)digits[1])))
        return false;
    errno = 0;
    *integer = strtoll(text, &end, 10);
    *whole = !*end && errno == 0;
    *number = tx_number_read(text, &end);
    return !*end && isfinite(*number) && !strpbrk(text, "xX");
}

/* The value of a scalar as an item of an array, which takes any value. */
static tx_status append_scalar(tx_json *array, const char *text, bool plain)
{
    double number;
    int64_t integer;
    bool whole;
    tx_json *holder = NULL;
    const bool truth = strcmp(text, "true") == 0 || strcmp(text, "True") == 0;
    if (plain && (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0))
        return tx_json_parse("null", 4, "null", &holder) ? TX_MEMORY : tx_json_append(array, holder);
    if (plain && (truth || strcmp(text, "false") == 0 || strcmp(text, "False") == 0))
        return tx_json_parse(truth ? "true" : "false", truth ? 4 : 5, "truth", &holder) ? TX_MEMORY
                                                                                        : tx_json_append(array, holder);
    if (plain && is_number(text, &number, &integer, &whole))
        return whole ? tx_json_append_int(array, integer) : tx_json_append_number(array, number);
    return tx_json_append_string(array, text);
}

static tx_status read_scalar(reader *r, tx_json *array)
{
    tx_buffer text = {0};
    const char *value = (const char *)r->event.data.scalar.value;
    const bool plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (strlen(value) != r->event.data.scalar.length)
        return fail(r, "a NUL in a value", "");
    tx_status status = expand(r, value, &text);
    TX_THEN(status, append_scalar(array, text.data, plain));
    free(text.data);
    return status;
}

/* ---- Collections --------------------------------------------------------------------------------------------- */

static tx_status read_list(reader *r, tx_json *array)
{
    for (;;) {
        tx_json *item = NULL;
        TX_TRY(next_event(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return TX_OK;
        TX_TRY(read_value(r, &item));
        TX_TRY(tx_json_append(array, item));
    }
}

static tx_status read_members(reader *r, tx_json *object)
{
    for (;;) {
        tx_json *value = NULL;
        TX_TRY(next_event(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return TX_OK;
        if (r->event.type != YAML_SCALAR_EVENT)
            return fail(r, "a key must be a word", "");
        char *key = strdup((const char *)r->event.data.scalar.value);
        tx_status status = key ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory to read it", r->path);
        if (!status && tx_json_find(object, key))
            status = fail(r, "this key is there twice: ", key);
        TX_THEN(status, next_event(r));
        TX_THEN(status, read_value(r, &value));
        TX_THEN(status, tx_json_set(object, key, value));
        free(key);
        TX_TRY(status);
    }
}

/* Builds the value that the current event begins. Scalars are made in an array, since JSON's containers copy values. */
static tx_status read_value(reader *r, tx_json **json)
{
    const yaml_event_type_t type = r->event.type;
    const bool scalar = type == YAML_SCALAR_EVENT;
    const yaml_char_t *anchor = type == YAML_ALIAS_EVENT            ? r->event.data.alias.anchor
                                : scalar                            ? r->event.data.scalar.anchor
                                : type == YAML_SEQUENCE_START_EVENT ? r->event.data.sequence_start.anchor
                                : type == YAML_MAPPING_START_EVENT  ? r->event.data.mapping_start.anchor
                                                                    : NULL;
    if (anchor)
        return fail(r, "anchors and aliases are not supported: write the value again: ", (const char *)anchor);
    if (scalar && r->event.data.scalar.tag)
        return fail(r, "tags are not supported: ", (const char *)r->event.data.scalar.tag);
    if (++r->depth > TX_JSON_DEPTH)
        return fail(r, "nested too deeply", "");
    tx_json *created = type == YAML_MAPPING_START_EVENT ? tx_json_object() : tx_json_array();
    tx_status status = created ? TX_OK : TX_MEMORY;
    if (!status)
        status = scalar                              ? read_scalar(r, created)
                 : type == YAML_MAPPING_START_EVENT  ? read_members(r, created)
                 : type == YAML_SEQUENCE_START_EVENT ? read_list(r, created)
                                                     : fail(r, "a value is missing", "");
    r->depth--;
    if (!status && scalar) {
        tx_json *value = tx_json_copy(tx_json_at(created, 0));
        tx_json_free(created);
        created = value;
        status = value ? TX_OK : TX_MEMORY;
    }
    return TX_RETURN(status, created, json, tx_json_free);
}

/* ---- Documents ----------------------------------------------------------------------------------------------- */

static tx_status read_document(reader *r, tx_json **json)
{
    tx_json *created = NULL;
    TX_TRY(next_event(r)); /* the stream begins */
    TX_TRY(next_event(r));
    if (r->event.type != YAML_DOCUMENT_START_EVENT)
        return tx_fail(TX_FORMAT, "%s: no YAML document", r->path);
    TX_TRY(next_event(r));
    tx_status status = read_value(r, &created);
    TX_THEN(status, next_event(r)); /* the document ends */
    TX_THEN(status, next_event(r));
    if (!status && r->event.type != YAML_STREAM_END_EVENT)
        status = fail(r, "a second document", "");
    return TX_RETURN(status, created, json, tx_json_free);
}

tx_status tx_yaml_read(const char *path, int64_t limit, tx_json **json)
{
    reader r = {.path = path};
    char *text = NULL;
    size_t size = 0;
    TX_TRY(tx_file_read(path, limit, &text, &size));
    tx_status status = yaml_parser_initialize(&r.parser) ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory to read it", path);
    if (!status) {
        yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
        status = read_document(&r, json);
        yaml_event_delete(&r.event);
        yaml_parser_delete(&r.parser);
    }
    free(text);
    return status;
}
