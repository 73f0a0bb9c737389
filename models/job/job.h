/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a training run, which its steps share. job.c calls the steps in this order, and a step calls no later
 * step:
 *
 *   inputs.h    options, checkpoint, model, task, data
 *
 *   ranks.h     device and rows of each rank, groups of ranks
 *
 *   plans.h     engine options, compiled plans, memory
 *
 *   results.h   weights, checkpoints, results */
#ifndef TX_JOB_JOB_H
#define TX_JOB_JOB_H

#include "comm/watch.h"
#include "models/arch/arch.h"
#include "models/files/checkpoint.h"
#include "models/job/settings.h"
#include "models/task/seq2seq.h"
#include "models/train/run.h"
#include "models/tx_train.h"

#define TX_JOB_RESULTS 32
/* The file of a model folder that holds the options of its run. */
#define TX_JOB_ARGUMENTS "training_args.json"
#define TX_JOB_TRAIN_RESULTS "train_results.json" /* the last file of a complete run */
#define TX_JOB_GENERATION "generation_config.json"

/* The inputs of a run. Paths and digests that a run does not have are NULL or empty. */
typedef struct tx_job_inputs {
    char *checkpoint;                 /* to resume from */
    char *model_folder;               /* of the weights; NULL for new weights */
    char *adapter_folder;             /* of the adapter that is trained further */
    tx_lora *lora;                    /* its description; the configuration has the adapter that is trained */
    char base_digest[TX_DIGEST_TEXT]; /* of the weights that an adapter is for, once they are read */
    tx_run_state state;               /* the checkpoint's, or a new one */
    tx_config *config;
    char *teacher_folder;                           /* of the teacher model of a distillation */
    tx_config *teacher;                             /* its configuration */
    char teacher_digest[TX_DIGEST_TEXT];            /* of its weights, once they are read */
    struct tx_rewards *rewards;                     /* that completions get; NULL for recorded ones */
    char *generation;                               /* the text of the model's generation_config.json */
    char *train_path, *validation_path, *test_path; /* of the data, possibly prepared from other files */
    char *train_name, *validation_name, *test_name; /* of the files that the user gave, in notes */
    const tx_task_row *row;                         /* of the task that the model is trained for */
    const tx_task *task;                            /* the same; that of the data, once they are open */
    tx_own_task sized;                              /* the same, if options choose widths of its fields */
    tx_generation write;                            /* how evaluations write texts, if they do */
    const tx_metric *metric;                        /* selects the best evaluation */
    bool shared;                                    /* the validation data are a part of the training file */
    tx_tokenizer *tokenizer;                        /* NULL if the data are tokens */
    int64_t block;                                  /* positions of a row */
    tx_samples train, validation, test;             /* count is 0 without data */
} tx_job_inputs;

struct tx_job {
    tx_job_settings set;
    tx_option_values options; /* of `set` */
    tx_job_listener listener;
    tx_reporter report; /* to the listener and the watch */
    tx_job_inputs inputs;
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    tx_output_lock *lock;
    tx_events events;
    tx_json *config; /* of the trackers */
    int64_t epoch_steps, steps;
    /* Ranks. Groups that a run does not have are NULL. */
    tx_comm *comm;               /* all ranks */
    tx_comm *data, *tensor;      /* the data-parallel ranks with the same shards; the tensor-parallel ranks */
    tx_comm *context;            /* the context-parallel ranks */
    tx_comm *sums;               /* gradients are summed over them: `data` times `context` */
    tx_comm *pipeline, *ends;    /* the stages of this rank's rows; the first and the last stage */
    tx_comm *peers;              /* `data` again, for --gather_across_devices and quantiles of entropies */
    tx_comm *shards, *replicate; /* hybrid sharding: the ranks that divide; the ranks with the same shards */
    tx_comm *expert, *replicas;  /* the expert-parallel ranks; the ranks with the same experts */
    int32_t *stage_blocks;       /* how many blocks each stage has */
    double slowest;              /* the slowest stage's predicted share of the work */
    int64_t own_memory;          /* the least device memory of a rank in bytes; 0 if it is the host's or unknown */
    tx_watchdog *watch;
    char *kept;           /* warnings that wait for the comparison with those of rank 0 */
    bool prints_warnings; /* at once */
    char *notes;          /* differences from DeepSpeed or FSDP, for a note at the start */
    char device[128];
    bool mixed; /* the ranks' devices differ */
    int32_t zero_stage;
    int64_t step_rows;         /* rows of an optimizer step */
    int64_t all_rows;          /* rows of a micro-batch of all ranks */
    int64_t rows, rows_before; /* this rank's share of them, and the sum of the shares of lower ranks */
    char *rows_text;           /* all ranks' rows, "3,1" */
    bool balance;              /* measure the ranks' speed and choose their shares */
    bool runs;                 /* tx_job_run was called */
    bool settled;              /* see tx_job_resolve */
    char *inherited;           /* the checkpoint that options were inherited from */
    /* Results. */
    tx_run_summary summary;
    tx_figure results[TX_JOB_RESULTS];
    int32_t result_count;
    bool already_complete; /* the run was complete before: nothing is evaluated or written */
    bool complete;         /* all ranks are at the end of the run */
    char missing[1400];    /* the parts of the run that failed */
};

/* Whether this is rank 0, which reports and writes files for all ranks. */
static inline bool tx_job_leads(const tx_job *job)
{
    return !job->comm || job->comm->rank == 0;
}

/* ---- listen.c ------------------------------------------------------------------------------------------- */

/* The reporter that receives warnings and progress of the engine and the loader. */
tx_reporter tx_job_reporter(tx_job *job);
/* Passes a line to the listener, on rank 0 only. */
void tx_job_note(const tx_job *job, const char *format, ...) TX_PRINTF(2, 3);
/* Reports the warnings that were kept, unless rank 0 had the same ones. All ranks call it. */
tx_status tx_job_share_warnings(tx_job *job);
/* Reports the kept warnings. Later warnings are reported at once. */
void tx_job_print_warnings(tx_job *job);
/* Opens the trackers of --report_to. */
tx_status tx_job_open_events(tx_job *job);

#endif
