/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of Jinja's expressions, as in Python. All memory of a rendering is one arena, which is freed at its end. The
 * first failure persists: functions then return undefined, and loops must check the status.
 *
 * Between two statements, memory is collected: a block is freed unless a pointer in a kept block leads to it. Code that
 * holds a value while statements may be executed must keep it. Only an evaluation can execute statements, because it
 * may call a macro; filters, tests and methods cannot. */
#ifndef TX_JINJA_VALUE_H
#define TX_JINJA_VALUE_H

#include "models/jinja/jinja.h"

typedef enum tx_jinja_kind {
    TX_JINJA_UNDEFINED,
    TX_JINJA_NONE,
    TX_JINJA_BOOL,
    TX_JINJA_INTEGER,
    TX_JINJA_NUMBER,
    TX_JINJA_STRING,
    TX_JINJA_LIST,
    TX_JINJA_TUPLE,
    TX_JINJA_DICT,
    TX_JINJA_NAMESPACE,
    TX_JINJA_MACRO,
    TX_JINJA_METHOD /* a function of the engine, maybe with an object */
} tx_jinja_kind;

/* A string; its bytes are UTF-8 without a NUL at the end. */
typedef struct tx_jinja_string {
    const char *bytes;
    size_t size;
    const uint8_t *flags; /* one for each byte, or NULL if all bytes have `all` */
    uint8_t all;
    bool safe; /* the operator + escapes the other operand */
} tx_jinja_string;

typedef struct tx_jinja_value tx_jinja_value;
typedef struct tx_jinja_dict tx_jinja_dict;
typedef struct tx_jinja_list tx_jinja_list;
struct tx_jinja_macro;
struct tx_jinja_bound;

struct tx_jinja_value {
    tx_jinja_kind kind;
    union {
        bool truth;
        int64_t integer;
        double number;
        tx_jinja_string *string;
        tx_jinja_list *list; /* LIST, TUPLE */
        tx_jinja_dict *dict; /* DICT, NAMESPACE */
        const struct tx_jinja_macro *macro;
        const struct tx_jinja_bound *bound;
    };
};

struct tx_jinja_list {
    tx_jinja_value *at;
    size_t count, room;
};

typedef struct tx_jinja_pair {
    tx_jinja_value key, value;
} tx_jinja_pair;

/* Pairs in the order of insertion. */
struct tx_jinja_dict {
    tx_jinja_pair *at;
    size_t count, room;
    size_t message; /* 1 + its index in `messages`, or 0 if it is not a message */
};

/* The last long sum of strings. A string that is added to it is written after it, so that a loop of ns.x = ns.x + y
 * does not copy ns.x each time. */
typedef struct tx_jinja_tail {
    char *bytes;
    uint8_t *flags;
    size_t size, room;
} tx_jinja_tail;

/* Memory and limits of a template or of a rendering. */
typedef struct tx_jinja_arena {
    struct tx_jinja_chunk *chunk;  /* permanent memory, which must not point to blocks */
    bool collects;                 /* memory is now taken as blocks */
    struct tx_jinja_block **block; /* in no order */
    size_t blocks, block_room;
    const void **kept; /* pointers into blocks that are not freed */
    size_t keeps, kept_room;
    size_t used, limit, collect_at; /* bytes */
    uint64_t steps, most_steps;
    tx_jinja_tail tail;
    int depth; /* of the value that is being compared */
    int line;  /* of the template, for messages */
    tx_status status;
} tx_jinja_arena;

#define TX_JINJA_DEPTH 100 /* of syntax, and of values that are compared or written */

/* ---- Memory and limits (memory.c) ----------------------------------------------------------------------- */

void tx_jinja_arena_free(tx_jinja_arena *a); /* the status remains */
/* Allocates zeroed memory; NULL after a failure. */
void *tx_jinja_take(tx_jinja_arena *a, size_t count, size_t size);
/* Counts memory outside the arena. False after a failure, or if the limit is exceeded. */
bool tx_jinja_charge(tx_jinja_arena *a, size_t bytes);
/* Keeps the block of a pointer until a->keeps is set back. */
void tx_jinja_keep(tx_jinja_arena *a, const void *pointer);
tx_jinja_value tx_jinja_keep_value(tx_jinja_arena *a, tx_jinja_value v); /* returns the value */
/* Frees the blocks that cannot be reached, if enough was taken since the last time. */
void tx_jinja_collect(tx_jinja_arena *a);
/* Records the first failure, with the line. Returns undefined. */
tx_jinja_value tx_jinja_fail(tx_jinja_arena *a, tx_status status, const char *format, ...) TX_PRINTF(3, 4);
/* Counts `count` steps. False after a failure, or if the limit is exceeded. */
bool tx_jinja_step(tx_jinja_arena *a, uint64_t count);
/* Counts a step and increments a->depth, which the caller decrements; false if the value is nested too deeply. */
bool tx_jinja_enter_value(tx_jinja_arena *a);

/* ---- Making (value.c) ----------------------------------------------------------------------------------- */

#define TX_JINJA_NOTHING ((tx_jinja_value){TX_JINJA_UNDEFINED, {0}})
tx_jinja_value tx_jinja_bool(bool truth);
tx_jinja_value tx_jinja_integer(int64_t integer);
tx_jinja_value tx_jinja_number(double number);
/* Makes a string that shares bytes and flags. */
tx_jinja_value tx_jinja_share(tx_jinja_arena *a, const char *bytes, size_t size, const uint8_t *flags, uint8_t all);
/* Makes a string of bytes begin..end-1 of another one, which shares its memory. */
tx_jinja_value tx_jinja_cut(tx_jinja_arena *a, const tx_jinja_string *s, size_t begin, size_t end);
tx_jinja_value tx_jinja_joined(tx_jinja_arena *a, const tx_jinja_string *x, const tx_jinja_string *y); /* x then y */
/* Joins two strings as + does. If one is safe, the other is escaped, and so is the result safe (markupsafe). */
tx_jinja_value tx_jinja_added(tx_jinja_arena *a, const tx_jinja_string *x, const tx_jinja_string *y);
tx_jinja_value tx_jinja_list_new(tx_jinja_arena *a, bool tuple);
void tx_jinja_append(tx_jinja_arena *a, tx_jinja_list *list, tx_jinja_value value);
tx_jinja_value tx_jinja_dict_new(tx_jinja_arena *a);
void tx_jinja_put(tx_jinja_arena *a, tx_jinja_dict *dict, tx_jinja_value key, tx_jinja_value value);
/* The value of a key, or NULL. */
const tx_jinja_value *tx_jinja_find(tx_jinja_arena *a, const tx_jinja_dict *dict, tx_jinja_value key);
const tx_jinja_value *tx_jinja_find_name(const tx_jinja_dict *dict, const char *name);
/* Sorts pairs by key; the sort is stable. `scratch` has room for `count` pairs. */
void tx_jinja_sort(tx_jinja_arena *a, tx_jinja_pair *pair, tx_jinja_pair *scratch, size_t count, bool reverse);
void tx_jinja_reverse(tx_jinja_list *list);
/* The element of a list or a string with an index, or the value of a dict's key; undefined if there is none. */
tx_jinja_value tx_jinja_member(tx_jinja_arena *a, tx_jinja_value of, tx_jinja_value key);
bool tx_jinja_as_index(tx_jinja_value v, int64_t *index); /* true for integers and bools */
/* Converts JSON to a value whose texts have these flags and live as long as `json`. */
tx_jinja_value tx_jinja_from_json(tx_jinja_arena *a, const tx_json *json, uint8_t flags);

/* ---- Asking (value.c) ----------------------------------------------------------------------------------- */

bool tx_jinja_truth(tx_jinja_value v);
bool tx_jinja_is_number(tx_jinja_value v); /* a bool is one, too, as in Python */
double tx_jinja_as_number(tx_jinja_value v);
bool tx_jinja_is_text(tx_jinja_value v, const char *text);
bool tx_jinja_equal(tx_jinja_arena *a, tx_jinja_value x, tx_jinja_value y);
/* Returns a negative number, 0 or a positive number. Fails for values that Python does not order. */
int tx_jinja_compare(tx_jinja_arena *a, tx_jinja_value x, tx_jinja_value y);
bool tx_jinja_contains(tx_jinja_arena *a, tx_jinja_value in, tx_jinja_value x);
/* The elements of an iteration: those of a list, the keys of a dict, the characters of a string. */
const tx_jinja_list *tx_jinja_elements(tx_jinja_arena *a, tx_jinja_value v);
const char *tx_jinja_kind_name(tx_jinja_value v); /* Python's: "str" */
/* The flags of the byte at `at`. */
static inline uint8_t tx_jinja_flags_at(const tx_jinja_string *s, size_t at)
{
    return s->flags ? s->flags[at] : s->all;
}
/* The size of the character at byte `at`. An invalid byte counts as a character with code 0. */
size_t tx_jinja_read(const tx_jinja_string *s, size_t at, uint32_t *code);
size_t tx_jinja_length(tx_jinja_arena *a, const tx_jinja_string *s); /* in characters */
/* The byte at which character `index` begins, or the size if there is no such character. */
size_t tx_jinja_offset(tx_jinja_arena *a, const tx_jinja_string *s, size_t index);
/* The byte at which `part` begins, at or after `from`; -1 if it is not found. */
int64_t tx_jinja_search(tx_jinja_arena *a, const tx_jinja_string *s, const tx_jinja_string *part, size_t from);

/* ---- Texts (text.c) ------------------------------------------------------------------------------------- */

/* A string under construction. Its memory counts as the arena's. */
typedef struct tx_jinja_sink {
    tx_jinja_arena *arena;
    tx_buffer bytes, flags;
    uint8_t more; /* additional flags of all bytes */
} tx_jinja_sink;

static inline tx_jinja_sink tx_jinja_sink_of(tx_jinja_arena *a)
{
    return (tx_jinja_sink){.arena = a, .bytes.limit = a->limit, .flags.limit = a->limit};
}

void tx_jinja_write(tx_jinja_sink *sink, const char *bytes, size_t size, uint8_t flags);
void tx_jinja_write_string(tx_jinja_sink *sink, const tx_jinja_string *s);
/* Writes the value as Python's str(); elements of lists and dicts as repr(). */
void tx_jinja_write_value(tx_jinja_arena *a, tx_jinja_sink *sink, tx_jinja_value v);
/* Moves the text to a string in the arena, and frees the sink. */
tx_jinja_value tx_jinja_written(tx_jinja_arena *a, tx_jinja_sink *sink);
/* Concatenates the strings of a list. */
tx_jinja_value tx_jinja_concatenated(tx_jinja_arena *a, const tx_jinja_list *list);
/* str(v); returns the value itself if it is a string. */
const tx_jinja_string *tx_jinja_str(tx_jinja_arena *a, tx_jinja_value v);

typedef struct tx_jinja_json_form {
    int indent; /* -1 for a single line */
    bool ascii, sorted;
    const tx_jinja_string *between, *colon; /* NULL means Python's defaults */
} tx_jinja_json_form;
/* Writes the value as Python's json.dumps does. */
tx_jinja_value tx_jinja_dump(tx_jinja_arena *a, tx_jinja_value v, const tx_jinja_json_form *form);

#endif
