/* SPDX-License-Identifier: Apache-2.0
 *
 * A log of JSON lines, log.jsonl. A write error never stops a training run: it is reported once, and the log is closed.
 * Each line is flushed. */
#ifndef TX_TRAIN_LOG_H
#define TX_TRAIN_LOG_H

#include "models/report.h"
#include "tx.h"

#include <stdio.h>

enum { TX_LOG_LINE = 4096, TX_LOG_RECENT = 8 };

typedef struct tx_log {
    FILE *file; /* NULL without a log, or after an error */
    const char *path;
    tx_reporter report;
    char buffer[4096]; /* of the file, so that writing a line allocates nothing */
    /* The last lines of a rank that writes no log, or NULL. */
    char (*recent)[TX_LOG_LINE];
    int64_t lines; /* that were remembered */
} tx_log;

/* Opens the log at `path`, which must outlive the log. Pass NULL for no log. If `append`, the existing lines are kept.
 */
void tx_log_open(tx_log *log, const char *path, bool append, const tx_reporter *report);
/* Writes one line and its newline. */
void tx_log_line(tx_log *log, const char *format, ...) TX_PRINTF(2, 3);
void tx_log_close(tx_log *log);
/* Lets a log without a file remember its last lines, if there is memory. */
void tx_log_remember(tx_log *log);
/* Copies a log of another rank, which may have ended before this one, from `from` to `to`, and adds the remembered
 * results of later steps. */
tx_status tx_log_complete(const tx_log *log, const char *from, const char *to);

/* Formats a number for the log with %.9g, which preserves every float. NaN, Infinity and -Infinity are written as
 * Python's json module does. Returns `text`. */
#define TX_LOG_NUMBER 32
const char *tx_log_number(double value, char text[TX_LOG_NUMBER]);

#endif
