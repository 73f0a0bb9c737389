/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports a run of txtrain: lines on standard output, warnings and a progress line on standard error. */
#ifndef TX_TOOLS_TRAIN_PROGRESS_H
#define TX_TOOLS_TRAIN_PROGRESS_H

#include "tools/cli/alive.h"
#include "tools/cli/options.h"
#include "tx_train.h"

#include <stdio.h>

typedef struct tx_train_progress {
    tx_job *job;
    bool line;             /* true if a progress line is drawn (standard error is a terminal) */
    int64_t steps, logged; /* number of reported steps; the last step that has a log line */
    double first_loss;     /* of the first log line */
    bool diverged;         /* whether the warning of a rising loss was printed */
    double last_line;      /* time of the last line, as tx_now */
    tx_alive *alive;       /* the thread that prints while the run is silent, or NULL */
} tx_train_progress;

/* Returns a listener that prints the events of a run; its context is `progress`. It leaves `begin`, `stop` and `save`
 * for the program to set. */
tx_job_listener tx_train_listener(tx_train_progress *progress);

/* ---- memory.c -------------------------------------------------------------------------------- */

/* Prints planned bytes and bytes per parameter by category, and their totals. If `counted` is not NULL, it adds a
 * column with the bytes that the backend counted. The backend counts activations and temporaries as one block. */
void tx_print_memory(FILE *to, const tx_memory *planned, const tx_memory *counted, int64_t params);
/* Prints the node at which the most activation and temporary bytes are live, and the largest live tensors. */
tx_status tx_print_peak(FILE *to, const tx_plan *plan);

#endif
