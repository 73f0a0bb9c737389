/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a Python pickle as data. Nothing is imported or called: a call is a value that names its function and has its
 * arguments. The format is that of Python's pickletools, protocols 2 to 4. */
#ifndef TX_FILES_PICKLE_H
#define TX_FILES_PICKLE_H

#include "tx.h"

typedef enum tx_pickle_kind {
    TX_PICKLE_OTHER, /* None, floats and bytes */
    TX_PICKLE_INT,
    TX_PICKLE_TEXT,
    TX_PICKLE_GLOBAL,    /* a class or function; its name without its module */
    TX_PICKLE_LIST,      /* a tuple, too */
    TX_PICKLE_DICT,      /* items are keys and values in turn */
    TX_PICKLE_CALL,      /* the first two items are the function and its arguments; dict items may follow */
    TX_PICKLE_PERSISTENT /* one item: what persistent_id() returned */
} tx_pickle_kind;

typedef struct tx_pickle_value {
    tx_pickle_kind kind;
    int32_t size;        /* of the text or name */
    int32_t first, last; /* items, or -1 */
    int32_t state;       /* the value that BUILD gave to it: the attributes of an object; or -1 */
    union {
        int64_t number;
        const char *text; /* in the pickle, without a NUL */
    };
} tx_pickle_value;

typedef struct tx_pickle_item {
    int32_t value, next;
} tx_pickle_item;

typedef struct tx_pickle {
    tx_pickle_value *value;
    tx_pickle_item *item;
    int32_t values, items, root;
    size_t bytes; /* of the pickle, which other bytes may follow */
} tx_pickle;

/* Parses the pickle that begins at `text`, of which there are `size` bytes. The text must outlive the result. TX_FORMAT
 * if it ends early or has an opcode that data do not need. Memory is bounded by a small multiple of `size`. */
tx_status tx_pickle_parse(const char *text, size_t size, tx_pickle *pickle);
void tx_pickle_free(tx_pickle *pickle);

/* The value of item `index`, or NULL if there is none. */
const tx_pickle_value *tx_pickle_at(const tx_pickle *pickle, const tx_pickle_value *value, int32_t index);
/* The attribute of that name of an object, or NULL if it has none. */
const tx_pickle_value *tx_pickle_attribute(const tx_pickle *pickle, const tx_pickle_value *object, const char *name);
/* True if the value is a call of the function or class `name`. */
bool tx_pickle_calls(const tx_pickle *pickle, const tx_pickle_value *value, const char *name);
/* True if the value has this kind and text; `value` may be NULL. */
bool tx_pickle_is(const tx_pickle_value *value, tx_pickle_kind kind, const char *text);

#endif
