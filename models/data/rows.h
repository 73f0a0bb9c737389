/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of a data file, one after the other, each as the text of a JSON object. prepare.c puts rows of several files
 * together. */
#ifndef TX_DATA_ROWS_H
#define TX_DATA_ROWS_H

#include "tx.h"

typedef struct tx_rows tx_rows;

/* Opens a file by its ending; another one is TX_INVALID. The caller closes it.
 *   .parquet, .arrow        one object for each row
 *   .jsonl, .json           an object a line
 *   .csv, .tsv              the first row names the columns; all values are strings
 *   .txt, .raw, .tokens     each line, with its end, is the value of "text" */
tx_status tx_rows_open(const char *path, tx_rows **rows);
void tx_rows_close(tx_rows *rows); /* NULL is fine */
/* The next row, without a newline; 0 bytes after the last one. The text is valid until the next call. Blank lines are
 * left out. */
tx_status tx_rows_next(tx_rows *rows, const char **row, size_t *size);

/* Whether a path has the ending of a file of plain text. */
bool tx_rows_is_text(const char *path);
/* Whether a path has the ending of a table of text. */
bool tx_rows_is_table(const char *path);
/* Whether a path has the ending of a file that is not text and that only this reads. */
bool tx_rows_is_binary(const char *path);

#endif
