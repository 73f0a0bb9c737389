/* SPDX-License-Identifier: Apache-2.0
 * txbench train: how fast a training step is, alone, beside another trainer, or beside itself with CLBlast's products.
 */
#include "api/base/clock.h"
#include "models/train/trainer.h"
#include "tools/bench/bench.h"
#include "tools/bench/peer.h"
#include "tools/cli/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *config, *device;
    int64_t batch, block, steps, pairs, threads;
    int32_t peer;
    bool json;
} settings;

enum { PEER_NONE, PEER_TORCH, PEER_CLBLAST };

#define AT(field) offsetof(settings, field)
static const tx_option train_options[] = {
    {TX_OPTION_TEXT, "config", AT(config), .choices = "FILE|NAME",
     .help = "a config.json, a folder with one, or gpt2, gpt2-medium, gpt2-large, gpt2-xl; dropout is off"},
    {TX_OPTION_INTEGER, "batch", AT(batch), 1, 1 << 20, "N", "blocks a step"},
    {TX_OPTION_INTEGER, "block", AT(block), 2, 1 << 24, "N", "tokens a block"},
    {TX_OPTION_INTEGER, "steps", AT(steps), 1, 1 << 20, "N", "steps a measurement"},
    {TX_OPTION_INTEGER, "pairs", AT(pairs), 1, TX_BENCH_PAIRS, "N",
     "measurements; with a peer each is a pair, taken in turn"},
    {TX_OPTION_CHOICE, "peer", AT(peer), .choices = "none|torch|clblast",
     .help = "whom to run beside: torch is transformers' GPT-2 by PyTorch with the Python in $TX_PYTHON; clblast is TX "
             "on the same OpenCL device with TX_GEMM=clblast"},
    {TX_OPTION_TEXT, "device", AT(device), .choices = "cpu|opencl|opencl:N|opencl:NAME|gpu",
     .help = "where to compute"},
    {TX_OPTION_INTEGER, "threads", AT(threads), 0, 4096, "N", "of the cpu backend and the peer; 0: all there are"},
    {TX_OPTION_FLAG, "json", AT(json), .help = "print the figures as one JSON object"},
};
#undef AT

static const settings defaults = {.config = "gpt2", .device = "cpu", .batch = 4, .block = 256, .steps = 3, .pairs = 5};

const tx_cli tx_bench_train_program = {
    .name = "txbench",
    .usage = "txbench train [options]",
    .about = "Times training steps (forward, backward, clip, AdamW, fp32) on random tokens.",
    .options = train_options,
    .count = (int32_t)(sizeof train_options / sizeof train_options[0]),
    .values = &defaults,
};

/* A trainer of this process. */
typedef struct side {
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
} side;

typedef struct bench {
    const settings *set;
    tx_config *config;
    side tx, clblast;
    tx_peer *peer;
    uint64_t random;
    int32_t *tokens, *labels;                            /* [batch, block] */
    double ours[TX_BENCH_PAIRS], theirs[TX_BENCH_PAIRS]; /* seconds a step */
} bench;

/* As a training run goes: the results of a step are taken after the next was given. */
static tx_status run_side(bench *b, const side *s, int64_t steps, double *seconds)
{
    const tx_batch batch = {b->set->batch, {b->tokens, b->labels}};
    double begin = tx_now();
    tx_results results;
    tx_status status = TX_OK;
    for (int64_t i = 0; i < steps && !status; i++) {
        tx_bench_tokens(&b->random, b->config->vocab_size, b->set->batch, b->set->block, b->tokens, b->labels);
        status = tx_trainer_step(s->trainer, &batch, b->set->batch * (b->set->block - 1), 5e-5);
        if (!status && i > 0)
            status = tx_trainer_results(s->trainer, &results);
    }
    if (!status)
        status = tx_trainer_results(s->trainer, &results);
    *seconds = tx_now() - begin;
    return status;
}

static tx_status open_side(const bench *b, side *s)
{
    const settings *set = b->set;
    const tx_engine_options engine = {.size = sizeof engine, .device = set->device, .threads = (int32_t)set->threads};
    const tx_trainer_options trainer = tx_bench_training(set->batch, set->block);
    tx_status status = tx_engine_create(&engine, &s->engine);
    if (!status)
        status = tx_model_create(s->engine, &s->model);
    if (!status)
        status = tx_trainer_create(s->model, b->config, &trainer, &s->trainer);
    return status ? status : tx_model_init(s->model, 1);
}

static void close_side(side *s)
{
    tx_trainer_free(s->trainer);
    tx_model_free(s->model);
    tx_engine_free(s->engine);
}

/* The backend reads the variable when it makes its plans. */
static tx_status open_clblast(bench *b)
{
    if (strncmp(tx_engine_device(b->tx.engine)->id, "opencl", 6) != 0)
        return tx_fail(TX_INVALID, "--peer clblast needs an OpenCL device: --device opencl");
    char *wish = tx_bench_swap_gemm("clblast");
    tx_status status = open_side(b, &b->clblast);
    free(tx_bench_swap_gemm(wish));
    free(wish);
    return status;
}

static tx_status prepare(bench *b)
{
    const settings *set = b->set;
    tx_status status = tx_bench_config(set->config, set->block, &b->config);
    if (status)
        return status;
    b->tokens = calloc((size_t)(set->batch * set->block), 2 * sizeof *b->tokens);
    if (!b->tokens)
        return tx_fail(TX_MEMORY, "no memory for a batch of %" PRId64 " x %" PRId64 " tokens", set->batch, set->block);
    b->labels = b->tokens + set->batch * set->block;
    status = open_side(b, &b->tx);
    if (!status && set->peer == PEER_CLBLAST)
        status = open_clblast(b);
    if (!status && set->peer == PEER_TORCH)
        status = tx_peer_start("train", b->config, set->batch, set->block, set->threads, &b->peer);
    return status;
}

static tx_status run_peer(bench *b, int64_t steps, double *seconds)
{
    return b->peer ? tx_peer_run(b->peer, steps, seconds) : run_side(b, &b->clblast, steps, seconds);
}

static const char *peer_name(const bench *b)
{
    return b->peer ? tx_peer_name(b->peer) : "tx with CLBlast's products";
}

/* Warm-up of both, then measurements in turn, so that what else the machine does meets both alike. */
static tx_status measure(bench *b)
{
    double ignored;
    int64_t steps = b->set->steps;
    tx_status status = run_side(b, &b->tx, 2, &ignored);
    if (!status && b->set->peer)
        status = run_peer(b, 2, &ignored);
    for (int64_t i = 0; i < b->set->pairs && !status; i++) {
        status = run_side(b, &b->tx, steps, &b->ours[i]);
        b->ours[i] /= (double)steps;
        if (status || !b->set->peer)
            continue;
        status = run_peer(b, steps, &b->theirs[i]);
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
    const tx_config *c = b->config;
    double tokens = (double)(b->set->batch * b->set->block);
    double token =
        6.0 * (double)tx_arch_param_count(c) + 12.0 * (double)c->layers * (double)c->width * (double)b->set->block;
    return tokens * token;
}

static void print_command(const settings *set)
{
    static const char *const peers[] = {"", " --peer torch", " --peer clblast"};
    printf("txbench train --config %s --batch %" PRId64 " --block %" PRId64 " --steps %" PRId64 " --pairs %" PRId64
           " --threads %" PRId64 " --device %s%s\n",
           set->config, set->batch, set->block, set->steps, set->pairs, set->threads, set->device, peers[set->peer]);
}

static void print_text(const bench *b, double ratio)
{
    const settings *set = b->set;
    const tx_device_info *device = tx_engine_device(b->tx.engine);
    double ours = tx_bench_median(b->ours, set->pairs), tokens = (double)(set->batch * set->block);
    print_command(set);
    printf("tx     %s, %s: %.4f s a step, %.1f tokens/s, %.1f GFLOP/s (median of %" PRId64 ")\n", device->id,
           device->name, ours, tokens / ours, 1e-9 * step_flops(b) / ours, set->pairs);
    if (!set->peer)
        return;
    double theirs = tx_bench_median(b->theirs, set->pairs);
    printf("peer   %s: %.4f s a step, %.1f tokens/s\nratio  %.3f (tokens/s of tx over the peer's, median of pairs)\n",
           peer_name(b), theirs, tokens / theirs, ratio);
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
    tx_json_set_string(all, "device", tx_engine_device(b->tx.engine)->name);
    tx_json_set_string(all, "driver", tx_engine_device(b->tx.engine)->driver);
    tx_json_set_int(all, "batch", set->batch);
    tx_json_set_int(all, "block", set->block);
    tx_json_set_int(all, "steps", set->steps);
    add_series(all, "tx", b->ours, set->pairs, tokens);
    if (set->peer) {
        add_series(all, "peer", b->theirs, set->pairs, tokens);
        tx_json_set_string(all, "peer_name", peer_name(b));
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
    if (b->set->peer)
        middle = tx_bench_median(ratio, b->set->pairs);
    if (b->set->json)
        return print_json(b, middle);
    print_text(b, middle);
    return TX_OK;
}

int tx_bench_train(int argc, char *const *argv)
{
    settings set = defaults;
    int result = tx_options_parse(&tx_bench_train_program, argc, argv, &set);
    if (result != TX_GO_ON)
        return result;
    bench b = {.set = &set, .random = 1};
    tx_status status = bench_train(&b);
    tx_peer_stop(b.peer);
    close_side(&b.clblast);
    close_side(&b.tx);
    free(b.tokens);
    tx_config_free(b.config);
    return status ? tx_complain(&tx_bench_train_program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
}
