/* SPDX-License-Identifier: Apache-2.0
 * The table of a run's options. */
#include "models/job/settings.h"

#include "api/base/message.h"
#include "models/task/instruction.h"
#include "models/task/sequence.h"

#include <float.h>
#include <stddef.h>
#include <string.h>

/* clang-format off */
#define AT(field) offsetof(tx_job_settings, field)
#define TEXT(name, field, word, text) {TX_OPTION_TEXT, name, AT(field), .choices = word, .help = text}
#define FLAG(name, field, text) {TX_OPTION_FLAG, name, AT(field), .help = text}
#define CHOICE(name, field, words, text) {TX_OPTION_CHOICE, name, AT(field), .choices = words, .help = text}
#define WHOLE(name, field, least, most, text) {TX_OPTION_INTEGER, name, AT(field), least, most, "N", text}
#define REAL(name, field, least, most, text) {TX_OPTION_REAL, name, AT(field), least, most, "X", text}

/* The words of an enumeration, a "|" before each. */
#define WORD(name, word) "|" word
static const char schedule_words[] = TX_SCHEDULE_MAP(WORD) "|warmup_stable_decay";
static const char strategy_words[] = TX_STRATEGY_MAP(WORD);
static const char report_words[] = TX_REPORT_MAP(WORD);
static const char save_error_words[] = TX_SAVE_ERROR_MAP(WORD);
static const char ddp_comm_words[] = TX_DDP_COMM_MAP(WORD);
static const char pipeline_words[] = TX_PIPELINE_MAP(WORD);
static const char greater_words[] = TX_GREATER_MAP(WORD);
static const char sampling_words[] = TX_SAMPLING_MAP(WORD);

static const char task_words[] = "auto"
#define TX_GLUE(name, ...) "|" #name
#include "models/task/glue.def"
    "|instruction";

const char tx_job_optimizers[] =
#define TX_OPTIMIZER_WORD(word, NAME) "|" #word
#include "api/optimizers.def"
    ;

static const tx_option options[] = {
    {TX_OPTION_HEADING, .help = "model"},
    TEXT("model_name_or_path", model, "DIR|NAME", "the model to train further: a folder, a GGUF file, or a name to look up (docs/TRAINING.md)"),
    TEXT("config_name", config, "FILE|NAME",
         "train new weights of this shape: a config.json, a folder with one, or gpt2, gpt2-medium, gpt2-large, gpt2-xl; "
         "without model and config: a small GPT-2 over bytes"),
    TEXT("config_overrides", config_overrides, "K=V,...", "change keys of a new model's configuration: n_layer=4,n_embd=64"),
    TEXT("tokenizer_name", tokenizer, "DIR|NAME", "the tokenizer, where it is not the model's own; with none at all the bytes are the tokens"),
    FLAG("allow_nonfinite_weights", allow_nonfinite, "load weights that hold NaN or infinity"),
    FLAG("ignore_mismatched_sizes", new_head, "of a classifier that has another number of labels than the data the head begins as new weights; otherwise it is refused"),
    {TX_OPTION_HEADING, .help = "data"},
    TEXT("train_file", train_file, "FILE", "what to train on: .txt, .raw, .tokens, .jsonl ({\"text\": ...}) or .bin (tokens)"),
    TEXT("validation_file", validation_file, "FILE", "what to evaluate on"),
    CHOICE("task_name", task, task_words, "a task of GLUE: files are .csv, .tsv or .jsonl with its columns, or sentence1 and sentence2, or sentence, and label; instruction: conversations; auto: what the model is for, and what a .jsonl file has"),
    TEXT("test_file", test_file, "FILE", "what to predict the labels of, where it is not the test split of dataset_name"),
    WHOLE("max_seq_length", max_seq_length, 1, 1 << 24, "tokens of a text or a pair with a label, special ones included, or of a conversation (1024 unless given); what is longer is cut"),
    FLAG("pad_to_max_length", pad_to_max_length, "rows are all of max_seq_length; else a batch is as long as its longest row, rounded up to one of 8 lengths, as those of conversations unless given or packed"),
    TEXT("chat_template", chat_template, "NAME|FILE", "how conversations become text: chatml, qwen, qwen2, llama2, llama3, mistral, gemma, zephyr, alpaca, or a .json file (docs/TRAINING.md); otherwise the model's own"),
    FLAG("completion_only_loss", completion_only, "of a prompt and its completion, or an instruction and its output, learn the latter alone"),
    FLAG("assistant_only_loss", assistant_only, "of messages learn what the assistant says alone"),
    FLAG("packing", packing, "several conversations in a row of max_seq_length, each by itself"),
    REAL("mlm_probability", mlm_probability, 0, 1, "of masked language modelling: the share of the tokens that are to be guessed"),
    FLAG("line_by_line", line_by_line, "of masked language modelling: a line is a row, else rows are cut from the lines end to end"),
    TEXT("dataset_name", dataset, "DIR|NAME", "a folder with train and validation files, or a name to look up (docs/TRAINING.md)"),
    TEXT("dataset_config_name", dataset_config, "NAME", "configuration of the dataset, as wikitext-2-raw-v1"),
    REAL("validation_split_percentage", validation_split, 0, 99, "without validation data, evaluate on the first X percent of the texts"),
    WHOLE("block_size", block, 0, 1 << 24, "tokens in a block; 0: the model's positions, at most 1024"),
    WHOLE("group_texts", group_texts, 0, INT32_MAX, "cut blocks anew after every N texts, as run_clm does with 1000; 0: never"),
    WHOLE("max_train_samples", max_train_samples, 0, INT32_MAX, "use the first N blocks; 0: all"),
    WHOLE("max_eval_samples", max_eval_samples, 0, INT32_MAX, "evaluate on the first N blocks; 0: all"),
    WHOLE("max_predict_samples", max_predict_samples, 0, INT32_MAX, "predict the first N samples; 0: all"),
    WHOLE("skip_bad", skip_bad, 0, INT32_MAX, "leave out up to N broken lines of a .jsonl file, and rows of a table that are broken or lack a label"),
    WHOLE("preprocessing_num_workers", tokenize_threads, 0, 1024, "threads that tokenise; 0: as many as processors"),
    WHOLE("dataloader_num_workers", workers, 0, 256, "threads that prepare batches while the device works; 0: none"),
    FLAG("dataloader_pin_memory", pin, "lock the batches in memory, so that devices read them faster"),
    FLAG("dataloader_drop_last", drop_last, "leave out an epoch's last micro-batch where it would not be full"),
    CHOICE("train_sampling_strategy", sampling, sampling_words + 1, "the order of blocks: drawn anew in each epoch, or as they lie in the file; group_by_length: rows of similar length in the same step, as the Trainer has it, which saves padding with --pad_to_max_length false; blocks are all of one length"),
    FLAG("group_by_length", by_length, "the same as --train_sampling_strategy group_by_length"),
    TEXT("dump_order", dump_order, "FILE", "write the epoch and block of every sample, in the order of training"),
    {TX_OPTION_HEADING, .help = "training (defaults as the Hugging Face Trainer's)"},
    FLAG("do_train", do_train, "train; implied when neither --do_eval nor --do_predict is given"),
    FLAG("do_eval", do_eval, "evaluate at the end; implied by --eval_strategy and --validation_file"),
    FLAG("do_predict", do_predict, "write the labels of the test data that the model predicts to output_dir/predict_results_TASK.txt"),
    WHOLE("per_device_train_batch_size", batch, 1, 1 << 20, "blocks in a micro-batch of one rank"),
    WHOLE("per_device_eval_batch_size", eval_batch, 1, 1 << 20, "blocks in an evaluation batch"),
    FLAG("auto_find_batch_size", find_batch, "where that many do not fit in memory, take the largest part that does, and as many more micro-batches"),
    TX_JOB_ACCUMULATION_ROW(AT),
    REAL("learning_rate", rate, 0, 1e6, "peak learning rate"),
    CHOICE("lr_scheduler_type", schedule, schedule_words + 1, "how the learning rate changes; reduce_lr_on_plateau and greedy follow the evaluations"),
    TEXT("lr_scheduler_kwargs", schedule_settings, "JSON", "the settings of that: {\"num_decay_steps\": 100} for wsd, {\"patience\": 2} for reduce_lr_on_plateau"),
    REAL("warmup_steps", warmup_steps, 0, INT32_MAX, "steps over which the rate rises from 0; below 1: a share of the run"),
    REAL("warmup_ratio", warmup_ratio, 0, 1, "the same as a share of the run; counts where warmup_steps is 0"),
    TX_JOB_OPTIMIZER_ROWS(AT),
    CHOICE("offload_optimizer", offload_optimizer, "none|cpu|nvme", "where the optimizer's states are kept; cpu: in the host's memory, with the fp32 weights of mixed precision, from where each step brings them to the device and back; nvme: in a file in nvme_path"),
    CHOICE("offload_param", offload_param, "none|cpu|nvme", "where weights are kept, of an adapter's run those of its base; cpu: in the host's memory, with their copies of 16 bits, from where each layer's are brought to the device while the layer before is computed; nvme: so in a file in nvme_path, on the cpu, too"),
    FLAG("activation_offloading", activation_offloading, "what the backward pass needs of a layer waits for it in the host's memory: slower, where the device has little of its own"),
    TEXT("nvme_path", nvme_path, "DIR", "a folder on a fast disk of this host, for offload_optimizer nvme and offload_param nvme; nothing stays there"),
    REAL("neftune_noise_alpha", noise, 0, 1e6, "add noise to the embeddings in training, drawn evenly from +-X / sqrt(tokens * width); 0: none"),
    REAL("label_smoothing_factor", smoothing, 0, 0.9999999, "spread this share of each label over the whole vocabulary"),
    REAL("router_z_loss_coef", z_loss, 0, 1e6, "of models with experts: add this times the mean square of the log-sum-exp of their routers' scores to the loss; 0: nothing"),
    REAL("expert_capacity_factor", capacity, 0, 1e6, "of models with experts: in training an expert takes at most ceil(X times an even share) of a micro-batch's choices, and the others are dropped; 0: it takes all"),
    TEXT("teacher_model_name_or_path", teacher, "DIR|NAME", "learn also from the outputs of this model, which does not change: loss = alpha * that of the labels + (1 - alpha) * T^2 * KL(teacher || model)"),
    REAL("distill_temperature", temperature, 1e-3, 1e3, "T of that: both models' scores are divided by it"),
    REAL("distill_alpha", alpha, 0, 1, "alpha of that: the share of the labels"),
    REAL("sparsity", sparsity, 0, 0.9999999, "prune at the start: of each matrix in the blocks this share of the weights, those of least magnitude, become 0 and stay 0; 0: none"),
    TEXT("mask_structure", mask_structure, "unstructured|N:M", "which weights those are: any of a matrix, or of every M side by side along the input all but N, as 2:4, which says the sparsity itself"),
    REAL("weight_decay", decay, 0, 1e6, "weight decay of matrices; biases and norms have none"),
    REAL("adam_beta1", beta1, 0, 0.9999999, "decay of the first moment"),
    REAL("adam_beta2", beta2, 0, 0.9999999, "decay of the second moment"),
    REAL("adam_epsilon", epsilon, 0, 1, "added to the root of the second moment"),
    REAL("max_grad_norm", max_grad_norm, 0, FLT_MAX, "clip the global gradient norm; 0: never"),
    REAL("num_train_epochs", epochs, 1e-9, 1e9, "how often to go through the data"),
    WHOLE("max_steps", max_steps, -1, UINT32_MAX, "optimizer steps, in place of epochs; -1: not set"),
    WHOLE("seed", seed, 0, (double)INT64_MAX, "the seed of new weights, dropout and the order of blocks"),
    WHOLE("data_seed", data_seed, -1, (double)INT64_MAX, "the seed of the order of blocks alone; -1: the same"),
    WHOLE("max_bad_steps", max_bad_steps, 1, INT32_MAX, "end after N steps in a row whose loss or gradient is not finite"),
    {TX_OPTION_HEADING, .help = "adapter (names as in peft)"},
    TX_JOB_LORA_ROWS(AT),
    FLAG("use_peft", use_peft, "as TRL's scripts have it: refuse to train the whole model, should --lora_r be missing"),
    TX_JOB_4BIT_ROWS(AT),
    {TX_OPTION_HEADING, .help = "run"},
    TEXT("output_dir", output_dir, "DIR", "where model, log.jsonl and checkpoints go"),
    FLAG("overwrite_output_dir", overwrite, "use an output_dir that is not empty; checkpoints of an earlier run are removed"),
    {TX_OPTION_OPTIONAL, "resume_from_checkpoint", AT(resume), .choices = "DIR",
     .help = "go on from a checkpoint: from this folder, or without one from the newest in output_dir; options that are not given are those of its run"},
    CHOICE("logging_strategy", logging, "no|steps|epoch", "when a line is printed (log.jsonl has every step)"),
    FLAG("logging_first_step", log_first, "print a line also after the first step"),
    REAL("logging_steps", logging_steps, 0, INT32_MAX, "every N steps; below 1: share of the run; 0: never"),
    CHOICE("eval_strategy", evaluation, "no|steps|epoch", "when to evaluate while training"),
    REAL("eval_steps", eval_steps, 0, INT32_MAX, "every N steps; below 1: share of the run; 0: logging_steps"),
    REAL("eval_delay", eval_delay, 0, INT32_MAX, "evaluate not before step X, or epoch X with eval_strategy epoch"),
    FLAG("eval_on_start", eval_first, "evaluate also before the first step"),
    WHOLE("early_stopping_patience", stop_patience, 0, INT32_MAX, "end after N evaluations in a row without a better metric_for_best_model; 0: never"),
    REAL("early_stopping_threshold", stop_threshold, 0, FLT_MAX, "an evaluation counts as better where it is so by more than X"),
    CHOICE("save_strategy", saving, strategy_words + 1, "when to write a checkpoint"),
    REAL("save_steps", save_steps, 0, INT32_MAX, "every N steps and at the end; below 1: share of the run; 0: never"),
    WHOLE("save_total_limit", save_total_limit, 0, INT32_MAX, "keep the newest N checkpoints and the best; 0: all"),
    FLAG("save_only_model", only_model, "checkpoints hold the model alone: no run can go on from them"),
    CHOICE("on_save_error", on_save_error, save_error_words + 1, "when a checkpoint cannot be written"),
    FLAG("load_best_model_at_end", load_best, "end with the weights of the best evaluation"),
    TEXT("metric_for_best_model", metric, "NAME", "which metric decides what the best evaluation is: loss (the default), perplexity, or what the task measures, as accuracy"),
    CHOICE("greater_is_better", greater, greater_words + 1, "whether the greatest value of that metric is the best; auto: as suits the metric"),
    {TX_OPTION_LIST, "report_to", AT(report_to), .choices = report_words + 1, .help = "write event files for TensorBoard"},
    TEXT("logging_dir", logging_dir, "DIR", "folder of the event files; otherwise output_dir/runs/TIME_HOST"),
    TEXT("run_name", run_name, "NAME", "name of the run in TensorBoard: event files go to output_dir/runs/NAME"),
    FLAG("disable_tqdm", no_progress, "draw no progress line"),
    {TX_OPTION_HEADING, .help = "many ranks (mpiexec -n N txtrain ...)"},
    WHOLE("ddp_bucket_cap_mb", bucket_cap, 0, 1 << 20, "MiB of gradients that are summed at a time; 0: 25, and 1 for the first"),
    CHOICE("ddp_comm", ddp_comm, ddp_comm_words + 1, "how gradients go from host to host; they are summed in fp32"),
    CHOICE("ddp_overlap", overlap, "auto|yes|no", "sum gradients while the backward pass goes on; auto: where that proves faster"),
    WHOLE("ddp_check", ddp_check, 0, INT32_MAX, "compare the weights of all ranks every N steps; 0: never"),
    WHOLE("zero_stage", zero_stage, 0, 3, "1: optimizer states are spread over the ranks; 2: gradients too; 3: weights too"),
    CHOICE("parallel", parallel, "given|auto", "auto: of --zero_stage, --tensor_parallel and --pipeline_parallel those that are not given are chosen, for the least predicted time of a step in the memory that there is, and the run says why"),
    WHOLE("tensor_parallel", tensor_parallel, 1, 1 << 16, "N ranks that follow each other compute the same rows together and divide heads, the MLP and the vocabulary among them (docs/RANKS.md)"),
    FLAG("sequence_parallel", sequence_parallel, "with tensor_parallel: what lies between products, norms and dropout, is divided among the N ranks by positions, and so is what the backward pass keeps of it"),
    WHOLE("expert_parallel", expert_parallel, 1, 1 << 16, "N ranks of different rows that follow each other divide the experts of each layer among them, whole ones, to which tokens go and from which they come back (docs/RANKS.md)"),
    WHOLE("context_parallel", context_parallel, 1, 1 << 12, "N ranks that follow each other have two chunks each of the positions of the same rows, and send each other keys and values (docs/RANKS.md)"),
    WHOLE("pipeline_parallel", pipeline_parallel, 1, 1 << 12, "N stages, a rank or group of ranks each, have the model's blocks one after the other (docs/RANKS.md)"),
    CHOICE("pipeline_schedule", pipeline_schedule, pipeline_words + 1, "order in which stages do the micro-batches of a step: 1f1b keeps activations of few of them, gpipe those of all, interleaved stands still less and has --pipeline_chunks stages a rank"),
    TEXT("pipeline_partition", pipeline_partition, "auto|even|N,N,...", "how many blocks each stage has: auto, so that the slowest stage takes the least time, the classifier being work of the last one; even, as many each; or N, stage by stage (default auto)"),
    WHOLE("pipeline_chunks", pipeline_chunks, 2, 1 << 10, "with --pipeline_schedule interleaved: stages of a rank, which follow each other in turns"),
    TEXT("deepspeed", deepspeed, "FILE|JSON", "a configuration of DeepSpeed: what it says is taken for options (docs/TRAINING.md)"),
    {TX_OPTION_OPTIONAL, "fsdp", AT(fsdp), .choices = "WORDS", .help = "as the Trainer's, by ZeRO: full_shard (which it is without a word) is zero_stage 3, shard_grad_op 2, no_shard 0; offload (docs/TRAINING.md)"},
    TEXT("fsdp_config", fsdp_config, "FILE|JSON", "a configuration of FSDP, which counts with --fsdp: what it says is taken for options"),
    WHOLE("global_batch_size", global_batch, 0, 1 << 30, "blocks in a step of all ranks, in place of accumulation; 0: not set"),
    TEXT("batch_weights", batch_weights, "auto|X,X,...", "how many rows of a micro-batch each rank gets: auto, by their measured speed, or X rows for each; otherwise all get the same"),
    REAL("comm_timeout", comm_timeout, 0, 1e9, "end all ranks where one does nothing for X seconds; 0: 30, or 10 times a step"),
    REAL("start_timeout", start_timeout, 0, 1e9, "end where not all ranks have started after X seconds; 0: 120, or comm_timeout"),
    {TX_OPTION_HEADING, .help = "device"},
    TEXT("device", device, "cpu|opencl|opencl:N|opencl:NAME|gpu|auto", "what to train on; auto: a GPU of the host for each rank, then its cores"),
    FLAG("use_cpu", use_cpu, "train on the cpu, which is the default"),
    WHOLE("threads", threads, 0, 4096, "threads of the cpu backend; 0: as many as there are cores for this process"),
    TX_JOB_CHECKPOINTING_ROW(AT),
    CHOICE("dtype", dtype, "float32|bfloat16", "what weights are stored in; bfloat16: gradients and AdamW's moments too, 8 bytes a parameter in place of 16, rounded stochastically"),
    TX_JOB_HALF_ROWS(AT),
    REAL("init_scale", init_scale, 1, FLT_MAX, "the first loss scale, as of torch.amp.GradScaler; it halves where gradients overflow"),
    WHOLE("growth_interval", growth_interval, 1, 1 << 24, "steps in a row without overflow after which the loss scale doubles"),
    FLAG("bf16_full_eval", bf16_full_eval, "evaluate in bf16, whatever training does"),
    FLAG("fp16_full_eval", fp16_full_eval, "evaluate in fp16"),
    TX_JOB_TF32_ROW(AT),
    FLAG("no_tf32", no_tf32, "they may not round, whatever --tf32 says"),
    FLAG("list_devices", list_devices, "print the devices and end"),
    FLAG("dry_run", dry_run, "print the memory the run will take and end; allocates nothing"),
    TEXT("memory_plot", memory_plot, "FILE", "draw what is in memory at each node of a step as an HTML page; where FILE ends in .json, write the data"),
    CHOICE("debug", debug, "none|underflow_overflow", "underflow_overflow: end at the first NaN or infinity, with the ranges of the nodes before it; many times slower"),
    FLAG("profile", profile, "print where the time went, and memory planned and counted"),
#define X(word, same, advice) {TX_OPTION_FOREIGN, word, .choices = same, .help = advice},
#include "models/job/foreign.def"
#undef X
#define TX_OPTIMIZER_REFUSED(word, advice) {TX_OPTION_FOREIGN, "optim " #word, .help = advice},
#include "api/optimizers.def"
};
/* clang-format on */
#undef AT

static const tx_option_spelling spellings[] = {{"--lr", "learning_rate"},
                                               {"--epochs", "num_train_epochs"},
                                               {"--steps", "max_steps"},
                                               {"--batch_size", "per_device_train_batch_size"},
                                               {"--bs", "per_device_train_batch_size"},
                                               {"--grad_accum", "gradient_accumulation_steps"},
                                               {"--grad_clip", "max_grad_norm"},
                                               {"--warmup", "warmup_steps"},
                                               {"--wd", "weight_decay"},
                                               {"--model", "model_name_or_path"},
                                               {"--resume", "resume_from_checkpoint"},
                                               {"--max_length", "max_seq_length"},
                                               {"--chat_template_path", "chat_template"},
                                               {"--dataset_config", "dataset_config_name"},
                                               {"--dataset_num_proc", "preprocessing_num_workers"},
                                               {"--use_bnb_nested_quant", "bnb_4bit_use_double_quant"},
                                               {"--activation_checkpointing", "gradient_checkpointing"},
                                               {"-o", "output_dir"}};

const tx_option_table tx_job_table = {options, sizeof options / sizeof options[0], spellings,
                                      sizeof spellings / sizeof spellings[0]};
_Static_assert(sizeof options / sizeof options[0] <= TX_OPTIONS_MOST, "as many options as can be marked as given");

tx_job_settings tx_job_defaults(void)
{
    return (tx_job_settings){
        .validation_split = 5,
        .pin = true,
        .max_seq_length = 128,
        .pad_to_max_length = true,
        .completion_only = true,
        .assistant_only = true,
        .mlm_probability = 0.15,
        .batch = 8,
        .eval_batch = 8,
        .accumulation = 1,
        .max_steps = -1,
        .seed = 42,
        .data_seed = -1,
        .max_bad_steps = 5,
        .rate = 5e-5,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .epsilon = 1e-8,
        .max_grad_norm = 1.0,
        .temperature = 2.0,
        .alpha = 0.5,
        .epochs = 3.0,
        .lora_alpha = 8,
        .logging = TX_STRATEGY_STEPS,
        .saving = TX_STRATEGY_STEPS,
        .logging_steps = 500,
        .save_steps = 500,
        .tensor_parallel = 1,
        .pipeline_parallel = 1,
        .pipeline_chunks = TX_JOB_CHUNKS,
        .expert_parallel = 1,
        .context_parallel = 1,
        .device = "cpu",
        .init_scale = 65536,
        .growth_interval = 2000,
    };
}

const tx_task *tx_job_named_task(const tx_job_settings *set)
{
    const tx_sequence_task *t = tx_glue;
    if (!set->task)
        return NULL;
    for (int32_t i = 1; i < set->task && t->task.name; i++)
        t++;
    return t->task.name ? &t->task : set->packing ? &tx_instruction_packed : &tx_instruction;
}

bool tx_job_takes_glue(const tx_job_settings *set)
{
    const tx_task *task = tx_job_named_task(set);
    const bool files = set->train_file || set->validation_file || set->test_file || set->dataset;
    return task && task->head == TX_HEAD_SEQUENCE_CLASSIFICATION && !files;
}

uint64_t tx_job_data_seed(const tx_job_settings *set)
{
    return (uint64_t)(set->data_seed >= 0 ? set->data_seed : set->seed);
}

tx_status tx_job_metric(const tx_job_settings *set, const tx_task *task, const tx_metric **metric)
{
    const int32_t place = set->metric ? tx_task_metric(task, set->metric) : 0;
    char list[256] = "";
    if (place >= 0) {
        *metric = &task->metrics[place];
        return TX_OK;
    }
    for (const tx_metric *m = task->metrics; m->name; m++)
        tx_list_add(list, sizeof list, m[1].name ? ", " : " and ", "%s",
                    strncmp(m->name, "eval_", 5) == 0 ? m->name + 5 : m->name);
    return tx_fail(TX_INVALID, "--metric_for_best_model %s: there are %s", set->metric, list);
}

bool tx_job_trains(const tx_job_settings *set)
{
    return set->do_train || (!set->do_eval && !set->do_predict);
}

bool tx_job_evaluates(const tx_job_settings *set)
{
    return set->do_eval || set->evaluation || set->eval_first || (!set->do_train && set->validation_file);
}

int32_t tx_job_chunks(const tx_job_settings *set)
{
    return set->pipeline_schedule == TX_PIPELINE_INTERLEAVED ? (int32_t)set->pipeline_chunks : 1;
}

tx_json *tx_job_arguments(const tx_job_settings *set, const char *const *names)
{
    return tx_option_json(&(tx_option_values){.table = tx_job_table, .values = (void *)(uintptr_t)set}, names);
}
