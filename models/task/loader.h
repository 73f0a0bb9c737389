/* SPDX-License-Identifier: Apache-2.0
 *
 * The batches of a training run in order, prepared by threads while the device computes. The rows of step N depend only
 * on N, the data and the options, so a loader can begin at any step. The training loop (models/train) calls it. */
#ifndef TX_TASK_LOADER_H
#define TX_TASK_LOADER_H

#include "models/report.h"
#include "models/task/task.h"

/* From the settings it uses the order of samples, drop_last, the number of worker threads, and whether batches are
 * locked in memory. If the system refuses threads or locking, a warning is printed once and loading continues without
 * them. */
typedef struct tx_loader_options {
    size_t size;                /* sizeof(tx_loader_options) */
    const tx_job_settings *set; /* read by tx_loader_create */
    int64_t step_rows;          /* of an optimizer step; the last one of an epoch has the rest */
    int64_t batch;              /* rows of a micro-batch of all ranks; the last one of a step is padded to it */
    int64_t first, rows;        /* this rank's share of it; if `rows` is 0, all rows */
    bool local;                 /* count the labels of this rank's rows only; at least 1 */
    tx_reporter report;
} tx_loader_options;

/* All rows of one optimizer step. */
typedef struct tx_step_batch {
    int64_t step;  /* counted from 0 */
    int64_t epoch; /* counted from 0 */
    double passed; /* epochs done after it: epoch + micro-batches so far / micro-batches of an epoch */
    int64_t micro_batches;
    int64_t first;  /* position of its first row in the epoch's order */
    int64_t rows;   /* of all ranks, without padding rows */
    int64_t tokens; /* of these rows, without padding */
    int64_t labels; /* of these rows, or with `local` of this rank's, without ignored ones */
    tx_batch batch; /* this rank's micro_batches * options.rows rows; `longest` is over all ranks' rows */
    double waited;  /* seconds that the caller waited for it; without threads, the seconds of preparing it */
} tx_step_batch;

typedef struct tx_loader tx_loader;

/* Whether rows of similar length are put into the same step. */
bool tx_loader_groups(const tx_job_settings *set, const tx_task *task);
/* The number of samples that an epoch uses. */
int64_t tx_loader_used(int64_t samples, int64_t batch, bool drop_last);
/* The number of optimizer steps in an epoch. */
int64_t tx_loader_epoch_steps(int64_t samples, int64_t step_rows);

/* Creates a loader that begins with step `first`, counted from 0. The caller frees the loader. */
tx_status tx_loader_create(const tx_samples *samples, const tx_loader_options *options, int64_t first,
                           tx_loader **loader);
void tx_loader_free(tx_loader *loader);
/* The batch of the next step. It is valid until the second next call. Fails as tx_samples_rows does; there are no more
 * steps after a failure. */
tx_status tx_loader_next(tx_loader *loader, const tx_step_batch **batch);

/* Writes the samples of the first `steps` steps in order of use, one on a line: "EPOCH SAMPLE\n". Both are counted from
 * 0, and SAMPLE is the index in the data. */
tx_status tx_loader_dump_order(const tx_samples *samples, const tx_loader_options *options, int64_t steps,
                               const char *path);

/* ---- Rows of similar length (grouping.c) ----------------------------------------------------- */

/* Orders an epoch so that rows of similar length follow each other, as transformers' LengthGroupedSampler does. The
 * shuffled samples are divided into groups of up to 50 batches. Each group is sorted by descending length, and the
 * longest row of all comes first. The order depends only on samples, batch, seed and epoch. */

typedef struct tx_grouping tx_grouping;

/* A step has `batch` rows. The samples' task must have `length`. The caller frees the grouping. */
tx_status tx_grouping_create(const tx_samples *samples, int64_t batch, tx_grouping **grouping);
void tx_grouping_free(tx_grouping *grouping);
/* The sample at this position of the epoch. `order` is the shuffle. Several threads may call it at the same time. */
int64_t tx_grouping_at(tx_grouping *grouping, const tx_sample_order *order, int64_t place);

#endif
