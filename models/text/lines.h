/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of a range of a file, one after the other: no more than one of them is in memory. */
#ifndef TX_TEXT_LINES_H
#define TX_TEXT_LINES_H

#include "models/files/data_file.h"
#include "models/tx_text.h"
#include "tx_json.h"

/* Begin with {.file, .at, .end, .carriage}, end with free(lines.data). */
typedef struct tx_lines {
    const tx_data_file *file;
    int64_t at, end; /* what is still to be read */
    int64_t given;   /* where the line that was given last begins */
    bool carriage;   /* \r and \r\n end lines as \n does, and become \n: what Python reads in text mode */
    char *data;
    size_t room, begin, held; /* bytes begin..held-1 are read and not given yet */
} tx_lines;

/* The next line, with its \n where it has one; 0 bytes at the end. The caller may change it; it is valid until the next
 * call. TX_IO where the file cannot be read, or became shorter. */
tx_status tx_lines_next(tx_lines *lines, char **line, size_t *size);
/* How many \n the file has before byte `end`. */
tx_status tx_lines_count(const tx_data_file *file, int64_t end, int64_t *count);
/* The place after the first \n at or behind `from`, the file's end where there is none. */
tx_status tx_lines_after(const tx_data_file *file, int64_t from, int64_t *place);

/* The text of the line {"text": ..., ...}, to the letter as strict as tx_json_parse_line; TX_FORMAT says what is wrong.
 * A long text is spelled out within the line, which is changed where it succeeds, and not copied. `where` starts the
 * messages. `*text` lives as long as the line and `*json`, which the caller frees. */
tx_status tx_jsonl_text(char *line, size_t size, const char *where, tx_json **json, const char **text, size_t *length);

#endif
