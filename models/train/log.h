/* SPDX-License-Identifier: Apache-2.0
 *
 * A log of JSON lines that never stops a training run: what cannot be written is told once, then the log is given
 * up. Each line is flushed. */
#ifndef TX_TRAIN_LOG_H
#define TX_TRAIN_LOG_H

#include "models/report.h"
#include "tx.h"

#include <stdio.h>

typedef struct tx_log {
    FILE *file; /* NULL: none, or given up */
    const char *path;
    tx_reporter report;
    char buffer[4096]; /* of the file, so that writing a line takes no memory */
} tx_log;

/* Begins the log at `path` anew, or goes on with what is there; NULL: no log. `path` must live as long as the log. */
void tx_log_open(tx_log *log, const char *path, bool go_on, const tx_reporter *report);
/* Writes one line, its end added. */
void tx_log_line(tx_log *log, const char *format, ...) TX_PRINTF(2, 3);
void tx_log_close(tx_log *log);

/* A number as the log spells it: %.9g, which gives back every float; NaN, Infinity and -Infinity as Python's json
 * module writes and reads them. Returns `text`. */
#define TX_LOG_NUMBER 32
const char *tx_log_number(double value, char text[TX_LOG_NUMBER]);

#endif
