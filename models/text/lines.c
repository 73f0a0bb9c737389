/* SPDX-License-Identifier: Apache-2.0
 * Reads the lines of a range of a file. */
#include "models/text/lines.h"

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

/* Position of the first line end from `from` on, or `size`. */
static size_t find_end(const tx_lines *l, const char *data, size_t from, size_t size)
{
    if (!l->carriage) {
        const char *newline = memchr(data + from, '\n', size - from);
        return newline ? (size_t)(newline - data) : size;
    }
    while (from < size && data[from] != '\n' && data[from] != '\r')
        from++;
    return from;
}

tx_status tx_lines_next(tx_lines *l, char **line, size_t *size)
{
    size_t seen = 0;
    while (true) {
        size_t available = l->held - l->begin;
        char *data = l->data ? l->data + l->begin : NULL;
        seen = available ? find_end(l, data, seen, available) : 0;
        bool all = l->at == l->end, ends = seen < available;
        /* After a \r at the end of the buffer, a \n may follow in the file. */
        if (all || (ends && (data[seen] == '\n' || seen + 1 < available))) {
            size_t length = ends ? seen + 1 : available;
            *line = data;
            *size = length;
            l->given = l->at - (int64_t)available;
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
