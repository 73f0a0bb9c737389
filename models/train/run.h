/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole training run: epochs of shuffled blocks, the learning-rate schedule, evaluation, the log, and an orderly end
 * on a signal or when the numbers stop being finite. */
#ifndef TX_TRAIN_RUN_H
#define TX_TRAIN_RUN_H

#include "models/text/dataset.h"
#include "models/train/schedule.h"
#include "models/train/trainer.h"
#include "models/train/log.h"

/* So many updates in a row that were skipped because a number was not finite end the run. */
#define TX_RUN_SKIPS 5

/* One finished optimizer step. */
typedef struct tx_run_step {
    int64_t step, steps; /* counted from 1 */
    double epoch;        /* passed through so far */
    double loss;         /* mean over the step's labels */
    double grad_norm;    /* before clipping */
    double learning_rate;
    int64_t tokens; /* read so far, padding left out */
    double tokens_per_second;
    double seconds_left; /* of the whole run, estimated */
} tx_run_step;

/* Who follows the run. Any function may be NULL but warn. */
typedef struct tx_run_listener {
    void *context;
    void (*step)(void *context, const tx_run_step *step);
    void (*evaluation)(void *context, int64_t step, double loss, double perplexity);
    tx_warn *warn;
    /* Asked between steps: not 0 ends the run after the step in progress. */
    int (*stop)(void *context);
} tx_run_listener;

typedef struct tx_run_options {
    size_t size; /* sizeof(tx_run_options) */
    const tx_dataset *train;
    const tx_dataset *validation; /* NULL: no evaluation */
    tx_schedule schedule;         /* its total_steps is the length of the run */
    uint64_t seed;                /* of the order of blocks */
    int64_t eval_steps;           /* evaluate after every so many steps, and at the end; 0: at the end only */
    const char *log_path;         /* NULL: no log */
    bool profile;                 /* time every operation from the second step on */
    tx_run_listener listener;
} tx_run_options;

typedef struct tx_run_summary {
    int64_t steps;    /* done */
    int64_t skipped;  /* of these, updates left out because a gradient was not finite */
    int64_t tokens;   /* read, padding left out */
    double seconds;   /* of the steps, evaluation left out */
    double loss;      /* of the last step */
    double eval_loss; /* of the last evaluation; NaN when there was none */
    int stopped;      /* what listener.stop returned; 0: the run went to its end */
    /* Per step from the second on, evaluation left out; allocations: all of them, from the second step to the end. */
    int64_t measured_steps;
    tx_traffic traffic;
} tx_run_summary;

/* Optimizer steps in one epoch: micro-batches of `batch` blocks, the last one padded, `accumulation` of them a step,
 * the last step of the epoch with what is left. */
int64_t tx_run_epoch_steps(int64_t blocks, int64_t batch, int64_t accumulation);

/* Trains. When too many updates in a row had to be skipped the run ends with TX_INVALID; the summary is set on
 * any outcome and tells how far it came. */
tx_status tx_run(tx_engine *engine, tx_trainer *trainer, const tx_run_options *options, tx_run_summary *summary);

#endif
