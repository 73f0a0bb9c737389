/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of generation batches, shared by rollout.c, completions.c, rollout_figures.c and
 * rollout_state.c. */
#ifndef TX_TRAIN_ROLLING_H
#define TX_TRAIN_ROLLING_H

#include "models/train/rollout.h"

/* A figure: its value in the current step, NaN without one, and those since the last entry of the history. */
typedef struct tx_rollout_figure {
    char name[TX_REWARD_NAME + 16];
    double value, sum;
    int64_t count;
    bool timed; /* a time or a speed, which only the log has */
} tx_rollout_figure;

struct tx_rollout {
    tx_trainer *trainer;
    const tx_job_settings *set;
    const tx_task *task;
    const tx_policy_type *type;
    tx_samples samples;
    tx_policy_data *data;
    tx_comm *comm; /* NULL with one rank */
    tx_reporter report;
    tx_recorded recorded;
    tx_rewards *rewards; /* the trainer's; NULL with recorded ones */
    tx_watchdog *watch;
    bool warned; /* of truncated completions */
    tx_reward_names names;
    int64_t steps;      /* that a generation batch is learnt for */
    int64_t generation; /* number of the current batch; -1 before the first */
    int64_t step;       /* in which it was made */
    int64_t tokens;     /* of all batches so far: num_tokens */
    tx_rollout_figure figure[TX_ROLLOUT_FIGURES];
    int32_t figures;
    tx_batch batch; /* of an evaluation */
    float *outputs; /* [rows, block, 2] */
    double *total, *deviation;
};

/* Reports that the run is alive; the context is its watchdog. */
static inline void tx_rollout_alive(void *watch)
{
    tx_watchdog_alive(watch, NULL);
}

/* ---- completions.c ---------------------------------------------------------------------------------------- */

/* Has the completions of the chosen prompts written and scored; the ranks divide them. */
tx_status tx_rollout_write(tx_rollout *rollout);
/* Writes the completions with their rewards to output_dir/completions. */
tx_status tx_rollout_log(const tx_rollout *rollout);

/* ---- rollout_figures.c ------------------------------------------------------------------------------------ */

/* Sets a figure of the current step. */
void tx_rollout_note(tx_rollout *rollout, double value, const char *format, ...) TX_PRINTF(3, 4);
/* The same of a time or a speed. */
void tx_rollout_note_time(tx_rollout *rollout, double value, const char *name);
/* Sets the figures of a new batch, and warns if nearly all of its completions are truncated. */
void tx_rollout_measure(tx_rollout *rollout);
/* Marks truncated completions, and computes advantages and the numbers of all rows. */
void tx_rollout_score(tx_rollout *rollout);

#endif
