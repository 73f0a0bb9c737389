/* SPDX-License-Identifier: Apache-2.0
 *
 * Following a run of txtrain: lines on standard output, warnings and a progress line on standard error. */
#ifndef TX_TOOLS_TRAIN_PROGRESS_H
#define TX_TOOLS_TRAIN_PROGRESS_H

#include "tools/cli/alive.h"
#include "tools/cli/options.h"
#include "tx_train.h"

typedef struct tx_train_progress {
    tx_job *job;
    bool line;             /* a progress line is drawn */
    int64_t steps, logged; /* told of; the last one that a line of the log was printed for */
    double told;           /* when a line was printed last */
    tx_alive *alive;       /* prints if nothing else does; NULL: no thread */
} tx_train_progress;

/* Prints what a run tells; its context is the progress. `begin`, `stop` and `save` are left to the program. */
tx_job_listener tx_train_listener(tx_train_progress *progress);

#endif
