/* SPDX-License-Identifier: Apache-2.0
 *
 * One optimizer step, from batches on the host to updated parameters: the plans of a model in training
 * (forward and backward of one micro-batch, update, evaluation) and the run-time scalars that drive them.
 * run.h makes a whole run of it. */
#ifndef TX_TRAIN_TRAINER_H
#define TX_TRAIN_TRAINER_H

#include "models/options/settings.h"
#include "models/task/task.h"
#include "models/tx_train.h"

#define TX_LENGTHS_MAX 8

typedef struct tx_trainer_options {
    size_t size;                /* sizeof(tx_trainer_options) */
    const tx_job_settings *set; /* must outlive the trainer; NULL for the defaults */
    const tx_task *task;        /* the model is trained for it */
    int64_t batch, block;       /* rows of a micro-batch, positions of a row */
    int64_t accumulation;       /* micro-batches of an optimizer step, at most */
    /* With many ranks: rows of a micro-batch of all ranks, and of the ranks before this one. 0 means batch and none. */
    int64_t all_rows, rows_before;
    tx_comm *comm; /* ranks with other rows, or other chunks of them (parallel.context); NULL for one rank */
    tx_parallel_options parallel;
    int64_t eval_batch;     /* rows of an evaluation batch; 0 if nothing is evaluated */
    int32_t lengths;        /* plans of so many lengths, at most TX_LENGTHS_MAX, share one memory, and a batch runs by
                             * the shortest that its longest row fits; 0 or 1 if all rows are whole */
    tx_dtype stored;        /* of weights, gradients and moments (tx_model_store) */
    tx_dtype autocast;      /* of products in training (tx_graph_autocast) */
    tx_dtype eval_autocast; /* of products in evaluations */
    tx_checkpointing checkpointing;  /* of training; size 0 for none */
    bool offload_activations;        /* of training: see tx_graph_offload_activations */
    tx_offload_place offload_params; /* with an adapter only the base's: see tx_model_offload_params */
    const char *offload_folder;      /* of that file; outlives the model */
    const tx_reporter *watch;        /* learns of numbers that are not finite (tx_plan_watch); may be NULL */
    const tx_config *teacher;        /* of a frozen model in the graphs of training, whose `teacher` is set, or NULL */
    tx_optimizer_options optimizer;
} tx_trainer_options;

typedef struct tx_trainer tx_trainer;

/* Fails if one of the options is out of range. */
tx_status tx_trainer_check(const tx_trainer_options *options);
/* Declares the parameters in `model` and compiles the plans; allocates nothing on the device. `config` must
 * live as long as the trainer, which the caller frees before the model. */
tx_status tx_trainer_create(tx_model *model, const tx_config *config, const tx_trainer_options *options,
                            tx_trainer **trainer);
void tx_trainer_free(tx_trainer *trainer);
/* Whether the weights in fp32 go where the states do: in mixed precision to the host's memory; not to files, and not
 * where ranks exchange them. */
bool tx_trainer_offloads_weights(const tx_trainer_options *options);
/* Compiles the plans and forgets them; the device is asked for nothing. All ranks call it where there are many. */
tx_status tx_trainer_forecast(tx_engine *engine, const tx_config *config, const tx_trainer_options *options,
                              tx_forecast *forecast);
const tx_trainer_options *tx_trainer_options_of(const tx_trainer *trainer);
/* Fails unless the samples are of the trainer's task and block. */
tx_status tx_trainer_check_samples(const tx_trainer *trainer, const tx_samples *samples);

/* One optimizer step over the rows of a batch of the task, whole micro-batches of them. Over all ranks `labels` of them
 * count: the loss is the mean over these, however the rows are cut. The fields may be reused at once. Gives the work to
 * the device and asks for its results; tx_trainer_results takes them, oldest first, and should be called one step
 * later, so that the device never waits for the host. */
tx_status tx_trainer_step(tx_trainer *trainer, const tx_batch *batch, int64_t labels, double learning_rate);
/* If more updates than `skipped` have been left out when the next step makes its update, it uses this rate, so that a
 * schedule can wait for a step whose results the host does not have yet. */
tx_status tx_trainer_hold_rate(tx_trainer *trainer, double rate, int64_t skipped);
/* Positions of a row of the batch as training computes it, padding included. */
int64_t tx_trainer_positions(const tx_trainer *trainer, const tx_batch *batch);
/* Takes the results of the oldest step not yet taken; waits for the device if need be. */
tx_status tx_trainer_results(tx_trainer *trainer, tx_results *results);

/* This rank's vote, asked for before each update and added up over the ranks as tx_model_vote says, so that all learn
 * of it in the same step. */
void tx_trainer_ask(tx_trainer *trainer, float (*vote)(void *context), void *context);

/* Gives this rank another share of each micro-batch: compiles its plan anew. No results may be outstanding. */
tx_status tx_trainer_share(tx_trainer *trainer, int64_t batch, int64_t rows_before);

/* Results that last, of an earlier run: as tx_model_restore, but that a run which scales its losses keeps its own scale
 * where the earlier one had none, and one that does not has none. */
tx_status tx_trainer_restore(tx_trainer *trainer, const tx_results *results);

/* Optimizer steps given so far; it keys the random numbers. A resumed run sets it. */
int64_t tx_trainer_steps(const tx_trainer *trainer);
void tx_trainer_set_steps(tx_trainer *trainer, int64_t steps);

/* Numbers of the output for each row of an evaluation batch, where the task measures or predicts; else 0. */
int64_t tx_trainer_outputs(const tx_trainer *trainer);
/* Adds the loss of a batch of eval_batch rows and its labels to the sums, and writes the output to `output`
 * [eval_batch, outputs] (NULL: it is not asked for). Waits. */
tx_status tx_trainer_evaluate(tx_trainer *trainer, const tx_batch *batch, double sums[TX_SUMS_MAX], float *output);

/* ---- Profile ----------------------------------------------------------------------------------- */

enum { TX_TRAINER_UPDATE, TX_TRAINER_TRAIN };

/* From now on times every operation of the update plan and the training plans and counts their runs. */
tx_status tx_trainer_profile(tx_trainer *trainer);
/* Plan `which` and how often it ran since then; from TX_TRAINER_TRAIN on, the plan of whole rows, come those of shorter
 * rows. NULL behind the last. */
const tx_plan *tx_trainer_plan(const tx_trainer *trainer, int32_t which, int64_t *runs);

#endif
