/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of named columns: .csv (RFC 4180: fields in quotes may hold commas, quotes written twice, and ends of lines),
 * .tsv (tabs alone divide, quotes are text), .jsonl or .json (an object a line, whose keys are the columns). */
#ifndef TX_TEXT_TABLE_H
#define TX_TEXT_TABLE_H

#include "models/text/buffer.h"

typedef struct tx_cell {
    size_t at, size; /* of its bytes */
} tx_cell;

/* The first row of a .csv or .tsv file names the columns; a .jsonl file has those of its first line, and every other
 * line has them too. Numbers of a .jsonl file are as they are spelled there. */
typedef struct tx_table {
    char *path;
    tx_buffer bytes; /* of the cells, a NUL after each */
    int32_t columns;
    int64_t rows;
    tx_cell *cell;          /* [1 + rows, columns]; row 0: the names */
    int64_t skip_bad;       /* malformed rows that are left out; more fail */
    int64_t bad, first_bad; /* such rows, which have a number and no cells, and the number of the first */
    size_t cells, cells_room;
} tx_table;

/* TX_FORMAT says which row is no row of such a file, counted from 1 without that of the names, or that there is none;
 * TX_INVALID: the name's ending is of another kind. `skip_bad` malformed rows are left out. Leaves {0} on failure.
 */
tx_status tx_table_open(const char *path, int64_t skip_bad, tx_table *table);
void tx_table_close(tx_table *table); /* {0} is fine */
/* The column of this name; -1: there is none. */
int32_t tx_table_column(const tx_table *table, const char *name);
/* The text at row `row`, from 0 on, and its size; a NUL follows. NULL if the row was left out. */
const char *tx_table_text(const tx_table *table, int64_t row, int32_t column, size_t *size);

#endif
