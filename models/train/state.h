/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run has come to, between two optimizer steps: all that is needed, besides weights and optimizer states, to go
 * on as if it had never stopped. Kept in two files: trainer_state.json in the form of transformers' TrainerState, for
 * people and tools that know it, and run_state.json with the rest. */
#ifndef TX_TRAIN_STATE_H
#define TX_TRAIN_STATE_H

#include "models/train/schedule.h"
#include "models/tx_train.h"
#include "tx.h"
#include "tx_json.h"

#define TX_TRAINER_STATE "trainer_state.json"
#define TX_RUN_STATE "run_state.json"
/* In `run`: the ranks' rows of a micro-batch, "3,1". */
#define TX_RUN_ROWS "rows"

typedef struct tx_run_state {
    int64_t step;               /* optimizer steps done */
    double epoch;               /* passed through so far */
    int64_t tokens;             /* read so far, without padding */
    int64_t padded_tokens;      /* the same with what rows are padded with */
    double flops;               /* of transformers' count, 6 per token and parameter outside the embeddings */
    double loss_sum;            /* of the steps since the last entry of the history */
    int64_t logged;             /* step of that entry */
    int64_t bad;                /* steps in a row whose loss or gradient was not finite */
    int64_t skipped;            /* updates left out, in all */
    int64_t held;               /* of these, with a loss scale: steps that the schedule waited */
    int64_t updates;            /* made: Adam's t */
    double loss_scale;          /* of the next step; 0: losses are not scaled */
    int64_t scale_steps;        /* updates in a row since it changed */
    int64_t stale;              /* evaluations in a row without a better metric: see stop_patience of the settings */
    tx_schedule_state schedule; /* of a rate that follows the evaluations */
    bool has_best;              /* the next three are set */
    double best;                /* value of the metric */
    int64_t best_step;
    /* Of the best evaluation that was saved: its name, "checkpoint-N", where it lies in the run's output_dir, wherever
     * that is moved to; its path where it lies elsewhere, since the run went on from a checkpoint of another folder.
     * NULL: none was saved. */
    char *best_checkpoint;
    tx_json *history; /* log_history: {"step", "epoch", "loss", ...} */
    tx_json *run;     /* what the run was made of (data, batch, device ...): see tx_job_describe; NULL at a start */
    char *kernels;    /* tx_engine_choices; NULL at a start */
} tx_run_state;

/* Numbers that follow from the settings, as TrainerState has them; 0 steps: never. */
typedef struct tx_run_facts {
    int64_t max_steps, epochs, logging_steps, eval_steps, save_steps, batch;
} tx_run_facts;

tx_status tx_run_state_create(tx_run_state *state);
/* Frees what it holds; a state that is all zero is fine. */
void tx_run_state_free(tx_run_state *state);

/* Appends an entry {figures..., "epoch", "step"} to the history. Values that are not finite are written as null, since
 * JSON has none. */
tx_status tx_run_state_log(tx_run_state *state, const tx_figure *figures, int32_t count);
/* The metric of an evaluation at the present step: whether it is the best so far, which is then kept. NaN never is. */
bool tx_run_state_judge(tx_run_state *state, double metric, bool greater_is_better);
/* Names the checkpoint of the best evaluation, see best_checkpoint. */
tx_status tx_run_state_set_best(tx_run_state *state, const char *checkpoint);
/* Where that checkpoint is to be found, seen from the run's output_dir; the caller frees the path. TX_NOT_FOUND: none
 * was saved. */
tx_status tx_run_state_best(const tx_run_state *state, const char *output_dir, char **path);

/* Writes folder/trainer_state.json alone. As transformers has it, best_model_checkpoint is a path through output_dir;
 * TX does not read it. */
tx_status tx_run_state_write_trainer(const tx_run_state *state, const tx_run_facts *facts, const char *output_dir,
                                     const char *folder);
/* Writes both files. */
tx_status tx_run_state_write(const tx_run_state *state, const tx_run_facts *facts, const char *output_dir,
                             const char *folder);
/* Reads both from the folder of a checkpoint, for a run that goes on in output_dir (NULL: in none). What no run can
 * have written, and steps that differ from the manifest's, are refused (TX_FORMAT). The caller frees the state. */
tx_status tx_run_state_read(const char *folder, const char *output_dir, tx_run_state *state);

/* What run_state.json says of the best checkpoint (best.c). */
tx_status tx_best_write(const tx_run_state *state, tx_json *json);
/* Sets the state's best_checkpoint as it is seen from output_dir; `checkpoint` is the folder of run_state.json. What
 * names no checkpoint up to the state's best_step is refused (TX_FORMAT). */
tx_status tx_best_read(const tx_json *json, const char *checkpoint, const char *output_dir, tx_run_state *state);

#endif
