/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of named columns. In .csv (RFC 4180) quoted fields may contain commas, line ends, and quotes written twice. In
 * .tsv only tabs divide, and quotes are text. In .jsonl or .json each line is an object whose keys are the columns.
 * Rows are read from the file on demand: only the position of each is in memory. */
#ifndef TX_TEXT_TABLE_H
#define TX_TEXT_TABLE_H

#include "models/text/buffer.h"
#include "models/text/lines.h"

typedef struct tx_cell {
    size_t at, size; /* of its bytes */
} tx_cell;

typedef struct tx_cells {
    tx_buffer bytes; /* of the cells, each with a NUL at the end */
    tx_cell *cell;   /* [count] */
    size_t count, room;
} tx_cells;

/* The first row of a .csv or .tsv file has the names of the columns. In a .jsonl file the keys of the first line are
 * the names, and every other line must have them. Numbers of a .jsonl file keep their spelling. Do not move it while it
 * is open. */
typedef struct tx_table {
    tx_data_file file;
    tx_lines lines;
    char divider;   /* of fields; NUL for objects */
    tx_buffer text; /* of a row of several lines */
    int64_t at;     /* position of the row that was read last */
    tx_cells names; /* of the columns */
    tx_cells cells; /* of the row that was read last */
    int32_t columns;
    int64_t rows, *row; /* [rows]: position of each row, or TX_TABLE_SKIPPED */
    size_t room;
    int64_t skip_bad;       /* number of malformed rows to skip; more are an error */
    int64_t bad, first_bad; /* number of skipped rows, and the first one, from 1 */
} tx_table;

#define TX_TABLE_SKIPPED (-1)

/* Opens a file and checks all rows. Skips up to `skip_bad` malformed rows. TX_FORMAT names the first other malformed
 * row, counted from 1 without the names, or says that there are no rows. TX_INVALID if the name has another ending. On
 * failure `*table` is {0}. */
tx_status tx_table_open(const char *path, int64_t skip_bad, tx_table *table);
void tx_table_close(tx_table *table); /* {0} is fine */
/* Reports the number of skipped rows, if there are any. */
void tx_table_report(const tx_table *table, const tx_reporter *report);
/* Reads row `row`, from 0 on, which is not skipped. */
tx_status tx_table_read(tx_table *table, int64_t row);
/* Counts row `row`, whose cells do not fit the task, as skipped. Returns `status` and names the row if skip_bad does
 * not allow one more, or if the status is not TX_FORMAT. */
tx_status tx_table_skip(tx_table *table, int64_t row, tx_status status);
/* The index of the column with this name, or -1. */
int32_t tx_table_column(const tx_table *table, const char *name);
/* Fails with TX_FORMAT because there is no column `name`. The message lists the columns, and names the option that
 * chooses one, unless it is NULL. */
tx_status tx_table_fail_column(const tx_table *table, const char *name, const char *option);
/* The text in a column of the row that was read last, and its size; a NUL follows. Valid until the next row is read. */
const char *tx_table_text(const tx_table *table, int32_t column, size_t *size);
/* The name of a column, as tx_table_text. */
const char *tx_table_name(const tx_table *table, int32_t column, size_t *size);

#endif
