/* SPDX-License-Identifier: Apache-2.0
 * txbench train: how fast a training step is, alone, beside another trainer, or beside itself with CLBlast's products.
 */
#include "tools/bench/bench.h"
#include "tools/bench/peer.h"

#include <stdlib.h>
#include <string.h>

typedef tx_pairs_settings settings;

static const tx_option options[] = {
    TX_BENCH_MODEL,
    TX_BENCH_BATCH,
    {TX_OPTION_INTEGER, "steps", AT(count), 1, 1 << 20, "N", "steps a measurement"},
    TX_BENCH_MEASUREMENTS,
    {TX_OPTION_CHOICE, "peer", AT(peer), .choices = "none|torch|clblast",
     .help = "whom to run beside: torch is transformers' GPT-2 by PyTorch with the Python in $TX_PYTHON; clblast is TX "
             "on the same OpenCL device with TX_GEMM=clblast"},
    TX_BENCH_DEVICE(AT),
    TX_BENCH_JSON(AT),
};

static const settings defaults = {.config = "gpt2", .device = "cpu", .batch = 4, .block = 256, .count = 3, .pairs = 5};

typedef struct bench {
    tx_pairs pairs;
    tx_bench_training clblast;
} bench;

static tx_status open_side(const tx_pairs *p, tx_bench_training *side)
{
    const settings *set = p->set;
    const tx_engine_options engine = {.size = sizeof engine, .device = set->device, .threads = (int32_t)set->threads};
    const tx_trainer_options trainer = tx_bench_trainer_options(set->batch, set->block);
    TX_TRY(tx_bench_training_open(&engine, p->config, &trainer, side));
    return tx_model_init(side->model, 1);
}

/* The backend reads the variable when it makes its plans. */
static tx_status open_clblast(bench *b)
{
    if (strncmp(tx_engine_device(b->pairs.tx.engine)->id, "opencl", 6) != 0)
        return tx_fail(TX_INVALID, "--peer clblast needs an OpenCL device: --device opencl");
    const char *before = getenv("TX_GEMM");
    char *kept = before ? strdup(before) : NULL;
    setenv("TX_GEMM", "clblast", 1);
    tx_status status = open_side(&b->pairs, &b->clblast);
    if (kept)
        setenv("TX_GEMM", kept, 1);
    else
        unsetenv("TX_GEMM");
    free(kept);
    b->pairs.peer_name = "tx with CLBlast's products";
    return status;
}

static tx_status open_all(tx_pairs *p)
{
    TX_TRY(open_side(p, &p->tx));
    return p->set->peer == TX_PEER_CLBLAST ? open_clblast((bench *)p) : TX_OK;
}

/* Seconds a step. */
static tx_status run_steps(tx_pairs *p, bool peer, double *seconds)
{
    const int64_t steps = p->set->count;
    TX_TRY(peer && p->peer ? tx_peer_run(p->peer, steps, seconds)
                           : tx_bench_training_run(peer ? &((bench *)p)->clblast : &p->tx, steps, seconds));
    *seconds /= (double)steps;
    return TX_OK;
}

static double step_tokens(const settings *set)
{
    return (double)(set->batch * set->block);
}

/* Arithmetic of a step: 6 a parameter and token, and 12 L C T of attention a token (Kaplan et al., 2020; PaLM's
 * appendix B). */
static void add_flops(const tx_pairs *p, tx_json *figures)
{
    const tx_config *c = p->config;
    const double token =
        6.0 * (double)tx_arch_param_count(c) + 12.0 * (double)c->layers * (double)c->width * (double)p->set->block;
    tx_json_set_number(figures, "gflops", 1e-9 * step_tokens(p->set) * token / tx_bench_median(p->ours, p->set->pairs));
}

static tx_status run(const void *set, char *const *argv)
{
    static const tx_pairs_task task = {"train", "seconds_per_step", open_all, run_steps, step_tokens, add_flops};
    bench b = {0};
    (void)argv;
    tx_status status = tx_pairs_run(&task, &tx_bench_train.program, set, &b.pairs);
    tx_bench_training_close(&b.clblast);
    tx_pairs_close(&b.pairs);
    return status;
}

TX_BENCH_COMMAND(train, "", "Times training steps (forward, backward, clip, AdamW, fp32) on random tokens.");
