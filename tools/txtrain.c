/* SPDX-License-Identifier: Apache-2.0
 * txtrain: trains a GPT-2 on a text file and writes it as a Hugging Face model folder. */
#include "api/file.h"
#include "comm/comm.h"
#include "models/text/bytes.h"
#include "models/gpt2.h"
#include "models/train/run.h"
#include "tools/config.h"
#include "tools/options.h"
#include "tools/output.h"
#include "tools/profile.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct settings {
    const char *train_file, *validation_file, *model, *config, *output_dir, *device;
    int64_t block, batch, eval_batch, accumulation, warmup, max_steps, seed, logging_steps, eval_steps, threads;
    double rate, decay, beta1, beta2, epsilon, max_grad_norm, epochs;
    int32_t schedule;
    bool overwrite, list_devices, dry_run, profile;
} settings;

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    {TX_OPTION_HEADING, .help = "data and model"},
    {TX_OPTION_TEXT, "train_file", AT(train_file), .choices = "FILE",
     .help = "text to train on; its bytes are the tokens"},
    {TX_OPTION_TEXT, "validation_file", AT(validation_file), .choices = "FILE", .help = "text to evaluate on"},
    {TX_OPTION_TEXT, "model_name_or_path", AT(model), .choices = "DIR", .help = "model folder to go on training"},
    {TX_OPTION_TEXT, "config_name", AT(config), .choices = "FILE|NAME",
     .help =
         "new weights: a config.json, a folder with one, or gpt2, gpt2-medium, gpt2-large, gpt2-xl; without model and "
         "config: a small byte GPT-2"},
    {TX_OPTION_INTEGER, "block_size", AT(block), 0, 1 << 24, "N",
     "tokens in a block; 0: the model's positions, at most 1024"},
    {TX_OPTION_TEXT, "output_dir", AT(output_dir), .choices = "DIR", .help = "where model and log.jsonl go"},
    {TX_OPTION_FLAG, "overwrite_output_dir", AT(overwrite), .help = "use an output_dir that is not empty"},
    {TX_OPTION_HEADING, .help = "training (defaults as the Hugging Face Trainer's)"},
    {TX_OPTION_INTEGER, "per_device_train_batch_size", AT(batch), 1, 1 << 20, "N", "blocks in a micro-batch"},
    {TX_OPTION_INTEGER, "per_device_eval_batch_size", AT(eval_batch), 1, 1 << 20, "N", "blocks in an evaluation batch"},
    {TX_OPTION_INTEGER, "gradient_accumulation_steps", AT(accumulation), 1, 1 << 20, "N", "micro-batches in a step"},
    {TX_OPTION_REAL, "learning_rate", AT(rate), 0, 1e6, "X", "peak learning rate of AdamW"},
    {TX_OPTION_INTEGER, "warmup_steps", AT(warmup), 0, INT32_MAX, "N", "steps over which the rate rises from 0"},
    {TX_OPTION_CHOICE, "lr_scheduler_type", AT(schedule), .choices = "linear|cosine|constant",
     .help = "course of the rate after warm-up"},
    {TX_OPTION_REAL, "weight_decay", AT(decay), 0, 1e6, "X", "of matrices; none on biases and norms"},
    {TX_OPTION_REAL, "adam_beta1", AT(beta1), 0, 0.9999999, "X", "decay of the first moment"},
    {TX_OPTION_REAL, "adam_beta2", AT(beta2), 0, 0.9999999, "X", "decay of the second moment"},
    {TX_OPTION_REAL, "adam_epsilon", AT(epsilon), 0, 1, "X", "added to the root of the second moment"},
    {TX_OPTION_REAL, "max_grad_norm", AT(max_grad_norm), 0, FLT_MAX, "X", "clip the global gradient norm; 0: never"},
    {TX_OPTION_REAL, "num_train_epochs", AT(epochs), 1e-9, 1e9, "X", "passes over the text"},
    {TX_OPTION_INTEGER, "max_steps", AT(max_steps), -1, UINT32_MAX, "N",
     "optimizer steps, in place of epochs; -1: not set"},
    {TX_OPTION_INTEGER, "seed", AT(seed), 0, (double)INT64_MAX, "N", "of new weights, the order of blocks and dropout"},
    {TX_OPTION_INTEGER, "logging_steps", AT(logging_steps), 0, INT32_MAX, "N",
     "print a line every N steps (log.jsonl has them all); 0: never"},
    {TX_OPTION_INTEGER, "eval_steps", AT(eval_steps), 0, INT32_MAX, "N", "evaluate every N steps; 0: at the end only"},
    {TX_OPTION_HEADING, .help = "device"},
    {TX_OPTION_TEXT, "device", AT(device), .choices = "D", .help = "cpu, opencl, opencl:N, opencl:NAME or gpu"},
    {TX_OPTION_INTEGER, "threads", AT(threads), 0, 4096, "N", "of the cpu backend; 0: all that this process may use"},
    {TX_OPTION_FLAG, "list_devices", AT(list_devices), .help = "print the devices and end"},
    {TX_OPTION_FLAG, "dry_run", AT(dry_run), .help = "print the memory the run will take and end; allocates nothing"},
    {TX_OPTION_FLAG, "profile", AT(profile), .help = "print where the time went, and memory planned and counted"},
};
#undef AT

static const tx_foreign foreign[] = {
#define X(name, same, advice) {name, same, advice},
#include "tools/foreign.def"
#undef X
};

static const tx_cli program = {
    .name = "txtrain",
    .usage = "txtrain --train_file FILE --output_dir DIR [options]",
    .about =
        "Trains a GPT-2 on a text file and writes a Hugging Face model folder. In names of options - and _ are the "
        "same.",
    .options = options,
    .count = (int32_t)(sizeof options / sizeof options[0]),
    .foreign = foreign,
    .foreign_count = (int32_t)(sizeof foreign / sizeof foreign[0]),
};

typedef struct job {
    const settings *set;
    tx_engine *engine;
    tx_model *model;
    tx_gpt2_config config;
    tx_trainer *trainer;
    tx_dataset *train, *validation;
    int64_t block, steps;
    bool terminal; /* a progress line is drawn */
} job;

/* ---- what happens during the run ------------------------------------------------------------ */

/* Signal handlers have nothing else to write to. */
static volatile sig_atomic_t caught;

/* The first signal lets the step in progress end, the second ends the program at once. */
static void on_signal(int number)
{
    if (caught)
        _exit(128 + number);
    caught = number;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int asked_to_stop(void *context)
{
    (void)context;
    return caught;
}

static void clear_progress(const job *j)
{
    if (j->terminal)
        fputs("\r\033[K", stderr);
}

static void on_step(void *context, const tx_run_step *s)
{
    const job *j = context;
    int64_t every = j->set->logging_steps, left = (int64_t)s->seconds_left;
    if (every && (s->step == 1 || s->step % every == 0 || s->step == s->steps)) {
        clear_progress(j);
        printf("step %" PRId64 "/%" PRId64 "  epoch %.3f  loss %.4f  grad norm %.3f  rate %.3g  %.0f tokens/s\n",
               s->step, s->steps, s->epoch, s->loss, s->grad_norm, s->learning_rate, s->tokens_per_second);
        fflush(stdout);
    }
    if (j->terminal)
        fprintf(stderr, "\r\033[Kstep %" PRId64 "/%" PRId64 "  loss %.4f  %.0f tokens/s  %" PRId64 ":%02d:%02d left",
                s->step, s->steps, s->loss, s->tokens_per_second, left / 3600, (int)(left / 60 % 60), (int)(left % 60));
}

static void on_evaluation(void *context, int64_t step, double loss, double perplexity)
{
    clear_progress(context);
    printf("step %" PRId64 "  eval loss %.4f  perplexity %.2f\n", step, loss, perplexity);
    fflush(stdout);
}

static void on_warning(void *context, const char *message)
{
    clear_progress(context);
    fprintf(stderr, "txtrain: warning: %s\n", message);
}

/* ---- preparation ------------------------------------------------------------------------------- */

/* The vocabulary must be the bytes: the tokens of this version are nothing else. */
static tx_status check_vocabulary(const settings *set, const tx_gpt2_config *config)
{
    const char *source = set->model ? set->model : set->config ? set->config : "default model";
    if (config->vocab_size < TX_BYTES_VOCAB)
        return tx_fail(TX_INVALID, "%s: vocab_size %" PRId64 " is less than the %d of the byte vocabulary", source,
                       config->vocab_size, TX_BYTES_VOCAB);
    if (!set->model)
        return TX_OK;
    tx_status status = tx_bytes_check(set->model);
    if (status == TX_NOT_FOUND && config->vocab_size == TX_BYTES_VOCAB) {
        printf("%s: has no tokenizer.json; its vocabulary of %d is taken for the bytes\n", source, TX_BYTES_VOCAB);
        return TX_OK;
    }
    return status;
}

static tx_status choose_model(const settings *set, tx_gpt2_config *config)
{
    tx_status status = set->model    ? tx_config_of_folder(set->model, config)
                       : set->config ? tx_config_find(set->config, config)
                                     : tx_config_small(config);
    if (!status)
        status = check_vocabulary(set, config);
    if (status)
        return status;
    printf("model   %s: %" PRId64 " layers, %" PRId64 " heads, width %" PRId64 ", vocabulary %" PRId64 ", %" PRId64
           " parameters, %s\n",
           set->model    ? set->model
           : set->config ? set->config
                         : "small byte GPT-2 (choose another with --model_name_or_path or --config_name)",
           config->n_layer, config->n_head, config->n_embd, config->vocab_size, tx_gpt2_param_count(config),
           set->model ? "weights from its files" : "new weights");
    return TX_OK;
}

static tx_status choose_block(job *j)
{
    int64_t positions = j->config.n_positions;
    j->block = j->set->block ? j->set->block : positions < 1024 ? positions : 1024;
    if (j->block > positions)
        return tx_fail(TX_INVALID, "block_size %" PRId64 " is more than the model's %" PRId64 " positions", j->block,
                       positions);
    return j->block < 2 ? tx_fail(TX_INVALID, "block_size must be 2 or more: a label is the token after") : TX_OK;
}

static tx_status open_data(job *j)
{
    const settings *set = j->set;
    if (!set->train_file)
        return TX_OK; /* a dry run needs none */
    tx_status status = tx_dataset_read_bytes(set->train_file, j->block, &j->train);
    if (!status && set->validation_file)
        status = tx_dataset_read_bytes(set->validation_file, j->block, &j->validation);
    if (status)
        return status;
    int64_t blocks = tx_dataset_blocks(j->train);
    int64_t of_epoch = tx_run_epoch_steps(blocks, set->batch, set->accumulation);
    double steps = set->max_steps > 0 ? (double)set->max_steps : ceil(set->epochs * (double)of_epoch);
    if (!(steps <= (double)UINT32_MAX))
        return tx_fail(TX_INVALID, "%.0f steps are more than can be counted; set max_steps", steps);
    j->steps = (int64_t)steps;
    printf("text    %s: %" PRId64 " tokens, %" PRId64 " blocks of %" PRId64 ", %" PRId64 " steps an epoch, %" PRId64
           " steps in all\n",
           set->train_file, tx_dataset_tokens(j->train), blocks, j->block, of_epoch, j->steps);
    return TX_OK;
}

static tx_status compile(job *j)
{
    const settings *set = j->set;
    tx_engine_options engine = {sizeof engine, set->device, (int32_t)set->threads, set->profile};
    tx_trainer_options trainer = {
        .size = sizeof trainer,
        .batch = set->batch,
        .block = j->block,
        .accumulation = set->accumulation,
        .eval_batch = set->validation_file ? set->eval_batch : 0,
        .max_grad_norm = set->max_grad_norm,
        .seed = (uint64_t)set->seed,
        .optimizer = {sizeof trainer.optimizer, TX_ADAMW, (float)set->beta1, (float)set->beta2, (float)set->epsilon,
                      .weight_decay = (float)set->decay},
    };
    tx_status status = tx_engine_create(&engine, &j->engine);
    if (status)
        return status;
    const tx_device_info *device = tx_engine_device(j->engine);
    printf("device  %s: %s, %s\n", device->id, device->name, device->platform);
    fflush(stdout);
    status = tx_model_create(j->engine, &j->model);
    if (!status)
        status = tx_trainer_create(j->model, tx_gpt2_architecture(), &j->config, &trainer, &j->trainer);
    return status;
}

/* ---- the run -------------------------------------------------------------------------------------- */

static tx_status save(job *j)
{
    tx_status status = tx_gpt2_save(j->model, &j->config, j->set->output_dir);
    if (!status)
        status = tx_bytes_save(j->set->output_dir, j->config.n_positions);
    if (!status)
        printf("saved   %s: config.json, model.safetensors, tokenizer.json\n", j->set->output_dir);
    return status;
}

static tx_status print_account(const job *j, const tx_run_summary *summary)
{
    tx_memory planned, counted;
    tx_status status = tx_print_profile(stdout, j->trainer, summary);
    if (!status)
        status = tx_model_memory(j->model, &planned);
    if (!status)
        status = tx_engine_memory(j->engine, &counted);
    struct rusage use;
    if (!status) {
        tx_print_memory(stdout, &planned, &counted);
        if (getrusage(RUSAGE_SELF, &use) == 0)
            printf("peak resident memory of the process: %ld KiB\n", use.ru_maxrss);
    }
    return status;
}

static tx_status train(job *j, const char *log_path, tx_run_summary *summary)
{
    const settings *set = j->set;
    tx_run_options run = {
        .size = sizeof run,
        .train = j->train,
        .validation = j->validation,
        .schedule = {(tx_schedule_kind)set->schedule, set->rate, set->warmup, j->steps},
        .seed = (uint64_t)set->seed,
        .eval_steps = set->eval_steps,
        .log_path = log_path,
        .profile = set->profile,
        .listener = {j, on_step, on_evaluation, on_warning, asked_to_stop},
    };
    catch_signals();
    tx_status status = tx_run(j->engine, j->trainer, &run, summary);
    clear_progress(j);
    if (!status)
        printf("trained %" PRId64 " steps, %" PRId64 " tokens, %.1f s, %.0f tokens/s, last loss %.4f\n", summary->steps,
               summary->tokens, summary->seconds, (double)summary->tokens / summary->seconds, summary->loss);
    return status;
}

static int fail(void)
{
    return tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error());
}

static int train_and_save(job *j)
{
    const settings *set = j->set;
    int64_t bytes = tx_gpt2_param_count(&j->config) * (int64_t)sizeof(float);
    tx_status status = tx_output_prepare(set->output_dir, set->overwrite, bytes);
    if (!status)
        status = tx_model_allocate(j->model);
    if (!status)
        status =
            set->model ? tx_gpt2_load(j->model, &j->config, set->model, NULL) : tx_model_init(j->model, (uint64_t)set->seed);
    char *log_path = status ? NULL : tx_path_join(set->output_dir, "log.jsonl");
    if (!log_path)
        return fail();
    j->terminal = isatty(STDERR_FILENO);
    tx_run_summary summary;
    int result = train(j, log_path, &summary) ? fail() : 0;
    free(log_path);
    if (!result && save(j))
        return fail();
    if (!result && set->profile && !summary.stopped && print_account(j, &summary))
        return fail();
    if (!result && summary.stopped)
        return tx_complain(&program, 128 + summary.stopped, "stopped by signal %d after step %" PRId64 " of %" PRId64,
                           summary.stopped, summary.steps, j->steps);
    return result;
}

static int dry_run(const job *j)
{
    tx_memory planned;
    if (tx_model_memory(j->model, &planned))
        return fail();
    tx_print_memory(stdout, &planned, NULL);
    return 0;
}

static int run(const settings *set)
{
    job j = {.set = set};
    int result = 0;
    if (choose_model(set, &j.config) || choose_block(&j) || open_data(&j) || compile(&j))
        result = fail();
    else
        result = set->dry_run ? dry_run(&j) : train_and_save(&j);
    tx_trainer_free(j.trainer);
    tx_model_free(j.model);
    tx_engine_free(j.engine);
    tx_dataset_free(j.train);
    tx_dataset_free(j.validation);
    tx_gpt2_config_free(&j.config);
    return result;
}

static int check(const settings *set)
{
    if (set->model && set->config)
        return tx_complain(&program, TX_EXIT_USAGE, "--model_name_or_path and --config_name exclude each other");
    if (set->max_steps == 0)
        return tx_complain(&program, TX_EXIT_USAGE, "--max_steps 0: give at least 1 step, or leave it out for epochs");
    if (!set->dry_run && !set->train_file)
        return tx_complain(&program, TX_EXIT_USAGE, "--train_file is missing: which text shall it learn?");
    if (!set->dry_run && !set->output_dir)
        return tx_complain(&program, TX_EXIT_USAGE, "--output_dir is missing: where shall the model go?");
    return TX_GO_ON;
}

/* Runs alone: ends with a clear line where a launcher started several ranks. */
static int run_alone(int *argc, char ***argv, const settings *set)
{
    const tx_comm_table *table = tx_comm_default();
    tx_comm *comm = NULL;
    if (table->open(argc, argv, &comm))
        return fail();
    int32_t ranks = table->size(comm);
    int result = TX_EXIT_FAILURE;
    if (ranks == 1)
        result = run(set);
    else if (table->rank(comm) == 0)
        tx_complain(&program, result, "started as %d ranks: data-parallel training is not in this version; start one",
                    ranks);
    table->close(comm);
    return result;
}

int main(int argc, char **argv)
{
    settings set = {
        .batch = 8,
        .eval_batch = 8,
        .accumulation = 1,
        .rate = 5e-5,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .epsilon = 1e-8,
        .max_grad_norm = 1.0,
        .epochs = 3.0,
        .max_steps = -1,
        .seed = 42,
        .logging_steps = 500,
        .device = "cpu",
    };
    int status = tx_options_parse(&program, argc, argv, &set);
    if (status == TX_GO_ON && set.list_devices)
        return tx_print_devices(stdout) ? fail() : 0;
    if (status == TX_GO_ON)
        status = check(&set);
    return status == TX_GO_ON ? run_alone(&argc, &argv, &set) : status;
}
