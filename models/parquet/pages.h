/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of one leaf in one row group, page by page. rows.c reads a column of each leaf side by side. */
#ifndef TX_PARQUET_PAGES_H
#define TX_PARQUET_PAGES_H

#include "models/parquet/decode.h"

typedef struct tx_pq_column {
    const tx_data_file *file;
    const tx_pq_node *leaf;
    tx_pq_chunk chunk;
    int64_t at, left; /* the next page, and the values in it and after it */

    tx_buffer stored, data, decoded; /* the page as the file has it, decompressed, and bytes that were put together */
    tx_buffer dictionary_data;
    tx_pq_value *dictionary;
    size_t dictionary_room;
    int64_t dictionary_count;

    /* The entries of the page: levels of each, and the values of those whose definition level is the leaf's. */
    uint8_t *def, *rep;
    size_t def_room, rep_room;
    tx_pq_value *value;
    size_t value_room;
    uint32_t *number; /* levels or indices of the dictionary while a page is read */
    size_t number_room;
    int64_t count, entry; /* entries of the page, and the one that is next */
    int64_t next_value;
} tx_pq_column;

/* Begins a chunk; the column keeps its memory. */
void tx_pq_column_begin(tx_pq_column *column, const tx_data_file *file, const tx_pq_node *leaf,
                        const tx_pq_chunk *chunk);
/* Makes sure that entry `column->entry` exists, by reading the next page if need be. TX_FORMAT at the end of the chunk.
 */
tx_status tx_pq_column_fill(tx_pq_column *column);
void tx_pq_column_free(tx_pq_column *column);

#endif
