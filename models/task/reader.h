/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the rows of a file for a task, by columns. */
#ifndef TX_TASK_READER_H
#define TX_TASK_READER_H

#include "models/data/rows.h"
#include "models/task/task.h"
#include "models/tokenizer/joined.h"

/* The state of reading, the first member of a task's own. Begin with {.path, .options}. */
typedef struct tx_reader {
    const char *path;
    const tx_data_options *options;
    tx_rows *rows;
    int64_t begin, end; /* range of rows to use */
    int64_t unlabelled; /* rows that the task left out because they have no label */
    bool enough;        /* set by a hook to end a pass over the rows */
    tx_joiner joiner;
} tx_reader;

typedef tx_status tx_reader_hook(tx_reader *reader);

/* Opens the file, finds its rows and columns, chooses the range, runs `read` and closes the file. Reports skipped rows.
 * The message of a failure names the file. */
tx_status tx_reader_run(tx_reader *reader, tx_reader_hook *read);
/* Runs `use` after reading each row of the range that is not skipped. A row that is malformed, or for which it fails
 * with TX_FORMAT, is skipped from then on, as --skip_bad allows. */
tx_status tx_reader_rows(tx_reader *reader, tx_reader_hook *use);
/* Finds the first column of a list of names, which ends with NULL. If there is none, fails as tx_rows_fail_column, and
 * `*column` is -1. `shown` are the names in the message. */
tx_status tx_reader_find(const tx_reader *reader, const char *const *names, const char *shown, const char *option,
                         int32_t *column);
/* Finds a column of labels. Test data have none: `*column` is -1. */
tx_status tx_reader_find_label(const tx_reader *reader, const char *const *names, const char *shown, int32_t *column);

#endif
