/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters, tests, methods and global functions: the rows of methods.def. */
#ifndef TX_JINJA_METHOD_H
#define TX_JINJA_METHOD_H

#include "models/jinja/value.h"

typedef struct tx_jinja_argument {
    tx_jinja_string name; /* empty for a positional argument */
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

/* The arguments of a call. `self` is the value to which a filter or a test is applied, or the object of a method. */
typedef struct tx_jinja_call {
    tx_jinja_finder *find; /* other filters and tests by name */
    tx_jinja_arena *arena;
    tx_jinja_value self;
    const tx_jinja_argument *at;
    size_t count;
    int form; /* of the row */
} tx_jinja_call;

typedef tx_jinja_value tx_jinja_function(const tx_jinja_call *c);

typedef struct tx_jinja_method {
    tx_jinja_method_kind kind;
    const char *name;
    tx_jinja_function *function;
    int form; /* which of the things that the function does */
} tx_jinja_method;

/* Forms: the case of letters, kinds of letters, ends of a text or list, parts of a dict, and how elements are chosen.
 */
enum { TX_JINJA_LOWER, TX_JINJA_UPPER, TX_JINJA_CAPITALIZE, TX_JINJA_TITLE_WORDS, TX_JINJA_TITLE_LETTERS };
enum { TX_JINJA_LETTERS, TX_JINJA_DIGITS, TX_JINJA_LETTERS_OR_DIGITS, TX_JINJA_SPACES };
enum { TX_JINJA_FRONT = 1, TX_JINJA_BACK = 2, TX_JINJA_BOTH = TX_JINJA_FRONT | TX_JINJA_BACK };
enum { TX_JINJA_KEYS = 1, TX_JINJA_VALUES = 2, TX_JINJA_PAIRS = TX_JINJA_KEYS | TX_JINJA_VALUES };
enum { TX_JINJA_FALSE_ONES, TX_JINJA_TRUE_ONES = 1, TX_JINJA_BY_ATTRIBUTE = 2 };

/* A value of kind METHOD: a row, and the object of the method. */
typedef struct tx_jinja_bound {
    const tx_jinja_method *method;
    tx_jinja_value self;
} tx_jinja_bound;

/* Finds the row of this kind and name, or NULL. */
tx_jinja_finder tx_jinja_method_find;

/* The argument with this index or name; undefined if it is missing. */
tx_jinja_value tx_jinja_argument_of(const tx_jinja_call *c, size_t index, const char *name);
/* The argument as an integer, `usual` if it is missing. Fails for another kind. */
int64_t tx_jinja_integer_of(const tx_jinja_call *c, size_t index, const char *name, int64_t usual);
/* The argument as a string, NULL if it is missing or None. Fails for another kind. */
const tx_jinja_string *tx_jinja_string_of(const tx_jinja_call *c, size_t index, const char *name);
/* The same, but fails and returns an empty string if it is missing. */
const tx_jinja_string *tx_jinja_needed(const tx_jinja_call *c, size_t index, const char *name);
bool tx_jinja_is_space(uint32_t code); /* Python's str.isspace() */
/* `self` as a string, for methods of strings and filters of texts. */
const tx_jinja_string *tx_jinja_self(const tx_jinja_call *c);

/* Computes `format % arguments` as Python does. */
tx_jinja_value tx_jinja_percent(tx_jinja_arena *a, const tx_jinja_string *format, const tx_jinja_list *arguments);

#define TX_JINJA_METHOD_ROW(kind, name, function, ...) tx_jinja_function tx_jinja_do_##function;
#include "models/jinja/methods.def"
#undef TX_JINJA_METHOD_ROW

#endif
