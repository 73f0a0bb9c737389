/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads Thrift's compact protocol, in which Parquet stores its headers. metadata.c and pages.c use it. The bytes come
 * from a file and may be damaged: a read past the end sets `bad` and returns 0, and so does every read after it, so
 * that callers check `bad` once at the end. */
#ifndef TX_PARQUET_THRIFT_H
#define TX_PARQUET_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tx_thrift_type {
    TX_THRIFT_TRUE = 1,
    TX_THRIFT_FALSE,
    TX_THRIFT_BYTE,
    TX_THRIFT_I16,
    TX_THRIFT_I32,
    TX_THRIFT_I64,
    TX_THRIFT_DOUBLE,
    TX_THRIFT_BINARY,
    TX_THRIFT_LIST,
    TX_THRIFT_SET,
    TX_THRIFT_MAP,
    TX_THRIFT_STRUCT
} tx_thrift_type;

typedef struct tx_thrift {
    const uint8_t *at, *end;
    bool bad;
} tx_thrift;

/* One field of a struct. Begin a struct with {0}. */
typedef struct tx_thrift_field {
    int16_t id;
    uint8_t type; /* tx_thrift_type */
} tx_thrift_field;

/* Reads the header of the next field. Returns false at the end of the struct or when `bad` is set. */
bool tx_thrift_next(tx_thrift *t, tx_thrift_field *field);
/* The value of a field that is an integer of any width. */
int64_t tx_thrift_int(tx_thrift *t, tx_thrift_field field);
/* Reads an integer to to[field.id], or skips the field if it has no place there. */
void tx_thrift_take(tx_thrift *t, tx_thrift_field field, int64_t *const *to, size_t count);
/* The value of a field that is a truth. */
bool tx_thrift_bool(tx_thrift *t, tx_thrift_field field);
/* The value of a field that is a string or binary. The bytes belong to the buffer that is read. */
const uint8_t *tx_thrift_binary(tx_thrift *t, tx_thrift_field field, size_t *size);
/* Begins a list: returns its length, and the type of its elements in `element`, which is then read as a field. A list
 * is never longer than the bytes that are left. */
size_t tx_thrift_list(tx_thrift *t, tx_thrift_field field, tx_thrift_field *element);
/* Checks that a field is a struct, whose fields follow. */
void tx_thrift_struct(tx_thrift *t, tx_thrift_field field);
/* Skips the value of a field. */
void tx_thrift_skip(tx_thrift *t, tx_thrift_field field);

#endif
