/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of txtrain: what it holds, and how its options become those of the engine, the trainer and the run. */
#ifndef TX_TOOLS_TRAIN_JOB_H
#define TX_TOOLS_TRAIN_JOB_H

#include "comm/watch.h"
#include "models/files/checkpoint.h"
#include "models/train/run.h"
#include "tools/train/inputs.h"
#include "tools/train/progress.h"

typedef struct tx_train_job {
    const tx_train_settings *set;
    tx_train_inputs inputs;
    tx_train_progress progress;
    tx_reporter report;
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    tx_output_lock *lock;
    int64_t epoch_steps, steps;
    /* One of many ranks (train_ranks.h). */
    tx_comm *comm;
    tx_watch *watch;
    char device[128];
    bool mixed; /* the ranks' devices differ */
    int32_t zero_stage;
    int64_t step_rows;         /* of an optimizer step */
    int64_t all_rows;          /* of a micro-batch of all ranks */
    int64_t rows, rows_before; /* of those, this rank's, and those of the ranks before it */
    char *rows_text;           /* all ranks' rows, "3,1" */
    bool balance;              /* they are to be measured */
    /* The end. */
    bool complete;    /* all that could be done is done, on all ranks alike */
    char lacks[1400]; /* what could not; empty: nothing */
} tx_train_job;

/* Opens the device and compiles the plans; what a checkpoint's run had chosen by measuring is chosen again. */
tx_status tx_train_compile(tx_train_job *job);
/* Fails where the disk has no room for what the run will write. */
tx_status tx_train_check_room(const tx_train_job *job, const tx_run_options *run);
/* Loads the weights of a folder. */
tx_status tx_train_load(const tx_train_job *job, const char *folder);
/* Warns where the best checkpoint so far is wanted at the end and is not there. */
void tx_train_look_for_best(const tx_train_job *job);
/* Ends with the best weights where that is asked for; where they cannot be had the last ones stay, and the job lacks
 * something. All ranks call it. */
tx_status tx_train_load_best(tx_train_job *job);
/* Adds a line's part to what the job lacks. */
void tx_train_lack(tx_train_job *job, const char *format, ...) TX_PRINTF(2, 3);
/* Options of the run; `stop` and `save` are its listener's. */
tx_status tx_train_make_run(tx_train_job *job, int (*stop)(void *context), bool (*save)(void *context),
                            tx_run_options *run);
/* What the run is made of, for a later one to agree with (tx_run_state_agree). The caller frees. */
tx_status tx_train_describe(const tx_train_job *job, tx_json **made);
/* Configuration, weights, tokenizer and training_args.json: what a checkpoint and the final folder have in common. */
tx_status tx_train_write_model(const tx_train_job *job, const char *folder);
/* Writes --dump_order's file. */
tx_status tx_train_dump_order(const tx_train_job *job);

#endif
