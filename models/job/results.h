/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights, the options of the training loop, and the results of a run. */
#ifndef TX_JOB_RESULTS_H
#define TX_JOB_RESULTS_H

#include "models/job/job.h"

/* ---- weights.c ------------------------------------------------------------------------------------------ */

/* The number of trained parameters of the compiled model. */
int64_t tx_job_trained_count(const tx_job *job);
/* Notes the adapter. */
void tx_job_note_adapter(const tx_job *job);
/* Allocates the model and gives it the initial weights. All ranks call it. */
tx_status tx_job_load_weights(tx_job *job);
/* If asked for, computes the reference's log-probabilities of all preferences with the model before training, or reads
 * them from output_dir/cache (reference.c). The weights are loaded afterwards. All ranks call it. */
tx_status tx_job_precompute(tx_job *job);
/* Loads the trained weights from a folder that the run wrote. */
tx_status tx_job_load(const tx_job *job, const char *folder);
/* Writes the files of a checkpoint that the final folder also has: configuration, weights, tokenizer, options. `job` is
 * a tx_job. */
tx_status tx_job_write_files(void *job, const char *folder);
/* Writes the same files to the final folder. Rank 0 writes, and all ranks call it. */
tx_status tx_job_write_model(tx_job *job, const char *folder);

/* ---- course.c ------------------------------------------------------------------------------------------- */

/* Fills the options of the training loop. */
tx_status tx_job_make_run(tx_job *job, tx_run_options *run);
/* Describes the run, for tx_job_agree_with_checkpoint of a later one. The caller frees. */
tx_status tx_job_describe(const tx_job *job, tx_json **description);
/* The approximate size of a checkpoint. */
int64_t tx_job_checkpoint_bytes(const tx_job *job);
/* Fails if the disk has no room for the files that the run will write. */
tx_status tx_job_check_room(const tx_job *job, const tx_run_options *run);
/* Writes the file of dump_order. */
tx_status tx_job_dump_order(const tx_job *job);

/* ---- best.c --------------------------------------------------------------------------------------------- */

/* Warns if the best checkpoint so far is missing and the run needs it at the end. */
void tx_job_find_best(const tx_job *job);
/* Loads the best weights if load_best_model_at_end is set. If that fails, the run keeps the last weights and ends with
 * an error. All ranks call it. */
tx_status tx_job_load_best(tx_job *job);
/* Forgets the best evaluation of the earlier run if this run, which `description` describes, has another metric. */
void tx_job_judge_anew(tx_job *job, const tx_json *description);
/* Whether the run resumes from a checkpoint at its end: all steps are done, or early stopping ended the training. */
bool tx_job_is_over(const tx_job *job);
/* Whether output_dir already holds the model and the results of the checkpoint's step or a later one. Rank 0 decides.
 */
tx_status tx_job_is_written(const tx_job *job, bool *written);
/* Whether the options of this run, not inherited ones, request an evaluation or predictions. */
bool tx_job_evaluates_at_end(const tx_job *job);
/* Adds a failure to the message with which the run ends. */
void tx_job_note_missing(tx_job *job, const char *format, ...) TX_PRINTF(2, 3);

/* ---- results.c ------------------------------------------------------------------------------------------ */

/* Creates output_dir and locks it. With overwrite_output_dir, removes the checkpoints of an earlier run. Only rank 0
 * does anything. */
tx_status tx_job_open_output(tx_job *job);
/* The same, with a warning, of a folder that was removed during the run. `job` is a tx_job. */
tx_status tx_job_reopen_output(void *job);
/* Adds the last entry of the log history, as the Trainer writes it. */
tx_status tx_job_log_training(tx_job *job);
/* Passes the metrics to the listener, and writes them to train_results.json or eval_results.json and to
 * all_results.json. */
tx_status tx_job_report_training(tx_job *job);
tx_status tx_job_report_evaluation(tx_job *job, const tx_run_evaluation *evaluation);
/* Writes the predictions for the test data: a line "index", tab, "prediction", then a line for each sample. */
tx_status tx_job_predict(tx_job *job);
/* Writes the model card. */
tx_status tx_job_write_card(const tx_job *job);
/* Notes the command that uses the trained model, if a program of TX uses such models. */
void tx_job_note_next(const tx_job *job);

#endif
