/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole training runs for programs that link the library. txtrain uses these calls.
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

/* Names of published models whose configurations are known. */
#define TX_PRESETS                                                                                   \
    "gpt2, gpt2-medium, gpt2-large, gpt2-xl, tinyllama-1.1b, llama-3-8b, mistral-7b, qwen2.5-0.5b, " \
    "qwen2.5-1.5b, qwen2.5-7b, qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, bert-base"

/* One finished optimizer step. */
typedef struct tx_run_step {
    int64_t step, steps; /* counted from 1 */
    double epoch;        /* epochs completed so far, with a fraction */
    double loss;         /* mean over the step's labels */
    double grad_norm;    /* before clipping */
    double learning_rate;
    int64_t tokens;           /* read so far, without padding */
    int64_t padded_tokens;    /* read so far, with padding */
    double tokens_per_second; /* without padding */
    double loss_scale;        /* of the next step, in fp16; 0 without loss scaling */
    int64_t skipped;          /* updates skipped so far because a gradient was not finite */
    int64_t dropped;          /* expert choices that exceeded the capacity in this step, over all layers and ranks */
    double waited;            /* seconds in which the device waited for data */
    double seconds_left;      /* of the whole run, estimated */
} tx_run_step;

/* A metric under the name that transformers uses. */
typedef struct tx_figure {
    const char *name;
    double value;
    int32_t digits; /* decimals, as transformers rounds it; -1 for full precision, 0 for an integer */
} tx_figure;

/* The caller's view of a run. Any function may be NULL. Only rank 0 reports events; warn, stop and save are called on
 * every rank. */
typedef struct tx_job_listener {
    size_t size; /* sizeof(tx_job_listener) */
    void *context;
    /* The first step is about to start. From now on a stop saves the training state. */
    void (*begin)(void *context);
    void (*step)(void *context, const tx_run_step *step);
    /* An entry of the loss history: `loss` is the mean since the last entry. */
    void (*log)(void *context, const tx_run_step *step, double loss);
    /* An evaluation after that step: "eval_loss" and other metrics. */
    void (*evaluation)(void *context, int64_t step, const tx_figure *metrics, int32_t count);
    void (*saved)(void *context, const char *folder);
    /* The final metrics of "train" or "eval". */
    void (*results)(void *context, const char *split, const tx_figure *metrics, int32_t count);
    /* A line about the whole run, such as the device or the number of parameters. */
    void (*note)(void *context, const char *line);
    /* A condition that the user should know and that is not an error. */
    void (*warn)(void *context, const char *message);
    /* The progress of a long operation, as tx_reporter's. Any thread may call it. */
    void (*progress)(void *context, const char *what, int64_t done, int64_t total);
    /* Called between steps. Return a value other than 0 to end the run after the current step, which is then saved. */
    int (*stop)(void *context);
    /* Called between steps. Return true once for each checkpoint to save after the current step. */
    bool (*save)(void *context);
} tx_job_listener;

/* ---- Runs ----------------------------------------------------------------------------------------------- */

typedef struct tx_job tx_job;

/* Creates a run with all options at their defaults. The caller frees it. */
tx_status tx_job_create(tx_job **job);
void tx_job_free(tx_job *job); /* NULL is fine */

/* Sets an option of txtrain by its name, such as "learning_rate", to the value that the text has on txtrain's command
 * line. Flags are "true" or "false". TX_INVALID for an unknown option or value; the message names the nearest option or
 * the valid values. */
tx_status tx_job_set(tx_job *job, const char *name, const char *value);
/* Sets the options of a JSON file such as training_args.json. */
tx_status tx_job_read(tx_job *job, const char *path);
/* The options with their table, for a program that parses its own command line. They live as long as the job. */
tx_option_values *tx_job_options(tx_job *job);
/* Returns true if an option belongs to a single run, such as its output folder and the files it writes. A set of
 * options for several runs leaves it out. */
bool tx_job_is_own(const tx_option *option);
/* Creates a run with the options of another run, which must outlive it. The caller frees it. */
tx_status tx_job_like(const tx_job *job, tx_job **other);
/* Completes and checks the options after they are set: reads the configurations that they name, inherits the options of
 * the checkpoint's run, and refuses contradictions (TX_INVALID, TX_UNSUPPORTED). tx_job_run does this too. */
tx_status tx_job_resolve(tx_job *job);
/* The listener is copied. */
tx_status tx_job_listen(tx_job *job, const tx_job_listener *listener);

/* Joins the ranks that a launcher (mpiexec, txlaunch) started; without a launcher the run has one rank. tx_job_run does
 * this if the caller did not. */
tx_status tx_job_join(tx_job *job);
/* Makes the whole run, from reading its inputs to writing the model, results and card into output_dir. Returns TX_OK
 * also if the listener stopped it. A job runs only once. If it fails on one of several ranks, the others wait for it:
 * call tx_job_leave then. */
tx_status tx_job_run(tx_job *job);
/* Returns the value with which the listener's stop ended the run, or 0 if the run was complete. */
int tx_job_stopped(const tx_job *job);
/* Returns the number of steps done, including those before the checkpoint it resumed from. `*steps` receives the total.
 */
int64_t tx_job_step(const tx_job *job, int64_t *steps);
/* A metric of the run by its name in all_results.json, such as "eval_loss"; TX_NOT_FOUND if there is none. */
tx_status tx_job_result(const tx_job *job, const char *name, double *value);

/* ---- Progress and measurements -------------------------------------------------------------------------- */

/* Writes the current activity of this rank, such as "reading its inputs, book.txt, 43 %". It is "" before tx_job_join
 * and after the run. Any thread may call it while the job exists. */
void tx_job_doing(const tx_job *job, char *text, size_t size);
/* Returns true if all ranks did all steps. If tx_job_run failed nevertheless, writing a final file failed; the message
 * names the file. */
bool tx_job_is_complete(const tx_job *job);
/* The number of the model's parameters; 0 before tx_job_run has read the configuration. */
int64_t tx_job_params(const tx_job *job);
/* The bytes that the plans need on this rank's device, and the bytes that the device's allocations counted. Pass NULL
 * for one that you do not need. TX_NOT_FOUND before there are plans; in a dry run `counted` is TX_NOT_FOUND, too. */
tx_status tx_job_memory(const tx_job *job, tx_memory *planned, tx_memory *counted);
/* Returns a plan of the run. Plan 0 is the optimizer's update, plan 1 trains on rows of full length, the others on
 * shorter rows. `*runs` receives how often the plan ran since profiling began. NULL after the last plan, and before
 * there are plans. */
const tx_plan *tx_job_plan(const tx_job *job, int32_t index, int64_t *runs);
/* Returns the number of measured steps, which are all except the first. `*traffic` receives the traffic of these steps,
 * without evaluation. */
int64_t tx_job_traffic(const tx_job *job, tx_traffic *traffic);

/* ---- Ranks ---------------------------------------------------------------------------------------------- */

/* Returns the rank of this process. `*ranks` receives the number of ranks. */
int32_t tx_job_rank(const tx_job *job, int32_t *ranks);
/* Tells the other ranks that this rank ends with `status` before the run, so that they do not wait for it. */
void tx_job_refuse(tx_job *job, int status);
/* After a failed run, call this instead of tx_job_free as the last call before the process exits with a status other
 * than 0. It reports the failure to the launcher. It does nothing if there is only one rank. */
void tx_job_leave(const tx_job *job);

/* ---- Forecasts ------------------------------------------------------------------------------------------ */

/* The words of txtrain's --optim, each after a "|". */
extern const char tx_optimizer_words[];
/* Returns the word at an index from 0 on and stores its optimizer. NULL after the last one. */
const char *tx_optimizer_word(int32_t place, tx_optimizer_kind *kind);

/* A model whose training is planned on a device, without reading weights or allocating memory on the device. */
typedef struct tx_forecaster tx_forecaster;

typedef struct tx_forecaster_options {
    size_t size;                     /* sizeof(tx_forecaster_options) */
    const char *model;               /* a model folder, a config.json, a GGUF file, or a published size such as gpt2 */
    const char *device;              /* as txtrain's --device; the default, NULL, is cpu */
    int64_t lora_r;                  /* rank of an adapter; 0 trains all weights */
    const char *lora_target_modules; /* as txtrain's; the default, NULL, is peft's choice */
    /* With an adapter: quantize the frozen matrices of the blocks to 4 bits, and their scales to 8; or to 8 bits. */
    bool load_in_4bit, double_quant, load_in_8bit;
    int32_t ranks; /* data-parallel ranks of one host; 0 and 1 are one rank */
} tx_forecaster_options;

/* The caller frees it. */
tx_status tx_forecaster_open(const tx_forecaster_options *options, tx_forecaster **forecaster);
void tx_forecaster_free(tx_forecaster *forecaster); /* NULL is fine */
int64_t tx_forecaster_params(const tx_forecaster *forecaster);
/* The largest number of tokens in a context. */
int64_t tx_forecaster_positions(const tx_forecaster *forecaster);
/* Whether the model is an encoder with a decoder, whose rows are sources (--max_source_length). */
bool tx_forecaster_reads_sources(const tx_forecaster *forecaster);
const tx_device_info *tx_forecaster_device(const tx_forecaster *forecaster);
/* Bytes of device memory. For the cpu it is the memory that is still free within the limits of the host and of this
 * process's control groups. 0 if unknown. */
int64_t tx_forecaster_memory(const tx_forecaster *forecaster);

typedef struct tx_forecast_options {
    size_t size;              /* sizeof(tx_forecast_options) */
    int64_t rows, block;      /* rows of a micro-batch, tokens of a row */
    tx_dtype autocast;        /* the type of matrix products: F32, BF16 or F16 */
    tx_dtype stored;          /* the type of the weights: F32 or, with autocast BF16, BF16 */
    int32_t whole, cheap;     /* gradient checkpointing, as in tx_checkpointing */
    tx_optimizer_kind kind;   /* with its usual options */
    tx_offload_place offload; /* of the optimizer states */
    tx_offload_place offload_params;
    int32_t zero_stage;  /* 0 to 3, with ranks */
    int64_t eval_rows;   /* rows of an evaluation batch; 0 means no evaluations, or with `writes` txtrain's default */
    bool writes;         /* evaluations write a text for each source, as with --predict_with_generate */
    int64_t text, beams; /* tokens and beams of these texts; 0 as in txtrain */
} tx_forecast_options;

typedef struct tx_forecast {
    tx_memory memory;                  /* of each rank, without the scratch of the device's kernels */
    double product_flops, other_bytes; /* of a micro-batch, as tx_plan_work reports them */
    double update_bytes;               /* of the update of all parameters */
} tx_forecast;

/* Plans training of a language model. TX_MEMORY if a single tensor is larger than the device allows. */
tx_status tx_forecaster_plan(const tx_forecaster *forecaster, const tx_forecast_options *options,
                             tx_forecast *forecast);

/* ---- Output folders ------------------------------------------------------------------------------------- */

/* Fails if the folder holds anything except the lock, cache and temporary files of an earlier start. A missing folder
 * is fine. Nothing is changed. */
tx_status tx_output_check(const char *folder);
/* Creates output_dir if it is missing and locks it until the lock is released or the process ends. TX_IO if another
 * process has the lock; the message names it. TX_UNSUPPORTED if the file system has no locks. Also removes temporary
 * files of an interrupted save, and restores a checkpoint that an interrupted save was about to replace. The caller
 * releases the lock. */
typedef struct tx_output_lock tx_output_lock;
tx_status tx_output_lock_take(const char *output_dir, tx_output_lock **lock);
void tx_output_lock_release(tx_output_lock *lock); /* NULL is fine */

/* The log of a run in output_dir: a line of JSON for each entry of its history and each evaluation. */
#define TX_RUN_LOG "log.jsonl"
/* Part of the error message when the disk is full. */
#define TX_DISK_FULL "make room or choose another folder"

/* ---- Checkpoints ---------------------------------------------------------------------------------------- */

/* A checkpoint being written, of a run or of a program that trains by itself: a folder checkpoint-STEP of plain files.
 * It appears complete or not at all. */
typedef struct tx_checkpoint tx_checkpoint;

#define TX_CHECKPOINT_PREFIX "checkpoint-"

/* Begins checkpoint-STEP: an empty folder under a temporary name. */
tx_status tx_checkpoint_begin(const char *output_dir, int64_t step, tx_checkpoint **checkpoint);
/* The folder into which the caller writes its files. Only plain files are allowed, also in folders of it. */
const char *tx_checkpoint_folder(const tx_checkpoint *checkpoint);
/* Flushes all files, fails if their data on disk are not those written, writes the manifest, and renames the folder to
 * checkpoint-STEP. It replaces a checkpoint of the same step. Always frees `checkpoint`. After a failure the new files
 * are removed and the earlier checkpoint is unchanged. */
tx_status tx_checkpoint_commit(tx_checkpoint *checkpoint);
void tx_checkpoint_discard(tx_checkpoint *checkpoint);

/* Compares every file with the manifest: its size and digest. Missing and additional files are faults, too. TX_FORMAT
 * if the checkpoint is damaged; the message names the first fault. */
tx_status tx_checkpoint_verify(const char *folder, const tx_reporter *report);
/* Step number in the name of a checkpoint's folder, or -1. */
int64_t tx_checkpoint_step(const char *folder);
/* The largest step in the names of output_dir's checkpoints, verified or not; -1 if there is none. */
tx_status tx_checkpoint_latest(const char *output_dir, int64_t *step);
/* Finds the newest intact checkpoint of output_dir and warns of every newer damaged one, with the reason. TX_NOT_FOUND
 * if there is no checkpoint, TX_FORMAT if all are damaged. If one cannot be read at the moment (TX_IO, TX_MEMORY) the
 * search fails instead of skipping it. The caller frees `*folder`. */
tx_status tx_checkpoint_newest(const char *output_dir, const tx_reporter *report, char **folder);

TX_API_END

#endif
