/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole training runs: what txtrain does, for a program that links the library.
 *
 *     tx_job *job = NULL;
 *     tx_status status = tx_job_create(&job);
 *     status = status ? status : tx_job_set(job, "model_name_or_path", "gpt2");
 *     status = status ? status : tx_job_set(job, "train_file", "text.txt");
 *     status = status ? status : tx_job_set(job, "output_dir", "out");
 *     status = status ? status : tx_job_run(job);
 *     if (status)
 *         fprintf(stderr, "%s\n", tx_error());
 *     tx_job_free(job);
 */
#ifndef TX_TRAIN_H
#define TX_TRAIN_H

#include "tx.h"

TX_API_BEGIN

/* One finished optimizer step. */
typedef struct tx_run_step {
    int64_t step, steps; /* counted from 1 */
    double epoch;        /* passed through so far */
    double loss;         /* mean over the step's labels */
    double grad_norm;    /* before clipping */
    double learning_rate;
    int64_t tokens;           /* read so far, without padding */
    int64_t padded_tokens;    /* the same with what rows are padded with */
    double tokens_per_second; /* without padding */
    double loss_scale;        /* of the next step, in fp16; 0: losses are not scaled */
    int64_t skipped;          /* updates left out so far, because a gradient was not finite */
    int64_t dropped; /* choices of experts that the step dropped, in all layers and ranks, where there is a capacity */
    double waited;   /* seconds in which the device had no data to work on */
    double seconds_left; /* of the whole run, estimated */
} tx_run_step;

/* A figure by the name that transformers gives it. */
typedef struct tx_figure {
    const char *name;
    double value;
    int32_t digits; /* behind the point, as transformers rounds it; -1: all; 0: a whole number */
} tx_figure;

/* Who follows a run. Any function may be NULL. Of many ranks the first alone is told of what happens; all are warned,
 * and all are asked. */
typedef struct tx_job_listener {
    size_t size; /* sizeof(tx_job_listener) */
    void *context;
    /* The first step is about to be done: from now on an orderly end saves what was trained. */
    void (*begin)(void *context);
    void (*step)(void *context, const tx_run_step *step);
    /* A point of the history: `loss` is the mean since the last one. */
    void (*log)(void *context, const tx_run_step *step, double loss);
    /* An evaluation after that step: "eval_loss" and others. */
    void (*evaluation)(void *context, int64_t step, const tx_figure *metrics, int32_t count);
    void (*saved)(void *context, const char *folder);
    /* What has come of "train" or "eval", at the end. */
    void (*results)(void *context, const char *split, const tx_figure *metrics, int32_t count);
    /* A line about the run as such. */
    void (*note)(void *context, const char *line);
    /* What the user should know and is no failure. */
    void (*warn)(void *context, const char *message);
    /* Asked between steps: not 0 ends the run after the step in progress, which is then saved. */
    int (*stop)(void *context);
    /* Likewise: true, once for each time that it is asked for, saves after the step in progress. */
    bool (*save)(void *context);
} tx_job_listener;

/* ---- Runs ----------------------------------------------------------------------------------------------- */

typedef struct tx_job tx_job;

/* A run with all options at their defaults. The caller frees it; every other call takes it alive. */
tx_status tx_job_create(tx_job **job);
void tx_job_free(tx_job *job); /* NULL is fine */

/* Sets an option of txtrain by its name, "learning_rate", to what the text says, as on txtrain's command line: flags
 * are "true" or "false". TX_INVALID names the option nearest to one that there is not, or the values that there are. */
tx_status tx_job_set(tx_job *job, const char *name, const char *value);
/* Sets the options of a JSON file, as training_args.json is one. */
tx_status tx_job_read(tx_job *job, const char *path);
/* The listener is copied. */
tx_status tx_job_listen(tx_job *job, const tx_job_listener *listener);

/* Joins the ranks that a launcher (mpiexec, txlaunch) started this process among; one process is one rank. tx_job_run
 * does it where this was not called. */
tx_status tx_job_join(tx_job *job);
/* Makes the whole run, from reading its inputs to the model, results and card in output_dir. TX_OK also where the
 * listener stopped it. A job runs once. Where it fails on one rank of many the others are waiting for it: tx_job_leave.
 */
tx_status tx_job_run(tx_job *job);
/* What the listener's stop returned; 0: the run went to its end. */
int tx_job_stopped(const tx_job *job);
/* Steps done, those of the run that a checkpoint is of included, and steps in all. */
int64_t tx_job_step(const tx_job *job, int64_t *steps);
/* A figure of the run by its name in all_results.json, as "eval_loss"; TX_NOT_FOUND: there is none. */
tx_status tx_job_result(const tx_job *job, const char *name, double *value);

/* Which rank this process is, and of how many. */
int32_t tx_job_rank(const tx_job *job, int32_t *ranks);
/* Of a rank that ends with that exit status instead of running: tells the others, which would wait for it. */
void tx_job_refuse(tx_job *job, int status);
/* What a rank calls last before it exits with a status other than 0, so that the launcher learns of it: after a failed
 * run, instead of tx_job_free. Does nothing where there is one rank. */
void tx_job_leave(const tx_job *job);

/* ---- Checkpoints ---------------------------------------------------------------------------------------- */

/* Of a run, and for programs that train by themselves: folders checkpoint-STEP of any plain files, whole or not there.
 */
typedef struct tx_checkpoint tx_checkpoint;

/* Begins checkpoint-STEP: an empty folder under a temporary name. */
tx_status tx_checkpoint_begin(const char *output_dir, int64_t step, tx_checkpoint **checkpoint);
/* Where the caller writes its files; plain files only, no folders. */
const char *tx_checkpoint_folder(const tx_checkpoint *checkpoint);
/* The digest of what was written into one of the files: the commit fails where reading it back gives another. */
tx_status tx_checkpoint_expect(tx_checkpoint *checkpoint, const char *name, const char *digest);
/* Reads all files once for the manifest, what is expected of them being held against that, then makes it the
 * checkpoint, in place of one of the same step. Frees `checkpoint` whatever the outcome; after a failure nothing of it
 * is left and what was there before still is. */
tx_status tx_checkpoint_commit(tx_checkpoint *checkpoint);
void tx_checkpoint_discard(tx_checkpoint *checkpoint);

/* Holds every file against the manifest: sizes, digests, nothing missing, nothing besides. The message names the first
 * fault. Damage is TX_FORMAT. */
tx_status tx_checkpoint_verify(const char *folder, const tx_reporter *report);
/* Step in the name of a checkpoint's folder, or -1. */
int64_t tx_checkpoint_step(const char *folder);
/* The newest checkpoint of output_dir that verifies; every newer one that does not is reported with the reason.
 * TX_NOT_FOUND where there is none at all, TX_FORMAT where all are damaged; one that cannot be read just now (TX_IO,
 * TX_MEMORY) is not passed over. The caller frees `*folder`. */
tx_status tx_checkpoint_newest(const char *output_dir, const tx_reporter *report, char **folder);

TX_API_END

#endif
