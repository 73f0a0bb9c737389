/* SPDX-License-Identifier: Apache-2.0
 * The table of txtrain's options. */
#include "tools/train/options.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define AT(field) offsetof(tx_train_settings, field)
#define TEXT(name, field, word, text) {TX_OPTION_TEXT, name, AT(field), .choices = word, .help = text}
#define FLAG(name, field, text) {TX_OPTION_FLAG, name, AT(field), .help = text}
#define CHOICE(name, field, words, text) {TX_OPTION_CHOICE, name, AT(field), .choices = words, .help = text}
#define WHOLE(name, field, least, most, text) {TX_OPTION_INTEGER, name, AT(field), least, most, "N", text}
#define REAL(name, field, least, most, text) {TX_OPTION_REAL, name, AT(field), least, most, "X", text}

/* The names of optimizers, a "|" before each, and what they name. */
static const char optimizer_words[] =
#define TX_OPTIMIZER_WORD(word, NAME) "|" #word
#include "api/optimizers.def"
    ;
static const tx_optimizer_kind optimizer_kinds[] = {
#define TX_OPTIMIZER_WORD(word, NAME) TX_##NAME,
#include "api/optimizers.def"
};

static const tx_option options[] = {
    {TX_OPTION_HEADING, .help = "model"},
    TEXT("model_name_or_path", model, "DIR|NAME", "model to go on training: a folder, or a name to look up (README)"),
    TEXT("config_name", config, "FILE|NAME",
         "new weights: a config.json, a folder with one, or gpt2, gpt2-medium, gpt2-large, gpt2-xl; without model and "
         "config: a small byte GPT-2"),
    TEXT("config_overrides", config_overrides, "K=V,...", "change keys of a new model's configuration: n_layer=4,n_embd=64"),
    TEXT("tokenizer_name", tokenizer, "DIR|NAME", "its tokenizer, where not the model's own; none at all: bytes"),
    FLAG("allow_nonfinite_weights", allow_nonfinite, "load weights that hold NaN or infinity"),
    {TX_OPTION_HEADING, .help = "data"},
    TEXT("train_file", train_file, "FILE", "what to train on: .txt, .raw, .tokens, .jsonl ({\"text\": ...}) or .bin (tokens)"),
    TEXT("validation_file", validation_file, "FILE", "what to evaluate on"),
    TEXT("dataset_name", dataset, "DIR|NAME", "folder with train and validation files, or a name to look up (README)"),
    TEXT("dataset_config_name", dataset_config, "NAME", "configuration of the dataset, as wikitext-2-raw-v1"),
    REAL("validation_split_percentage", validation_split, 0, 99, "without validation data: the first X percent of the texts"),
    WHOLE("block_size", block, 0, 1 << 24, "tokens in a block; 0: the model's positions, at most 1024"),
    WHOLE("group_texts", group_texts, 0, INT32_MAX, "cut blocks anew after every N texts, as run_clm does with 1000; 0: never"),
    WHOLE("max_train_samples", max_train_samples, 0, INT32_MAX, "use the first N blocks; 0: all"),
    WHOLE("max_eval_samples", max_eval_samples, 0, INT32_MAX, "evaluate on the first N blocks; 0: all"),
    WHOLE("skip_bad", skip_bad, 0, INT32_MAX, "leave out up to N broken lines of a .jsonl file"),
    WHOLE("preprocessing_num_workers", tokenize_threads, 0, 1024, "threads that tokenise; 0: as many as processors"),
    WHOLE("dataloader_num_workers", workers, 0, 256, "threads that prepare batches while the device works; 0: none"),
    FLAG("dataloader_pin_memory", pin, "lock the batches in memory"),
    TEXT("dump_order", dump_order, "FILE", "write the epoch and block of every sample, in the order of training"),
    {TX_OPTION_HEADING, .help = "training (defaults as the Hugging Face Trainer's)"},
    FLAG("do_train", do_train, "train; implied when --do_eval is not given either"),
    FLAG("do_eval", do_eval, "evaluate at the end; implied by --eval_strategy and --validation_file"),
    WHOLE("per_device_train_batch_size", batch, 1, 1 << 20, "blocks in a micro-batch"),
    WHOLE("per_device_eval_batch_size", eval_batch, 1, 1 << 20, "blocks in an evaluation batch"),
    WHOLE("gradient_accumulation_steps", accumulation, 1, 1 << 20, "micro-batches in a step"),
    REAL("learning_rate", rate, 0, 1e6, "peak learning rate"),
    CHOICE("lr_scheduler_type", schedule, "linear|cosine|constant|constant_with_warmup|polynomial|wsd|warmup_stable_decay",
           "course of the rate"),
    TEXT("lr_scheduler_kwargs", schedule_settings, "JSON", "its settings, as {\"num_decay_steps\": 100} of wsd"),
    REAL("warmup_steps", warmup_steps, 0, INT32_MAX, "steps over which the rate rises from 0; below 1: share of the run"),
    REAL("warmup_ratio", warmup_ratio, 0, 1, "the same as a share of the run, where warmup_steps is 0"),
    CHOICE("optim", optim, optimizer_words + 1, "the first four are one AdamW"),
    REAL("weight_decay", decay, 0, 1e6, "of matrices; none on biases and norms"),
    REAL("adam_beta1", beta1, 0, 0.9999999, "decay of the first moment"),
    REAL("adam_beta2", beta2, 0, 0.9999999, "decay of the second moment"),
    REAL("adam_epsilon", epsilon, 0, 1, "added to the root of the second moment"),
    REAL("max_grad_norm", max_grad_norm, 0, FLT_MAX, "clip the global gradient norm; 0: never"),
    REAL("num_train_epochs", epochs, 1e-9, 1e9, "passes over the data"),
    WHOLE("max_steps", max_steps, -1, UINT32_MAX, "optimizer steps, in place of epochs; -1: not set"),
    WHOLE("seed", seed, 0, (double)INT64_MAX, "of new weights, dropout and the order of blocks"),
    WHOLE("data_seed", data_seed, -1, (double)INT64_MAX, "of the order of blocks; -1: the seed"),
    WHOLE("max_bad_steps", max_bad_steps, 1, INT32_MAX, "end after N steps in a row whose loss or gradient is not finite"),
    {TX_OPTION_HEADING, .help = "run"},
    TEXT("output_dir", output_dir, "DIR", "where model, log.jsonl and checkpoints go"),
    FLAG("overwrite_output_dir", overwrite, "use an output_dir that is not empty; checkpoints of an earlier run go"),
    {TX_OPTION_OPTIONAL, "resume_from_checkpoint", AT(resume), .choices = "DIR",
     .help = "go on where a checkpoint stopped: any folder, or without one the newest of output_dir"},
    CHOICE("logging_strategy", logging, "no|steps|epoch", "when a line is printed (log.jsonl has every step)"),
    REAL("logging_steps", logging_steps, 0, INT32_MAX, "every N steps; below 1: share of the run; 0: never"),
    CHOICE("eval_strategy", evaluation, "no|steps|epoch", "when to evaluate while training"),
    REAL("eval_steps", eval_steps, 0, INT32_MAX, "every N steps; below 1: share of the run; 0: logging_steps"),
    CHOICE("save_strategy", saving, "no|steps|epoch|best", "when to write a checkpoint"),
    REAL("save_steps", save_steps, 0, INT32_MAX, "every N steps and at the end; below 1: share of the run; 0: never"),
    WHOLE("save_total_limit", save_total_limit, 0, INT32_MAX, "keep the newest N checkpoints and the best; 0: all"),
    CHOICE("on_save_error", on_save_error, "continue|stop", "when a checkpoint cannot be written"),
    FLAG("load_best_model_at_end", load_best, "end with the weights of the best evaluation"),
    CHOICE("metric_for_best_model", metric, "loss|eval_loss|perplexity|eval_perplexity", "less is better; all give one order"),
    {TX_OPTION_LIST, "report_to", AT(report_to), .choices = "tensorboard|all|none", .help = "event files"},
    TEXT("logging_dir", logging_dir, "DIR", "of event files; else output_dir/runs/TIME_HOST"),
    FLAG("disable_tqdm", no_progress, "draw no progress line"),
    {TX_OPTION_HEADING, .help = "many ranks (mpiexec -n N txtrain ...)"},
    WHOLE("ddp_bucket_cap_mb", bucket_cap, 0, 1 << 20, "MiB of gradients summed at a time; 0: 25, the first 1"),
    CHOICE("ddp_comm", ddp_comm, "fp32|bf16", "how gradients go from host to host; they are summed in fp32"),
    CHOICE("ddp_overlap", overlap, "auto|yes|no", "sum gradients while the backward pass goes on; auto: where that is faster"),
    WHOLE("ddp_check", ddp_check, 0, INT32_MAX, "prove every N steps that all ranks have the same weights; 0: never"),
    WHOLE("zero_stage", zero_stage, 0, 2, "1: optimizer states are spread over the ranks; 2: gradients too"),
    WHOLE("global_batch_size", global_batch, 0, 1 << 30, "blocks in a step of all ranks, in place of accumulation; 0: not set"),
    TEXT("batch_weights", batch_weights, "auto|X,X,...", "shares of a micro-batch by rank; auto: by their speed; else all alike"),
    REAL("comm_timeout", comm_timeout, 0, 1e9, "end all ranks where one does nothing for X seconds; 0: 30, or 10 times a step"),
    REAL("start_timeout", start_timeout, 0, 1e9, "end where not all ranks have started after X seconds; 0: 120, or comm_timeout"),
    {TX_OPTION_HEADING, .help = "device"},
    TEXT("device", device, "cpu|opencl|opencl:N|opencl:NAME|gpu|auto", "what to train on; auto: a GPU of the host for each rank, then its cores"),
    WHOLE("threads", threads, 0, 4096, "of the cpu backend; 0: all that this process may use"),
    FLAG("tf32", tf32, "fp32 products may round their operands to tf32, where the device has units for that"),
    FLAG("no_tf32", no_tf32, "they may not, whatever --tf32 says"),
    FLAG("list_devices", list_devices, "print the devices and end"),
    FLAG("dry_run", dry_run, "print the memory the run will take and end; allocates nothing"),
    FLAG("profile", profile, "print where the time went, and memory planned and counted"),
};
/* clang-format on */
#undef AT

static const tx_foreign foreign[] = {
#define X(name, same, advice) {name, same, advice},
#include "tools/train/foreign.def"
#undef X
};

const tx_cli tx_train_program = {
    .name = "txtrain",
    .usage = "txtrain [ARGUMENTS.json] --train_file FILE --output_dir DIR [options]",
    .about = "Trains a GPT-2 and writes a Hugging Face model folder. In names of options - and _ are the same.",
    .options = options,
    .count = (int32_t)(sizeof options / sizeof options[0]),
    .foreign = foreign,
    .foreign_count = (int32_t)(sizeof foreign / sizeof foreign[0]),
};

tx_train_settings tx_train_defaults(void)
{
    return (tx_train_settings){
        .validation_split = 5,
        .pin = true,
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
        .epochs = 3.0,
        .logging = 1,
        .saving = 1,
        .logging_steps = 500,
        .save_steps = 500,
        .device = "cpu",
    };
}

tx_optimizer_kind tx_train_optimizer(const tx_train_settings *set)
{
    return optimizer_kinds[set->optim];
}

bool tx_train_trains(const tx_train_settings *set)
{
    return set->do_train || !set->do_eval;
}

bool tx_train_evaluates(const tx_train_settings *set)
{
    return set->do_eval || set->evaluation || (!set->do_train && set->validation_file);
}

/* ---- Checks ------------------------------------------------------------------------------------------- */

#define COMPLAIN(...) tx_complain(&tx_train_program, TX_EXIT_USAGE, __VA_ARGS__)

static int check_steps(const char *name, double value)
{
    if (value >= 1 && value != floor(value))
        return COMPLAIN("--%s %g: a whole number of steps, or a share of the run below 1", name, value);
    return TX_GO_ON;
}

/* As the Trainer asks: what is evaluated must be saved. */
static int check_best(const tx_train_settings *set)
{
    double every = set->eval_steps > 0 ? set->eval_steps : set->logging_steps;
    bool same = set->saving == set->evaluation || set->saving == 3;
    if (set->load_best && (!set->evaluation || !same))
        return COMPLAIN(
            "--load_best_model_at_end needs --eval_strategy and --save_strategy to be the same (steps or epoch), "
            "or --save_strategy best");
    if (set->load_best && set->saving == 1 && !(every > 0 && fmod(set->save_steps, every) == 0))
        return COMPLAIN("--load_best_model_at_end: save_steps %g must be a multiple of eval_steps %g", set->save_steps,
                        every);
    if (set->saving == 3 && !set->evaluation)
        return COMPLAIN("--save_strategy best needs --eval_strategy steps or epoch");
    return TX_GO_ON;
}

int tx_train_check(const tx_train_settings *set)
{
    const bool data = set->train_file || set->dataset;
    const char *const steps[] = {"logging_steps", "eval_steps", "save_steps", "warmup_steps"};
    const double value[] = {set->logging_steps, set->eval_steps, set->save_steps, set->warmup_steps};
    int status = TX_GO_ON;
    for (int i = 0; i < 4 && status == TX_GO_ON; i++)
        status = check_steps(steps[i], value[i]);
    if (status != TX_GO_ON)
        return status;
    if (set->model && set->config)
        return COMPLAIN("--model_name_or_path and --config_name exclude each other");
    if (set->model && set->config_overrides)
        return COMPLAIN("--config_overrides is for new weights: it cannot change the model of --model_name_or_path");
    if (set->train_file && set->dataset)
        return COMPLAIN("--train_file and --dataset_name exclude each other");
    if (set->dataset_config && !set->dataset)
        return COMPLAIN("--dataset_config_name needs --dataset_name");
    if (set->max_steps == 0)
        return COMPLAIN("--max_steps 0: give at least 1 step, or leave it out for epochs");
    if (set->overwrite && set->resume)
        return COMPLAIN("--overwrite_output_dir and --resume_from_checkpoint exclude each other");
    if (!set->dry_run && tx_train_trains(set) && !data)
        return COMPLAIN("--train_file or --dataset_name is missing: which text shall it learn?");
    if (!set->dry_run && tx_train_evaluates(set) && !data && !set->validation_file)
        return COMPLAIN("--validation_file or --dataset_name is missing: on which text shall it evaluate?");
    if (!set->dry_run && !set->output_dir)
        return COMPLAIN("--output_dir is missing: where shall the model go?");
    return check_best(set);
}

/* ---- As JSON -------------------------------------------------------------------------------------------- */

/* The word at place `place` of "a|b|c". */
static tx_status set_word(tx_json *json, const char *name, const char *choices, int32_t place)
{
    char word[64];
    for (; place > 0; place--)
        choices += strcspn(choices, "|") + 1;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(choices, "|"), choices);
    return tx_json_set_string(json, name, word);
}

static tx_status set_list(tx_json *json, const tx_option *o, uint32_t bits)
{
    char text[256] = "";
    size_t used = 0;
    for (const char *word = o->choices; bits; bits >>= 1) {
        size_t length = strcspn(word, "|");
        if (bits & 1)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s", used ? "," : "", (int)length, word);
        word += length + (word[length] == '|');
    }
    return tx_json_set_string(json, o->name, text);
}

static tx_status set_value(tx_json *json, const tx_option *o, const void *at)
{
    switch (o->kind) {
    case TX_OPTION_FLAG:
        return tx_json_set_bool(json, o->name, *(const bool *)at);
    case TX_OPTION_INTEGER:
        return tx_json_set_int(json, o->name, *(const int64_t *)at);
    case TX_OPTION_REAL:
        return tx_json_set_number(json, o->name, *(const double *)at);
    case TX_OPTION_TEXT:
    case TX_OPTION_OPTIONAL: {
        const char *text = *(const char *const *)at;
        return text ? tx_json_set_string(json, o->name, text) : tx_json_set_null(json, o->name);
    }
    case TX_OPTION_CHOICE:
        return set_word(json, o->name, o->choices, *(const int32_t *)at);
    case TX_OPTION_LIST:
        return set_list(json, o, *(const uint32_t *)at);
    case TX_OPTION_HEADING:
    case TX_OPTION_WORDS:
        break;
    }
    return TX_OK;
}

static bool is_wanted(const char *name, const char *const *names)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return !names;
}

tx_json *tx_train_arguments(const tx_train_settings *set, const char *const *names)
{
    tx_json *json = tx_json_object();
    for (size_t i = 0; i < sizeof options / sizeof options[0] && json; i++) {
        const tx_option *o = &options[i];
        if (o->kind != TX_OPTION_HEADING && is_wanted(o->name, names) &&
            set_value(json, o, (const char *)set + o->offset)) {
            tx_json_free(json);
            json = NULL;
        }
    }
    return json;
}
