/* SPDX-License-Identifier: Apache-2.0
 *
 * The columns of an Arrow schema and their buffers in the current record batch. */
#ifndef TX_ARROW_COLUMNS_H
#define TX_ARROW_COLUMNS_H

#include "models/arrow/flat.h"
#include "models/parquet/text.h"

/* How a column stores its values. */
typedef enum tx_arrow_kind {
    TX_ARROW_NULL,
    TX_ARROW_BOOL,
    TX_ARROW_FIXED,     /* values of `width` bytes */
    TX_ARROW_BYTES,     /* offsets of `width` bytes, and the bytes */
    TX_ARROW_VIEW,      /* 16 bytes: the size, and the bytes or their place in one of the parts */
    TX_ARROW_LIST,      /* offsets of `width` bytes into the child */
    TX_ARROW_LIST_VIEW, /* offsets and, in `data`, sizes */
    TX_ARROW_MAP,       /* the same; the child has the keys and the values */
    TX_ARROW_FIXED_LIST,
    TX_ARROW_STRUCT,
    TX_ARROW_RUNS /* the children have the ends of runs and their values */
} tx_arrow_kind;

typedef struct tx_arrow_part {
    const uint8_t *data;
    int64_t bytes;
} tx_arrow_part;

typedef struct tx_arrow_column {
    tx_pq_node leaf; /* name and type, as tx_pq_write_value reads them */
    tx_arrow_kind kind;
    int32_t width; /* bytes of a value or an offset */
    int64_t ticks; /* by which an integer is multiplied, or divided if negative; 1 for most */
    int32_t size;  /* items of a FIXED_LIST */
    int32_t count; /* of children: columns child, next of child, ... */
    int32_t child, next;
    int32_t dictionary; /* the column of the values if these are numbers of a dictionary, else -1 */

    /* In the current batch. */
    int64_t length;
    const uint8_t *valid; /* bits; NULL if no value is null */
    const uint8_t *offsets, *data;
    int64_t bytes; /* of data */
    tx_arrow_part *part;
    int64_t parts;
} tx_arrow_column;

/* The memory of a batch. */
typedef struct tx_arrow_memory {
    tx_buffer stored; /* as in the file */
    void **converted; /* buffers that were decompressed, and lists of parts */
    size_t count, room;
} tx_arrow_memory;

typedef struct tx_arrow_dictionary {
    int64_t id;
    int32_t column; /* of its values */
    bool read;
    tx_arrow_memory memory;
} tx_arrow_dictionary;

typedef struct tx_arrow_schema {
    tx_arrow_column *column; /* column 0 is the row, a struct */
    size_t count, room;
    tx_arrow_dictionary *dictionary;
    size_t dictionaries, dictionaries_room;
    bool old; /* before version 5, in which runs have no bits for nulls */
} tx_arrow_schema;

/* Makes the columns of a Schema table (schema.c). Free them after success and failure. Messages lack the file's name.
 */
tx_status tx_arrow_read_schema(tx_flat *flat, tx_flat_at schema, tx_arrow_schema *columns);
void tx_arrow_columns_free(tx_arrow_schema *columns);

/* Sets the buffers of a column and of those below it from a RecordBatch table, whose body is in memory->stored
 * (batch.c). */
tx_status tx_arrow_read_batch(tx_flat *flat, tx_flat_at batch, tx_arrow_schema *columns, int32_t column,
                              tx_arrow_memory *memory);
void tx_arrow_memory_free(tx_arrow_memory *memory); /* sets it to {0} */

#endif
