/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON, the strict kind: UTF-8, no duplicate keys, nothing after the value, nesting limited. Integers beyond int64 are
 * numbers as those with a fraction are, and nowhere taken for integers. The only user of jansson. Messages name the
 * key, the type expected and the value found; whoever knows the file puts its name before them (tx_fail_in). */
#ifndef TX_JSON_H
#define TX_JSON_H

#include "tx_base.h"

TX_API_BEGIN

typedef struct json_t tx_json;

/* Depth of nesting that is read. */
#define TX_JSON_DEPTH 64

/* ---- Reading --------------------------------------------------------------------------------- */

/* Parses `size` bytes that hold one value. `where` (a path, or "PATH: header") starts the messages. */
tx_status tx_json_parse(const char *text, size_t size, const char *where, tx_json **json);
/* Parses the value that `text` begins with and tells how many bytes it took. Here integers beyond int64 are refused. */
tx_status tx_json_parse_prefix(const char *text, size_t size, const char *where, tx_json **json, size_t *used);
/* Parses one line of a JSON Lines file. Its strings may hold U+0000, so they are read by tx_json_get_text. */
tx_status tx_json_parse_line(const char *text, size_t size, const char *where, tx_json **json);
/* Reads a file of at most `limit` bytes. */
tx_status tx_json_read(const char *path, int64_t limit, tx_json **json);
void tx_json_free(tx_json *json); /* NULL is fine */
/* A deep copy; NULL when out of memory. */
tx_json *tx_json_copy(const tx_json *json);

/* X(NAME, "name in messages") */
#define TX_JSON_TYPE_MAP(X)                                    \
    X(NULL, "null")                                            \
    X(BOOL, "true or false")                                   \
    X(INTEGER, "an integer")                                   \
    X(NUMBER, "a number") /* with a fraction or an exponent */ \
    X(STRING, "a string")                                      \
    X(ARRAY, "an array")                                       \
    X(OBJECT, "an object")

typedef enum tx_json_type {
#define X(name, text) TX_JSON_##name,
    TX_JSON_TYPE_MAP(X)
#undef X
} tx_json_type;

tx_json_type tx_json_type_of(const tx_json *json); /* TX_JSON_NULL for NULL, too */

/* Members of an object. An absent key is TX_NOT_FOUND, another type or a value out of range TX_FORMAT; the
 * output is then left alone, so that it can hold a default. Strings and members live as long as the object. NULL has
 * no members, as an empty object. */
tx_status tx_json_get(const tx_json *object, const char *key, tx_json_type type, tx_json **value);
tx_status tx_json_get_bool(const tx_json *object, const char *key, bool *value);
tx_status tx_json_get_int(const tx_json *object, const char *key, int64_t min, int64_t max, int64_t *value);
/* Integers are numbers too. min <= value <= max. */
tx_status tx_json_get_number(const tx_json *object, const char *key, double min, double max, double *value);
tx_status tx_json_get_string(const tx_json *object, const char *key, const char **value);
/* A string of `*size` bytes, which may hold NUL. */
tx_status tx_json_get_text(const tx_json *object, const char *key, const char **value, size_t *size);
/* tx_json_get_KIND of a member that may be absent or null: the output then stays as it is. */
#define TX_JSON_OPTIONAL(kind, object, key, ...) \
    (tx_json_has(object, key) ? tx_json_get_##kind(object, key, __VA_ARGS__) : TX_OK)
/* The member, whatever its type; NULL where there is none. */
tx_json *tx_json_find(const tx_json *object, const char *key);
/* Whether the key is there and is not null. */
bool tx_json_has(const tx_json *object, const char *key);
/* Whether a value is null, false, "", [] or {}. */
bool tx_json_is_empty(const tx_json *json);

/* Values by themselves (elements of arrays, members met by iteration); `what` starts the messages. */
tx_status tx_json_as_bool(const tx_json *json, const char *what, bool *value);
tx_status tx_json_as_int(const tx_json *json, const char *what, int64_t min, int64_t max, int64_t *value);
tx_status tx_json_as_number(const tx_json *json, const char *what, double min, double max, double *value);
tx_status tx_json_as_string(const tx_json *json, const char *what, const char **value);
tx_status tx_json_as_text(const tx_json *json, const char *what, const char **value, size_t *size); /* may hold NUL */

/* Elements of an array, members of an object; 0 for other values. */
size_t tx_json_size(const tx_json *json);
/* Element `index` of an array, NULL beyond its end. */
tx_json *tx_json_at(const tx_json *array, size_t index);

/* Members in the order of the file: for (void *i = tx_json_first(o); i; i = tx_json_next(o, i)). */
void *tx_json_first(const tx_json *object);
void *tx_json_next(const tx_json *object, void *iterator);
const char *tx_json_key(void *iterator);
tx_json *tx_json_value(void *iterator);

/* ---- Writing ----------------------------------------------------------------------------------- */

/* New containers; NULL when out of memory, which the functions below accept and report. */
tx_json *tx_json_object(void);
tx_json *tx_json_array(void);

/* Sets a member, replacing one of that name. tx_json_set and tx_json_append take `value` over, even on
 * failure. Numbers must be finite (JSON has no NaN): TX_INVALID otherwise. */
tx_status tx_json_set(tx_json *object, const char *key, tx_json *value);
tx_status tx_json_set_null(tx_json *object, const char *key);
tx_status tx_json_set_bool(tx_json *object, const char *key, bool value);
tx_status tx_json_set_int(tx_json *object, const char *key, int64_t value);
tx_status tx_json_set_number(tx_json *object, const char *key, double value);
tx_status tx_json_set_string(tx_json *object, const char *key, const char *value);
/* A string of `size` bytes, which may hold NUL. */
tx_status tx_json_set_text(tx_json *object, const char *key, const char *value, size_t size);
tx_status tx_json_append(tx_json *array, tx_json *value);
void tx_json_remove(tx_json *array, size_t index); /* frees the element; those after it move up */
tx_status tx_json_append_int(tx_json *array, int64_t value);
tx_status tx_json_append_number(tx_json *array, double value);
tx_status tx_json_append_string(tx_json *array, const char *value);

/* X(NAME): one line; indented by 2 in order of insertion; indented by 2 with sorted keys. */
typedef enum tx_json_form { TX_JSON_LINE, TX_JSON_PRETTY, TX_JSON_SORTED } tx_json_form;

/* The text, numbers in the fewest digits that read back the same; NULL when out of memory (the message is
 * set). The caller frees it. */
char *tx_json_text(const tx_json *json, tx_json_form form);
/* Writes the text and a newline, atomically (tx_file_write). */
tx_status tx_json_write(const char *path, const tx_json *json, tx_json_form form);

TX_API_END
#endif
