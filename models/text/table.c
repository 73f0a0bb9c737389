/* SPDX-License-Identifier: Apache-2.0
 * Reads files of named columns: .csv, .tsv, .jsonl and .json, with one row in memory. */
#include "models/text/table.h"

#include "models/report.h"

#include "models/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MOST 4096

/* ---- The text of a row --------------------------------------------------------------------------------- */

/* Returns true if a quoted field of a .csv file continues after this line. `open` says so of the line before. */
static bool is_open(const char *line, size_t size, bool open)
{
    bool begins = !open; /* a field */
    for (size_t i = 0; i < size; i++)
        if (open && line[i] == '"') {
            open = i + 1 < size && line[i + 1] == '"'; /* written twice */
            i += open;
        } else if (!open) {
            open = begins && line[i] == '"';
            begins = line[i] == ',';
        }
    return open;
}

static bool is_blank(const tx_table *t, const char *line, size_t size)
{
    return t->divider ? *line == '\n' || (size == 2 && memcmp(line, "\r\n", 2) == 0) : tx_line_is_blank(line, size);
}

/* Reads the next row that is not blank: a line, or several if a quoted field has line ends. 0 bytes at the end. */
static tx_status next_text(tx_table *t, char **text, size_t *size)
{
    do
        TX_TRY(tx_lines_next(&t->lines, text, size));
    while (*size && is_blank(t, *text, *size));
    t->at = t->lines.given;
    bool open = t->divider == ',' && is_open(*text, *size, false);
    if (!open)
        return TX_OK;
    tx_buffer_clear(&t->text);
    for (; open; open = is_open(*text, *size, true)) {
        tx_buffer_add(&t->text, *text, *size);
        TX_TRY(tx_lines_next(&t->lines, text, size));
        if (!*size)
            return tx_fail(TX_FORMAT, "a quote is not closed");
    }
    tx_buffer_add(&t->text, *text, *size);
    *text = t->text.data;
    *size = t->text.size;
    return t->text.status;
}

/* Continues at a position, which may be among the bytes that are read already. */
static void move_to(tx_table *t, int64_t at)
{
    tx_lines *l = &t->lines;
    const int64_t first = l->at - (int64_t)l->held;
    if (at < first || at > l->at) {
        l->at = at;
        l->held = 0;
    }
    l->begin = l->held ? (size_t)(at - first) : 0;
}

/* ---- Cells ------------------------------------------------------------------------------------------------ */

/* Ends the cell that begins at byte `begin`. */
static tx_status end_cell(tx_cells *to, size_t begin)
{
    TX_TRY(tx_array_reserve(&to->cell, &to->room, to->count + 1, sizeof *to->cell, "cells of a table"));
    to->cell[to->count++] = (tx_cell){begin, to->bytes.size - begin};
    tx_buffer_add(&to->bytes, "", 1);
    return to->bytes.status;
}

static tx_status add_cell(tx_cells *to, const char *text, size_t size)
{
    const size_t begin = to->bytes.size;
    tx_buffer_add(&to->bytes, text, size);
    return end_cell(to, begin);
}

/* Copies a quoted field, which has an end. `*at` is after the opening quote and is moved after the closing one. */
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

static tx_status read_fields(tx_cells *to, const char *text, size_t size, char divider)
{
    const char *at = text, *end = text + size;
    TX_TRY(read_field(to, &at, end, divider));
    while (at < end && *at == divider) {
        at++;
        TX_TRY(read_field(to, &at, end, divider));
    }
    return TX_OK;
}

/* Adds a value, or only checks that it is there if `to` is NULL. */
static tx_status add_value(tx_cells *to, const tx_json *object, const char *name)
{
    const tx_json *value = tx_json_find(object, name);
    const tx_json_type type = value ? tx_json_type_of(value) : TX_JSON_NULL;
    const char *text = "";
    size_t size = 0;
    if (!value)
        return tx_fail(TX_FORMAT, "%.100s is missing", name);
    if (!to)
        return TX_OK;
    if (type == TX_JSON_STRING)
        TX_TRY(tx_json_get_text(object, name, &text, &size));
    if (type == TX_JSON_STRING || type == TX_JSON_NULL)
        return add_cell(to, text, size);
    char *made = tx_json_text(value, TX_JSON_LINE);
    const tx_status status = made ? add_cell(to, made, strlen(made)) : TX_MEMORY;
    free(made);
    return status;
}

/* Reads the values of an object, or its keys into `names`. */
static tx_status read_object(const tx_table *t, const char *text, size_t size, tx_cells *to)
{
    tx_json *json = NULL;
    size_t length;
    tx_status status = tx_json_parse_line(text, size, "JSON", &json);
    if (!status && tx_json_type_of(json) != TX_JSON_OBJECT)
        status = tx_fail(TX_FORMAT, "expected an object");
    if (to == &t->names)
        for (void *i = status ? NULL : tx_json_first(json); i && !status; i = tx_json_next(json, i))
            status = add_cell(to, tx_json_key(i), strlen(tx_json_key(i)));
    else
        for (int32_t c = 0; c < t->columns && !status; c++)
            status = add_value(to, json, tx_table_name(t, c, &length));
    tx_json_free(json);
    return status;
}

/* Reads the cells of a row, or the names of the columns. */
static tx_status read_cells(const tx_table *t, const char *text, size_t size, tx_cells *to)
{
    tx_buffer_clear(&to->bytes);
    to->count = 0;
    TX_TRY(t->divider ? read_fields(to, text, size, t->divider) : read_object(t, text, size, to));
    TX_TRY(tx_text_check(to->bytes.data, to->bytes.size));
    if (to != &t->names && to->count != (size_t)t->columns)
        return tx_fail(TX_FORMAT, "%zu fields, the first row has %" PRId32, to->count, t->columns);
    return TX_OK;
}

/* ---- Files ---------------------------------------------------------------------------------------------- */

/* The names are the first row, or the keys of the first object. */
static tx_status read_names(tx_table *t)
{
    char *text;
    size_t size;
    TX_TRY(next_text(t, &text, &size));
    if (!size)
        return TX_OK;
    TX_TRY(read_cells(t, text, size, &t->names));
    if (t->names.count < 1 || t->names.count > COLUMNS_MOST)
        return tx_fail(TX_FORMAT, "%zu columns: expected 1 to %d", t->names.count, COLUMNS_MOST);
    t->columns = (int32_t)t->names.count;
    if (!t->divider)
        move_to(t, t->at);
    return TX_OK;
}

/* Counts row `number`, from 1, as skipped, if the status is of a malformed row and skip_bad allows one more. */
static bool count_bad(tx_table *t, int64_t number, tx_status status)
{
    if (status != TX_FORMAT || t->bad >= t->skip_bad)
        return false;
    t->first_bad = t->bad++ && t->first_bad < number ? t->first_bad : number;
    return true;
}

/* Finds the rows, and checks each. */
static tx_status index_rows(tx_table *t)
{
    while (true) {
        char *text;
        size_t size;
        TX_TRY(tx_fail_in(next_text(t, &text, &size), "row %" PRId64, t->rows + 1));
        if (!size)
            return t->rows ? TX_OK : tx_fail(TX_FORMAT, "has no rows");
        /* JSON is UTF-8, so that its cells need no check. */
        tx_status status = t->divider ? read_cells(t, text, size, &t->cells) : read_object(t, text, size, NULL);
        status = tx_fail_in(status, "row %" PRId64, t->rows + 1);
        const bool bad = count_bad(t, t->rows + 1, status);
        TX_TRY(bad ? TX_OK : status);
        TX_TRY(tx_array_reserve(&t->row, &t->room, (size_t)t->rows + 1, sizeof *t->row, "rows of a table"));
        t->row[t->rows++] = bad ? TX_TABLE_SKIPPED : t->at;
    }
}

static tx_status read_file(tx_table *t)
{
    char begin[TX_TEXT_BEGIN];
    const size_t size = t->file.size < TX_TEXT_BEGIN ? (size_t)t->file.size : TX_TEXT_BEGIN;
    size_t first = 0;
    TX_TRY(tx_data_file_read(&t->file, 0, begin, size));
    TX_TRY(tx_text_begin(begin, size, false, &first));
    t->lines = (tx_lines){.file = &t->file, .at = (int64_t)first, .end = t->file.size};
    TX_TRY(tx_fail_in(read_names(t), t->divider ? "names of the columns" : "row 1"));
    return index_rows(t);
}

tx_status tx_table_open(const char *path, int64_t skip_bad, tx_table *table)
{
    const bool json = tx_ends_with(path, ".jsonl") || tx_ends_with(path, ".json"), tsv = tx_ends_with(path, ".tsv");
    *table = (tx_table){.skip_bad = skip_bad, .divider = json ? '\0' : tsv ? '\t' : ','};
    if (!json && !tsv && !tx_ends_with(path, ".csv"))
        return tx_fail(TX_INVALID, "%s: expected a file that ends with .csv, .tsv or .jsonl", path);
    TX_TRY(tx_data_file_open(path, &table->file));
    const tx_status status = tx_fail_in(read_file(table), "%s", path);
    if (status)
        tx_table_close(table);
    return status;
}

void tx_table_report(const tx_table *table, const tx_reporter *report)
{
    if (table->bad)
        tx_reporter_print(report, "%.800s: %" PRId64 " malformed %s skipped, the first is row %" PRId64,
                          table->file.path, table->bad, table->bad == 1 ? "row is" : "rows are", table->first_bad);
}

void tx_table_close(tx_table *table)
{
    tx_data_file_close(&table->file);
    free(table->lines.data);
    free(table->text.data);
    free(table->names.bytes.data);
    free(table->names.cell);
    free(table->cells.bytes.data);
    free(table->cells.cell);
    free(table->row);
    *table = (tx_table){0};
}

tx_status tx_table_read(tx_table *t, int64_t row)
{
    char *text;
    size_t size;
    move_to(t, t->row[row]);
    tx_status status = next_text(t, &text, &size);
    if (!status && !size)
        status = tx_fail(TX_IO, "the file was changed while it was read");
    TX_THEN(status, read_cells(t, text, size, &t->cells));
    return tx_fail_in(status, "row %" PRId64, row + 1);
}

tx_status tx_table_skip(tx_table *table, int64_t row, tx_status status)
{
    if (!count_bad(table, row + 1, status))
        return tx_fail_in(status, "row %" PRId64, row + 1);
    table->row[row] = TX_TABLE_SKIPPED;
    return TX_OK;
}

int32_t tx_table_column(const tx_table *table, const char *name)
{
    size_t size;
    for (int32_t c = 0; c < table->columns; c++)
        if (strcmp(tx_table_name(table, c, &size), name) == 0 && size == strlen(name))
            return c;
    return -1;
}

tx_status tx_table_fail_column(const tx_table *table, const char *name, const char *option)
{
    char names[512] = "", hint[96] = "";
    size_t size;
    for (int32_t c = 0; c < table->columns; c++)
        tx_list_add(names, sizeof names, ", ", "%s", tx_table_name(table, c, &size));
    if (option)
        snprintf(hint, sizeof hint, ": name the one to use by --%s", option);
    return tx_fail(TX_FORMAT, "there is no column %s; the columns are %s%s", name, names, hint);
}

static const char *text_of(const tx_cells *cells, int32_t column, size_t *size)
{
    *size = cells->cell[column].size;
    return cells->bytes.data + cells->cell[column].at;
}

const char *tx_table_text(const tx_table *table, int32_t column, size_t *size)
{
    return text_of(&table->cells, column, size);
}

const char *tx_table_name(const tx_table *table, int32_t column, size_t *size)
{
    return text_of(&table->names, column, size);
}
