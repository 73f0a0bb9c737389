/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles plans that fit in memory from the settings. All ranks call each function. */
#ifndef TX_JOB_PLANS_H
#define TX_JOB_PLANS_H

#include "models/job/job.h"

/* ---- plans.c -------------------------------------------------------------------------------------------- */

/* The options of the trainer, and the limit of --gradient_checkpointing auto:BYTES, which is 0 without one. */
tx_status tx_job_trainer_options(const tx_job *job, tx_trainer_options *options, int64_t *limit);
/* Compiles the plans and frees earlier ones. */
tx_status tx_job_compile(tx_job *job);
/* The planned memory without the kernels' scratch memory. The limit of --gradient_checkpointing includes `scratch`
 * bytes. TX_MEMORY if that limit cannot be met. */
tx_status tx_job_forecast(tx_job *job, int64_t scratch, tx_forecast *forecast);

/* The steps of the warm-up (course.c). */
int64_t tx_job_warmup(const tx_job *job);

/* ---- checkpointing.c ------------------------------------------------------------------------------------ */

/* Chooses the least recomputation with which each rank plans at most `limit` bytes, including `scratch` bytes for
 * kernels. TX_MEMORY, with both numbers, if the limit cannot be met. All ranks choose the same. */
tx_status tx_job_choose_checkpointing(tx_job *job, tx_trainer_options *trainer, int64_t limit, int64_t scratch);
/* Notes the recomputation and its cost. */
void tx_job_note_checkpointing(const tx_job *job);

/* ---- logits.c ------------------------------------------------------------------------------------------- */

/* Sets trainer->logits to the largest chunks of the classifier that fit on all devices, if this rank computes on a
 * GPU. */
tx_status tx_job_choose_logits(tx_job *job, tx_trainer_options *trainer);

/* ---- kernels.c ------------------------------------------------------------------------------------------ */

/* Gives ranks on devices of the same kind the same kernels. Compiles the plans again if some had other kernels. */
tx_status tx_job_agree_on_kernels(tx_job *job);

/* ---- advice.c ------------------------------------------------------------------------------------------- */

/* Writes the options with which the run would fit, and the memory that each of them plans. Changes the job's options,
 * since the run ends after it. */
tx_status tx_job_advise(tx_job *job, int64_t scratch, char *text, size_t size);

/* ---- compile.c ------------------------------------------------------------------------------------------ */

/* Compiles the plans, and refuses a run that does not fit before anything is allocated. With auto_find_batch_size it
 * uses the largest micro-batch that fits and more micro-batches. A step keeps its number of rows. */
tx_status tx_job_compile_to_fit(tx_job *job);

#endif
