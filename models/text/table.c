/* SPDX-License-Identifier: Apache-2.0
 * Reads files of named columns: .csv, .tsv, .jsonl and .json. */
#include "models/text/table.h"

#include "models/report.h"

#include "api/base/file.h"
#include "models/names.h"
#include "models/text/lines.h"
#include "tx_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MOST 4096
/* `at` of the cells of a skipped row. */
#define LEFT_OUT SIZE_MAX

/* ---- Making ------------------------------------------------------------------------------------------ */

/* Ends the cell that begins at byte `begin`. */
static tx_status end_cell(tx_table *t, size_t begin)
{
    TX_TRY(tx_array_reserve(&t->cell, &t->cells_room, t->cells + 1, sizeof *t->cell, "cells of a table"));
    t->cell[t->cells++] = (tx_cell){begin, t->bytes.size - begin};
    tx_buffer_add(&t->bytes, "", 1);
    return t->bytes.status;
}

static tx_status add_cell(tx_table *t, const char *text, size_t size)
{
    const size_t begin = t->bytes.size;
    tx_buffer_add(&t->bytes, text, size);
    return end_cell(t, begin);
}

/* Counts row `number`, from 1, as skipped, if the status is of a malformed row and skip_bad allows one more. */
static bool count_bad(tx_table *t, int64_t number, tx_status status)
{
    if (status != TX_FORMAT || t->bad >= t->skip_bad)
        return false;
    t->first_bad = t->bad++ && t->first_bad < number ? t->first_bad : number;
    return true;
}

/* Ends a malformed row. Marks its cells as skipped, unless too many rows were skipped already. */
static tx_status skip_row(tx_table *t, tx_status status)
{
    if (!t->columns || !count_bad(t, t->rows + 1, status))
        return status;
    t->rows++;
    t->cells = (size_t)(t->rows * t->columns);
    TX_TRY(
        tx_array_reserve(&t->cell, &t->cells_room, t->cells + (size_t)t->columns, sizeof *t->cell, "cells of a table"));
    for (int32_t c = 0; c < t->columns; c++)
        t->cell[t->cells++] = (tx_cell){LEFT_OUT, 0};
    return TX_OK;
}

/* Ends a row of `count` cells. The first row has the names. */
static tx_status end_row(tx_table *t, int64_t count)
{
    if (t->columns == 0 && (count < 1 || count > COLUMNS_MOST))
        return tx_fail(TX_FORMAT, "%" PRId64 " columns: expected 1 to %d", count, COLUMNS_MOST);
    const size_t begin = t->cell[t->cells - (size_t)count].at;
    const tx_status status = tx_text_check(t->bytes.data + begin, t->bytes.size - begin);
    if (t->columns == 0) {
        t->columns = (int32_t)count;
        return tx_fail_in(status, "names of the columns");
    }
    if (status)
        return skip_row(t, tx_fail_in(status, "row %" PRId64, t->rows + 1));
    if (count != t->columns)
        return skip_row(t, tx_fail(TX_FORMAT, "row %" PRId64 ": %" PRId64 " fields, the first row has %" PRId32,
                                   t->rows + 1, count, t->columns));
    t->rows++;
    return TX_OK;
}

/* ---- .csv and .tsv ----------------------------------------------------------------------------------- */

/* Copies a quoted field. `*at` is after the opening quote and is moved after the closing one. */
static tx_status read_quoted(tx_table *t, const char **at, const char *end)
{
    const char *c = *at;
    for (;; c++) {
        const char *quote = memchr(c, '"', (size_t)(end - c));
        if (!quote)
            return tx_fail(TX_FORMAT, "row %" PRId64 ": a quote is not closed", t->rows + 1);
        const bool twice = quote + 1 < end && quote[1] == '"';
        const size_t size = (size_t)(quote - c) + twice;
        tx_buffer_add(&t->bytes, c, size);
        c = quote + twice;
        if (!twice)
            break;
    }
    *at = c + 1;
    return TX_OK;
}

/* Reads a field up to the divider or the end of the line. */
static tx_status read_field(tx_table *t, const char **at, const char *end, char divider)
{
    const size_t begin = t->bytes.size;
    const char *c = *at;
    if (divider == ',' && c < end && *c == '"') {
        *at = c + 1;
        TX_TRY(read_quoted(t, at, end));
        c = *at;
    }
    while (c < end && *c != divider && *c != '\n')
        c++;
    size_t size = (size_t)(c - *at);
    if (size && (c == end || *c == '\n') && c[-1] == '\r')
        size--;
    tx_buffer_add(&t->bytes, *at, size);
    *at = c;
    return end_cell(t, begin);
}

/* Reads all rows. Empty lines are ignored. */
static tx_status read_fields(tx_table *t, const char *text, size_t size, char divider)
{
    const char *at = text, *end = text + size;
    while (at < end) {
        const size_t blank = *at == '\n' ? 1 : *at == '\r' && at + 1 < end && at[1] == '\n' ? 2 : 0;
        int64_t count = 0;
        at += blank;
        if (blank)
            continue;
        do {
            at += count > 0;
            TX_TRY(read_field(t, &at, end, divider));
            count++;
        } while (at < end && *at == divider);
        at += at < end;
        TX_TRY(end_row(t, count));
    }
    return TX_OK;
}

/* ---- .jsonl ------------------------------------------------------------------------------------------- */

static tx_status add_value(tx_table *t, const tx_json *object, const char *name)
{
    const tx_json *value = tx_json_find(object, name);
    const tx_json_type type = value ? tx_json_type_of(value) : TX_JSON_NULL;
    const char *text = "";
    size_t size = 0;
    if (type == TX_JSON_STRING)
        TX_TRY(tx_json_get_text(object, name, &text, &size));
    if (type == TX_JSON_STRING || type == TX_JSON_NULL)
        return add_cell(t, text, size);
    char *made = tx_json_text(value, TX_JSON_LINE);
    tx_status status = made ? add_cell(t, made, strlen(made)) : TX_MEMORY;
    free(made);
    return status;
}

static tx_status add_object(tx_table *t, const tx_json *object)
{
    int64_t count = 0;
    if (tx_json_type_of(object) != TX_JSON_OBJECT)
        return tx_fail(TX_FORMAT, "expected an object");
    for (void *i = tx_json_first(object); i && !t->columns; i = tx_json_next(object, i), count++)
        TX_TRY(add_cell(t, tx_json_key(i), strlen(tx_json_key(i))));
    if (!t->columns)
        TX_TRY(end_row(t, count));
    for (int32_t c = 0; c < t->columns; c++) {
        const char *name = t->bytes.data + t->cell[c].at;
        if (!tx_json_find(object, name))
            return tx_fail(TX_FORMAT, "%.100s is missing", name);
        TX_TRY(add_value(t, object, name));
    }
    return end_row(t, t->columns);
}

static tx_status read_objects(tx_table *t, const char *text, size_t size)
{
    for (const char *at = text, *end = text + size; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *next = newline ? newline + 1 : end;
        const size_t length = (size_t)(next - at);
        tx_json *json = NULL;
        tx_status status = tx_line_is_blank(at, length) ? TX_OK : tx_json_parse_line(at, length, "JSON", &json);
        if (json)
            status = add_object(t, json);
        tx_json_free(json);
        TX_TRY(skip_row(t, tx_fail_in(status, "row %" PRId64, t->rows + 1)));
        at = next;
    }
    return TX_OK;
}

/* ---- Files ---------------------------------------------------------------------------------------------- */

static tx_status read_text(tx_table *t, const char *path)
{
    const bool tsv = tx_ends_with(path, ".tsv"), json = tx_ends_with(path, ".jsonl") || tx_ends_with(path, ".json");
    char *text = NULL;
    size_t size, begin = 0;
    if (!tsv && !json && !tx_ends_with(path, ".csv"))
        return tx_fail(TX_INVALID, "expected a file that ends with .csv, .tsv or .jsonl");
    TX_TRY(tx_file_read(path, INT64_MAX, &text, &size));
    tx_status status = tx_text_begin(text, size, false, &begin);
    TX_THEN(status, json ? read_objects(t, text + begin, size - begin)
                         : read_fields(t, text + begin, size - begin, tsv ? '\t' : ','));
    free(text);
    return status || t->rows ? status : tx_fail(TX_FORMAT, "has no rows");
}

tx_status tx_table_open(const char *path, int64_t skip_bad, tx_table *table)
{
    *table = (tx_table){.path = strdup(path), .skip_bad = skip_bad};
    tx_status status = table->path ? read_text(table, path) : tx_fail(TX_MEMORY, "out of memory");
    if (status)
        tx_table_close(table);
    return tx_fail_in(status, "%s", path);
}

void tx_table_report(const tx_table *table, const char *path, const tx_reporter *report)
{
    if (table->bad)
        tx_reporter_print(report, "%.800s: %" PRId64 " malformed row%s skipped", path, table->bad,
                          table->bad == 1 ? " is" : "s are");
}

void tx_table_close(tx_table *table)
{
    free(table->path);
    free(table->bytes.data);
    free(table->cell);
    *table = (tx_table){0};
}

tx_status tx_table_skip(tx_table *table, int64_t row, tx_status status)
{
    return count_bad(table, row + 1, status) ? TX_OK : tx_fail_in(status, "row %" PRId64, row + 1);
}

int32_t tx_table_column(const tx_table *table, const char *name)
{
    const size_t size = strlen(name);
    for (int32_t c = 0; c < table->columns; c++)
        if (table->cell[c].size == size && memcmp(table->bytes.data + table->cell[c].at, name, size) == 0)
            return c;
    return -1;
}

tx_status tx_table_fail_column(const tx_table *table, const char *name, const char *option)
{
    char names[512] = "";
    for (int32_t c = 0; c < table->columns; c++)
        tx_list_add(names, sizeof names, ", ", "%.*s", (int)table->cell[c].size, table->bytes.data + table->cell[c].at);
    return tx_fail(TX_FORMAT, "there is no column %s; the columns are %s: name the one to use by --%s", name, names,
                   option);
}

const char *tx_table_text(const tx_table *table, int64_t row, int32_t column, size_t *size)
{
    const tx_cell *cell = &table->cell[(row + 1) * table->columns + column];
    *size = cell->size;
    return cell->at == LEFT_OUT ? NULL : table->bytes.data + cell->at;
}
