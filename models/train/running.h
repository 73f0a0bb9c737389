/* SPDX-License-Identifier: Apache-2.0
 *
 * A run in progress, for the files that make it go: run.c the loop, run_results.c what comes of a step, run_ranks.c
 * what many ranks do together. */
#ifndef TX_TRAIN_RUNNING_H
#define TX_TRAIN_RUNNING_H

#include "comm/comm.h"
#include "models/train/log.h"
#include "models/train/run.h"

/* A step that was given to the device and whose results are still to come. */
typedef struct tx_pending {
    bool any, ends_epoch;
    int64_t step;
    double epoch, rate, held_rate, waited, seconds; /* seconds: the host's share of the step */
    int64_t skipped; /* updates left out as far as was known; if there were more by then, the rate is held_rate */
    int64_t rows, tokens, padded_tokens;
} tx_pending;

typedef struct tx_running {
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    const tx_run_options *options;
    tx_run_state *state;
    tx_run_summary *summary;
    tx_comm *comm;            /* all ranks; NULL with one rank */
    tx_comm *data;            /* those that have other rows */
    bool speaks;              /* the rank that writes log and checkpoints */
    tx_job_listener listener; /* of another rank than that: only its questions */
    tx_pace *pace;            /* of many ranks */
    tx_loader *loader;
    tx_log log;
    tx_pending late;
    int64_t epoch_steps;
    int64_t saved; /* step of the last checkpoint */
    bool unread;   /* data could not be read: what was trained so far is good */
    bool enough;   /* early stopping ends the run */
    int64_t timed_steps;
    bool wants_save;      /* this rank was asked to save, which the ranks have yet to agree on */
    double timed_seconds; /* of the steps after the first, which compiles and warms up */
    double loss_sum;      /* of this call's steps */
} tx_running;

/* Takes the results of the pending step, waiting for the device if need be, and reports them. */
tx_status tx_running_take(tx_running *r);
/* Whether the schedule waits for updates that are left out: with a loss scale, as transformers' Trainer does. */
bool tx_running_skips_schedule(const tx_running *r);
/* Writes an evaluation to log and history. */
tx_status tx_running_evaluated(tx_running *r, const tx_run_evaluation *evaluation);
/* Whether it is the best so far; and whether it is one too many that is not (`enough`). */
bool tx_running_judge(tx_running *r, const tx_run_evaluation *evaluation);
/* Whether something is done every so many steps, or at the end of an epoch, is due after a step. */
bool tx_running_due(int32_t strategy, int64_t every, const tx_pending *p);
/* (Re)opens the loader at a step, for this rank's share. */
tx_status tx_running_load(tx_running *r, int64_t step);
/* What all ranks do after a step: look at their pace, share out anew, compare weights. */
tx_status tx_running_keep_pace(tx_running *r, int64_t step);
/* This rank's vote on the step that is about to be done; `context` is the run. */
float tx_running_vote(void *context);
/* Why to end after this step, 0 to go on. Of many ranks all end where one was asked to before the update. */
int tx_running_stop(const tx_running *r);
/* Whether to save after this step: all ranks do where one was asked to. Asked once a step. */
bool tx_running_save_requested(tx_running *r);

#endif
