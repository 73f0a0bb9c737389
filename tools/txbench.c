/* SPDX-License-Identifier: Apache-2.0
 * txbench: how fast a training step is, alone and beside another trainer. */
#include "api/clock.h"
#include "models/train/trainer.h"
#include "tools/bench.h"
#include "tools/config.h"
#include "tools/options.h"
#include "tools/peer.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *config, *device;
    int64_t batch, block, steps, pairs, threads;
    int32_t peer;
    bool json;
} settings;

enum { PEER_NONE, PEER_TORCH };

#define AT(field) offsetof(settings, field)
static const tx_option train_options[] = {
    {TX_OPTION_TEXT, "config", AT(config), .choices = "FILE|NAME",
     .help = "a config.json, a folder with one, or gpt2, gpt2-medium, gpt2-large, gpt2-xl; dropout is off"},
    {TX_OPTION_INTEGER, "batch", AT(batch), 1, 1 << 20, "N", "blocks a step"},
    {TX_OPTION_INTEGER, "block", AT(block), 2, 1 << 24, "N", "tokens a block"},
    {TX_OPTION_INTEGER, "steps", AT(steps), 1, 1 << 20, "N", "steps a measurement"},
    {TX_OPTION_INTEGER, "pairs", AT(pairs), 1, TX_BENCH_PAIRS, "N",
     "measurements; with a peer each is a pair, taken in turn"},
    {TX_OPTION_CHOICE, "peer", AT(peer), .choices = "none|torch",
     .help = "whom to run beside: torch is transformers' GPT-2 by PyTorch with the Python in $TX_PYTHON"},
    {TX_OPTION_TEXT, "device", AT(device), .choices = "cpu|opencl|opencl:N|opencl:NAME|gpu",
     .help = "where to compute"},
    {TX_OPTION_INTEGER, "threads", AT(threads), 0, 4096, "N", "of the cpu backend and the peer; 0: all there are"},
    {TX_OPTION_FLAG, "json", AT(json), .help = "print the figures as one JSON object"},
};
#undef AT

static const settings defaults = {.config = "gpt2", .device = "cpu", .batch = 4, .block = 256, .steps = 3, .pairs = 5};

static const tx_cli train_program = {
    .name = "txbench",
    .usage = "txbench train [options]",
    .about = "Times training steps (forward, backward, clip, AdamW, fp32) on random tokens.",
    .options = train_options,
    .count = (int32_t)(sizeof train_options / sizeof train_options[0]),
    .values = &defaults,
};

typedef struct bench {
    const settings *set;
    tx_gpt2_config config;
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    tx_peer *peer;
    uint64_t random;
    int32_t *tokens, *labels;                            /* [batch, block] */
    double ours[TX_BENCH_PAIRS], theirs[TX_BENCH_PAIRS]; /* seconds a step */
} bench;

tx_status tx_bench_print(tx_json *figures)
{
    char *text = tx_json_text(figures, TX_JSON_LINE);
    tx_json_free(figures);
    if (!text)
        return TX_MEMORY;
    puts(text);
    free(text);
    return TX_OK;
}

/* By Knuth's linear congruence. */
void tx_bench_tokens(uint64_t *random, int64_t vocab, int64_t batch, int64_t block, int32_t *tokens, int32_t *labels)
{
    const int64_t count = batch * block;
    for (int64_t i = 0; i < count; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((*random >> 33) % (uint64_t)vocab);
    }
    for (int64_t i = 0; i < count; i++)
        labels[i] = (i + 1) % block ? tokens[i + 1] : TX_IGNORE_LABEL;
}

tx_trainer_options tx_bench_training(int64_t batch, int64_t block)
{
    return (tx_trainer_options){
        .size = sizeof(tx_trainer_options),
        .batch = batch,
        .block = block,
        .accumulation = 1,
        .max_grad_norm = 1.0,
        .optimizer = {sizeof(tx_optimizer_options), TX_ADAMW, 0.9f, 0.999f, 1e-8f, .weight_decay = 0.0f},
    };
}

/* As a training run goes: the results of a step are taken after the next was given. */
static tx_status run_ours(bench *b, int64_t steps, double *seconds)
{
    double begin = tx_now();
    tx_results results;
    tx_status status = TX_OK;
    for (int64_t s = 0; s < steps && !status; s++) {
        tx_bench_tokens(&b->random, b->config.vocab_size, b->set->batch, b->set->block, b->tokens, b->labels);
        status = tx_trainer_step(b->trainer, b->tokens, b->labels, b->set->batch * (b->set->block - 1), 1, 5e-5);
        if (!status && s > 0)
            status = tx_trainer_results(b->trainer, &results);
    }
    if (!status)
        status = tx_trainer_results(b->trainer, &results);
    *seconds = tx_now() - begin;
    return status;
}

static tx_status prepare(bench *b)
{
    const settings *set = b->set;
    tx_status status = tx_config_find(set->config, &b->config);
    if (status)
        return status;
    b->config.resid_pdrop = b->config.embd_pdrop = b->config.attn_pdrop = 0.0;
    tx_engine_options engine = {.size = sizeof engine, .device = set->device, .threads = (int32_t)set->threads};
    const tx_trainer_options trainer = tx_bench_training(set->batch, set->block);
    if (set->block > b->config.n_positions)
        return tx_fail(TX_INVALID, "block %" PRId64 " is more than the model's %" PRId64 " positions", set->block,
                       b->config.n_positions);
    b->tokens = calloc((size_t)(set->batch * set->block), 2 * sizeof *b->tokens);
    if (!b->tokens)
        return tx_fail(TX_MEMORY, "no memory for a batch of %" PRId64 " x %" PRId64 " tokens", set->batch, set->block);
    b->labels = b->tokens + set->batch * set->block;
    status = tx_engine_create(&engine, &b->engine);
    if (!status)
        status = tx_model_create(b->engine, &b->model);
    if (!status)
        status = tx_trainer_create(b->model, tx_gpt2_architecture(), &b->config, &trainer, &b->trainer);
    if (!status)
        status = tx_model_init(b->model, 1);
    if (!status && set->peer == PEER_TORCH)
        status = tx_peer_start("train", &b->config, set->batch, set->block, set->threads, &b->peer);
    return status;
}

/* Warm-up of both, then measurements in turn, so that what else the machine does meets both alike. */
static tx_status measure(bench *b)
{
    double ignored;
    int64_t steps = b->set->steps;
    tx_status status = run_ours(b, 2, &ignored);
    if (!status && b->peer)
        status = tx_peer_run(b->peer, 2, &ignored);
    for (int64_t i = 0; i < b->set->pairs && !status; i++) {
        status = run_ours(b, steps, &b->ours[i]);
        b->ours[i] /= (double)steps;
        if (status || !b->peer)
            continue;
        status = tx_peer_run(b->peer, steps, &b->theirs[i]);
        b->theirs[i] /= (double)steps;
        fprintf(stderr, "pair %" PRId64 ": %.4f s a step, peer %.4f s, ratio %.3f\n", i + 1, b->ours[i], b->theirs[i],
                b->theirs[i] / b->ours[i]);
    }
    return status;
}

/* Arithmetic of a step: 6 a parameter and token, and 12 L C T of attention a token (Kaplan et al., 2020; PaLM's
 * appendix B). */
static double step_flops(const bench *b)
{
    const tx_gpt2_config *c = &b->config;
    double tokens = (double)(b->set->batch * b->set->block);
    double token =
        6.0 * (double)tx_gpt2_param_count(c) + 12.0 * (double)c->n_layer * (double)c->n_embd * (double)b->set->block;
    return tokens * token;
}

static void print_command(const settings *set)
{
    printf("txbench train --config %s --batch %" PRId64 " --block %" PRId64 " --steps %" PRId64 " --pairs %" PRId64
           " --threads %" PRId64 " --device %s%s\n",
           set->config, set->batch, set->block, set->steps, set->pairs, set->threads, set->device,
           set->peer == PEER_TORCH ? " --peer torch" : "");
}

static void print_text(const bench *b, double ratio)
{
    const settings *set = b->set;
    const tx_device_info *device = tx_engine_device(b->engine);
    double ours = tx_bench_median(b->ours, set->pairs), tokens = (double)(set->batch * set->block);
    print_command(set);
    printf("tx     %s, %s: %.4f s a step, %.1f tokens/s, %.1f GFLOP/s (median of %" PRId64 ")\n", device->id,
           device->name, ours, tokens / ours, 1e-9 * step_flops(b) / ours, set->pairs);
    if (!b->peer)
        return;
    double theirs = tx_bench_median(b->theirs, set->pairs);
    printf("peer   %s: %.4f s a step, %.1f tokens/s\nratio  %.3f (tokens/s of tx over the peer's, median of pairs)\n",
           tx_peer_name(b->peer), theirs, tokens / theirs, ratio);
}

static void add_series(tx_json *to, const char *name, const double *value, int64_t count, double tokens)
{
    tx_json *one = tx_json_object(), *series = tx_json_array();
    for (int64_t i = 0; i < count; i++)
        tx_json_append_number(series, value[i]);
    tx_json_set(one, "seconds_per_step", series);
    tx_json_set_number(one, "tokens_per_second", tokens / tx_bench_median(value, count));
    tx_json_set(to, name, one);
}

static tx_status print_json(const bench *b, double ratio)
{
    const settings *set = b->set;
    double tokens = (double)(set->batch * set->block);
    tx_json *all = tx_json_object();
    tx_json_set_string(all, "config", set->config);
    tx_json_set_string(all, "device", tx_engine_device(b->engine)->name);
    tx_json_set_string(all, "driver", tx_engine_device(b->engine)->driver);
    tx_json_set_int(all, "batch", set->batch);
    tx_json_set_int(all, "block", set->block);
    tx_json_set_int(all, "steps", set->steps);
    add_series(all, "tx", b->ours, set->pairs, tokens);
    if (b->peer) {
        add_series(all, "peer", b->theirs, set->pairs, tokens);
        tx_json_set_string(all, "peer_name", tx_peer_name(b->peer));
        tx_json_set_number(all, "ratio", ratio);
    }
    return tx_bench_print(all);
}

static tx_status bench_train(bench *b)
{
    tx_status status = prepare(b);
    if (!status)
        status = measure(b);
    if (status)
        return status;
    double ratio[TX_BENCH_PAIRS], middle = 0.0;
    for (int64_t i = 0; i < b->set->pairs; i++)
        ratio[i] = b->theirs[i] / b->ours[i];
    if (b->peer)
        middle = tx_bench_median(ratio, b->set->pairs);
    if (b->set->json)
        return print_json(b, middle);
    print_text(b, middle);
    return TX_OK;
}

static int train(int argc, char *const *argv)
{
    settings set = defaults;
    int result = tx_options_parse(&train_program, argc, argv, &set);
    if (result != TX_GO_ON)
        return result;
    bench b = {.set = &set, .random = 1};
    tx_status status = bench_train(&b);
    tx_peer_stop(b.peer);
    tx_trainer_free(b.trainer);
    free(b.tokens);
    tx_model_free(b.model);
    tx_engine_free(b.engine);
    tx_gpt2_config_free(&b.config);
    return status ? tx_complain(&train_program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
}

/* X(name, run, program, help) */
#define COMMAND_MAP(X)                                                                                                 \
    X("train", train, train_program, "training steps, alone or beside transformers by PyTorch")                        \
    X("copy", tx_bench_copy, tx_bench_copy_program, "copies on the device, between host and device, and launches")     \
    X("gemm", tx_bench_gemm, tx_bench_gemm_program, "the matrix products of a training step, or one")                  \
    X("attention", tx_bench_attention, tx_bench_attention_program, "attention forward and backward")                   \
    X("ops", tx_bench_ops, tx_bench_ops_program, "every op at sizes of GPT-2, beside the device's peaks")              \
    X("generate", tx_bench_generate, tx_bench_generate_program, "generation, alone or beside transformers by PyTorch") \
    X("ddp", tx_bench_ddp, tx_bench_ddp_program, "training on several devices: one process for all, or one for each")  \
    X("comm", tx_bench_comm, tx_bench_comm_program, "sums over the ranks of mpiexec, beside MPI's own and memcpy")     \
    X("scale", tx_bench_scale, tx_bench_scale_program, "predicted steps of data-parallel training on many ranks")

static const tx_cli_command commands[] = {
#define X(name, run, program, help) {name, help, &program},
    COMMAND_MAP(X)
#undef X
};

static int (*const runs[])(int argc, char *const *argv) = {
#define X(name, run, program, help) run,
    COMMAND_MAP(X)
#undef X
};

int main(int argc, char **argv)
{
    static const tx_cli program = {
        .name = "txbench",
        .usage = "txbench train|copy|gemm|attention|ops|generate|ddp|comm|scale [options]",
        .about = "Measures speed. txbench train --help, ops --help and so on list the options.",
        .commands = commands,
        .command_count = (int32_t)(sizeof commands / sizeof commands[0]),
    };
    int32_t command;
    int result = tx_options_command(&program, argc, argv, NULL, &command);
    if (result != TX_GO_ON)
        return result;
    signal(SIGPIPE, SIG_IGN); /* a peer that ended is an error message, not the end of this program */
    return runs[command](argc - 1, argv + 1);
}
