/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of a run, in the names and with the defaults of transformers' Trainer and run_clm. */
#ifndef TX_JOB_SETTINGS_H
#define TX_JOB_SETTINGS_H

#include "models/options/option.h"
#include "models/task/task.h"
#include "models/train/run.h"

/* Values that have names. X(NAME, "word") */
#define TX_REPORT_MAP(X) X(TENSORBOARD, "tensorboard") X(ALL, "all") X(NONE, "none")
#define TX_SAVE_ERROR_MAP(X) X(CONTINUE, "continue") X(STOP, "stop")
#define TX_DDP_COMM_MAP(X) X(FP32, "fp32") X(BF16, "bf16")
#define TX_SAMPLING_MAP(X) X(RANDOM, "random") X(SEQUENTIAL, "sequential") X(BY_LENGTH, "group_by_length")

#define X(name, word) TX_REPORT_##name,
enum { TX_REPORT_MAP(X) };
#undef X
#define X(name, word) TX_SAVE_ERROR_##name,
enum { TX_SAVE_ERROR_MAP(X) };
#undef X
#define X(name, word) TX_DDP_COMM_##name,
enum { TX_DDP_COMM_MAP(X) };
#undef X
#define X(name, word) TX_SAMPLING_##name,
enum { TX_SAMPLING_MAP(X) };
#undef X

#define TX_JOB_CHUNKS 2 /* stages of a rank of an interleaved pipeline, unless others are asked for */

enum { TX_JOB_PARALLEL_GIVEN, TX_JOB_PARALLEL_AUTO };

typedef struct tx_job_settings {
    /* model */
    const char *model, *config, *config_overrides, *tokenizer;
    const char *teacher, *deepspeed, *fsdp, *fsdp_config;
    bool allow_nonfinite, new_head;
    /* data */
    const char *train_file, *validation_file, *test_file, *dataset, *dataset_config;
    int32_t task; /* 0: as model and data say; else place in tx_glue + 1, behind them instruction data */
    const char *chat_template;
    bool completion_only, assistant_only, packing, line_by_line;
    double mlm_probability;
    int64_t max_seq_length, max_predict_samples;
    bool pad_to_max_length;
    double validation_split;
    int64_t block, group_texts, max_train_samples, max_eval_samples, tokenize_threads, skip_bad, workers;
    bool pin, drop_last;
    int32_t sampling; /* TX_SAMPLING_ */
    bool by_length;   /* another name of sampling BY_LENGTH, until the options are settled */
    const char *dump_order;
    /* training */
    bool do_train, do_eval, do_predict;
    int64_t batch, eval_batch, accumulation, max_steps, seed, data_seed, max_bad_steps;
    double rate, warmup_steps, warmup_ratio, decay, beta1, beta2, epsilon, max_grad_norm, epochs, smoothing, noise;
    double z_loss, capacity;    /* of experts */
    double temperature, alpha;  /* of distillation */
    double sparsity;            /* 0: none, or as mask_structure says */
    const char *mask_structure; /* NULL: unstructured */
    int32_t schedule;           /* tx_schedule_kind; TX_SCHEDULE_COUNT is another name of WSD */
    int32_t optim;              /* place among the names of optimizers: tx_job_optimizer */
    const char *optim_args;
    int32_t offload_optimizer, offload_param; /* tx_offload_place */
    const char *nvme_path;
    const char *schedule_settings;
    /* adapter */
    int64_t lora_rank; /* 0: none */
    bool use_peft;
    double lora_alpha, lora_dropout;
    const char *lora_targets, *lora_saved;
    bool use_rslora, use_dora;
    bool load_in_4bit, double_quant;
    int32_t bnb_type;    /* nf4, fp4 */
    int32_t bnb_compute; /* auto, float32, bfloat16, float16 */
    /* run */
    const char *output_dir, *resume, *logging_dir, *run_name;
    bool overwrite, load_best, no_progress, log_first, eval_first, only_model;
    int32_t logging, evaluation, saving; /* tx_strategy */
    const char *metric;                  /* NULL: the task's first */
    int32_t greater, on_save_error;      /* tx_greater, TX_SAVE_ERROR_ */
    uint32_t report_to;                  /* a bit for each TX_REPORT_ */
    double logging_steps, eval_steps, save_steps, eval_delay, stop_threshold;
    int64_t save_total_limit, stop_patience;
    /* many ranks */
    int64_t bucket_cap, zero_stage, tensor_parallel, pipeline_parallel, pipeline_chunks, expert_parallel,
        context_parallel, global_batch, ddp_check;
    int32_t parallel;                             /* TX_JOB_PARALLEL_ */
    int32_t ddp_comm, overlap, pipeline_schedule; /* TX_DDP_COMM_, tx_overlap, tx_pipeline_schedule */
    const char *pipeline_partition;               /* NULL: auto */
    const char *batch_weights;
    double comm_timeout, start_timeout;
    /* device */
    const char *device;
    int64_t threads;
    const char *checkpointing, *memory_plot;
    int32_t dtype; /* 0: float32, 1: bfloat16 */
    int32_t debug; /* 0: none, 1: underflow_overflow */
    bool find_batch, activation_offloading, sequence_parallel;
    double init_scale;
    int64_t growth_interval;
    bool use_cpu, bf16, fp16, bf16_full_eval, fp16_full_eval, tf32, no_tf32, list_devices, dry_run, profile;
} tx_job_settings;

extern const tx_option_table tx_job_table;

/* The names of optimizers, a "|" before each. */
extern const char tx_job_optimizers[];

/* Rows of that table for other programs whose settings hold a tx_job_settings: what a method of training is made of. AT
 * tells where a member lies. */
/* clang-format off */
#define TX_JOB_OPTIMIZER_ROWS(AT)                                                                                     \
    {TX_OPTION_CHOICE, "optim", AT(optim), .choices = tx_job_optimizers + 1, .help = "the optimizer; the first four names mean the same AdamW"}, \
    {TX_OPTION_TEXT, "optim_args", AT(optim_args), .choices = "K=V,...",                                              \
     .help = "settings of the optimizer: momentum=0.9,nesterov=True for sgd (docs/TRAINING.md)"}
#define TX_JOB_ACCUMULATION_ROW(AT)                                                                                   \
    {TX_OPTION_INTEGER, "gradient_accumulation_steps", AT(accumulation), 1, 1 << 20, "N", "micro-batches in a step"}
#define TX_JOB_CHECKPOINTING_ROW(AT)                                                                                  \
    {TX_OPTION_OPTIONAL, "gradient_checkpointing", AT(checkpointing), .choices = "N|auto|auto:BYTES",                 \
     .help = "save memory by computing activations again in the backward pass: of every block; with N of so many "     \
             "segments; auto: of norms and activation functions alone; auto:2GiB: of as little as meets that limit"}
#define TX_JOB_HALF_ROWS(AT)                                                                                          \
    {TX_OPTION_FLAG, "bf16", AT(bf16), .help = "mixed precision: products, attention and activations between them "   \
                                               "in bf16; parameters stay in fp32"},                                   \
    {TX_OPTION_FLAG, "fp16", AT(fp16), .help = "the same in fp16; losses are scaled, so that gradients keep to its range"}
#define TX_JOB_TF32_ROW(AT)                                                                                           \
    {TX_OPTION_FLAG, "tf32", AT(tf32),                                                                                \
     .help = "fp32 products may round their operands to tf32, where the device has units for that"}
#define TX_JOB_LORA_ROWS(AT)                                                                                          \
    {TX_OPTION_INTEGER, "lora_r", AT(lora_rank), 0, 1 << 16, "N",                                                     \
     "train a low-rank adapter of this rank (LoRA) in place of the weights; 0: train these"},                         \
    {TX_OPTION_REAL, "lora_alpha", AT(lora_alpha), 1e-6, 1e6, "X", "what the adapter adds is times X / lora_r"},      \
    {TX_OPTION_REAL, "lora_dropout", AT(lora_dropout), 0, 0.999, "X", "dropout of what the adapter reads"},           \
    {TX_OPTION_TEXT, "lora_target_modules", AT(lora_targets), .choices = "NAME,...|all-linear",                       \
     .help = "modules that get one, by the last parts of their names; otherwise those that peft takes for the model"}, \
    {TX_OPTION_TEXT, "lora_modules_to_save", AT(lora_saved), .choices = "NAME,...",                                   \
     .help = "modules that are trained whole besides, and saved with the adapter"},                                   \
    {TX_OPTION_FLAG, "use_dora", AT(use_dora),                                                                        \
     .help = "train the magnitude of each output apart from its direction (DoRA), in twice the time of the products"}, \
    {TX_OPTION_FLAG, "use_rslora", AT(use_rslora), .help = "lora_alpha / sqrt(lora_r) in place of lora_alpha / lora_r"}
#define TX_JOB_4BIT_ROWS(AT)                                                                                          \
    {TX_OPTION_FLAG, "load_in_4bit", AT(load_in_4bit),                                                                \
     .help = "keep the frozen matrices of the blocks in 4 bits (QLoRA); with --lora_r"},                              \
    {TX_OPTION_CHOICE, "bnb_4bit_quant_type", AT(bnb_type), .choices = "nf4|fp4",                                     \
     .help = "the type of 4 bits: there is nf4 alone"},                                                               \
    {TX_OPTION_FLAG, "bnb_4bit_use_double_quant", AT(double_quant), .help = "keep its scales in 8 bits"},             \
    {TX_OPTION_CHOICE, "bnb_4bit_compute_dtype", AT(bnb_compute), .choices = "auto|float32|bfloat16|float16",         \
     .help = "what products are made in: the type in which the run computes (--bf16, --fp16) and no other"}
/* clang-format on */

tx_job_settings tx_job_defaults(void);
/* Gives a configuration the new adapter that the options describe. */
tx_status tx_job_make_adapter(const tx_job_settings *set, tx_config *config);
/* The optimizer with its options. Fails where optim_args has what this one does not know. */
tx_status tx_job_optimizer(const tx_job_settings *set, tx_optimizer_options *options);
/* Whether weights are pruned, and whether the options say well which (pruning.c). */
bool tx_job_prunes(const tx_job_settings *set);
/* Stages of a pipeline's rank. */
int32_t tx_job_chunks(const tx_job_settings *set);
tx_status tx_job_check_pruning(const tx_job_settings *set);
/* What gradient_checkpointing says (NULL: not given): how, and the limit of auto:BYTES, 0 where it names none. */
tx_status tx_job_read_checkpointing(const char *text, tx_checkpointing *how, int64_t *limit);
/* What the best evaluation of a task is best in; INVALID where it has no metric of that name. */
tx_status tx_job_metric(const tx_job_settings *set, const tx_task *task, const tx_metric **metric);
/* The task that task_name names; NULL: none is named. */
const tx_task *tx_job_named_task(const tx_job_settings *set);
/* Whether a task of GLUE is named and no data are: then these are GLUE's own of that task, as run_glue has it. */
bool tx_job_takes_glue(const tx_job_settings *set);
/* The seed of the order of samples. */
uint64_t tx_job_data_seed(const tx_job_settings *set);
/* Refuses what contradicts itself or is missing. */
tx_status tx_job_check(const tx_job_settings *set);

/* Whether this run trains, and whether it evaluates when training is over (transformers' do_train and do_eval, which
 * follow from the others where they are not given). */
bool tx_job_trains(const tx_job_settings *set);
bool tx_job_evaluates(const tx_job_settings *set);

/* Options with their values, as training_args.json and the model card hold them: all of them, or those of `names`
 * (ended by NULL) alone. NULL when out of memory. */
tx_json *tx_job_arguments(const tx_job_settings *set, const char *const *names);

#endif
