/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation batches of a run that learns from rewards: chooses prompts, has their completions written and scored, and
 * computes the log-probabilities of the policy at generation and of the reference model. Called by the training loop.
 * All ranks call each function, and all have the whole batch. */
#ifndef TX_TRAIN_ROLLOUT_H
#define TX_TRAIN_ROLLOUT_H

#include "models/reward/reward.h"
#include "models/task/policy.h"
#include "models/train/run.h"

typedef struct tx_rollout tx_rollout;

/* Uses the rewards of the trainer. `samples` are those of the run, and the trainer's evaluation plan gives the
 * log-probabilities. */
tx_status tx_rollout_create(tx_trainer *trainer, const tx_run_options *options, tx_rollout **rollout);
void tx_rollout_free(tx_rollout *rollout); /* NULL is fine */
/* Makes the generation batch that step `step`, from 0 on, learns from, unless it is the current one. The steps before
 * it must be done. */
tx_status tx_rollout_begin(tx_rollout *rollout, int64_t step);

/* The figures (rollout_figures.c) of the current step, or with `mean` their means over the generations since the last
 * call with `clear`. Figures without a value are left out. Returns their number. */
enum { TX_ROLLOUT_FIGURES = 2 * TX_REWARDS_MAX + 24 };
int32_t tx_rollout_figures(tx_rollout *rollout, bool mean, bool clear, tx_figure figures[TX_ROLLOUT_FIGURES]);

/* Writes the current batch and the sums of the figures to a checkpoint's folder, and reads them (rollout_state.c). */
tx_status tx_rollout_save(const tx_rollout *rollout, const char *folder);
tx_status tx_rollout_load(tx_rollout *rollout, const char *folder);

#endif
