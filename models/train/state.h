/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a run between two optimizer steps: everything besides weights and optimizer states that is needed to
 * resume bit for bit. It is stored in two files. trainer_state.json has the form of transformers' TrainerState, for
 * people and tools that know it; run_state.json has the rest. */
#ifndef TX_TRAIN_STATE_H
#define TX_TRAIN_STATE_H

#include "models/train/schedule.h"
#include "models/tx_train.h"
#include "tx.h"
#include "tx_json.h"

#define TX_TRAINER_STATE "trainer_state.json"
#define TX_RUN_STATE "run_state.json"
/* The member of `run` with the ranks' rows of a micro-batch, "3,1". */
#define TX_RUN_ROWS "rows"

/* The number of results that a task can log (tx_task.logged). */
enum { TX_TASK_RESULTS = TX_RESULT_TASK_9 - TX_RESULT_TASK_0 + 1 };

typedef struct tx_run_state {
    int64_t step;                     /* optimizer steps done */
    double epoch;                     /* epochs done, with a fraction */
    int64_t tokens;                   /* read so far, without padding */
    int64_t padded_tokens;            /* read so far, with padding */
    double flops;                     /* as transformers counts: 6 per token and parameter outside the embeddings */
    double loss_sum;                  /* of the steps since the last entry of the history */
    double task_sum[TX_TASK_RESULTS]; /* of the same steps: sums of the task's results */
    int64_t logged;                   /* step of that entry */
    int64_t bad;                      /* consecutive steps whose loss or gradient was not finite */
    int64_t skipped;                  /* skipped updates */
    int64_t held;                     /* skipped updates that did not advance the schedule (with a loss scale) */
    int64_t updates;                  /* done: Adam's t */
    double loss_scale;                /* of the next step; 0 without a loss scale */
    int64_t scale_steps;              /* consecutive updates since the loss scale changed */
    int64_t stale;                    /* consecutive evaluations without a better metric (early_stopping_patience) */
    tx_schedule_state schedule;       /* of a schedule that follows the evaluations */
    bool has_best;                    /* the next three are set */
    double best;                      /* value of the metric */
    int64_t best_step;
    /* The checkpoint of the best saved evaluation, or NULL. A checkpoint in the run's output_dir has only its name,
     * "checkpoint-N", so that the folder can be moved. A checkpoint elsewhere, from which the run was resumed, has its
     * path. */
    char *best_checkpoint;
    tx_json *history;                 /* log_history: {"step", "epoch", "loss", ...} */
    tx_json *run;                     /* the description of the run (tx_job_describe); NULL in a new state */
    char *kernels;                    /* tx_engine_choices; NULL in a new state */
    const struct tx_rollout *rollout; /* saved with the state during a run that generates, else NULL */
} tx_run_state;

/* Numbers that follow from the settings, as TrainerState has them. 0 steps mean never. */
typedef struct tx_run_facts {
    int64_t max_steps, epochs, logging_steps, eval_steps, save_steps, batch;
} tx_run_facts;

tx_status tx_run_state_create(tx_run_state *state);
/* Frees the members of the state, which may be all zero. */
void tx_run_state_free(tx_run_state *state);

/* Appends an entry {figures..., "epoch", "step"} to the history. Values that are not finite become null, since JSON
 * cannot express them. */
tx_status tx_run_state_log(tx_run_state *state, const tx_figure *figures, int32_t count);
/* Whether the metric of an evaluation at the current step is the best so far. If so, it is stored. NaN never is. */
bool tx_run_state_judge(tx_run_state *state, double metric, bool greater_is_better);
/* Sets best_checkpoint. */
tx_status tx_run_state_set_best(tx_run_state *state, const char *checkpoint);
/* The path of best_checkpoint for a run in output_dir, which the caller frees. TX_NOT_FOUND if none was saved. */
tx_status tx_run_state_best(const tx_run_state *state, const char *output_dir, char **path);

/* Writes only folder/trainer_state.json. As with transformers, best_model_checkpoint is a path through output_dir. TX
 * does not read it. */
tx_status tx_run_state_write_trainer(const tx_run_state *state, const tx_run_facts *facts, const char *output_dir,
                                     const char *folder);
/* Writes both files. */
tx_status tx_run_state_write(const tx_run_state *state, const tx_run_facts *facts, const char *output_dir,
                             const char *folder);
/* Reads both files from the folder of a checkpoint, for a run that continues in output_dir, which may be NULL.
 * TX_FORMAT if the values are inconsistent, or if the step differs from the manifest's. The caller frees the state. */
tx_status tx_run_state_read(const char *folder, const char *output_dir, tx_run_state *state);

/* Writes the best checkpoint to run_state.json (best.c). */
tx_status tx_best_write(const tx_run_state *state, tx_json *json);
/* Reads best_checkpoint from run_state.json in the folder `checkpoint`, for a run in output_dir. TX_FORMAT if it is not
 * a checkpoint up to the state's best_step. */
tx_status tx_best_read(const tx_json *json, const char *checkpoint, const char *output_dir, tx_run_state *state);

#endif
