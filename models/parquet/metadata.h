/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema and the row groups of a Parquet file, as its footer stores them. */
#ifndef TX_PARQUET_METADATA_H
#define TX_PARQUET_METADATA_H

#include "models/files/data_file.h"

/* Nesting of a schema. */
#define TX_PQ_DEPTH 32

/* Physical types, numbered as in the format. */
typedef enum tx_pq_type {
    TX_PQ_BOOLEAN,
    TX_PQ_INT32,
    TX_PQ_INT64,
    TX_PQ_INT96,
    TX_PQ_FLOAT,
    TX_PQ_DOUBLE,
    TX_PQ_BYTES,
    TX_PQ_FIXED_BYTES,
    TX_PQ_TYPES
} tx_pq_type;

/* The logical type of a value. */
typedef enum tx_pq_meaning {
    TX_PQ_PLAIN, /* the physical type says it */
    TX_PQ_STRING,
    TX_PQ_MAP,
    TX_PQ_LIST,
    TX_PQ_DECIMAL,
    TX_PQ_DATE,
    TX_PQ_TIME,
    TX_PQ_TIMESTAMP,
    TX_PQ_UNSIGNED,
    TX_PQ_HALF,
    TX_PQ_UUID,
    TX_PQ_INTERVAL
} tx_pq_meaning;

typedef enum tx_pq_repetition { TX_PQ_REQUIRED, TX_PQ_OPTIONAL, TX_PQ_REPEATED } tx_pq_repetition;

typedef struct tx_pq_node tx_pq_node;
struct tx_pq_node {
    char *name;
    tx_pq_repetition repetition;
    tx_pq_meaning meaning;
    tx_pq_type type;      /* of a leaf */
    int32_t width;        /* bytes of a value of FIXED_BYTES */
    int32_t scale;        /* of a decimal */
    int32_t second;       /* ticks of a second, as a power of ten: 3, 6 or 9. Of times and timestamps */
    bool utc;             /* of a timestamp */
    int32_t def, rep;     /* the highest definition and repetition level of this node */
    int32_t child, count; /* its children are nodes child, next of child, ...; no children: a leaf */
    int32_t next;         /* the node after this one and all below it */
    int32_t leaf;         /* the number of the first leaf at or below this node */
    int32_t leaves;       /* the number of leaves at or below it */
};

/* Where a row group stores the values of a leaf. */
typedef struct tx_pq_chunk {
    int64_t begin, end; /* bytes of the file: all pages */
    int64_t values;
    int32_t codec;
} tx_pq_chunk;

typedef struct tx_pq_metadata {
    tx_pq_node *node; /* in the order of the file; node 0 is the root */
    int32_t nodes, leaves;
    int32_t *leaf; /* node of each leaf */
    int32_t groups;
    int64_t *group_rows;
    tx_pq_chunk *chunk; /* [groups, leaves] */
    int64_t rows;
} tx_pq_metadata;

tx_status tx_pq_metadata_read(const tx_data_file *file, tx_pq_metadata *metadata);
/* Frees everything and leaves {0}. */
void tx_pq_metadata_free(tx_pq_metadata *metadata);

#endif
