/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters, tests, methods and global functions: rows of methods.def. */
#ifndef TX_JINJA_METHOD_H
#define TX_JINJA_METHOD_H

#include "models/jinja/value.h"

typedef struct tx_jinja_argument {
    tx_jinja_string name; /* empty: by position */
    tx_jinja_value value;
} tx_jinja_argument;

typedef enum tx_jinja_method_kind {
    TX_JINJA_A_FILTER,
    TX_JINJA_A_TEST,
    TX_JINJA_A_GLOBAL,
    TX_JINJA_OF_STRING,
    TX_JINJA_OF_DICT,
    TX_JINJA_OF_LIST,
    TX_JINJA_OF_LOOP
} tx_jinja_method_kind;

struct tx_jinja_method;
typedef const struct tx_jinja_method *tx_jinja_finder(tx_jinja_method_kind kind, const tx_jinja_string *name);

/* The arguments of a call; `self` is the value that a filter or a test stands after, or whose method it is. */
typedef struct tx_jinja_call {
    tx_jinja_finder *find; /* other filters and tests by name */
    tx_jinja_arena *arena;
    tx_jinja_value self;
    const tx_jinja_argument *at;
    size_t count;
} tx_jinja_call;

typedef tx_jinja_value tx_jinja_function(const tx_jinja_call *c);

typedef struct tx_jinja_method {
    tx_jinja_method_kind kind;
    const char *name;
    tx_jinja_function *function;
} tx_jinja_method;

/* A value of kind METHOD: a row, and the object whose method it is. */
typedef struct tx_jinja_bound {
    const tx_jinja_method *method;
    tx_jinja_value self;
} tx_jinja_bound;

/* The row of this kind and name, or NULL. */
tx_jinja_finder tx_jinja_method_find;

/* Argument number `index`, or the one of this name; undefined if it is not given. */
tx_jinja_value tx_jinja_argument_of(const tx_jinja_call *c, size_t index, const char *name);
/* As a whole number, `usual` if it is not given; fails for another kind. */
int64_t tx_jinja_integer_of(const tx_jinja_call *c, size_t index, const char *name, int64_t usual);
/* As a string, NULL if it is not given, or None; fails for another kind. */
const tx_jinja_string *tx_jinja_string_of(const tx_jinja_call *c, size_t index, const char *name);
/* The same; fails if it is not given, and returns an empty string then. */
const tx_jinja_string *tx_jinja_needed(const tx_jinja_call *c, size_t index, const char *name);
bool tx_jinja_is_space(uint32_t code); /* as Python's str.isspace() has it */
/* The string that a string's method, or a filter of texts, works on. */
const tx_jinja_string *tx_jinja_self(const tx_jinja_call *c);

/* `format % arguments`, as Python does it. */
tx_jinja_value tx_jinja_percent(tx_jinja_arena *a, const tx_jinja_string *format, const tx_jinja_list *arguments);

#define TX_JINJA_METHOD_ROW(kind, name, function) tx_jinja_function tx_jinja_do_##function;
#include "models/jinja/methods.def"
#undef TX_JINJA_METHOD_ROW

#endif
