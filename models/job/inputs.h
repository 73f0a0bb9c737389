/* SPDX-License-Identifier: Apache-2.0
 *
 * The first step of a run: resolve the options, find the inputs and read them. */
#ifndef TX_JOB_INPUTS_H
#define TX_JOB_INPUTS_H

#include "models/job/job.h"

/* ---- resume.c ------------------------------------------------------------------------------------------- */

/* Verifies the checkpoint to resume from and reads its state, or makes a new state. */
tx_status tx_job_choose_checkpoint(tx_job *job);

/* ---- configuration.c ------------------------------------------------------------------------------------ */

/* Sets the options that --deepspeed, --fsdp and --fsdp_config contain. One message lists all unsupported keys. */
tx_status tx_job_read_configurations(tx_job *job);

/* ---- changes.c ------------------------------------------------------------------------------------------ */

/* Reads the options of a model folder. */
tx_status tx_job_read_arguments(const char *folder, tx_json **json);
/* Compares the description of this run (tx_job_describe) with the checkpoint's. INVALID if a step would read other
 * data; other differences are reported. */
tx_status tx_job_agree_with_checkpoint(const tx_job *job, const tx_json *description);
/* If the states of a checkpoint are malformed and another optimizer wrote them, fails with both names. Returns `status`
 * otherwise. */
tx_status tx_job_explain_states(const tx_job *job, tx_status status);
/* INVALID if the options inherited `from` a damaged checkpoint differ from the options of the checkpoint chosen
 * instead. `left_out` marks options that are not inherited. */
tx_status tx_job_check_inherited(const tx_job *job, const char *from, const tx_option_marks *left_out);

/* ---- inputs.c ------------------------------------------------------------------------------------------- */

/* Finds and reads all inputs, and notes the choices. The caller releases the inputs after success and failure. */
tx_status tx_job_open(tx_job *job);
void tx_job_release(tx_job_inputs *inputs);
/* Whether a model has experts. */
bool tx_job_has_experts(const tx_config *config);

/* ---- adapter.c ------------------------------------------------------------------------------------------ */

/* If the model's folder holds an adapter, reads its description and finds its base model. */
tx_status tx_job_open_adapter(tx_job *job);
/* Gives the configuration the adapter of the options, or the one that is trained further. */
tx_status tx_job_choose_adapter(tx_job *job);

/* ---- pruning.c ------------------------------------------------------------------------------------------ */

/* Refuses a sparsity that the model or the checkpoint does not allow. */
tx_status tx_job_choose_pruning(const tx_job *job);
/* Prunes the initial weights and notes it. The weights of a checkpoint are pruned already. */
tx_status tx_job_prune(const tx_job *job);

/* ---- sources.c ------------------------------------------------------------------------------------------ */

/* Finds the data files of each split, and prepares several files, Parquet files and named columns as one file. */
tx_status tx_job_find_data(tx_job *job);
/* Makes JSON lines of data files that are tables, for tasks that read no tables. */
tx_status tx_job_rows_of_tables(tx_job *job);

/* ---- data.c --------------------------------------------------------------------------------------------- */

/* Chooses the task and the length of rows, and gives the model the head of the task. */
tx_status tx_job_choose_task(tx_job *job);
/* Reads the data, which decide between tasks with the same head. */
tx_status tx_job_open_data(tx_job *job);

/* ---- reference.c ---------------------------------------------------------------------------------------- */

/* Opens a frozen second model in a type for its matrices. TX_INVALID if its outputs are others than the model's. */
tx_status tx_job_open_second(tx_job *job, const char *name, tx_dtype dtype);
/* Opens the reference model of preferences, if the run has such a second model. */
tx_status tx_job_open_reference(tx_job *j);

/* ---- eos.c ---------------------------------------------------------------------------------------------- */

/* Makes the token that ends answers the eos_token in the files that the run writes. */
tx_status tx_job_choose_end(tx_job *job);

/* ---- unused.c ------------------------------------------------------------------------------------------- */

/* Warns of given options that have no effect in this run. All inputs must be open. */
void tx_job_report_unused(const tx_job *job);

#endif
