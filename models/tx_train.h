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
#include "tx_options.h"

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
/* The options with their table, for a program that reads a command line of its own. They live as long as the job. */
tx_option_values *tx_job_options(tx_job *job);
/* Whether an option of that table belongs to one run only, as its output folder and the files it writes: a set of
 * options for several runs leaves it out. */
bool tx_job_is_own(const tx_option *option);
/* A new run with the options of another one, which must outlive it. The caller frees it. */
tx_status tx_job_like(const tx_job *job, tx_job **other);
/* Completes the options, once they are set, and checks them: reads the configurations that they name, inherits the
 * options of the checkpoint's run, and refuses contradictions (TX_INVALID, TX_UNSUPPORTED). tx_job_run does so too. */
tx_status tx_job_resolve(tx_job *job);
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

/* ---- A look inside -------------------------------------------------------------------------------------- */

/* Writes the present action of this rank, "reading its inputs, book.txt, 43 %"; "" at the end and before tx_job_join.
 * Any thread may call it while the job lives. */
void tx_job_doing(const tx_job *job, char *text, size_t size);
/* Whether all ranks did all steps. A failure of tx_job_run is then one of the files at the end; the message names them.
 */
bool tx_job_is_complete(const tx_job *job);
/* The number of the model's parameters; 0 before tx_job_run has read the configuration. */
int64_t tx_job_params(const tx_job *job);
/* The bytes that the plans take on this rank's device, and those that the device's calls counted. Pass NULL for one
 * that you do not want. TX_NOT_FOUND before there are plans; `counted` is TX_NOT_FOUND in a dry run, too. */
tx_status tx_job_memory(const tx_job *job, tx_memory *planned, tx_memory *counted);
/* Plan 0 is the optimizer's update, plan 1 trains on whole rows, the others on shorter ones. `*runs` receives how often
 * the plan ran since profiling began. NULL after the last one, and before there are plans. */
const tx_plan *tx_job_plan(const tx_job *job, int32_t index, int64_t *runs);
/* Steps from the second on, and the traffic of these steps without evaluation. */
int64_t tx_job_traffic(const tx_job *job, tx_traffic *traffic);

/* ---- Ranks ---------------------------------------------------------------------------------------------- */

/* Which rank this process is, and of how many. */
int32_t tx_job_rank(const tx_job *job, int32_t *ranks);
/* Of a rank that ends with that exit status instead of running: tells the others, which would wait for it. */
void tx_job_refuse(tx_job *job, int status);
/* What a rank calls last before it exits with a status other than 0, so that the launcher learns of it: after a failed
 * run, instead of tx_job_free. Does nothing where there is one rank. */
void tx_job_leave(const tx_job *job);

/* ---- Forecasts ------------------------------------------------------------------------------------------ */

/* The words of txtrain's --optim, "|" before each. */
extern const char tx_optimizer_words[];
/* The word at a place from 0 on, and its optimizer; NULL after the last one. */
const char *tx_optimizer_word(int32_t place, tx_optimizer_kind *kind);

/* A model whose training is planned on a device: no weights are read, and nothing is allocated on the device. */
typedef struct tx_forecaster tx_forecaster;

typedef struct tx_forecaster_options {
    size_t size;                     /* sizeof(tx_forecaster_options) */
    const char *model;               /* a model folder, a config.json, a GGUF file, or a published size as gpt2 */
    const char *device;              /* as txtrain's --device; the default, NULL, is cpu */
    int64_t lora_r;                  /* rank of an adapter; 0 trains all weights */
    const char *lora_target_modules; /* as txtrain's; the default, NULL, is peft's choice */
    bool load_in_4bit,
        double_quant; /* with an adapter: the frozen matrices of the blocks in 4 bits, their scales in 8 */
    int32_t ranks;    /* data-parallel ranks of one host; 0 and 1 are one rank */
} tx_forecaster_options;

/* The caller frees it. */
tx_status tx_forecaster_open(const tx_forecaster_options *options, tx_forecaster **forecaster);
void tx_forecaster_free(tx_forecaster *forecaster); /* NULL is fine */
int64_t tx_forecaster_params(const tx_forecaster *forecaster);
/* Tokens that the model can see at once. */
int64_t tx_forecaster_positions(const tx_forecaster *forecaster);
const tx_device_info *tx_forecaster_device(const tx_forecaster *forecaster);
/* Bytes of memory of the device; of the cpu those that the host and the control groups of this process still have. 0 if
 * they are unknown. */
int64_t tx_forecaster_memory(const tx_forecaster *forecaster);

typedef struct tx_forecast_options {
    size_t size;              /* sizeof(tx_forecast_options) */
    int64_t rows, block;      /* of a micro-batch; tokens of a row */
    tx_dtype autocast;        /* the type that products are made in: F32, BF16 or F16 */
    tx_dtype stored;          /* the type of the weights: F32 or, with autocast BF16, BF16 */
    int32_t whole, cheap;     /* gradient checkpointing, as tx_checkpointing has it */
    tx_optimizer_kind kind;   /* with its usual options */
    tx_offload_place offload; /* where its states are */
    tx_offload_place offload_params;
    int32_t zero_stage; /* 0 to 3, with ranks */
} tx_forecast_options;

typedef struct tx_forecast {
    tx_memory memory;                  /* of each rank, without the scratch of the device's kernels */
    double product_flops, other_bytes; /* of a micro-batch, as tx_plan_work tells them */
    double update_bytes;               /* of the update of all parameters */
} tx_forecast;

/* Plans training of a language model. TX_MEMORY if a single tensor is larger than the device allows. */
tx_status tx_forecaster_plan(const tx_forecaster *forecaster, const tx_forecast_options *options,
                             tx_forecast *forecast);

/* ---- Output folders ------------------------------------------------------------------------------------- */

/* Fails if the folder holds anything except the leavings of an earlier start (lock and cache). A missing one is fine.
 * Nothing is changed. */
tx_status tx_output_check(const char *folder);
/* Makes output_dir if need be and holds it for this process, by a lock that ends with it; the message of a refusal
 * (TX_IO) names the process that has it. Also removes the temporary files of an interrupted save, and brings back a
 * checkpoint that had made room for one that never came. TX_UNSUPPORTED if that file system has no locks. The
 * caller releases the lock. */
typedef struct tx_output_lock tx_output_lock;
tx_status tx_output_lock_take(const char *output_dir, tx_output_lock **lock);
void tx_output_lock_release(tx_output_lock *lock); /* NULL is fine */

/* The log of a run: a line of JSON for each point of its history and each evaluation. */
#define TX_RUN_LOG "log.jsonl"
/* Part of the message of a failure for lack of room on the disk. */
#define TX_DISK_FULL "make room or choose another folder"

/* ---- Checkpoints ---------------------------------------------------------------------------------------- */

/* Of a run, and for programs that train by themselves: folders checkpoint-STEP of any plain files, whole or not there.
 */
typedef struct tx_checkpoint tx_checkpoint;

#define TX_CHECKPOINT_PREFIX "checkpoint-"

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
/* The largest step in the names of output_dir's checkpoints, verified or not; -1 if there is none. */
tx_status tx_checkpoint_latest(const char *output_dir, int64_t *step);
/* The newest checkpoint of output_dir that verifies; every newer one that does not is reported with the reason.
 * TX_NOT_FOUND where there is none at all, TX_FORMAT where all are damaged; one that cannot be read just now (TX_IO,
 * TX_MEMORY) is not passed over. The caller frees `*folder`. */
tx_status tx_checkpoint_newest(const char *output_dir, const tx_reporter *report, char **folder);

TX_API_END

#endif
