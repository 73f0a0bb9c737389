/* SPDX-License-Identifier: Apache-2.0
 * txserve: serves a model over HTTP with OpenAI's interface. */
#include "tools/serve/txserve.h"

#include "tools/cli/waiting.h"

#include <inttypes.h>
#include <libgen.h>
#include <malloc.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The largest number of adapters. */
#define MOST_LORAS 1024

/* Seconds between two returns of free memory to the system while requests are open. */
#define TRIM_SECONDS 10

#define AT(field) offsetof(serve_settings, field)
static const tx_option options[] = {
#define LM_OPTION(KIND, name, member, least, most, choices, help) \
    {TX_OPTION_##KIND, #name, AT(lm.member), least, most, choices, help},
#define TEXTS_OPTION(...)
#include "tx_lm.def"
    {TX_OPTION_TEXT, "adapter", AT(lm.adapter), .choices = "DIR",
     .help = "merge a LoRA adapter of peft or txtrain --lora_r into the weights"},
    {TX_OPTION_CHOICE, "task", AT(task), .choices = "generate|embed|classify",
     .help = "kind of the model: generate serves completions and chats; embed and classify serve encoders at "
             "/v1/embeddings and /v1/classify"},
    {TX_OPTION_TEXT, "chat_template", AT(chat_template), .choices = "NAME|FILE",
     .help =
         "chat template: chatml, qwen, qwen2, llama2, llama3, mistral, gemma, zephyr, alpaca, a .jinja file, or its "
         "text; default: the model's own"},
    {TX_OPTION_CHOICE, "reasoning_format", AT(reasoning_format), .choices = "auto|none",
     .help = "auto gives thoughts, as the chat template marks them, as reasoning_content; none leaves them in content"},
    {TX_OPTION_TEXT, "served_model_name", AT(served_model_name), .choices = "NAME",
     .help = "name of the model in requests; default: the last part of --model"},
    {TX_OPTION_HEADING, .help = "adapters"},
    {TX_OPTION_WORDS, "lora", AT(lora), 0, MOST_LORAS, "NAME=DIR",
     "serve a LoRA adapter of the model, too: requests name it as their model. Give any number of them"},
    {TX_OPTION_INTEGER, "max_loras", AT(max_loras), 0, MOST_LORAS, "N",
     "adapters that can be loaded at a time; 0 means as many as --lora gives"},
    {TX_OPTION_INTEGER, "max_lora_rank", AT(max_lora_rank), 0, 4096, "N",
     "largest rank of an adapter; 0 means the largest of --lora, or 16 without any"},
    {TX_OPTION_TEXT, "lora_target_modules", AT(lora_modules), .choices = "NAME,...|all-linear",
     .help = "modules that adapters may have besides those of --lora; default without --lora: all-linear"},
    {TX_OPTION_FLAG, "allow_runtime_lora_updating", AT(lora_updates),
     .help = "let clients load adapters from folders of this host by /v1/load_lora_adapter, and unload them"},
    {TX_OPTION_HEADING, .help = "server"},
    {TX_OPTION_TEXT, "host", AT(host), .choices = "ADDRESS",
     .help = "address to listen on; 0.0.0.0 accepts other hosts, then use --api_key_file and a proxy with TLS"},
    {TX_OPTION_INTEGER, "port", AT(port), 1, 65535, "N", "port to listen on"},
    {TX_OPTION_TEXT, "api_key_file", AT(api_key_file), .choices = "FILE",
     .help = "accept only requests with one of these API keys, one a line; max_parallel_requests=N and tpm_limit=N "
             "after a key limit its requests at once and its tokens a minute"},
    {TX_OPTION_TEXT, "allowed_hosts", AT(allowed_hosts), .choices = "NAME,...",
     .help = "accept requests to these host names, too. The names of --host, addresses, and names without a dot are "
             "always accepted; * accepts all"},
    {TX_OPTION_TEXT, "cors", AT(cors), .choices = "ORIGIN,...",
     .help = "let web pages of these origins, such as https://example.com, use the server; * means all pages that its "
             "users open"},
    {TX_OPTION_HEADING, .help = "limits"},
    {TX_OPTION_INTEGER, "slots", AT(slots), 1, 1024, "N",
     "texts that are generated at once; each has a key-value cache of --max_length tokens. Up to 8, a single text is "
     "as fast as without other slots on the cpu"},
    {TX_OPTION_INTEGER, "max_length", AT(max_length), 0, 1 << 24, "N",
     "tokens of a prompt and its text; 0 means the model's positions"},
    {TX_OPTION_INTEGER, "max_queue", AT(max_queue), 1, 1 << 20, "N",
     "texts that wait for a slot; further requests are refused with status 429"},
    {TX_OPTION_INTEGER, "max_body", AT(max_body), 1, 1024, "MiB", "largest body of a request"},
    {TX_OPTION_INTEGER, "max_connections", AT(max_connections), 1, 1 << 16, "N",
     "connections at once; an address may have half of them"},
    {TX_OPTION_INTEGER, "timeout", AT(timeout), 0, 1 << 24, "SECONDS",
     "longest time of a request, its wait in the queue included; 0 means no limit"},
};
#undef AT

static const tx_option_spelling spellings[] = {
    {"-m", "model"}, {"--max_model_len", "max_length"}, {"--cors_allow_origins", "cors"}, {"--lora_modules", "lora"}};

static const serve_settings defaults = {
    .lm = {.size = sizeof(tx_lm_options), .warn = tx_warn, .progress = tx_alive_progress},
    .host = "127.0.0.1",
    .port = 8080,
    .slots = 8,
    .max_queue = 256,
    .max_body = 4,
    .max_connections = 512,
    .timeout = 600};

const tx_cli serve_program = {
    .name = "txserve",
    .usage = "txserve --model DIR [options]",
    .about = "Serves a model over HTTP with OpenAI's interface, and a page for chatting.\n"
             "SIGTERM finishes the requests that it has accepted, then ends it.\n"
             "Several ranks, started by a launcher, divide the model; rank 0 serves.",
    .example = "  txserve --model my-model --port 8080\n"
               "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Once\"}'",
    .most_used = "model task device threads dtype host port api_key_file slots max_length",
    .table = {TX_CLI_OPTIONS(options), TX_CLI_SPELLINGS(spellings)},
    .values = &defaults,
};

/* ---- The model ------------------------------------------------------------------------------------------ */

static tx_status name_model(serve_server *s)
{
    char *path = strdup(s->set->lm.model ? s->set->lm.model : s->set->lm.adapter);
    const char *name = s->set->served_model_name ? s->set->served_model_name : path ? basename(path) : NULL;
    s->name = name ? strdup(name) : NULL;
    free(path);
    return s->name ? TX_OK : tx_fail(TX_MEMORY, "out of memory");
}

/* Opens an encoder and reads its weights, by running it once. */
static tx_status open_encoder(serve_server *s, const tx_lm_options *lm)
{
    tx_text_input text = {.text = "a"};
    if (s->set->task == SERVE_EMBEDDING)
        TX_TRY(tx_embedder_open(lm, &s->embedder));
    else
        TX_TRY(tx_classifier_open(lm, &s->classifier));
    if (s->classifier && tx_classifier_kind_of(s->classifier) == TX_CLASSIFIER_WORDS)
        return tx_fail(TX_UNSUPPORTED, "--task classify: the model labels words; txgen --classify runs it");
    const int64_t width = s->embedder ? tx_embedder_width(s->embedder) : tx_classifier_labels(s->classifier);
    float *results = malloc((size_t)width * sizeof *results);
    tx_status status = results ? TX_OK : tx_fail(TX_MEMORY, "out of memory");
    TX_THEN(status, s->embedder ? tx_embed(s->embedder, &text, 1, NULL, results)
                                : tx_classify(s->classifier, &text, 1, results));
    free(results);
    return status;
}

static tx_status open_model(serve_server *s)
{
    const serve_settings *set = s->set;
    const tx_reporter report = {.warn = tx_warn};
    tx_lm_options lm = set->lm;
    lm.context = s->alive;
    TX_TRY(name_model(s));
    if (set->task != SERVE_GENERATE)
        return open_encoder(s, &lm);
    TX_TRY(tx_lm_open(&lm, &s->lm));
    TX_TRY(serve_read_adapters(s));
    TX_TRY(tx_lm_tokenizer(s->lm, &s->tokenizer));
    TX_TRY(tx_vocabulary_create(s->tokenizer, &s->vocabulary));
    const tx_status status = tx_chat_create(set->chat_template, s->tokenizer, &report, &s->chat);
    if (status && set->chat_template)
        return status;
    if (status)
        tx_print_line(stderr, "txserve: warning: no chats, only completions: %s", tx_error());
    TX_TRY(tx_batch_create(s->lm, set->slots, set->max_length, &s->batch));
    s->context = tx_batch_context(s->batch);
    return serve_load_adapters(s);
}

/* ---- The server ----------------------------------------------------------------------------------------- */

static sem_t stopped;
static volatile sig_atomic_t serves; /* the next signal ends the wait of serve() */

static void end_server(void)
{
    serves = false;
    sem_post(&stopped);
}

/* While the model is loaded, and the second time, a signal ends the process at once. */
static void on_signal(int number)
{
    if (!serves)
        _exit(128 + number);
    end_server();
}

static void catch_signals(void)
{
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

/* Waits until all connections have their answers, at most ten seconds. */
static void wait_for_connections(serve_server *s)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&s->lock);
        const int64_t open = s->open;
        pthread_mutex_unlock(&s->lock);
        if (!open)
            return;
        nanosleep(&pause, NULL);
    }
}

/* A large request leaves free memory in its thread's heap, which glibc keeps. Returns it to the system once no request
 * is open, and every TRIM_SECONDS while there always is one. Called once a second. `trimmed` is the number of requests
 * when none was open the last time, `wait` that of seconds until the next time. */
static void trim_heaps(serve_server *s, uint64_t *trimmed, int *wait)
{
    pthread_mutex_lock(&s->lock);
    *wait -= *wait > 0;
    const bool due = s->serial != *trimmed && !s->dead && (!s->open || !*wait);
    *trimmed = due && !s->open ? s->serial : *trimmed; /* an open request leaves memory later */
    *wait = due ? TRIM_SECONDS : *wait;
    pthread_mutex_unlock(&s->lock);
#ifdef __GLIBC__
    if (due)
        malloc_trim(0);
#endif
}

/* Prints the device and the memory of this rank. */
static void print_usage(const serve_server *s)
{
    tx_lm_usage u;
    if (!s->lm || tx_lm_measure(s->lm, &u))
        return;
    if (*tx_lm_device(s->lm))
        tx_print_line(stderr, "txserve: device %s", tx_lm_device(s->lm));
    tx_print_line(stderr, "txserve: weights %.1f MB; memory %.1f MB, of it caches %.1f MB", 1e-6 * (double)u.weights,
                  1e-6 * (double)u.memory, 1e-6 * (double)u.caches);
}

/* Waits for a signal, then lets the engine finish the accepted requests. */
static void *watch(void *server)
{
    serve_server *s = server;
    uint64_t trimmed = 0;
    int wait = 0;
    for (struct timespec second; serves; serve_sweep(s)) {
        trim_heaps(s, &trimmed, &wait);
        clock_gettime(CLOCK_REALTIME, &second);
        second.tv_sec++;
        (void)sem_timedwait(&stopped, &second); /* the signal ends it */
    }
    pthread_mutex_lock(&s->lock);
    fprintf(stderr, "txserve: finishing %" PRId64 " texts\n", s->preparing + s->queued + s->running);
    s->drains = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Serves until a signal arrives. The thread that has loaded the model computes, because OpenMP has a team for each
 * thread that began one. If all teams have more threads than there are cores, threads that wait fall asleep at once,
 * which takes a third of a token's time. */
static tx_status serve(serve_server *s)
{
    pthread_t watcher;
    tx_status status = serve_start_workers(s);
    TX_THEN(status, serve_start(s));
    if (!status) {
        serves = true;
        catch_signals(); /* again, because OpenCL drivers with LLVM replace the handlers */
        print_usage(s);
        printf("txserve: %s is served at http://%s:%" PRId64 "\n", s->name, s->set->host, s->set->port);
        fflush(stdout);
        status = pthread_create(&watcher, NULL, watch, s) ? tx_fail(TX_MEMORY, "cannot start a thread") : TX_OK;
    }
    if (!status) {
        serve_engine(s);
        pthread_join(watcher, NULL);
    }
    s->drains = true; /* also without a watcher */
    wait_for_connections(s);
    serve_stop(s);
    serve_stop_workers(s);
    if (*s->failure && !status)
        status = tx_fail(TX_IO, "%s", s->failure);
    return status || !s->batch ? status : tx_batch_dismiss(s->batch);
}

/* Computes the passes of rank 0 until it ends. Signals are for rank 0, which then finishes its requests. */
static tx_status follow(const serve_settings *set)
{
    serve_server s = {.set = set};
    tx_lm_options own = set->lm;
    own.progress = NULL;
    tx_status status = name_model(&s);
    TX_THEN(status, tx_lm_open(&own, &s.lm));
    TX_THEN(status, serve_read_adapters(&s));
    TX_THEN(status, tx_batch_create(s.lm, set->slots, set->max_length, &s.batch));
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    TX_THEN(status, tx_batch_follow(s.batch));
    serve_free_adapters(&s);
    tx_batch_free(s.batch);
    tx_lm_free(s.lm);
    free(s.name);
    return status;
}

static tx_status run(const serve_settings *set)
{
    serve_server s = {.set = set, .created = (int64_t)time(NULL), .end = end_server};
    pthread_mutex_init(&s.lock, NULL);
    pthread_mutex_init(&s.client_lock, NULL);
    pthread_cond_init(&s.work, NULL);
    pthread_cond_init(&s.arrived, NULL);
    pthread_cond_init(&s.loaded, NULL);
    sem_init(&stopped, 0, 0);
    signal(SIGPIPE, SIG_IGN);
    catch_signals();
    s.alive = tx_alive_start(&serve_program, stderr, "loading the model");
    tx_status status = set->api_key_file ? serve_read_keys(&s, set->api_key_file) : TX_OK;
    TX_THEN(status, open_model(&s));
    tx_alive_doing(s.alive, "%s", "");
    TX_THEN(status, serve(&s));
    serve_free_adapters(&s);
    tx_batch_free(s.batch);
    tx_embedder_free(s.embedder);
    tx_classifier_free(s.classifier);
    tx_chat_free(s.chat);
    tx_vocabulary_free(s.vocabulary);
    tx_lm_free(s.lm);
    tx_alive_stop(s.alive);
    serve_free_keys(&s);
    free(s.name);
    pthread_cond_destroy(&s.work);
    pthread_cond_destroy(&s.arrived);
    pthread_cond_destroy(&s.loaded);
    pthread_mutex_destroy(&s.lock);
    pthread_mutex_destroy(&s.client_lock);
    return status;
}

/* Joins the ranks, and serves or follows rank 0. Returns the exit status. */
static int start(serve_settings *set)
{
    tx_status status = tx_ranks_join(&set->lm.ranks);
    const bool follows = set->lm.ranks && tx_comm_rank_of(set->lm.ranks) > 0;
    TX_THEN(status, follows ? follow(set) : run(set));
    return tx_ranks_leave(&serve_program, status, set->lm.ranks);
}

int main(int argc, char **argv)
{
    serve_settings set = defaults;
    tx_engine_workers(argc, argv);
    tx_ranks_hush();
    int result = tx_options_parse(&serve_program, argc, argv, &set);
    const bool loras = set.lora.count || set.lora_updates, ranks = tx_ranks_started() > 1;
    const tx_misuse misuses[] = {
        {!set.lm.model && !set.lm.adapter, "--model is missing: give a model folder"},
        {set.lm.cache_type && set.task != SERVE_GENERATE, "--cache_type is only for --task generate"},
        {set.lm.device && set.lm.device_map, "--device and --device_map exclude each other"},
        {loras && set.task != SERVE_GENERATE, "--lora is only for --task generate"},
        {loras && set.lm.adapter,
         "--adapter merges one adapter into the model, so that --lora cannot share it: give one"},
        {set.lora_updates && !set.lora.count && !set.max_loras,
         "--allow_runtime_lora_updating needs --max_loras N: the number of adapters at a time"},
        {!loras && (set.max_loras || set.max_lora_rank || set.lora_modules),
         "--max_loras, --max_lora_rank and --lora_target_modules need --lora or --allow_runtime_lora_updating"},
        {ranks && set.task != SERVE_GENERATE,
         "ranks divide a model only for --task generate: start --task embed and classify without the launcher"},
        {ranks && (set.lm.device_map || set.lm.load_in_4bit),
         "ranks divide the model: leave out --device_map and --load_in_4bit, or start it without the launcher"},
        {set.lm.double_quant && !set.lm.load_in_4bit, "--bnb_4bit_use_double_quant needs --load_in_4bit"},
    };
    if (result == TX_GO_ON)
        result = tx_complain_misuse(&serve_program, misuses, sizeof misuses / sizeof misuses[0]);
    if (result == TX_GO_ON) {
        tx_ranks_speak();
        tx_wait_passively(argv, (int32_t)set.lm.threads);
        tx_ranks_hush();
        result = start(&set);
    }
    return tx_end(&serve_program, result);
}
