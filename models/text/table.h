/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of named columns. In .csv (RFC 4180) quoted fields may contain commas, line ends, and quotes written twice. In
 * .tsv only tabs divide, and quotes are text. In .jsonl or .json each line is an object whose keys are the columns. */
#ifndef TX_TEXT_TABLE_H
#define TX_TEXT_TABLE_H

#include "models/text/buffer.h"

typedef struct tx_cell {
    size_t at, size; /* of its bytes */
} tx_cell;

/* The first row of a .csv or .tsv file has the names of the columns. In a .jsonl file the keys of the first line are
 * the names, and every other line must have them. Numbers of a .jsonl file keep their spelling. */
typedef struct tx_table {
    char *path;
    tx_buffer bytes; /* of the cells, each with a NUL at the end */
    int32_t columns;
    int64_t rows;
    tx_cell *cell;          /* [1 + rows, columns]; row 0 has the names */
    int64_t skip_bad;       /* number of malformed rows to skip; more are an error */
    int64_t bad, first_bad; /* number of skipped rows, and the first one, from 1 */
    size_t cells, cells_room;
} tx_table;

/* Reads a file, and skips up to `skip_bad` malformed rows. TX_FORMAT names the first other malformed row, counted from
 * 1 without the names, or says that there are no rows. TX_INVALID if the name has another ending. On failure
 * `*table` is {0}. */
tx_status tx_table_open(const char *path, int64_t skip_bad, tx_table *table);
void tx_table_close(tx_table *table); /* {0} is fine */
/* Reports the number of skipped rows, if there are any. */
void tx_table_report(const tx_table *table, const char *path, const tx_reporter *report);
/* Counts row `row`, from 0, whose cells do not fit the task, as skipped. Returns `status` and names the row if skip_bad
 * does not allow one more, or if the status is not TX_FORMAT. */
tx_status tx_table_skip(tx_table *table, int64_t row, tx_status status);
/* The index of the column with this name, or -1. */
int32_t tx_table_column(const tx_table *table, const char *name);
/* Fails with TX_FORMAT because there is no column `name`. The message lists the columns and names the option. */
tx_status tx_table_fail_column(const tx_table *table, const char *name, const char *option);
/* The text at row `row`, from 0 on, and its size; a NUL follows. NULL if the row is malformed. */
const char *tx_table_text(const tx_table *table, int64_t row, int32_t column, size_t *size);

#endif
