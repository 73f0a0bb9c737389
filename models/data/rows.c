/* SPDX-License-Identifier: Apache-2.0
 * Rows of files of several formats. A row is first found as it is in the file, then read as an object. */
#include "models/data/rows.h"

#include "models/arrow/arrow.h"
#include "models/data/cells.h"
#include "models/data/lines.h"
#include "models/names.h"
#include "models/parquet/parquet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MOST 4096

struct tx_rows {
    tx_rows_kind kind;
    tx_parquet *parquet;
    tx_arrow *arrow;
    tx_data_file file; /* of text */
    tx_lines lines;
    char divider;       /* of the cells of a table */
    int64_t begin;      /* of the first row */
    bool closed;        /* the array ends after the current element */
    const char *record; /* the current row, as it is in the file */
    size_t size;        /* 0 after the last row */
    tx_json *object;    /* the current row, and values that were made of its own */
    tx_json *derived;
    char *text;
    int64_t number; /* rows that tx_rows_next returned */

    int64_t *at; /* [count]: position of each row, or its complement if the row is skipped */
    size_t room;
    int64_t count, bad, first_bad;
    tx_status status; /* of tx_rows_text */

    bool named; /* each row has the columns */
    tx_cells names, cells;
};

/* ---- Finding rows ------------------------------------------------------------------------------------------------ */

/* A line of blanks is a row of a table, and an empty line a row of text. */
static bool is_blank(const tx_rows *r, const char *line)
{
    if (r->kind == TX_ROWS_TABLE)
        return *line == '\n' || (r->size == 2 && memcmp(line, "\r\n", 2) == 0);
    return r->kind == TX_ROWS_JSON && tx_line_is_blank(line, r->size);
}

static tx_status find_line(tx_rows *r)
{
    char *line;
    do
        TX_TRY(tx_lines_next(&r->lines, &line, &r->size));
    while (r->size && is_blank(r, line));
    r->record = line;
    while (r->kind == TX_ROWS_JSON && r->size && (line[r->size - 1] == '\n' || line[r->size - 1] == '\r'))
        r->size--;
    return r->lines.open ? tx_fail(TX_FORMAT, "a quote is not closed") : TX_OK;
}

static tx_status find_element(tx_rows *r)
{
    char *text;
    TX_TRY(tx_lines_next(&r->lines, &text, &r->size));
    r->record = text;
    if (!r->lines.open)
        r->size--; /* the end */
    const bool blank = tx_line_is_blank(text, r->size);
    if (r->closed && blank && r->lines.open) {
        r->size = 0;
        return TX_OK;
    }
    if (r->closed || r->lines.open)
        return tx_fail(TX_FORMAT, "not valid JSON: the array %s", r->closed ? "is followed by more" : "is not closed");
    r->closed = text[r->size] == ']';
    if (blank && r->closed && r->lines.given == r->begin)
        return find_element(r); /* the array is empty */
    return blank ? tx_fail(TX_FORMAT, "not valid JSON: there is no element before a %c", text[r->size]) : TX_OK;
}

/* Finds the next row. */
static tx_status find_row(tx_rows *r)
{
    if (r->parquet)
        return tx_parquet_next(r->parquet, &r->record, &r->size);
    if (r->arrow)
        return tx_arrow_next(r->arrow, &r->record, &r->size);
    return r->lines.form == TX_LINES_ELEMENTS ? find_element(r) : find_line(r);
}

static void seek(tx_rows *r, int64_t at)
{
    tx_lines_seek(&r->lines, at);
    r->closed = false;
}

/* ---- The beginning ----------------------------------------------------------------------------------------------- */

/* Adds the name of a column. As pandas does, the next column of the same name is called name.1. */
static tx_status add_name(tx_rows *r, const char *text)
{
    char other[256];
    const char *name = text;
    for (int i = 1; tx_rows_column(r, name) >= 0; i++) {
        snprintf(other, sizeof other, "%.200s.%d", text, i);
        name = other;
    }
    if (r->names.count == COLUMNS_MOST)
        return tx_fail(TX_FORMAT, "more than %d columns", COLUMNS_MOST);
    return tx_cells_add(&r->names, name, strlen(name));
}

/* Reads the first row of a table. */
static tx_status read_names(tx_rows *r)
{
    TX_TRY(find_row(r));
    TX_TRY(r->size ? tx_text_check(r->record, r->size) : TX_OK);
    TX_TRY(r->size ? tx_cells_split(&r->cells, r->record, r->size, r->divider) : TX_OK);
    for (size_t i = 0, size; i < r->cells.count; i++)
        TX_TRY(add_name(r, tx_cells_at(&r->cells, i, &size)));
    return TX_OK;
}

/* Moves `*at` to the first byte that is no white space, which may be that of an array. */
static tx_status skip_blanks(const tx_data_file *file, int64_t *at, bool *array)
{
    char text[TX_TEXT_BEGIN];
    for (size_t size, blanks = 0; *at < file->size; *at += (int64_t)blanks) {
        size = file->size - *at < TX_TEXT_BEGIN ? (size_t)(file->size - *at) : TX_TEXT_BEGIN;
        TX_TRY(tx_data_file_read(file, *at, text, size));
        for (blanks = 0; blanks < size && text[blanks] && strchr(" \t\r\n", text[blanks]); blanks++)
            continue;
        *array = blanks < size && text[blanks] == '[';
        if (blanks < size) {
            *at += (int64_t)blanks;
            return TX_OK;
        }
    }
    return TX_OK;
}

/* Checks the beginning of a text, and reads the names of a table's columns, before the first row is found. */
static tx_status begin_text(tx_rows *r)
{
    if (r->lines.file || r->kind == TX_ROWS_BINARY)
        return TX_OK;
    static const tx_lines_form forms[] = {[TX_ROWS_TABLE] = TX_LINES_CSV, [TX_ROWS_TEXT] = TX_LINES_TEXT};
    char begin[TX_TEXT_BEGIN];
    size_t first = 0;
    bool array = false;
    const size_t size = r->file.size < TX_TEXT_BEGIN ? (size_t)r->file.size : TX_TEXT_BEGIN;
    TX_TRY(tx_data_file_read(&r->file, 0, begin, size));
    TX_TRY(tx_text_begin(begin, size, false, &first));
    r->begin = (int64_t)first;
    if (r->kind == TX_ROWS_JSON)
        TX_TRY(skip_blanks(&r->file, &r->begin, &array));
    r->begin += array;
    r->divider = tx_ends_with(r->file.path, ".tsv") ? '\t' : ',';
    r->lines = (tx_lines){.file = &r->file, .at = r->begin, .end = r->file.size};
    r->lines.form = array ? TX_LINES_ELEMENTS : r->divider == '\t' ? TX_LINES_PLAIN : forms[r->kind];
    if (r->kind != TX_ROWS_TABLE)
        return TX_OK;
    TX_TRY(tx_fail_in(read_names(r), "names of the columns"));
    r->begin = r->lines.at - (int64_t)(r->lines.held - r->lines.begin);
    return TX_OK;
}

/* ---- The current row --------------------------------------------------------------------------------------------- */

static tx_status read_cells(tx_rows *r, tx_json *row)
{
    TX_TRY(tx_text_check(r->record, r->size));
    tx_cells_clear(&r->cells);
    TX_TRY(tx_cells_split(&r->cells, r->record, r->size, r->divider));
    if (r->cells.count != r->names.count)
        return tx_fail(TX_FORMAT, "%zu fields, the first row has %zu", r->cells.count, r->names.count);
    for (size_t i = 0; i < r->cells.count; i++) {
        size_t size;
        const char *text = tx_cells_at(&r->cells, i, &size);
        TX_TRY(tx_json_set_text(row, tx_rows_name(r, (int32_t)i), text, size));
    }
    return TX_OK;
}

static tx_status read_text(const tx_rows *r, tx_json *row)
{
    TX_TRY(tx_text_check(r->record, r->size));
    return tx_json_set_text(row, "text", r->record, r->size);
}

static tx_status read_json(tx_rows *r)
{
    TX_TRY(tx_json_parse_line(r->record, r->size, "JSON", &r->object));
    if (tx_json_type_of(r->object) != TX_JSON_OBJECT)
        return tx_fail(TX_FORMAT, "expected an object");
    const char *name;
    for (int32_t c = 0; r->named && (name = tx_rows_name(r, c)); c++)
        if (!tx_json_find(r->object, name))
            return tx_fail(TX_FORMAT, "%.100s is missing", name);
    return TX_OK;
}

static void free_row(tx_rows *r)
{
    tx_json_free(r->object);
    tx_json_free(r->derived);
    free(r->text);
    r->object = r->derived = NULL;
    r->text = NULL;
}

tx_status tx_rows_object(tx_rows *rows, const tx_json **row)
{
    tx_rows *r = rows;
    free_row(r);
    if (r->kind == TX_ROWS_TABLE || r->kind == TX_ROWS_TEXT) {
        r->object = tx_json_object();
        TX_TRY(r->kind == TX_ROWS_TABLE ? read_cells(r, r->object) : read_text(r, r->object));
    } else {
        TX_TRY(read_json(r));
    }
    *row = r->object;
    return TX_OK;
}

tx_status tx_rows_line(tx_rows *rows, const char **text, size_t *size)
{
    const tx_json *object;
    if (rows->kind != TX_ROWS_BINARY && (rows->kind != TX_ROWS_JSON || rows->lines.form == TX_LINES_ELEMENTS)) {
        TX_TRY(tx_rows_object(rows, &object));
        *text = rows->text = tx_json_text(object, TX_JSON_LINE);
        *size = *text ? strlen(*text) : 0;
        return *text ? TX_OK : TX_MEMORY;
    }
    *text = rows->record;
    *size = rows->size;
    return TX_OK;
}

/* The word for a row in messages. */
static const char *word_of(const tx_rows *r)
{
    if (r->named || r->kind == TX_ROWS_TABLE)
        return "row";
    return r->lines.form == TX_LINES_ELEMENTS ? "element" : "line";
}

tx_status tx_rows_next(tx_rows *rows, bool *more)
{
    tx_status status = begin_text(rows);
    TX_THEN(status, find_row(rows));
    *more = !status && rows->size > 0;
    rows->number++;
    if (rows->kind == TX_ROWS_BINARY)
        return status;
    return tx_fail_in(status, "%s: %s %" PRId64, rows->file.path, word_of(rows), rows->number);
}

/* ---- By number --------------------------------------------------------------------------------------------------- */

tx_status tx_rows_index(tx_rows *rows)
{
    tx_rows *r = rows;
    TX_TRY(begin_text(r));
    for (seek(r, r->begin);;) {
        TX_TRY(tx_fail_in(find_row(r), "row %" PRId64, r->count + 1));
        if (!r->size)
            return r->count ? TX_OK : tx_fail(TX_FORMAT, "has no rows");
        TX_TRY(tx_array_reserve(&r->at, &r->room, (size_t)r->count + 1, sizeof *r->at, "rows of a file"));
        r->at[r->count++] = r->lines.given;
    }
}

int64_t tx_rows_count(const tx_rows *rows)
{
    return rows->count;
}

static int64_t position_of(const tx_rows *r, int64_t number)
{
    return r->at[number] < 0 ? ~r->at[number] : r->at[number];
}

tx_status tx_rows_read(tx_rows *rows, int64_t number, const tx_json **row)
{
    seek(rows, position_of(rows, number));
    TX_TRY(find_row(rows));
    return rows->size ? tx_rows_object(rows, row) : tx_fail(TX_IO, "the file was changed while it was read");
}

/* The number of a row for people: that of its line, or from 1. */
static int64_t shown(const tx_rows *r, int64_t number)
{
    int64_t before = number;
    if (*word_of(r) == 'l' && tx_lines_count(&r->file, position_of(r, number), &before))
        return -1;
    return before + 1;
}

tx_status tx_rows_skip(tx_rows *rows, int64_t number, int64_t most, tx_status status)
{
    tx_rows *r = rows;
    char reason[4096];
    TX_THEN(status, r->status);
    if (!status)
        return TX_OK;
    if (status == TX_FORMAT && r->bad < most) {
        r->first_bad = r->bad++ && r->first_bad < number ? r->first_bad : number;
        r->at[number] = ~position_of(r, number);
        return TX_OK;
    }
    snprintf(reason, sizeof reason, "%s", tx_error()); /* reading the file may set another message */
    return tx_fail(status, "%s %" PRId64 ": %s", word_of(r), shown(r, number), reason);
}

bool tx_rows_is_skipped(const tx_rows *rows, int64_t number)
{
    return rows->at[number] < 0;
}

void tx_rows_report(const tx_rows *rows, const tx_reporter *report)
{
    if (rows->bad)
        tx_lines_report(report, rows->file.path, rows->bad, word_of(rows), shown(rows, rows->first_bad));
}

/* ---- By column --------------------------------------------------------------------------------------------------- */

tx_status tx_rows_columns(tx_rows *rows)
{
    tx_rows *r = rows;
    const tx_json *first = NULL;
    TX_TRY(begin_text(r));
    if (r->kind == TX_ROWS_JSON) {
        seek(r, r->begin);
        tx_status status = find_row(r);
        TX_THEN(status, r->size ? tx_rows_object(r, &first) : tx_fail(TX_FORMAT, "has no rows"));
        for (void *i = status ? NULL : tx_json_first(first); i && !status; i = tx_json_next(first, i))
            status = add_name(r, tx_json_key(i));
        TX_TRY(tx_fail_in(status, "row 1"));
    }
    r->named = true;
    return r->names.count ? TX_OK : tx_fail(TX_FORMAT, "has no columns");
}

int32_t tx_rows_column(const tx_rows *rows, const char *name)
{
    return tx_cells_find(&rows->names, name);
}

const char *tx_rows_name(const tx_rows *rows, int32_t column)
{
    size_t size;
    return (size_t)column < rows->names.count ? tx_cells_at(&rows->names, (size_t)column, &size) : NULL;
}

tx_status tx_rows_fail_column(const tx_rows *rows, const char *name, const char *option)
{
    char names[512] = "", hint[96] = "";
    const char *other;
    for (int32_t c = 0; (other = tx_rows_name(rows, c)); c++)
        tx_list_add(names, sizeof names, ", ", "%s", other);
    if (option)
        snprintf(hint, sizeof hint, ": name the one to use by --%s", option);
    return tx_fail(TX_FORMAT, "there is no column %s; the columns are %s%s", name, names, hint);
}

/* Keeps a value as long as the current row. */
static tx_status keep(tx_rows *r, tx_json *value)
{
    r->derived = r->derived ? r->derived : tx_json_array();
    return tx_json_append(r->derived, value);
}

const char *tx_rows_text(tx_rows *rows, int32_t column, size_t *size)
{
    tx_rows *r = rows;
    const char *text = "";
    const tx_json *value = tx_json_find(r->object, tx_rows_name(r, column));
    *size = 0;
    if (tx_json_type_of(value) == TX_JSON_NULL)
        return text;
    if (tx_json_type_of(value) != TX_JSON_STRING) {
        char *written = tx_json_text(value, TX_JSON_LINE);
        TX_THEN(r->status, written ? keep(r, tx_json_pack("s", written)) : TX_MEMORY);
        free(written);
        value = tx_json_at(r->derived, tx_json_size(r->derived) - 1);
    }
    TX_THEN(r->status, tx_json_as_text(value, "column", &text, size));
    return text;
}

const tx_json *tx_rows_value(tx_rows *rows, int32_t column, tx_json_type type)
{
    const tx_json *value = tx_json_find(rows->object, tx_rows_name(rows, column));
    const char *text;
    size_t size;
    tx_json *parsed = NULL;
    if (tx_json_type_of(value) == type)
        return value;
    if (tx_json_as_text(value, "column", &text, &size) || tx_json_parse_line(text, size, "column", &parsed))
        return NULL;
    TX_THEN(rows->status, keep(rows, parsed));
    return !rows->status && tx_json_type_of(parsed) == type ? parsed : NULL;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

tx_rows_kind tx_rows_kind_of(const char *path)
{
    static const struct {
        const char *extension;
        tx_rows_kind kind;
    } extensions[] = {{".jsonl", TX_ROWS_JSON},  {".json", TX_ROWS_JSON}, {".csv", TX_ROWS_TABLE},
                      {".tsv", TX_ROWS_TABLE},   {".txt", TX_ROWS_TEXT},  {".raw", TX_ROWS_TEXT},
                      {".tokens", TX_ROWS_TEXT}, {".md", TX_ROWS_TEXT},   {".parquet", TX_ROWS_BINARY},
                      {".arrow", TX_ROWS_BINARY}};
    for (size_t i = 0; i < sizeof extensions / sizeof extensions[0]; i++)
        if (tx_ends_with(path, extensions[i].extension))
            return extensions[i].kind;
    return TX_ROWS_NONE;
}

static tx_status open_file(tx_rows *r, const char *path)
{
    r->kind = tx_rows_kind_of(path);
    if (r->kind == TX_ROWS_NONE)
        return tx_fail(TX_INVALID, "%s: rows are read from .jsonl, .json, .csv, .tsv, .parquet, .arrow and .txt files",
                       path);
    if (r->kind == TX_ROWS_BINARY)
        return tx_ends_with(path, ".arrow") ? tx_arrow_open(path, &r->arrow) : tx_parquet_open(path, &r->parquet);
    return tx_data_file_open(path, &r->file);
}

tx_status tx_rows_open(const char *path, tx_rows **rows)
{
    tx_rows *r = calloc(1, sizeof *r);
    if (!r)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    const tx_status status = open_file(r, path);
    return TX_RETURN(status, r, rows, tx_rows_close);
}

void tx_rows_close(tx_rows *rows)
{
    if (!rows)
        return;
    tx_parquet_close(rows->parquet);
    tx_arrow_close(rows->arrow);
    free_row(rows);
    free(rows->at);
    free(rows->lines.data);
    tx_data_file_close(&rows->file);
    tx_cells_free(&rows->names);
    tx_cells_free(&rows->cells);
    free(rows);
}

tx_status tx_rows_first(const char *path, tx_json **row)
{
    tx_rows *r;
    bool more = true;
    *row = NULL;
    if (tx_rows_kind_of(path) != TX_ROWS_JSON || tx_rows_open(path, &r))
        return TX_OK;
    tx_status status = TX_OK;
    while (!*row && !status && !tx_rows_next(r, &more) && more) {
        status = tx_jsonl_parse(r->record, r->size, path, row);
        if (status == TX_FORMAT)
            status = TX_OK;
        if (tx_json_type_of(*row) != TX_JSON_OBJECT) {
            tx_json_free(*row);
            *row = NULL;
        }
    }
    tx_rows_close(r);
    return status;
}
