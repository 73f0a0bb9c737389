/* SPDX-License-Identifier: Apache-2.0
 * Rows of files of several formats. */
#include "models/data/rows.h"

#include "models/arrow/arrow.h"
#include "models/names.h"
#include "models/parquet/parquet.h"
#include "models/parquet/text.h"
#include "models/text/lines.h"
#include "models/text/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct tx_rows {
    tx_status (*next)(tx_rows *rows, const char **row, size_t *size);
    tx_parquet *parquet;
    tx_arrow *arrow;
    tx_data_file file;
    tx_lines lines;
    tx_table table;
    int64_t row; /* of the table */
    tx_buffer text;
};

static tx_status next_of_parquet(tx_rows *r, const char **row, size_t *size)
{
    return tx_parquet_next(r->parquet, row, size);
}

static tx_status next_of_arrow(tx_rows *r, const char **row, size_t *size)
{
    return tx_arrow_next(r->arrow, row, size);
}

static tx_status next_of_json(tx_rows *r, const char **row, size_t *size)
{
    char *line = NULL;
    do {
        TX_TRY(tx_lines_next(&r->lines, &line, size));
        if (*size == 0)
            return TX_OK;
    } while (tx_line_is_blank(line, *size));
    while (line[*size - 1] == '\n' || line[*size - 1] == '\r')
        --*size;
    *row = line;
    return TX_OK;
}

static tx_status add_member(tx_rows *r, const char *path, const char *key, const char *text, size_t size)
{
    if (!tx_pq_write_string(&r->text, key, strlen(key)))
        return tx_fail(TX_FORMAT, "%s: a column's name is not UTF-8", path);
    tx_buffer_add(&r->text, ": ", 2);
    if (!tx_pq_write_string(&r->text, text, size))
        return tx_fail(TX_FORMAT, "%s: row %" PRId64 ", column %s: not UTF-8", path, r->row + 1, key);
    return r->text.status;
}

static tx_status next_of_text(tx_rows *r, const char **row, size_t *size)
{
    char *line = NULL;
    TX_TRY(tx_lines_next(&r->lines, &line, size));
    if (*size == 0)
        return TX_OK;
    tx_buffer_clear(&r->text);
    tx_buffer_add(&r->text, "{", 1);
    TX_TRY(add_member(r, r->file.path, "text", line, *size));
    r->row++;
    tx_buffer_add(&r->text, "}", 1);
    *row = r->text.data;
    *size = r->text.size;
    return r->text.status;
}

static tx_status next_of_table(tx_rows *r, const char **row, size_t *size)
{
    tx_table *t = &r->table;
    *size = 0;
    if (r->row == t->rows)
        return TX_OK;
    TX_TRY(tx_fail_in(tx_table_read(t, r->row), "%s", t->file.path));
    tx_buffer_clear(&r->text);
    tx_buffer_add(&r->text, "{", 1);
    for (int32_t c = 0; c < t->columns; c++) {
        size_t name, bytes = 0;
        const char *key = tx_table_name(t, c, &name), *text = tx_table_text(t, c, &bytes);
        tx_buffer_add(&r->text, ", ", c ? 2 : 0);
        TX_TRY(add_member(r, t->file.path, key, text, bytes));
    }
    r->row++;
    tx_buffer_add(&r->text, "}", 1);
    *row = r->text.data;
    *size = r->text.size;
    return r->text.status;
}

tx_status tx_rows_next(tx_rows *rows, const char **row, size_t *size)
{
    return rows->next(rows, row, size);
}

/* ---- Opening ------------------------------------------------------------------------------------------------- */

bool tx_rows_is_text(const char *path)
{
    return tx_ends_with(path, ".txt") || tx_ends_with(path, ".raw") || tx_ends_with(path, ".tokens");
}

bool tx_rows_is_table(const char *path)
{
    return tx_ends_with(path, ".csv") || tx_ends_with(path, ".tsv");
}

bool tx_rows_is_binary(const char *path)
{
    return tx_ends_with(path, ".parquet") || tx_ends_with(path, ".arrow");
}

static tx_status open_lines(tx_rows *r, const char *path, bool text)
{
    char begin[TX_TEXT_BEGIN];
    size_t first = 0;
    TX_TRY(tx_data_file_open(path, &r->file));
    const size_t size = r->file.size < TX_TEXT_BEGIN ? (size_t)r->file.size : TX_TEXT_BEGIN;
    TX_TRY(tx_data_file_read(&r->file, 0, begin, size));
    TX_TRY(tx_fail_in(tx_text_begin(begin, size, false, &first), "%s", path));
    r->lines = (tx_lines){
        .file = &r->file, .at = (int64_t)first, .end = r->file.size, .form = text ? TX_LINES_TEXT : TX_LINES_PLAIN};
    r->next = text ? next_of_text : next_of_json;
    return TX_OK;
}

static tx_status open_rows(tx_rows *r, const char *path)
{
    if (tx_ends_with(path, ".parquet")) {
        r->next = next_of_parquet;
        return tx_parquet_open(path, &r->parquet);
    }
    if (tx_ends_with(path, ".arrow")) {
        r->next = next_of_arrow;
        return tx_arrow_open(path, &r->arrow);
    }
    if (tx_ends_with(path, ".jsonl") || tx_ends_with(path, ".json") || tx_rows_is_text(path))
        return open_lines(r, path, tx_rows_is_text(path));
    if (tx_rows_is_table(path)) {
        r->next = next_of_table;
        return tx_table_open(path, 0, &r->table);
    }
    return tx_fail(TX_INVALID, "%s: rows are read from .parquet, .arrow, .jsonl, .json, .csv, .tsv and .txt files",
                   path);
}

tx_status tx_rows_open(const char *path, tx_rows **rows)
{
    tx_rows *r = calloc(1, sizeof *r);
    if (!r)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    const tx_status status = open_rows(r, path);
    if (status)
        tx_rows_close(r);
    else
        *rows = r;
    return status;
}

void tx_rows_close(tx_rows *rows)
{
    if (!rows)
        return;
    tx_parquet_close(rows->parquet);
    tx_arrow_close(rows->arrow);
    free(rows->lines.data);
    tx_data_file_close(&rows->file);
    tx_table_close(&rows->table);
    free(rows->text.data);
    free(rows);
}
