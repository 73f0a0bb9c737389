/* SPDX-License-Identifier: Apache-2.0
 *
 * From settings to compiled plans that fit in memory. All ranks call each function. */
#ifndef TX_JOB_PLANS_H
#define TX_JOB_PLANS_H

#include "models/job/job.h"

/* ---- plans.c -------------------------------------------------------------------------------------------- */

/* The options of the trainer, and the limit of --gradient_checkpointing auto:BYTES, or 0. */
tx_status tx_job_trainer_options(const tx_job *job, tx_trainer_options *options, int64_t *limit);
/* Compiles the plans and frees earlier ones. */
tx_status tx_job_compile(tx_job *job);
/* The memory of the plans without the kernels' scratch. A limit of --gradient_checkpointing counts `scratch` bytes of
 * it; TX_MEMORY if that limit cannot be met. */
tx_status tx_job_forecast(tx_job *job, int64_t scratch, tx_forecast *forecast);

/* ---- checkpointing.c ------------------------------------------------------------------------------------ */

/* Recomputes as little as possible in the backward pass so that each rank plans at most `limit` bytes, `scratch` of
 * them for kernels. TX_MEMORY, with both numbers, if the limit cannot be met. All ranks choose the same. */
tx_status tx_job_choose_checkpointing(tx_job *job, tx_trainer_options *trainer, int64_t limit, int64_t scratch);
/* Notes the recomputation and its cost. */
void tx_job_note_checkpointing(const tx_job *job);

/* ---- kernels.c ------------------------------------------------------------------------------------------ */

/* Gives ranks on devices of the same kind the same kernels, and compiles the plans again if some had others. */
tx_status tx_job_agree_on_kernels(tx_job *job);

/* ---- advice.c ------------------------------------------------------------------------------------------- */

/* Writes which options would make the run fit, with the memory they would take: each is planned. Changes the job's
 * options, since the run ends here. */
tx_status tx_job_advise(tx_job *job, int64_t scratch, char *text, size_t size);

/* ---- compile.c ------------------------------------------------------------------------------------------ */

/* Compiles the plans, and refuses a run that does not fit before anything is allocated. With auto_find_batch_size it
 * takes the largest micro-batch that fits and more micro-batches; a step keeps its rows. */
tx_status tx_job_compile_to_fit(tx_job *job);

#endif
