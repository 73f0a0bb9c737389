/* SPDX-License-Identifier: Apache-2.0
 *
 * The batches of a training run in order, prepared by threads while the device works. What step N reads depends on N,
 * the data and the options alone: a loader can begin at any step. */
#ifndef TX_TASK_LOADER_H
#define TX_TASK_LOADER_H

#include "models/report.h"
#include "models/task/task.h"

/* The settings decide the order of samples, drop_last, the worker threads and whether batches are locked in memory. If
 * the system refuses threads or locking, a warning says so once and loading continues without. */
typedef struct tx_loader_options {
    size_t size;                /* sizeof(tx_loader_options) */
    const tx_job_settings *set; /* read by tx_loader_create */
    int64_t step_rows;          /* of an optimizer step; the last one of an epoch has the rest */
    int64_t batch;              /* rows of a micro-batch of all ranks; the last one of a step is padded to it */
    int64_t first, rows;        /* this rank's part of it; rows 0: all */
    tx_reporter report;
} tx_loader_options;

/* All rows of one optimizer step. */
typedef struct tx_step_batch {
    int64_t step;  /* counted from 0 */
    int64_t epoch; /* the one it belongs to, from 0 */
    double passed; /* epochs passed through when it is done: epoch + micro-batches so far / those of an epoch */
    int64_t micro_batches;
    int64_t first;  /* place of its first row in the epoch's order */
    int64_t rows;   /* real ones, of all ranks */
    int64_t tokens; /* of these rows, without padding */
    int64_t labels; /* that count, over all these rows */
    tx_batch batch; /* micro_batches * options.rows rows: what this rank is to do; `longest` is of all ranks' rows */
    double waited;  /* seconds the caller had to wait for it; without threads, those of preparing it */
} tx_step_batch;

typedef struct tx_loader tx_loader;

/* Whether rows of similar length share a step. */
bool tx_loader_groups(const tx_job_settings *set, const tx_task *task);
/* Samples that an epoch uses. */
int64_t tx_loader_used(int64_t samples, int64_t batch, bool drop_last);
/* Optimizer steps in one epoch of so many. */
int64_t tx_loader_epoch_steps(int64_t samples, int64_t step_rows);

/* Begins with step `first` (from 0). The caller frees the loader. */
tx_status tx_loader_create(const tx_samples *samples, const tx_loader_options *options, int64_t first,
                           tx_loader **loader);
void tx_loader_free(tx_loader *loader);
/* The next step's batch; it stays valid until the call after the next one. Fails as tx_samples_rows does; no step can
 * be had after that. */
tx_status tx_loader_next(tx_loader *loader, const tx_step_batch **batch);

/* Writes the samples of the first `steps` steps in order of use, a line each: "EPOCH SAMPLE\n", both from 0, SAMPLE
 * being its number in the data. */
tx_status tx_loader_dump_order(const tx_samples *samples, const tx_loader_options *options, int64_t steps,
                               const char *path);

#endif
