/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole training run: epochs of shuffled samples, the learning-rate schedule, evaluation, the log, checkpoints, and
 * an orderly end on a signal or when the numbers stop being finite. */
#ifndef TX_TRAIN_RUN_H
#define TX_TRAIN_RUN_H

#include "comm/watch.h"
#include "models/options/settings.h"
#include "models/task/loader.h"
#include "models/train/pace.h"
#include "models/train/schedule.h"
#include "models/train/state.h"
#include "models/train/tensorboard.h"
#include "models/train/trainer.h"
#include "models/tx_train.h"

#define TX_RUN_OPTIMIZER "optimizer.safetensors"

typedef struct tx_run_evaluation {
    int64_t step;
    double epoch, seconds;
    int64_t samples, batches;
    const tx_metric *metrics; /* the task's; NULL in the name behind the last */
    double value[TX_METRICS_MAX];
} tx_run_evaluation;

typedef struct tx_run_options {
    size_t size;                  /* sizeof(tx_run_options) */
    const tx_job_settings *set;   /* it must outlive the run */
    tx_run_facts facts;           /* numbers that follow from the settings */
    tx_samples train, validation; /* of the trainer's task; without samples for validation nothing is evaluated */
    tx_schedule schedule;         /* its total_steps is the length of the run */
    int64_t step_rows;            /* of an optimizer step of all ranks; 0: as many as the trainer has planned */
    bool balance;                 /* share micro-batches out by the ranks' speed, measured in the first steps */
    tx_watch *watch;              /* learns of every step and checkpoint; may be NULL */
    tx_comm *comm;                /* all ranks that train together; if NULL, the trainer's data-parallel ranks */
    const char *best_metric;      /* decides the best evaluation; if NULL, the task's first metric does */
    double flops_per_token;       /* of total_flos */
    int64_t checkpoint_bytes;     /* about the size of one checkpoint */
    /* Writes the files of a checkpoint that the run does not know: configuration, weights, tokenizer. */
    tx_status (*write)(void *context, const char *folder);
    void *write_context;
    tx_tensorboard *board; /* gets the points of the history; may be NULL */
    tx_reporter report;
    tx_job_listener listener;
} tx_run_options;

typedef struct tx_run_summary {
    int64_t steps;                 /* done by this call */
    int64_t samples;               /* read by this call */
    int64_t tokens, padded_tokens; /* of these, without padding and with it */
    double seconds;                /* of the steps, evaluation left out */
    double wall;                   /* of everything */
    double loss;                   /* of the last step */
    double mean_loss;              /* over the steps of this call */
    double waited;                 /* seconds for data */
    int stopped;                   /* what listener.stop returned; 0: the run went to its end */
    /* Checkpoints that could not be written, the same number on all ranks; the last one's step, and why. */
    int64_t unsaved;
    char unsaved_why[600];
    /* Per step from the second on, evaluation left out; allocations: all of them, from the second step to the end. */
    int64_t measured_steps;
    tx_traffic traffic;
} tx_run_summary;

/* Goes from `state` to the end. When too many steps in a row had no finite result the run ends with TX_INVALID; state
 * and summary tell how far it came on any outcome. */
tx_status tx_run(tx_engine *engine, tx_model *model, tx_trainer *trainer, const tx_run_options *options,
                 tx_run_state *state, tx_run_summary *summary);

/* The evaluation's metrics, and how fast it went; returns how many. `of_trainer`: only those that transformers' Trainer
 * has too, whose names begin with eval_, as history and event files hold them. */
enum { TX_RUN_FIGURES = TX_METRICS_MAX + 3 };
int32_t tx_run_figures(const tx_run_evaluation *evaluation, bool of_trainer, tx_figure figures[TX_RUN_FIGURES]);

/* The loss and the labels of samples, which the ranks share out, added to the sums; and where the task measures or
 * predicts the outputs of all of them [count, tx_trainer_outputs], on every rank. The caller frees these. */
tx_status tx_run_outputs(tx_trainer *trainer, const tx_samples *samples, tx_watch *watch, double sums[TX_SUMS_MAX],
                         float **outputs);
/* The task's metrics over its samples, which the ranks share out; `step` and `epoch` of the result are left alone. The
 * watch (NULL: none) is told of each batch. */
tx_status tx_run_evaluate(tx_trainer *trainer, const tx_samples *samples, tx_watch *watch,
                          tx_run_evaluation *evaluation);

/* ---- Checkpoints (models/train/save.c) -------------------------------------------------------------- */

/* Writes output_dir/checkpoint-STEP: what options->write writes, optimizer states, state of the run, and with `log` the
 * log so far. All ranks call it, rank 0 writes, and all learn how it went; `comm` NULL: one rank. */
tx_status tx_run_save(tx_engine *engine, tx_model *model, tx_comm *comm, const tx_run_options *options,
                      tx_run_state *state, bool log);
/* Lets all ranks replace the model's weights by `load`; where one cannot, all have their last ones again, and the
 * message says why. Fails where these cannot be had back. */
tx_status tx_run_replace_weights(tx_model *model, tx_comm *comm, tx_status (*load)(void *context), void *context,
                                 bool *replaced);
/* Fails where output_dir's disk has no room for what the run keeps there at its worst moment: its checkpoints up to
 * the limit with the one in the making, or those at the end and a final model of `model_bytes`. What is there already,
 * and what goes when the limit is reached, is not asked for again. The run begins behind `step`, and an epoch has
 * `epoch_steps`. */
tx_status tx_run_check_room(const tx_run_options *options, int64_t step, int64_t epoch_steps, int64_t model_bytes);
/* Brings optimizer states, counters and log back from a checkpoint whose state was read; weights are the caller's to
 * load. `output_dir` NULL: the log is another rank's. */
tx_status tx_run_resume(tx_model *model, tx_trainer *trainer, const tx_run_state *state, const char *checkpoint,
                        const char *output_dir);

#endif
