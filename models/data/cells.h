/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of a row of a .csv or .tsv file, and names of columns. */
#ifndef TX_DATA_CELLS_H
#define TX_DATA_CELLS_H

#include "models/tokenizer/buffer.h"

/* Begin with {0}, end with tx_cells_free. */
typedef struct tx_cells {
    tx_buffer bytes; /* of the cells, each with a NUL at the end */
    size_t *at;      /* [count]: the first byte of each */
    size_t count, room;
} tx_cells;

void tx_cells_clear(tx_cells *cells);
void tx_cells_free(tx_cells *cells);
tx_status tx_cells_add(tx_cells *cells, const char *text, size_t size);
/* The text of a cell, and its size; a NUL follows. */
const char *tx_cells_at(const tx_cells *cells, size_t cell, size_t *size);
/* The first cell with this text, or -1. */
int32_t tx_cells_find(const tx_cells *cells, const char *text);
/* Adds the fields of a row. If a comma divides them (RFC 4180), a field in quotes, which are closed, may contain
 * commas, line ends, and quotes written twice. If a tab divides them, quotes are text. */
tx_status tx_cells_split(tx_cells *cells, const char *row, size_t size, char divider);

#endif
