/* SPDX-License-Identifier: Apache-2.0
 *
 * The device, the process groups and the rows of each rank, and the check that all ranks have the same options and
 * inputs. All ranks call each function. */
#ifndef TX_JOB_RANKS_H
#define TX_JOB_RANKS_H

#include "models/job/job.h"

/* ---- agree.c -------------------------------------------------------------------------------------------- */

/* Compare options, inputs, and the description of the run (tx_job_describe, without the device) between the ranks.
 * TX_INVALID names the first difference. `exit_status` is TX_JOB_RUNS, or that of a rank that ends after it has read
 * its options. */
#define TX_JOB_RUNS (-1)
tx_status tx_job_agree_on_options(tx_job *job, int exit_status);
tx_status tx_job_agree_on_inputs(tx_job *job);
tx_status tx_job_agree_on_run(tx_job *job, const tx_json *description);

/* ---- device.c ------------------------------------------------------------------------------------------- */

/* Assigns devices (with --device auto) and cores to ranks of this host that no launcher has bound. */
tx_status tx_job_bind_rank(tx_job *job);
/* Opens the device once, with the kernels of the checkpoint's run, and compares the ranks' devices. If the devices
 * round differently, one rank updates each weight (ZeRO stage 1). */
tx_status tx_job_open_device(tx_job *job);
/* Whether the device is the cpu, which uses host memory. */
bool tx_job_in_host(const tx_job *job);

/* ---- ranks.c -------------------------------------------------------------------------------------------- */

/* Makes the groups of --tensor_parallel, --context_parallel, --expert_parallel and --pipeline_parallel. */
tx_status tx_job_make_groups(tx_job *job);
/* Divides the rows of a step and of a micro-batch among the ranks. */
tx_status tx_job_split(tx_job *job);
/* The number of completions that a rank writes at once; 0 if the run does not generate (rollouts.c). */
int64_t tx_job_slots(const tx_job *job);
/* Sizes the generation batches of a task that generates (rollouts.c). The rows are divided. */
tx_status tx_job_plan_rollouts(tx_job *job);
/* Refuses micro-batches of one row if the loss compares rows, and warns of single rows in evaluations and at the end of
 * a step. */
tx_status tx_job_check_rows(tx_job *job);
/* Notes the groups and the rows of each rank. */
void tx_job_note_shares(const tx_job *job);

/* ---- stages.c ------------------------------------------------------------------------------------------- */

/* Assigns blocks to the pipeline stages by --pipeline_partition. The device is open and the rows are divided. The
 * result depends only on model and options, so that a resumed run has the same. */
tx_status tx_job_assign_blocks(tx_job *job);
/* Notes the stages. */
void tx_job_note_stages(const tx_job *job);

/* ---- divide.c ------------------------------------------------------------------------------------------- */

/* Chooses the groups of --parallel auto, or reuses those of the checkpoint's run. The device is open. */
tx_status tx_job_choose_split(tx_job *job);

#endif
