/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the training loop, shared by its files: run.c has the loop, run_results.c the results of a step, and
 * run_ranks.c the coordination of the ranks. */
#ifndef TX_TRAIN_RUNNING_H
#define TX_TRAIN_RUNNING_H

#include "comm/comm.h"
#include "comm/topology/tx_topology.h"
#include "models/files/stage.h"
#include "models/train/log.h"
#include "models/train/run.h"

#include <pthread.h>
#include <stdatomic.h>

/* A step that was submitted to the device and whose results are pending. */
typedef struct tx_pending {
    bool any, ends_epoch;
    int64_t step;
    double epoch, waited;
    double rate;      /* learning rate */
    double held_rate; /* learning rate if the step before skips its update */
    double seconds;   /* the host's time for submitting the step */
    int64_t skipped;  /* skipped updates known at submission; if there were more, the step used held_rate */
    int64_t rows, tokens, padded_tokens;
} tx_pending;

/* A checkpoint whose files are placed or written. On the rank that did it a thread completes and verifies them while
 * training continues (save.c). */
typedef struct tx_committing {
    bool pending; /* on all ranks: they do not yet know how it ended */
    int64_t step;
    tx_checkpoint *checkpoint; /* NULL on ranks that write nothing */
    pthread_t thread;
    bool started;      /* the thread is to be joined */
    atomic_bool ended; /* the thread has set the status, its message, and warnings, a line each */
    tx_status status;
    char message[1024], warnings[1024];
    bool best; /* it is the best checkpoint; `before` was, which is owned */
    char *before;
    const tx_run_options *options;
    char *kept; /* the path of the best checkpoint, which is not removed; may be NULL */
} tx_committing;

typedef struct tx_running {
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    const tx_run_options *options;
    tx_run_state *state;
    tx_run_summary *summary;
    tx_comm *comm;            /* all ranks; NULL with one rank */
    tx_comm *data;            /* data-parallel ranks */
    bool speaks;              /* this rank writes log and checkpoints */
    tx_job_listener listener; /* on other ranks only its callbacks `stop` and `save` are set */
    tx_pace *pace;            /* NULL with one rank */
    struct tx_outer *outer;   /* local steps; otherwise NULL */
    /* With local steps: the ranks' weights are equal after this step; an evaluation or a checkpoint waits for the next
     * such step; the sum of the ranks' votes in the last one. */
    bool synchronized, evaluation_due, save_due;
    float votes;
    tx_loader *loader;
    struct tx_rollout *rollout; /* NULL if the task does not generate */
    tx_log log;
    tx_topo_cards cards; /* the last measurement of GPUs */
    tx_pending late;
    int64_t epoch_steps;
    int64_t saved; /* step of the last checkpoint */
    tx_committing committing;
    tx_stage *stage; /* of the rank that writes checkpoints, from the first one on */
    bool unread;     /* reading the data failed; the weights trained so far are valid */
    bool together;   /* all ranks failed before the step */
    bool enough;     /* early stopping ends the run */
    int64_t timed_steps;
    bool wants_save;      /* this rank received a request to save, which the ranks have not yet agreed on */
    double timed_seconds; /* of the steps after the first, which compiles and warms up */
    double loss_sum;      /* of this call's steps */
    char *kept;           /* the folder in which remaining ranks meet if one is lost, or NULL */
    tx_comm *replica;     /* the ranks that have a replica together, used only then; NULL if each rank has one */
} tx_running;

/* Fetches the results of the pending step, waiting for the device if necessary, and reports them. */
tx_status tx_running_take(tx_running *r);
/* Whether a skipped update does not advance the schedule. With a loss scale this is so, as with transformers' Trainer.
 */
bool tx_running_skips_schedule(const tx_running *r);
/* Writes an evaluation to log and history. */
tx_status tx_running_evaluated(tx_running *r, const tx_run_evaluation *evaluation);
/* Whether the evaluation is the best so far. Sets `enough` if early stopping ends the run. */
bool tx_running_judge(tx_running *r, const tx_run_evaluation *evaluation);
/* Whether an action with the given strategy, every `every` steps or at the end of an epoch, is due after a step. */
bool tx_running_due(int32_t strategy, int64_t every, const tx_pending *p);
/* Opens the loader at a step for this rank's share, and closes an earlier one. */
tx_status tx_running_load(tx_running *r, int64_t step);
/* All ranks call it after a step: it measures their speed, changes their shares, and compares their weights. */
tx_status tx_running_keep_pace(tx_running *r, int64_t step);
/* This rank's vote on the current step; `context` is the tx_running. */
float tx_running_vote(void *context);
/* With local steps, synchronizes the ranks after every sync_every-th step and after the last. */
tx_status tx_running_synchronize(tx_running *r, int64_t step);
/* The reason to end after this step, or 0 to continue. If one rank received a request before the update, all ranks end.
 */
int tx_running_stop(const tx_running *r);
/* Whether to save after this step. If one rank received a request, all ranks save. Call it once a step. */
bool tx_running_save_requested(tx_running *r);

/* ---- Checkpoints (models/train/save.c) -------------------------------------------------------------- */

/* Begins output_dir/checkpoint-STEP, while no other is pending: rank 0 writes the files of options->write, the
 * optimizer states, the state of the run and the log so far. All ranks call it and get the same status. The checkpoint
 * is complete after the next tx_running_commit. */
tx_status tx_running_save(tx_running *r);
/* Reports the checkpoint that was begun if it is complete by now. Does not wait. */
void tx_running_poll_save(tx_running *r);
/* Waits until the checkpoint that was begun is complete. With `together` all ranks call it and get the same status,
 * else it is rank 0's. */
tx_status tx_running_commit(tx_running *r, bool together);
/* Writes and completes a checkpoint without the other ranks: this one can read all weights and states. Fails if the
 * folder `fence` is missing before the checkpoint gets its name. */
tx_status tx_running_save_alone(tx_running *r, const char *fence);

/* ---- A lost rank (models/train/rescue.c) ------------------------------------------------------------ */

/* Prepares to save the last complete step if another rank is lost, under txlaunch and if every rank has all weights and
 * states. All ranks call it before the first step. */
tx_status tx_running_keep(tx_running *r);
/* After a failure: if it is the loss of another rank, saves the last complete step on one of the remaining ranks, and
 * ends the process. Otherwise returns `status` with its message. */
tx_status tx_running_rescue(tx_running *r, tx_status status);
/* Ends what tx_running_keep began. */
void tx_running_keep_end(tx_running *r);

#endif
