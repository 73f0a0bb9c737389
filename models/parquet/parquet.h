/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads Parquet files row by row, as JSON objects. The data flow is
 *
 *     file --metadata.c--> schema and row groups --pages.c, decode.c--> values of a page --rows.c--> JSON text
 *
 * Each column holds one page at a time, so memory is bounded by the pages of a row group and does not grow with the
 * file. Files come from strangers: damage is TX_FORMAT with the file's name, never a crash.
 * Format: https://github.com/apache/parquet-format. */
#ifndef TX_PARQUET_PARQUET_H
#define TX_PARQUET_PARQUET_H

#include "tx.h"

typedef struct tx_parquet tx_parquet;

/* Opens a file and reads its schema. TX_UNSUPPORTED names what TX does not read (encryption, LZO, a type). The caller
 * closes it. */
tx_status tx_parquet_open(const char *path, tx_parquet **file);
void tx_parquet_close(tx_parquet *file); /* NULL is fine */

int64_t tx_parquet_rows(const tx_parquet *file);
/* The number of columns at the top of the schema. */
int32_t tx_parquet_columns(const tx_parquet *file);

/* The next row as the text of a JSON object without a newline; 0 bytes after the last row. The text is valid until the
 * next call.
 *   string, enum, JSON, UUID     string; bytes that are not UTF-8 are TX_FORMAT with the column and the row
 *   integer, float, decimal      number; null for NaN and infinity
 *   date, time, timestamp        string in ISO 8601
 *   list, struct                 array, object
 *   map                          object, or an array of {"key", "value"} if the keys are not strings */
tx_status tx_parquet_next(tx_parquet *file, const char **row, size_t *size);

#endif
