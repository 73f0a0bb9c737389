/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole run in progress, for the files that make it go:
 *   settings.c  its options; refusals.c: which exclude each other; configuration.c: those that others' files say;
 *               stages.c: which blocks a pipeline's stages have
 *   resume.c    the checkpoint that it goes on from; changes.c: what differs from that one's run
 *   inputs.c    what else it starts from: configuration, tokenizer; data.c: task and data; adapter.c: one that is
 *               trained in place of the model; pruning.c: which weights are 0 and stay so
 *   ranks.c     where each rank runs and which rows it does; agree.c: what all must have in common
 *   plans.c     from options to engine, trainer and run; fit.c: whether there is memory for them; advice.c: what
 *               would take less; checkpointing.c: what is computed again so that there is
 *   kernels.c   which kernels ranks on devices alike compute by
 *   idle.c      options that change nothing
 *   best.c      the best weights at the end
 *   results.c   the output folder, and what is left there
 *   listen.c    what is told to whom
 *   job.c       the order of all that */
#ifndef TX_JOB_PARTS_H
#define TX_JOB_PARTS_H

#include "comm/watch.h"
#include "models/arch/arch.h"
#include "models/files/checkpoint.h"
#include "models/job/fit.h"
#include "models/job/settings.h"
#include "models/train/run.h"
#include "models/tx_train.h"

#define TX_JOB_RESULTS 32
/* In each folder of a model: the options of its run. */
#define TX_JOB_ARGUMENTS "training_args.json"
#define TX_JOB_TRAIN_RESULTS "train_results.json" /* the last file of a whole run */
#define TX_JOB_GENERATION "generation_config.json"

/* What a run starts from. */
typedef struct tx_job_inputs {
    char *checkpoint;                 /* to go on from; NULL: none */
    char *model_folder;               /* of the weights; NULL: new ones */
    char *adapter_folder;             /* of an adapter to those that is trained further; NULL: none */
    tx_lora *lora;                    /* what it is; NULL: none. The one that is trained is the configuration's */
    char base_digest[TX_DIGEST_TEXT]; /* of the weights that are adapted, once they are read; empty: none are */
    tx_run_state state;               /* the checkpoint's, or a new one */
    tx_config *config;
    char *teacher_folder;                /* of a model that is learned from; NULL: none */
    tx_config *teacher;                  /* its configuration */
    char teacher_digest[TX_DIGEST_TEXT]; /* of its weights, once they are read; empty: there is none */
    char *generation; /* the text of the model's generation_config.json, which goes along; NULL: none */
    char *train_path, *validation_path, *test_path; /* NULL: none */
    const tx_task *task;                            /* what the model is trained for */
    const tx_metric *metric;                        /* what the best evaluation is best in */
    bool shared;                                    /* the validation data are a part of the training file */
    tx_tokenizer *tokenizer;                        /* NULL: none is known, and the data are tokens */
    int64_t block;                                  /* positions of a row */
    tx_samples train, validation, test;             /* count 0: none */
} tx_job_inputs;

struct tx_job {
    tx_job_settings set;
    tx_option_values options; /* of `set` */
    tx_job_listener listener;
    tx_reporter report;    /* to the listener and the watch */
    tx_reporter compiling; /* of the engine's: likewise */
    int32_t quarter;       /* of the programs being compiled, as the listener was told */
    tx_job_inputs inputs;
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    tx_output_lock *lock;
    tx_tensorboard *board; /* NULL: none */
    int64_t epoch_steps, steps;
    /* One of many ranks. */
    tx_comm *comm;            /* all of them */
    tx_comm *data, *tensor;   /* those that have other rows and the same parts of the weights; those that have the same
                                 rows, NULL: this one alone */
    tx_comm *context;         /* those that have chunks of the positions of this one's rows; NULL: rows are whole */
    tx_comm *sums;            /* over which gradients are summed: `data`, and of chunks those that have others */
    tx_comm *pipeline, *ends; /* those that have the stages of this one's rows; of these the first and the last; NULL:
                                 there is one stage */
    int32_t *stage_blocks;    /* how many each stage has; NULL: there is one */
    double slowest;           /* of the work of all, the share of the rank that has most */
    int64_t own_memory;       /* bytes that each rank's device has of its own at least; 0: the host's, or unknown */
    tx_comm *expert, *replicas; /* those that divide experts, and that have the same ones; NULL: none do */
    tx_watch *watch;
    char *kept; /* warnings of a rank that is not the first, while most of its warnings are also that one's */
    bool tells; /* warnings are kept no more */
    char *told; /* where TX differs from what configurations of others say; NULL: nowhere */
    char device[128];
    bool mixed; /* the ranks' devices differ */
    int32_t zero_stage;
    int64_t step_rows;         /* of an optimizer step */
    int64_t all_rows;          /* of a micro-batch of all ranks */
    int64_t rows, rows_before; /* of those, this rank's, and those of the ranks before it */
    char *rows_text;           /* all ranks' rows, "3,1" */
    bool balance;              /* they are to be measured */
    bool runs;                 /* or has run */
    bool settled;              /* see tx_job_settle */
    char *inherited;           /* the checkpoint that options were inherited from; NULL: none */
    /* The end. */
    tx_run_summary summary;
    tx_figure results[TX_JOB_RESULTS];
    int32_t result_count;
    bool rests;       /* the run had ended before: nothing is evaluated or written */
    bool complete;    /* all that could be done is done, on all ranks alike */
    char lacks[1400]; /* what could not; empty: nothing */
};

/* Whether this rank speaks and writes for all. */
static inline bool tx_job_leads(const tx_job *job)
{
    return !job->comm || job->comm->rank == 0;
}

/* ---- resume.c ------------------------------------------------------------------------------------------- */

/* All options, once they are set. Where the run goes on from a checkpoint those that were not given are those of the
 * run that it is of, and without output_dir it goes on where the checkpoint lies; then they are checked (tx_job_check).
 * Done once, however often it is called. */
tx_status tx_job_settle(tx_job *job);
/* The checkpoint to go on from, verified, and the state in it; or a new state. */
tx_status tx_job_choose_checkpoint(tx_job *job);

/* ---- changes.c ------------------------------------------------------------------------------------------ */

/* Holds what the run is made of (tx_job_describe) against what the checkpoint's was made of. What decides which data a
 * step reads must be the same (INVALID says what differs, option by option); the rest is told. */
tx_status tx_job_agree_with_checkpoint(const tx_job *job, const tx_json *made);
/* Where options were inherited `from` a checkpoint that proved to be damaged, and those of the one that was chosen in
 * its place differ: INVALID. `left_out` marks options that are not inherited. */
tx_status tx_job_check_inherited(const tx_job *job, const char *from, const tx_option_marks *left_out);

/* ---- inputs.c ------------------------------------------------------------------------------------------- */

/* Looks everything up and reads it, noting what was chosen. Release on any outcome. */
tx_status tx_job_open(tx_job *job);
void tx_job_release(tx_job_inputs *inputs);
tx_status tx_job_copy(const char *text, char **copy);

/* ---- adapter.c ------------------------------------------------------------------------------------------ */

/* Where the model's folder is an adapter's: reads what it is, and finds the model that it is of. */
tx_status tx_job_open_adapter(tx_job *job);
/* Gives the configuration the adapter that the options ask for, or that is trained further. */
tx_status tx_job_choose_adapter(tx_job *job);
/* Notes what is trained. */
void tx_job_note_adapter(const tx_job *job);
/* Numbers that are trained, of the compiled model. */
int64_t tx_job_trained_count(const tx_job *job);
/* Weights of the model that is adapted, and of the adapter, from its folder or new ones. */
tx_status tx_job_load_adapter(tx_job *job);

/* ---- configuration.c ------------------------------------------------------------------------------------ */

/* Sets what --deepspeed, --fsdp and --fsdp_config say, which counts as given; all that a run cannot have of one of them
 * is told in one message. */
tx_status tx_job_read_configurations(tx_job *job);

/* ---- pruning.c ------------------------------------------------------------------------------------------ */

/* Refuses a pruning that the model, or the checkpoint that the run goes on from, does not go with. */
tx_status tx_job_choose_pruning(const tx_job *job);
/* Prunes the weights that the run starts with, if it is to, and notes it; those of a checkpoint are so already. */
tx_status tx_job_prune(const tx_job *job);

/* ---- idle.c --------------------------------------------------------------------------------------------- */

/* Warns of options that were asked for and change nothing in this run. All inputs must be open. */
void tx_job_tell_idle(const tx_job *job);

/* ---- data.c --------------------------------------------------------------------------------------------- */

/* Where the data are. */
tx_status tx_job_find_data(tx_job *job);
/* What the model is trained for, as task_name and the configuration say, which gets the head that this needs; and how
 * long rows are. */
tx_status tx_job_choose_task(tx_job *job);
/* Whether rows of similar length share a step: with --train_sampling_strategy group_by_length, if rows differ in
 * length.
 */
bool tx_job_groups(const tx_job *job);
/* Reads the data; they decide between tasks that have the same head. */
/* Makes the token that ends answers an end of texts in the files that are written (ending.c). */
tx_status tx_job_choose_end(tx_job *job);
tx_status tx_job_open_data(tx_job *job);

/* ---- ranks.c -------------------------------------------------------------------------------------------- */

/* Makes the groups of --tensor_parallel, whose ranks follow each other, of --context_parallel and --expert_parallel,
 * whose ranks do among those of a stage that have the same part, and of --pipeline_parallel, whose stages do. */
tx_status tx_job_make_groups(tx_job *job);
/* Ranks of a host that no launcher has bound share out its devices (device auto) and its cores. */
tx_status tx_job_take_place(tx_job *job);
/* Threads as asked for, else as many as the rank has cores and its share of the time that the ranks' container has. */
int32_t tx_job_threads(const tx_job *job);
/* Once the device is open: where ranks have different kinds, each weight is updated by one of them alone, since
 * devices differ in rounding; notes who is where. */
tx_status tx_job_compare_devices(tx_job *job);
/* With --parallel auto: once the device is open, chooses the groups, or those that the run that goes on had. All ranks
 * call it. */
tx_status tx_job_choose_split(tx_job *job);
/* Which rows of a step, and of a micro-batch, this rank does. */
tx_status tx_job_split(tx_job *job);
/* Notes how the work is shared out, where there is anybody to share with. */
void tx_job_note_shares(const tx_job *job);

/* ---- stages.c ------------------------------------------------------------------------------------------- */

/* Which blocks the stages of a pipeline have, by --pipeline_partition, the device being open and the rows shared out.
 * It follows from model and options, so that all ranks and a run that goes on find the same. */
tx_status tx_job_place_blocks(tx_job *job);
/* Notes it. */
void tx_job_note_stages(const tx_job *job);

/* ---- agree.c -------------------------------------------------------------------------------------------- */

/* What all ranks must have in common: INVALID, naming ranks and values, where they differ. `ending`: with which status
 * this rank ends for what its options say (a mistake, --help), TX_JOB_RUNS where it does not. */
#define TX_JOB_RUNS (-1)
tx_status tx_job_agree_on_options(tx_job *job, int ending);
/* Checkpoint, configuration, tokenizer, data. */
tx_status tx_job_agree_on_inputs(tx_job *job);
/* What the run is made of (tx_job_describe), but for devices. */
tx_status tx_job_agree_on_run(tx_job *job, const tx_json *made);

/* ---- fit.c ---------------------------------------------------------------------------------------------- */

/* Compiles the plans and refuses a run that all ranks together have no memory for, before anything is allocated; with
 * auto_find_batch_size it takes the largest part of the batch that there is memory for, and as many more micro-batches,
 * so that the rows of a step stay. All ranks call it. */
tx_status tx_job_compile_to_fit(tx_job *job);
/* What the run's plans would take by its options as they are now, with so many bytes of scratch, without compiling them
 * for good. All ranks call it. A failure of one is one of all; TX_MEMORY: a device has no room for a tensor. */
tx_status tx_job_forecast_fit(tx_job *job, int64_t scratch, tx_fit *fit);
/* The least that a rank has of the memory that it shares with others. All ranks call it. */
tx_status tx_job_memory_share(tx_job *job, double *bytes);

/* ---- kernels.c ------------------------------------------------------------------------------------------ */

/* Of many ranks: gives those on devices alike the same choices of kernels, and compiles the plans anew where some had
 * others. All ranks call it, once the plans are compiled. */
tx_status tx_job_agree_on_kernels(tx_job *job);

/* ---- advice.c ------------------------------------------------------------------------------------------- */

/* Writes which options would make a run fit that does not, with what would then be planned: each is tried by planning.
 * All ranks call it. Changes the job's options, since the run ends here. */
tx_status tx_job_advise(tx_job *job, int64_t scratch, char *text, size_t size);

/* ---- plans.c -------------------------------------------------------------------------------------------- */

/* Whether its device is the cpu, whose memory is the host's. */
bool tx_job_in_host(const tx_job *job);

/* Opens the device, once; what a checkpoint's run had chosen by measuring is chosen again. */
tx_status tx_job_open_device(tx_job *job);
/* The options of the trainer, and the limit of --gradient_checkpointing auto:BYTES, or 0. */
tx_status tx_job_trainer_options(const tx_job *job, tx_trainer_options *options, int64_t *limit);
/* Compiles the plans, in place of those that there are. */
tx_status tx_job_compile(tx_job *job);
/* What they will take, but for scratch: `scratch` bytes, which a limit to --gradient_checkpointing holds too. TX_MEMORY
 * where that limit cannot be met. */
tx_status tx_job_foresee(tx_job *job, int64_t scratch, tx_trainer_forecast *forecast);
/* The options of the run. */
tx_status tx_job_make_run(tx_job *job, tx_run_options *run);
/* What the run is made of, for a later one to agree with (tx_job_agree_with_checkpoint). The caller frees. */
tx_status tx_job_describe(const tx_job *job, tx_json **made);
/* Fails where the disk has no room for what the run will write. */
tx_status tx_job_check_room(const tx_job *job, const tx_run_options *run);
/* Loads the weights that the run trains from a folder that it wrote; and those of a model. */
tx_status tx_job_load(const tx_job *job, const char *folder);
tx_status tx_job_load_model(const tx_job *job, const char *folder);
/* And those of a model that stays as it is, with their digest. */
tx_status tx_job_load_frozen(const tx_job *job, const tx_config *config, const char *folder,
                             char digest[TX_DIGEST_TEXT]);
/* Configuration, weights, tokenizer, training_args.json and what else the model came with: what a checkpoint and the
 * final folder have in common. */
tx_status tx_job_write_model(const tx_job *job, const char *folder);
/* Writes the file of dump_order. */
tx_status tx_job_dump_order(const tx_job *job);

/* ---- checkpointing.c ------------------------------------------------------------------------------------ */

/* Chooses what the backward pass computes again so that at most `limit` bytes are planned on each rank, `scratch` bytes
 * of them for the device's kernels: as little as does. TX_MEMORY, with both numbers, where nothing does. All ranks call
 * it, and choose alike. */
tx_status tx_job_choose_checkpointing(tx_job *job, tx_trainer_options *trainer, int64_t limit, int64_t scratch);
/* Notes what is computed again, and what it costs. */
void tx_job_note_checkpointing(const tx_job *job);

/* ---- best.c --------------------------------------------------------------------------------------------- */

/* Warns where the best checkpoint so far is wanted at the end and is not there. */
void tx_job_look_for_best(const tx_job *job);
/* Ends with the best weights where that is asked for; where they cannot be had the last ones stay, and the job lacks
 * something. All ranks call it. */
tx_status tx_job_load_best(tx_job *job);
/* Forgets the best evaluation of the checkpoint's run if this one, which `made` describes, judges by another metric. */
void tx_job_judge_anew(tx_job *job, const tx_json *made);
/* Whether the checkpoint that the run resumes from is the last one: all steps are done, or early stopping ended them.
 */
bool tx_job_is_over(const tx_job *job);
/* Whether the folder holds the model and the results of a run that got as far as the checkpoint. Rank 0 decides. */
tx_status tx_job_is_written(const tx_job *job, bool *written);
/* Whether evaluations or predictions are asked for, other than by the options that the run inherits. */
bool tx_job_asks_to_evaluate(const tx_job *job);
/* Adds a line's part to what the job lacks. */
void tx_job_lack(tx_job *job, const char *format, ...) TX_PRINTF(2, 3);

/* ---- results.c ------------------------------------------------------------------------------------------ */

/* Folder and lock; an earlier run's checkpoints go where they are to be overwritten. Rank 0 alone does something. */
tx_status tx_job_open_output(tx_job *job);
/* The last entry of the history, as the Trainer writes it. */
tx_status tx_job_log_training(tx_job *job);
/* The metrics of training and of an evaluation: to the listener, folder/train_results.json or eval_results.json, and
 * all_results.json beside those that it has. */
tx_status tx_job_report_training(tx_job *job);
tx_status tx_job_report_evaluation(tx_job *job, const tx_run_evaluation *evaluation);
/* Writes what the model predicts of the test data: "index", a tab, "prediction", then a line a sample, from 0 on. */
tx_status tx_job_predict(tx_job *job);
/* Writes the model card. */
tx_status tx_job_write_card(const tx_job *job);

/* ---- listen.c ------------------------------------------------------------------------------------------- */

/* What the engine room tells: warnings, progress. */
tx_reporter tx_job_reporter(tx_job *job);
/* A line for who follows the run, from rank 0 alone. */
void tx_job_note(const tx_job *job, const char *format, ...) TX_PRINTF(2, 3);
/* Tells the warnings that were kept, unless rank 0 has told the same. All ranks call it. */
tx_status tx_job_share_warnings(tx_job *job);
/* Tells those that were kept since, and keeps none from now on. */
void tx_job_tell_warnings(tx_job *job);
/* Opens the event file where one is asked for. */
tx_status tx_job_open_events(tx_job *job);

#endif
