/* SPDX-License-Identifier: Apache-2.0
 * Reads the objects of a JSON file for the tasks whose samples are objects. */
#include "models/task/objects.h"

#include "api/base/file.h"
#include "models/text/lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tx_objects_close(tx_objects *o)
{
    tx_data_file_close(&o->file);
    tx_json_free(o->array);
    free(o->line);
    free(o->text.data);
}

/* Reads a range of the file, with a NUL after it. */
static tx_status read_range(tx_objects *o, int64_t at, int64_t end)
{
    const size_t size = (size_t)(end - at);
    tx_buffer_clear(&o->text);
    TX_TRY(tx_buffer_reserve(&o->text, size + 1));
    TX_TRY(tx_data_file_read(&o->file, at, o->text.data, size));
    o->text.data[size] = '\0';
    o->text.size = size;
    return TX_OK;
}

static tx_status index_lines(tx_objects *o, int64_t begin)
{
    tx_lines lines = {.file = &o->file, .at = begin, .end = o->file.size};
    tx_status status = TX_OK;
    char *line = NULL;
    for (size_t size = 1; size > 0 && !status;) {
        status = tx_lines_next(&lines, &line, &size);
        if (status || tx_line_is_blank(line, size))
            continue;
        status = tx_array_reserve(&o->line, &o->room, o->count + 1, sizeof *o->line, "lines");
        if (!status)
            o->line[o->count++] = lines.given;
    }
    o->end = o->file.size;
    free(lines.data);
    return status;
}

/* Finds the first character after a byte order mark and white space; NUL if there is none. */
static tx_status find_first(const tx_objects *o, int64_t begin, char *first)
{
    static const char blank[] = " \t\r\n";
    *first = ' ';
    for (int64_t at = begin; at < o->file.size && *first && strchr(blank, *first); at++)
        TX_TRY(tx_data_file_read(&o->file, at, first, 1));
    return TX_OK;
}

tx_status tx_objects_open(const char *path, tx_objects *o)
{
    size_t begin;
    char first;
    TX_TRY(tx_data_file_open(path, &o->file));
    TX_TRY(read_range(o, 0, o->file.size < TX_TEXT_BEGIN ? o->file.size : TX_TEXT_BEGIN));
    TX_TRY(tx_text_begin(o->text.data, o->text.size, false, &begin));
    TX_TRY(find_first(o, (int64_t)begin, &first));
    if (first == '[') {
        TX_TRY(read_range(o, (int64_t)begin, o->file.size));
        TX_TRY(tx_json_parse_line(o->text.data, o->text.size, "JSON", &o->array));
        o->count = tx_json_size(o->array);
    } else {
        TX_TRY(index_lines(o, (int64_t)begin));
    }
    return o->count ? TX_OK : tx_fail(TX_FORMAT, "holds no samples");
}

tx_status tx_objects_read(tx_objects *o, size_t number, tx_json **own, const tx_json **object)
{
    *own = NULL;
    if (o->array) {
        *object = tx_json_at(o->array, number);
        return TX_OK;
    }
    TX_TRY(read_range(o, o->line[number], number + 1 < o->count ? o->line[number + 1] : o->end));
    TX_TRY(tx_json_parse_line(o->text.data, o->text.size, "JSON", own));
    *object = *own;
    return TX_OK;
}

/* The number of an object's line, from 1. */
static int64_t line_number(const tx_objects *o, size_t number)
{
    int64_t before = 0;
    return tx_lines_count(&o->file, o->line[number], &before) ? -1 : before + 1;
}

tx_status tx_objects_fail(const tx_objects *o, size_t number, tx_status status)
{
    char reason[4096];
    if (!status)
        return TX_OK;
    snprintf(reason, sizeof reason, "%s", tx_error()); /* reading the file may set another message */
    return o->array ? tx_fail(status, "element %zu: %s", number + 1, reason)
                    : tx_fail(status, "line %" PRId64 ": %s", line_number(o, number), reason);
}

bool tx_objects_skip(tx_objects *o, size_t number, int64_t most)
{
    if (o->bad >= most)
        return false;
    o->first_bad = o->bad++ ? o->first_bad : number;
    return true;
}

void tx_objects_report(const tx_objects *o, const char *path, const tx_reporter *report)
{
    if (o->bad)
        tx_reporter_print(report, "%.800s: %" PRId64 " malformed %s skipped, the first is %s %" PRId64, path, o->bad,
                          o->array ? "elements are" : "lines are", o->array ? "element" : "line",
                          o->array ? (int64_t)o->first_bad + 1 : line_number(o, o->first_bad));
}
