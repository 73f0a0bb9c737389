/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterates over the lines, rows or elements of a range of a file, with only one of them in memory. */
#ifndef TX_DATA_LINES_H
#define TX_DATA_LINES_H

#include "models/files/data_file.h"
#include "models/report.h"
#include "models/tx_text.h"
#include "tx_json.h"

/* The end of a line. */
typedef enum tx_lines_form {
    TX_LINES_PLAIN,   /* \n */
    TX_LINES_TEXT,    /* \n, \r or \r\n, which become \n, as in Python's text mode */
    TX_LINES_CSV,     /* \n outside of quotes */
    TX_LINES_ELEMENTS /* the comma or bracket after an element of a JSON array, whose first bracket is before the range
                       */
} tx_lines_form;

/* Begin with {.file, .at, .end, .form}, end with free(lines.data). */
typedef struct tx_lines {
    const tx_data_file *file;
    int64_t at, end; /* range that is still to be read */
    int64_t given;   /* file position of the last line returned */
    tx_lines_form form;
    bool open; /* the last line returned, which is the rest of the range, lacks its closing quote or bracket */
    char *data;
    size_t room, begin, held; /* bytes begin..held-1 are read but not yet returned */
    int state;                /* of the search for the end of a line */
    int64_t depth;            /* brackets that are open there */
} tx_lines;

/* Returns the next line with its end, if it has one; 0 bytes after the last line. The caller may change the line, which
 * is valid until the next call. TX_IO if the file cannot be read or became shorter. */
tx_status tx_lines_next(tx_lines *lines, char **line, size_t *size);
/* Continues at a position, which may be among the bytes that are read already. */
void tx_lines_seek(tx_lines *lines, int64_t at);
/* Counts the \n before byte `end`. */
tx_status tx_lines_count(const tx_data_file *file, int64_t end, int64_t *count);
/* Position after the first \n at or after `from`, or the file's size. */
tx_status tx_lines_after(const tx_data_file *file, int64_t from, int64_t *place);

/* Reports how many malformed lines were skipped, if any, and the first one. `line` is the word for a line. */
void tx_lines_report(const tx_reporter *report, const char *path, int64_t bad, const char *line, int64_t first);

/* TX_FORMAT with the first byte that is not UTF-8. */
tx_status tx_text_check(const char *text, size_t size);

/* The keys of the forms of data that tasks read, for messages. */
#define TX_LINES_FORMS                                                                                      \
    "TX reads text, messages, conversations, prompt with completion, instruction with output or response, " \
    "and chosen with rejected (--task_name dpo)"

/* Parses a line of JSON. A long "text" may be left out. */
tx_status tx_jsonl_parse(const char *line, size_t size, const char *where, tx_json **json);
/* Reads the text of a line {"text": ..., ...}, as strictly as tx_json_parse_line; TX_FORMAT names the fault. A long
 * text is decoded in place instead of copied, so `line` may change. Messages start with `where`. `*text` lives as long
 * as the line and `*json`, which the caller frees. */
tx_status tx_jsonl_text(char *line, size_t size, const char *where, tx_json **json, const char **text, size_t *length);

#endif
