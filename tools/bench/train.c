/* SPDX-License-Identifier: Apache-2.0
 * txbench train: how fast a training step is, alone, beside another trainer, or beside itself with CLBlast's products.
 */
#include "api/base/check.h"
#include "tools/bench/bench.h"
#include "tools/bench/peer.h"
#include "tools/bench/training.h"

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
static const tx_option options[] = {
    TX_BENCH_MODEL(AT),
    TX_BENCH_BATCH(AT),
    {TX_OPTION_INTEGER, "steps", AT(steps), 1, 1 << 20, "N", "steps a measurement"},
    TX_BENCH_MEASUREMENTS(AT),
    {TX_OPTION_CHOICE, "peer", AT(peer), .choices = "none|torch|clblast",
     .help = "whom to run beside: torch is transformers' GPT-2 by PyTorch with the Python in $TX_PYTHON; clblast is TX "
             "on the same OpenCL device with TX_GEMM=clblast"},
    TX_BENCH_DEVICE(AT),
    TX_BENCH_JSON(AT),
};
#undef AT

static const settings defaults = {.config = "gpt2", .device = "cpu", .batch = 4, .block = 256, .steps = 3, .pairs = 5};

typedef struct bench {
    const settings *set;
    tx_config *config;
    tx_bench_training tx, clblast;
    tx_peer *peer;
    tx_pairs pairs;
} bench;

static tx_status open_side(const bench *b, tx_bench_training *side)
{
    const settings *set = b->set;
    const tx_engine_options engine = {.size = sizeof engine, .device = set->device, .threads = (int32_t)set->threads};
    const tx_trainer_options trainer = tx_bench_trainer_options(set->batch, set->block);
    TX_CHECK(tx_bench_training_open(&engine, b->config, &trainer, side));
    return tx_model_init(side->model, 1);
}

/* The backend reads the variable when it makes its plans. */
static tx_status open_clblast(bench *b)
{
    if (strncmp(tx_engine_device(b->tx.engine)->id, "opencl", 6) != 0)
        return tx_fail(TX_INVALID, "--peer clblast needs an OpenCL device: --device opencl");
    const char *before = getenv("TX_GEMM");
    char *kept = before ? strdup(before) : NULL;
    setenv("TX_GEMM", "clblast", 1);
    tx_status status = open_side(b, &b->clblast);
    if (kept)
        setenv("TX_GEMM", kept, 1);
    else
        unsetenv("TX_GEMM");
    free(kept);
    b->pairs.peer = "tx with CLBlast's products";
    return status;
}

static tx_status prepare(bench *b)
{
    const settings *set = b->set;
    TX_CHECK(tx_bench_config(set->config, set->block, &b->config));
    TX_CHECK(open_side(b, &b->tx));
    if (set->peer == PEER_CLBLAST)
        TX_CHECK(open_clblast(b));
    if (set->peer == PEER_TORCH)
        TX_CHECK(tx_peer_start("train", b->config, set->batch, set->block, set->threads, &b->peer));
    if (b->peer)
        b->pairs.peer = tx_peer_name(b->peer);
    return TX_OK;
}

/* Seconds a step. */
static tx_status run_steps(void *context, bool peer, double *seconds)
{
    bench *b = context;
    const int64_t steps = b->set->steps;
    TX_CHECK(peer && b->peer ? tx_peer_run(b->peer, steps, seconds)
                             : tx_bench_training_run(peer ? &b->clblast : &b->tx, steps, seconds));
    *seconds /= (double)steps;
    return TX_OK;
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

static tx_status measure(bench *b)
{
    const settings *set = b->set;
    TX_CHECK(prepare(b));
    TX_CHECK(tx_pairs_measure(&b->pairs, run_steps, b));
    tx_json *all = tx_bench_figures(&tx_bench_train.program, set);
    tx_json_set_number(all, "gflops", 1e-9 * step_flops(b) / tx_bench_median(b->pairs.ours, set->pairs));
    tx_pairs_figures(&b->pairs, tx_engine_device(b->tx.engine), "seconds_per_step", (double)(set->batch * set->block),
                     all);
    return tx_bench_print(all, set->json);
}

static tx_status run(const void *set, char *const *argv)
{
    bench b = {.set = set, .pairs.count = ((const settings *)set)->pairs};
    (void)argv;
    tx_status status = measure(&b);
    tx_peer_stop(b.peer);
    tx_bench_training_close(&b.clblast);
    tx_bench_training_close(&b.tx);
    tx_config_free(b.config);
    return status;
}

TX_BENCH_COMMAND(train, "", "Times training steps (forward, backward, clip, AdamW, fp32) on random tokens.");
