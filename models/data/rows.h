/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of a data file of any format, as typed values. prepare.c and txcheck read them in their order; tasks read
 * them by number (models/task/reader.h), and some of them by column. */
#ifndef TX_DATA_ROWS_H
#define TX_DATA_ROWS_H

#include "tx.h"
#include "tx_json.h"

typedef struct tx_rows tx_rows;

/* Files by their ending. */
typedef enum tx_rows_kind {
    TX_ROWS_NONE,  /* another ending */
    TX_ROWS_JSON,  /* .jsonl, .json: an object a line, or an array of objects */
    TX_ROWS_TABLE, /* .csv, .tsv: the first row names the columns; all values are strings */
    TX_ROWS_TEXT,  /* .txt, .raw, .tokens: each line, with its end, is the value of "text" */
    TX_ROWS_BINARY /* .parquet, .arrow; their rows have no numbers */
} tx_rows_kind;

tx_rows_kind tx_rows_kind_of(const char *path);

/* Opens a file, which the message of a failure names. Another ending is TX_INVALID. The caller closes it. */
tx_status tx_rows_open(const char *path, tx_rows **rows);
void tx_rows_close(tx_rows *rows); /* NULL is fine */

/* Moves to the next row; `*more` is false after the last. Blank lines are left out. The path begins the message of a
 * failure. */
tx_status tx_rows_next(tx_rows *rows, bool *more);
/* The current row as an object. TX_FORMAT if it is malformed. Valid until the next move. */
tx_status tx_rows_object(tx_rows *rows, const tx_json **row);
/* The current row as the text of an object in one line, as it is in the file if that has such lines. */
tx_status tx_rows_line(tx_rows *rows, const char **text, size_t *size);

/* Reads the first object of a JSON file. Its "text" may be left out if it is long. `*row` is NULL if the file has no
 * object, cannot be read, or is no JSON file. The caller frees it. */
tx_status tx_rows_first(const char *path, tx_json **row);

/* ---- By number --------------------------------------------------------------------------------------------------- */

/* Finds the positions of all rows. TX_FORMAT if there are none. */
tx_status tx_rows_index(tx_rows *rows);
int64_t tx_rows_count(const tx_rows *rows);
/* Moves to row `number`, from 0 on, and reads it as tx_rows_object. */
tx_status tx_rows_read(tx_rows *rows, int64_t number, const tx_json **row);

/* Ends the use of row `number`, which failed with `status` or is fine. If that is TX_FORMAT and fewer than `most` rows
 * are skipped, the row is skipped, too. Otherwise the position of the row is added to the message. */
tx_status tx_rows_skip(tx_rows *rows, int64_t number, int64_t most, tx_status status);
bool tx_rows_is_skipped(const tx_rows *rows, int64_t number);
/* Reports how many rows were skipped, if any. */
void tx_rows_report(const tx_rows *rows, const tx_reporter *report);

/* ---- By column --------------------------------------------------------------------------------------------------- */

/* Finds the names of the columns: those of a table, or the keys of the first object, which all others must have. */
tx_status tx_rows_columns(tx_rows *rows);
/* The index of the first column with this name, or -1. */
int32_t tx_rows_column(const tx_rows *rows, const char *name);
/* The name of a column, or NULL after the last one. */
const char *tx_rows_name(const tx_rows *rows, int32_t column);
/* Fails with TX_FORMAT because there is no column `name`. The message lists the columns, and names the option that
 * chooses one, unless it is NULL. */
tx_status tx_rows_fail_column(const tx_rows *rows, const char *name, const char *option);
/* The value of the current row as text, "" for null and JSON if it is no string; a NUL follows. Valid until the next
 * move. tx_rows_skip returns a failure. */
const char *tx_rows_text(tx_rows *rows, int32_t column, size_t *size);
/* The value if it has this type, or if it is a string that holds such a value as JSON, as a table has it; else NULL.
 * Valid until the next move. */
const tx_json *tx_rows_value(tx_rows *rows, int32_t column, tx_json_type type);

#endif
