/* SPDX-License-Identifier: Apache-2.0
 * Fields of rows of text. */
#include "models/data/cells.h"

#include <stdlib.h>

void tx_cells_clear(tx_cells *cells)
{
    tx_buffer_clear(&cells->bytes);
    cells->count = 0;
}

void tx_cells_free(tx_cells *cells)
{
    free(cells->bytes.data);
    free(cells->at);
}

/* Ends the cell that begins at byte `begin`. */
static tx_status end_cell(tx_cells *to, size_t begin)
{
    TX_TRY(tx_array_reserve(&to->at, &to->room, to->count + 1, sizeof *to->at, "cells of a row"));
    to->at[to->count++] = begin;
    tx_buffer_add(&to->bytes, "", 1);
    return to->bytes.status;
}

tx_status tx_cells_add(tx_cells *cells, const char *text, size_t size)
{
    const size_t begin = cells->bytes.size;
    tx_buffer_add(&cells->bytes, text, size);
    return end_cell(cells, begin);
}

const char *tx_cells_at(const tx_cells *cells, size_t cell, size_t *size)
{
    const size_t end = cell + 1 < cells->count ? cells->at[cell + 1] : cells->bytes.size;
    *size = end - cells->at[cell] - 1;
    return cells->bytes.data + cells->at[cell];
}

int32_t tx_cells_find(const tx_cells *cells, const char *text)
{
    for (size_t i = 0; i < cells->count; i++)
        if (strcmp(cells->bytes.data + cells->at[i], text) == 0)
            return (int32_t)i;
    return -1;
}

/* ---- Fields ---------------------------------------------------------------------------------------------------- */

/* Copies a quoted field. `*at` is after the opening quote and is moved after the closing one. */
static void read_quoted(tx_cells *to, const char **at, const char *end)
{
    for (bool twice = true; twice;) {
        const char *quote = memchr(*at, '"', (size_t)(end - *at));
        twice = quote + 1 < end && quote[1] == '"';
        tx_buffer_add(&to->bytes, *at, (size_t)(quote - *at) + twice);
        *at = quote + 1 + twice;
    }
}

/* Reads a field up to the divider or the end of the line. */
static tx_status read_field(tx_cells *to, const char **at, const char *end, char divider)
{
    const size_t begin = to->bytes.size;
    if (divider == ',' && *at < end && **at == '"') {
        ++*at;
        read_quoted(to, at, end);
    }
    const char *c = *at;
    while (c < end && *c != divider && *c != '\n')
        c++;
    size_t size = (size_t)(c - *at);
    if (size && (c == end || *c == '\n') && c[-1] == '\r')
        size--;
    tx_buffer_add(&to->bytes, *at, size);
    *at = c;
    return end_cell(to, begin);
}

tx_status tx_cells_split(tx_cells *cells, const char *row, size_t size, char divider)
{
    const char *at = row, *end = row + size;
    TX_TRY(read_field(cells, &at, end, divider));
    while (at < end && *at == divider) {
        at++;
        TX_TRY(read_field(cells, &at, end, divider));
    }
    return TX_OK;
}
