/* SPDX-License-Identifier: Apache-2.0
 *
 * The training loop: epochs of shuffled samples, the learning-rate schedule, evaluation, the log and checkpoints. It
 * ends in order on a signal, or if the loss or gradients are no longer finite. models/job calls it. */
#ifndef TX_TRAIN_RUN_H
#define TX_TRAIN_RUN_H

#include "comm/watch.h"
#include "models/options/settings.h"
#include "models/task/loader.h"
#include "models/train/events.h"
#include "models/train/pace.h"
#include "models/train/schedule.h"
#include "models/train/state.h"
#include "models/train/trainer.h"
#include "models/tx_train.h"

#define TX_RUN_OPTIMIZER "optimizer.safetensors"

typedef struct tx_run_evaluation {
    int64_t step;
    double epoch, seconds;
    int64_t samples, batches;
    const tx_metric *metrics; /* of the task; the name after the last is NULL */
    double value[TX_METRICS_MAX];
    bool has[TX_METRICS_MAX]; /* false for a metric without a value, which is left out */
} tx_run_evaluation;

typedef struct tx_run_options {
    size_t size;                  /* sizeof(tx_run_options) */
    const tx_job_settings *set;   /* it must outlive the run */
    tx_run_facts facts;           /* numbers that follow from the settings */
    tx_samples train, validation; /* of the trainer's task; validation is optional */
    tx_schedule schedule;         /* its total_steps is the length of the run */
    int64_t step_rows;            /* of an optimizer step of all ranks; 0 for the number that the trainer planned */
    bool balance;                 /* divide micro-batches by the ranks' speed, measured in the first steps */
    tx_watchdog *watch;           /* receives every step and checkpoint; may be NULL */
    tx_comm *comm;                /* all ranks that train together; if NULL, the trainer's data-parallel ranks */
    const char *best_metric;      /* selects the best evaluation; if NULL, the task's first metric does */
    double flops_per_token;       /* for total_flos */
    int64_t checkpoint_bytes;     /* approximate size of one checkpoint */
    const char *checkpoint;       /* the folder to resume a generation batch from, or NULL */
    /* Writes the files of a checkpoint that the caller knows: configuration, weights, tokenizer. */
    tx_status (*write)(void *context, const char *folder);
    /* Makes and locks output_dir again if it was removed during the run. May be NULL. */
    tx_status (*reopen)(void *context);
    void *write_context;     /* of both */
    const tx_events *events; /* receive the points of the history */
    tx_reporter report;
    tx_job_listener listener;
} tx_run_options;

typedef struct tx_run_summary {
    int64_t steps;                 /* done by this call */
    int64_t samples;               /* read by this call */
    int64_t tokens, padded_tokens; /* of these samples, without and with padding */
    double seconds;                /* of the steps, without evaluation */
    double wall;                   /* seconds of the whole call */
    double loss;                   /* of the last step */
    double mean_loss;              /* over the steps of this call */
    double waited;                 /* seconds of waiting for data */
    double saving;                 /* seconds in which checkpoints kept training waiting */
    int stopped;                   /* the result of listener.stop; 0 if the run is complete */
    /* The number of checkpoints that could not be written, the same on all ranks, and step and reason of the last. */
    int64_t unsaved;
    char unsaved_why[600];
    /* Traffic of the steps from the second on, without evaluation. `allocations` counts from the second step to the
     * end. */
    int64_t measured_steps;
    tx_traffic traffic;
} tx_run_summary;

/* Trains from `state` to the end. TX_INVALID if too many consecutive steps had no finite result. State and summary are
 * valid after success and failure. */
tx_status tx_run(tx_engine *engine, tx_model *model, tx_trainer *trainer, const tx_run_options *options,
                 tx_run_state *state, tx_run_summary *summary);

/* Fills in the evaluation's metrics and its speed. Returns their number. If `of_trainer`, only the metrics of
 * transformers' Trainer are included, whose names begin with eval_; history and event files have these. */
enum { TX_RUN_FIGURES = TX_METRICS_MAX + 3 };
int32_t tx_run_figures(const tx_run_evaluation *evaluation, bool of_trainer, tx_figure figures[TX_RUN_FIGURES]);

/* The output values of a sample that an evaluation keeps. */
int64_t tx_run_columns(const tx_trainer *trainer);
/* Adds loss and labels of the samples to the sums; the ranks divide the samples. If the task measures or predicts,
 * every rank gets the outputs of all samples [count, tx_run_columns], which the caller frees. */
tx_status tx_run_outputs(tx_trainer *trainer, const tx_samples *samples, tx_watchdog *watch, double sums[TX_SUMS_MAX],
                         float **outputs);
/* Computes the task's metrics over the samples, which the ranks divide. `step` and `epoch` of the result do not change.
 * The watch, which may be NULL, receives a sign of life after each batch. */
tx_status tx_run_evaluate(tx_trainer *trainer, const tx_samples *samples, tx_watchdog *watch,
                          tx_run_evaluation *evaluation);

/* ---- Checkpoints (models/train/save.c) -------------------------------------------------------------- */

/* Replaces the model's weights on all ranks by `load`. If a rank fails, all ranks restore their previous weights,
 * `*replaced` is false, and the message has the reason. Fails if these cannot be restored. */
tx_status tx_run_replace_weights(tx_model *model, tx_comm *comm, tx_status (*load)(void *context), void *context,
                                 bool *replaced);
/* Fails if output_dir's disk is too small for the most that the run keeps there at a time. That is the checkpoints up
 * to save_total_limit plus one in progress, or the checkpoints at the end plus a final model of `model_bytes`. Existing
 * checkpoints are not counted again. The run begins after `step`, and an epoch has `epoch_steps`. */
tx_status tx_run_check_room(const tx_run_options *options, int64_t step, int64_t epoch_steps, int64_t model_bytes);
/* Restores optimizer states, counters and log from a checkpoint whose state was read. The caller loads the weights.
 * Pass NULL as `output_dir` on ranks that do not write the log. */
tx_status tx_run_resume(tx_model *model, tx_trainer *trainer, const tx_run_state *state, const char *checkpoint,
                        const char *output_dir);

#endif
