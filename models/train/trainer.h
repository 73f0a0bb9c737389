/* SPDX-License-Identifier: Apache-2.0
 *
 * One optimizer step, from batches on the host to updated parameters. A trainer has the compiled plans of a model
 * (forward and backward pass of a micro-batch, update, evaluation) and sets their run-time scalars. The training loop
 * (run.h) calls it. */
#ifndef TX_TRAIN_TRAINER_H
#define TX_TRAIN_TRAINER_H

#include "models/options/settings.h"
#include "models/task/task.h"
#include "models/tx_generate.h"
#include "models/tx_train.h"

#define TX_LENGTHS_MAX 8

typedef struct tx_trainer_options {
    size_t size;                /* sizeof(tx_trainer_options) */
    const tx_job_settings *set; /* must outlive the trainer; NULL for the defaults */
    const tx_task *task;        /* that the model is trained for */
    int64_t batch, block;       /* rows of a micro-batch, positions of a row */
    int64_t accumulation;       /* maximum number of micro-batches in an optimizer step */
    /* Rows of a micro-batch of all ranks, and of the lower ranks. 0 means the value for one rank: batch and 0. */
    int64_t all_rows, rows_before;
    tx_comm *comm; /* data-parallel and context-parallel ranks; NULL for one rank */
    /* With local steps (outer.h) all data-parallel ranks, while `comm` has this rank only; otherwise NULL. */
    tx_comm *across;
    tx_parallel_options parallel;
    int64_t eval_batch;     /* rows of an evaluation batch; 0 without evaluation */
    int32_t lengths;        /* number of row lengths, at most TX_LENGTHS_MAX, each with its own plan in shared memory. A
                             * batch runs the plan of the smallest length that fits; 0 or 1 for only whole rows */
    tx_dtype stored;        /* type of weights, gradients and moments (tx_model_store) */
    tx_dtype autocast;      /* type of products in training (tx_graph_autocast) */
    tx_dtype eval_autocast; /* type of products in evaluations */
    tx_dtype residual;      /* type of the residual stream where products have it, too (tx_graph_residual_dtype) */
    bool fp32_residual_gradient;     /* in training, see tx_graph_fp32_residual_gradient */
    int64_t logits;                  /* in training, see tx_graph_limit_logits; 0 for the default */
    tx_checkpointing checkpointing;  /* of training; size 0 for none */
    bool offload_activations;        /* in training, see tx_graph_offload_activations */
    tx_offload_place offload_params; /* with an adapter only the base weights, see tx_model_offload_params */
    const char *offload_folder;      /* for TX_OFFLOAD_FILE; outlives the model */
    const tx_reporter *watch;        /* receives values that are not finite (tx_plan_watch); may be NULL */
    const tx_config
        *teacher; /* the frozen second model: a distillation's teacher, the reference of preferences, or NULL
                   */
    tx_optimizer_options optimizer;
    /* How an evaluation writes a text for each source, which the task then measures instead of the model's output; and
     * how completions are written that the model learns from. NULL if none are. With max_new_tokens. */
    const tx_generation *write;
    int64_t slots;              /* completions that are written at once; 0 for none */
    struct tx_rewards *rewards; /* whose models get plans next to the trainer's; NULL for none */
} tx_trainer_options;

typedef struct tx_trainer tx_trainer;

/* Fails if one of the options is out of range. */
tx_status tx_trainer_check(const tx_trainer_options *options);
/* Builds the model's output and its loss in a graph whose inputs are the task's fields (loss.c). Returns NULL on error.
 */
tx_tensor *tx_trainer_loss(const tx_trainer_options *options, const tx_config *config, tx_graph *graph, bool train,
                           tx_tensor **output);
/* Declares the parameters in `model` and compiles the plans. Allocates nothing on the device. `config` must outlive the
 * trainer. The caller frees the trainer before the model. */
tx_status tx_trainer_create(tx_model *model, const tx_config *config, const tx_trainer_options *options,
                            tx_trainer **trainer);
void tx_trainer_free(tx_trainer *trainer);
/* Whether the fp32 weights of mixed precision are offloaded to host memory with the optimizer states. They are not with
 * offloading to a file, or if ranks exchange them. */
bool tx_trainer_offloads_weights(const tx_trainer_options *options);
/* Makes the plans, reports their memory and work, and frees them. The device is not used. All ranks call it. */
tx_status tx_trainer_forecast(tx_engine *engine, const tx_config *config, const tx_trainer_options *options,
                              tx_forecast *forecast);
const tx_trainer_options *tx_trainer_options_of(const tx_trainer *trainer);
/* Fails unless the samples are of the trainer's task and block. */
tx_status tx_trainer_check_samples(const tx_trainer_options *options, const tx_samples *samples);

/* Submits one optimizer step over a batch, which has whole micro-batches. The loss is the mean over the `labels` labels
 * of all ranks, however the rows are divided. The caller may reuse the batch's memory at once. tx_trainer_results
 * returns the results, oldest first. Call it one step later, so that the device never waits for the host. */
tx_status tx_trainer_step(tx_trainer *trainer, const tx_batch *batch, int64_t labels, double learning_rate);
/* Sets the learning rate that the next step uses if more than `skipped` updates were skipped before it. A schedule can
 * so respect a skipped update before the host has its results. */
tx_status tx_trainer_hold_rate(tx_trainer *trainer, double rate, int64_t skipped);
/* Positions of a row of the batch in training, with padding. */
int64_t tx_trainer_positions(const tx_trainer *trainer, const tx_batch *batch);
/* Returns the results of the oldest pending step. Waits for the device if necessary. */
tx_status tx_trainer_results(tx_trainer *trainer, tx_results *results);

/* Sets the callback for this rank's vote. It is called before each update, and the votes are summed over the ranks
 * (tx_model_vote), so that all ranks see the sum in the same step. */
void tx_trainer_ask(tx_trainer *trainer, float (*vote)(void *context), void *context);

/* Changes this rank's share of each micro-batch and recompiles its plan. No results may be outstanding. */
tx_status tx_trainer_share(tx_trainer *trainer, int64_t batch, int64_t rows_before);

/* Restores the persistent results of an earlier run (tx_model_restore). If only one of the two runs has a loss scale,
 * the loss scale of this run's settings is used. */
tx_status tx_trainer_restore(tx_trainer *trainer, const tx_results *results);

/* The number of submitted optimizer steps, which keys the random numbers. A resumed run sets it, after it has loaded
 * weights and states. */
int64_t tx_trainer_steps(const tx_trainer *trainer);
void tx_trainer_set_steps(tx_trainer *trainer, int64_t steps);
/* Selects the weights that the model has: their average, which is evaluated and saved, or the weights of training.
 * Steps and evaluations select theirs. They are the same except with schedule-free optimizers. */
tx_status tx_trainer_average(tx_trainer *trainer, bool averaged);

/* The number of ranks that divide the positions of a row. */
int64_t tx_trainer_chunks(const tx_trainer_options *o);
/* The number of plans: from whole rows to the shortest rows. Pipeline stages have one plan, and so have expert-parallel
 * ranks, which must run the same one. */
int32_t tx_trainer_plans(const tx_trainer_options *o);
/* Positions of the rows, and of the targets, of plan `which`. */
int64_t tx_trainer_length(const tx_trainer_options *o, int32_t which);
int64_t tx_trainer_target(const tx_trainer_options *o, int32_t which);

/* The number of output values for each row of an evaluation batch. 0 if the task neither measures nor predicts. */
int64_t tx_trainer_outputs(const tx_trainer *trainer);
/* The writer of texts, or NULL (writer.h). */
struct tx_writer *tx_trainer_writer(const tx_trainer *trainer);
/* The plans of the models of options->rewards, in their order. */
struct tx_scorer *const *tx_trainer_scorers(const tx_trainer *trainer);
/* Adds loss and labels of a batch of eval_batch rows to the sums, and writes the output to `output`
 * [eval_batch, outputs], which may be NULL. Outputs of positions are [eval_batch, tx_trainer_positions, columns] at its
 * beginning. Waits for the device. */
tx_status tx_trainer_evaluate(tx_trainer *trainer, const tx_batch *batch, double sums[TX_SUMS_MAX], float *output);

/* ---- Profile ----------------------------------------------------------------------------------- */

enum { TX_TRAINER_UPDATE, TX_TRAINER_TRAIN };

/* Starts timing every operation of the update plan and the training plans, and counting their runs. */
tx_status tx_trainer_profile(tx_trainer *trainer);
/* Plan `which`, and its number of runs since tx_trainer_profile. TX_TRAINER_TRAIN is the plan of whole rows, followed
 * by the plans of shorter rows. NULL after the last. */
const tx_plan *tx_trainer_plan(const tx_trainer *trainer, int32_t which, int64_t *runs);

#endif
