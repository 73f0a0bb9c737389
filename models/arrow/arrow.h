/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads Arrow IPC files and streams row by row, as JSON objects. The data flow is
 *
 *     file --flat.c--> messages --schema.c--> columns --batch.c--> buffers of a record batch --rows.c--> JSON text
 *
 * One record batch is in memory at a time, and the dictionaries. Files come from strangers: damage is TX_FORMAT with
 * the file's name, never a crash. Format: https://arrow.apache.org/docs/format/Columnar.html. */
#ifndef TX_ARROW_ARROW_H
#define TX_ARROW_ARROW_H

#include "tx.h"

typedef struct tx_arrow tx_arrow;

/* Opens a file or stream and reads its schema. TX_UNSUPPORTED names a type that TX does not read. The caller closes it.
 */
tx_status tx_arrow_open(const char *path, tx_arrow **file);
void tx_arrow_close(tx_arrow *file); /* NULL is fine */

/* The number of columns at the top of the schema. */
int32_t tx_arrow_columns(const tx_arrow *file);

/* The next row as the text of a JSON object without a newline; 0 bytes after the last row. The text is valid until the
 * next call. Values are written as tx_parquet_next writes them. */
tx_status tx_arrow_next(tx_arrow *file, const char **row, size_t *size);

#endif
