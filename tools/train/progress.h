/* SPDX-License-Identifier: Apache-2.0
 *
 * Following a run of txtrain: lines on standard output, a progress line on a terminal, event files for TensorBoard. */
#ifndef TX_TOOLS_TRAIN_PROGRESS_H
#define TX_TOOLS_TRAIN_PROGRESS_H

#include "models/train/run.h"
#include "models/train/tensorboard.h"
#include "tools/train/options.h"

typedef struct tx_train_progress {
    const tx_train_settings *set;
    tx_tensorboard *board; /* NULL: none */
    bool terminal;         /* a progress line is drawn */
    const tx_comm *comm;   /* NULL: one rank */
    tx_watch *watch;       /* hears of everything long that goes on; NULL: there is none */
    char *kept; /* warnings of a rank that is not the first, while most of its warnings are also that one's */
    bool tells; /* warnings are kept no more */
} tx_train_progress;

/* Prints warnings, with the rank's number where it is not the first; `context` of the reporter is the progress. */
tx_reporter tx_train_reporter(tx_train_progress *progress);
/* Prints the warnings that were kept, unless rank 0 has printed the same. All ranks call it. */
tx_status tx_train_share_warnings(tx_train_progress *progress, tx_comm *comm);
/* Prints those that were kept since, and keeps none from now on. */
void tx_train_tell_warnings(tx_train_progress *progress);
/* Opens the event file where one is asked for. Close on any outcome. */
tx_status tx_train_progress_open(tx_train_progress *progress);
void tx_train_progress_close(tx_train_progress *progress);

/* A listener's functions; their context is the progress. */
void tx_train_on_step(void *context, const tx_run_step *step);
void tx_train_on_log(void *context, const tx_run_step *step, double loss);
void tx_train_on_evaluation(void *context, const tx_run_evaluation *evaluation);
void tx_train_on_note(void *context, const char *line);
void tx_train_on_saved(void *context, const char *folder);
/* Removes the progress line. */
void tx_train_clear(const tx_train_progress *progress);
/* The closing metrics, for the event file. */
void tx_train_on_metrics(tx_train_progress *progress, const tx_json *metrics, int64_t step);

#endif
