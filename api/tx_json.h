/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict JSON: UTF-8, no duplicate keys, nothing after the value, limited nesting. Integers beyond int64 are read as
 * numbers, never as integers. Only this module uses jansson. Messages name the key, the expected type and the value
 * found; callers that know the file put its name in front (tx_fail_in). */
#ifndef TX_JSON_H
#define TX_JSON_H

#include "tx_base.h"

TX_API_BEGIN

typedef struct json_t tx_json;

/* Maximum depth of nesting. */
#define TX_JSON_DEPTH 64

/* ---- Reading --------------------------------------------------------------------------------- */

/* Parses `size` bytes that hold one value. `where` (a path, or "PATH: header") starts the messages. */
tx_status tx_json_parse(const char *text, size_t size, const char *where, tx_json **json);
/* The same for text of a file. Infinity, -Infinity and NaN, which Python writes, become {"__float__": "Infinity"} and
 * the like, as in files of transformers 5. */
tx_status tx_json_parse_file(const char *text, size_t size, const char *where, tx_json **json);
/* Parses the value at the start of `text` and returns the bytes it occupies in `*used`. Integers beyond int64 are
 * refused here. */
tx_status tx_json_parse_prefix(const char *text, size_t size, const char *where, tx_json **json, size_t *used);
/* Parses one line of a JSON Lines file. Its strings may contain U+0000: read them with tx_json_get_text. */
tx_status tx_json_parse_line(const char *text, size_t size, const char *where, tx_json **json);
/* tx_json_parse_file for a file of at most `limit` bytes. */
tx_status tx_json_read(const char *path, int64_t limit, tx_json **json);
void tx_json_free(tx_json *json); /* NULL is allowed */
/* Returns a deep copy, or NULL if memory runs out. */
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

tx_json_type tx_json_type_of(const tx_json *json); /* TX_JSON_NULL also for a NULL pointer */

/* Read members of an object. An absent key fails with TX_NOT_FOUND; a different type or a value out of range fails with
 * TX_FORMAT. A failure does not change the output, which may hold a default. Strings and members live as long as the
 * object. A NULL object counts as empty. */
tx_status tx_json_get(const tx_json *object, const char *key, tx_json_type type, tx_json **value);
tx_status tx_json_get_bool(const tx_json *object, const char *key, bool *value);
tx_status tx_json_get_int(const tx_json *object, const char *key, int64_t min, int64_t max, int64_t *value);
/* Accepts integers too. min <= value <= max. */
tx_status tx_json_get_number(const tx_json *object, const char *key, double min, double max, double *value);
tx_status tx_json_get_string(const tx_json *object, const char *key, const char **value);
/* A string of `*size` bytes, which may hold NUL. */
tx_status tx_json_get_text(const tx_json *object, const char *key, const char **value, size_t *size);
/* tx_json_get_KIND for a member that may be absent or null; the output then keeps its value. */
#define TX_JSON_OPTIONAL(kind, object, key, ...) \
    (tx_json_has(object, key) ? tx_json_get_##kind(object, key, __VA_ARGS__) : TX_OK)
/* Returns the member of any type, or NULL if the key is absent. */
tx_json *tx_json_find(const tx_json *object, const char *key);
/* Whether the key exists and is not null. */
bool tx_json_has(const tx_json *object, const char *key);
/* Whether a value is null, false, "", [] or {}. */
bool tx_json_is_empty(const tx_json *json);

/* Read values that are not members by key (array elements, iterated members). `what` starts the messages. */
tx_status tx_json_as_bool(const tx_json *json, const char *what, bool *value);
tx_status tx_json_as_int(const tx_json *json, const char *what, int64_t min, int64_t max, int64_t *value);
tx_status tx_json_as_number(const tx_json *json, const char *what, double min, double max, double *value);
tx_status tx_json_as_string(const tx_json *json, const char *what, const char **value);
tx_status tx_json_as_text(const tx_json *json, const char *what, const char **value,
                          size_t *size); /* may contain NUL */

/* Counts the elements of an array or the members of an object; 0 for other values. */
size_t tx_json_size(const tx_json *json);
/* Returns element `index` of an array, or NULL after its end. */
tx_json *tx_json_at(const tx_json *array, size_t index);

/* Members in the order of the file: for (void *i = tx_json_first(o); i; i = tx_json_next(o, i)). */
void *tx_json_first(const tx_json *object);
void *tx_json_next(const tx_json *object, void *iterator);
const char *tx_json_key(void *iterator);
tx_json *tx_json_value(void *iterator);

/* ---- Writing ----------------------------------------------------------------------------------- */

/* Create containers. They return NULL if memory runs out; the functions below accept NULL and report it. */
tx_json *tx_json_object(void);
tx_json *tx_json_array(void);
/* Makes a value by a format of jansson's json_pack. "{s:s, s:I, s:f, s:n, s:o}" is an object of a string, an int64_t, a
 * finite double, null and a value, which the object owns, even on failure. Returns NULL and sets the message if it
 * fails. */
tx_json *tx_json_pack(const char *format, ...);

/* Set a member and replace one of the same name. tx_json_set and tx_json_append take ownership of `value`, even on
 * failure. Numbers must be finite, as JSON has no NaN; otherwise they fail with TX_INVALID. */
tx_status tx_json_set(tx_json *object, const char *key, tx_json *value);
tx_status tx_json_set_null(tx_json *object, const char *key);
tx_status tx_json_set_bool(tx_json *object, const char *key, bool value);
tx_status tx_json_set_int(tx_json *object, const char *key, int64_t value);
tx_status tx_json_set_number(tx_json *object, const char *key, double value);
tx_status tx_json_set_string(tx_json *object, const char *key, const char *value);
/* A string of `size` bytes, which may hold NUL. */
tx_status tx_json_set_text(tx_json *object, const char *key, const char *value, size_t size);
tx_status tx_json_append(tx_json *array, tx_json *value);
void tx_json_unset(tx_json *object, const char *key); /* frees the member, if there is one */
void tx_json_remove(tx_json *array, size_t index);    /* frees the element; later elements move up */
tx_status tx_json_append_null(tx_json *array);
tx_status tx_json_append_int(tx_json *array, int64_t value);
tx_status tx_json_append_number(tx_json *array, double value);
tx_status tx_json_append_string(tx_json *array, const char *value);

/* LINE: one line. PRETTY: indented by 2, in order of insertion. SORTED: indented by 2, with sorted keys. */
typedef enum tx_json_form { TX_JSON_LINE, TX_JSON_PRETTY, TX_JSON_SORTED } tx_json_form;

/* Returns the text; numbers have the fewest digits that read back the same value. Returns NULL and sets the message if
 * memory runs out. The caller frees it. */
char *tx_json_text(const tx_json *json, tx_json_form form);
/* Writes the text and a newline atomically (tx_file_write). */
tx_status tx_json_write(const char *path, const tx_json *json, tx_json_form form);

TX_API_END
#endif
