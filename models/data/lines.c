/* SPDX-License-Identifier: Apache-2.0
 * Reads the lines of a range of a file. */
#include "models/data/lines.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes per reading. */
#define PIECE ((size_t)1 << 18)

/* Reads more data after those in the buffer. The buffer grows by doubling if a line fills it. */
static tx_status read_more(tx_lines *l)
{
    if (l->begin > 0 && l->held > l->begin)
        memmove(l->data, l->data + l->begin, l->held - l->begin);
    l->held -= l->begin;
    l->begin = 0;
    if (tx_array_reserve(&l->data, &l->room, l->held + PIECE, 1, "bytes of a line"))
        return tx_fail_in(TX_MEMORY, "%s", l->file->path);
    int64_t left = l->end - l->at;
    size_t bytes = left < (int64_t)PIECE ? (size_t)left : PIECE;
    TX_TRY(tx_data_file_read(l->file, l->at, l->data + l->held, bytes));
    l->at += (int64_t)bytes;
    l->held += bytes;
    return TX_OK;
}

/* States of the search for an end: at the begin of a field of CSV or outside of strings; elsewhere in a field. */
enum { OUTSIDE, INSIDE, QUOTED, AFTER_QUOTE, ESCAPED };

/* Each returns the position of the first end from `from` on, or `size`. */

static size_t find_text_end(const char *data, size_t from, size_t size)
{
    while (from < size && data[from] != '\n' && data[from] != '\r')
        from++;
    return from;
}

/* Only a quote at the beginning of a field opens it. A quote within is written twice. */
static size_t find_csv_end(tx_lines *l, const char *data, size_t from, size_t size)
{
    for (; from < size; from++) {
        const char c = data[from];
        if (l->state == QUOTED)
            l->state = c == '"' ? AFTER_QUOTE : QUOTED;
        else if (c == '\n')
            break;
        else if (c == '"' && l->state != INSIDE)
            l->state = QUOTED;
        else
            l->state = c == ',' ? OUTSIDE : INSIDE;
    }
    return from;
}

static size_t find_element_end(tx_lines *l, const char *data, size_t from, size_t size)
{
    for (; from < size; from++) {
        const char c = data[from];
        const bool closes = c == ']' || c == '}';
        if (l->state == ESCAPED)
            l->state = QUOTED;
        else if (l->state == QUOTED)
            l->state = c == '\\' ? ESCAPED : c == '"' ? OUTSIDE : QUOTED;
        else if (c == '"')
            l->state = QUOTED;
        else if (l->depth == 0 && (closes || c == ','))
            break;
        else
            l->depth += (c == '[' || c == '{') - closes;
    }
    return from;
}

static size_t find_end(tx_lines *l, const char *data, size_t from, size_t size)
{
    const char *newline;
    switch (l->form) {
    case TX_LINES_TEXT:
        return find_text_end(data, from, size);
    case TX_LINES_CSV:
        return find_csv_end(l, data, from, size);
    case TX_LINES_ELEMENTS:
        return find_element_end(l, data, from, size);
    default:
        newline = memchr(data + from, '\n', size - from);
        return newline ? (size_t)(newline - data) : size;
    }
}

tx_status tx_lines_next(tx_lines *l, char **line, size_t *size)
{
    size_t seen = 0;
    l->state = OUTSIDE;
    l->depth = 0;
    while (true) {
        size_t available = l->held - l->begin;
        char *data = l->data ? l->data + l->begin : NULL;
        seen = available ? find_end(l, data, seen, available) : 0;
        bool all = l->at == l->end, ends = seen < available;
        /* After a \r at the end of the buffer, a \n may follow in the file. */
        if (all || (ends && (data[seen] != '\r' || seen + 1 < available))) {
            size_t length = ends ? seen + 1 : available;
            *line = data;
            *size = length;
            l->given = l->at - (int64_t)available;
            l->open = !ends && (l->form == TX_LINES_ELEMENTS || l->state == QUOTED);
            l->begin += length;
            if (ends && data[seen] == '\r') {
                data[seen] = '\n';
                l->begin += length < available && data[length] == '\n';
            }
            return TX_OK;
        }
        TX_TRY(read_more(l));
    }
}

void tx_lines_seek(tx_lines *l, int64_t at)
{
    const int64_t first = l->at - (int64_t)l->held;
    if (at < first || at > l->at) {
        l->at = at;
        l->held = 0;
    }
    l->begin = l->held ? (size_t)(at - first) : 0;
}

void tx_lines_report(const tx_reporter *report, const char *path, int64_t bad, const char *line, int64_t first)
{
    if (bad)
        tx_reporter_print(report, "%.800s: %" PRId64 " malformed %s%s skipped, the first is %s %" PRId64, path, bad,
                          line, bad == 1 ? " is" : "s are", line, first);
}

tx_status tx_lines_count(const tx_data_file *file, int64_t end, int64_t *count)
{
    tx_lines lines = {.file = file, .end = end};
    char *line = NULL;
    size_t size = 1;
    tx_status status = TX_OK;
    for (*count = 0; !status && size > 0; *count += !status && size > 0 && line[size - 1] == '\n')
        status = tx_lines_next(&lines, &line, &size);
    free(lines.data);
    return status;
}

tx_status tx_lines_after(const tx_data_file *file, int64_t from, int64_t *place)
{
    tx_lines lines = {.file = file, .at = from, .end = file->size};
    char *line;
    size_t size;
    tx_status status = tx_lines_next(&lines, &line, &size);
    *place = lines.at - (int64_t)(lines.held - lines.begin);
    free(lines.data);
    return status;
}
