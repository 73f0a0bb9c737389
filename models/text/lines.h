/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterates over the lines of a range of a file, with only one line in memory. */
#ifndef TX_TEXT_LINES_H
#define TX_TEXT_LINES_H

#include "models/files/data_file.h"
#include "models/tx_text.h"
#include "tx_json.h"

/* Begin with {.file, .at, .end, .carriage}, end with free(lines.data). */
typedef struct tx_lines {
    const tx_data_file *file;
    int64_t at, end; /* range that is still to be read */
    int64_t given;   /* file position of the last line returned */
    bool carriage;   /* \r and \r\n also end lines and become \n, as in Python's text mode */
    char *data;
    size_t room, begin, held; /* bytes begin..held-1 are read but not yet returned */
} tx_lines;

/* Returns the next line with its \n, if it has one; 0 bytes at the end. The caller may change the line, which is valid
 * until the next call. TX_IO if the file cannot be read or became shorter. */
tx_status tx_lines_next(tx_lines *lines, char **line, size_t *size);
/* Counts the \n before byte `end`. */
tx_status tx_lines_count(const tx_data_file *file, int64_t end, int64_t *count);
/* Position after the first \n at or after `from`, or the file's size. */
tx_status tx_lines_after(const tx_data_file *file, int64_t from, int64_t *place);

/* TX_FORMAT with the first byte that is not UTF-8. */
tx_status tx_text_check(const char *text, size_t size);

/* The keys of the forms of data that tasks read, for messages. */
#define TX_LINES_FORMS                                                                                      \
    "TX reads text, messages, conversations, prompt with completion, instruction with output or response, " \
    "and chosen with rejected (--task_name dpo)"

/* Reads the text of a line {"text": ..., ...}, as strictly as tx_json_parse_line; TX_FORMAT names the fault. A long
 * text is decoded in place instead of copied, so `line` may change. Messages start with `where`. `*text` lives as long
 * as the line and `*json`, which the caller frees. */
tx_status tx_jsonl_text(char *line, size_t size, const char *where, tx_json **json, const char **text, size_t *length);

#endif
