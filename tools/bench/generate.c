/* SPDX-License-Identifier: Apache-2.0
 * txbench generate: tokens per second of greedy generation, optionally compared with transformers or llama.cpp. */
#include "models/generate/generate.h"
#include "api/base/clock.h"
#include "tools/bench/bench.h"
#include "tools/bench/peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef tx_pairs_settings settings;

static const tx_option options[] = {
    TX_BENCH_MODEL(AT),
    {TX_OPTION_TEXT, "model", AT(model), .choices = "DIR|FILE|NAME",
     .help = "model with its weights, instead of random weights for --config; llama.cpp needs a GGUF file"},
    {TX_OPTION_TEXT, "dtype", AT(dtype), .choices = "float32|bfloat16|float16|auto",
     .help = "type of the weights of --model, as in txgen; llama.cpp uses those of the file"},
    {TX_OPTION_INTEGER, "batch", AT(batch), 1, 4096, "N", "prompts in a batch"},
    {TX_OPTION_INTEGER, "prompt", AT(block), 1, 1 << 24, "N", "tokens of a prompt"},
    {TX_OPTION_INTEGER, "new_tokens", AT(count), 1, 1 << 24, "N", "new tokens for each prompt"},
    TX_BENCH_MEASUREMENTS(AT),
    {TX_OPTION_CHOICE, "peer", AT(peer), .choices = "none|torch|torch-compile|llama.cpp",
     .help = "program to compare with: transformers' generate on PyTorch, also compiled, or llama.cpp in "
             "llama-cpp-python, with the Python in $TX_PYTHON"},
    TX_BENCH_DEVICE(AT),
    TX_BENCH_JSON(AT),
};

static const settings defaults = {
    .config = "gpt2", .device = "auto", .batch = 1, .block = 32, .count = 64, .pairs = 5, .seconds = 1e6};

typedef struct bench {
    tx_pairs pairs;
    tx_generator *generator; /* of --config; or NULL */
    tx_prompt *prompts;
    tx_lm *lm; /* of --model; or NULL */
    tx_lm_prompt *lm_prompts;
    int64_t emitted;
} bench;

static tx_status open_model(bench *b)
{
    const settings *set = b->pairs.set;
    const tx_lm_options how = {.size = sizeof how,
                               .model = set->model,
                               .dtype = set->dtype,
                               .device = set->device,
                               .threads = (int32_t)set->threads,
                               .batch_size = set->batch,
                               .warn = tx_alive_reporter()->warn,
                               .context = tx_alive_reporter()->context,
                               .progress = tx_alive_reporter()->progress};
    TX_TRY(tx_lm_open(&how, &b->lm));
    tx_bench_tokens_next(tx_lm_vocab_size(b->lm), &b->pairs.tx.data);
    b->lm_prompts = calloc((size_t)set->batch, sizeof *b->lm_prompts);
    if (!b->lm_prompts)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " prompts", set->batch);
    for (int64_t i = 0; i < set->batch; i++)
        b->lm_prompts[i] = (tx_lm_prompt){.ids = b->pairs.tx.data.tokens + i * set->block, .count = set->block};
    return TX_OK;
}

static tx_status open_all(tx_pairs *p)
{
    bench *b = (bench *)p;
    const settings *set = p->set;
    const tx_engine_options engine = {
        .size = sizeof engine, .device = set->device, .threads = (int32_t)set->threads, .report = tx_alive_reporter()};
    const tx_generator_options generator = {.size = sizeof generator,
                                            .batch = set->batch,
                                            .beams = 1,
                                            .prompt = set->block,
                                            .context = set->block + set->count};
    if (set->peer == TX_PEER_LLAMA_CPP && !set->model)
        return tx_fail(TX_INVALID, "--peer llama.cpp reads a GGUF file: give one as --model");
    if (set->dtype && !set->model)
        return tx_fail(TX_INVALID, "--dtype is only for --model");
    TX_TRY(tx_bench_tokens_make(set->batch, set->block, &p->tx.data));
    if (set->model)
        return open_model(b);
    tx_bench_tokens_next(p->config->vocab_size, &p->tx.data);
    b->prompts = malloc((size_t)set->batch * sizeof *b->prompts);
    if (!b->prompts)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " prompts", set->batch);
    for (int64_t i = 0; i < set->batch; i++)
        b->prompts[i] = (tx_prompt){p->tx.data.tokens + i * set->block, set->block};
    TX_TRY(tx_engine_create(&engine, &p->tx.engine));
    TX_TRY(tx_model_create(p->tx.engine, &p->tx.model));
    TX_TRY(tx_generator_create(p->tx.model, p->config, &generator, &b->generator));
    return tx_model_init(p->tx.model, 1);
}

static bool count_token(void *context, int64_t row, int32_t id)
{
    bench *b = context;
    (void)row;
    (void)id;
    b->emitted++;
    return true;
}

static void count_lm_token(void *context, int64_t index, int32_t id)
{
    count_token(context, index, id);
}

static tx_status generate(tx_pairs *p, bool peer, tx_peer_time *time)
{
    bench *b = (bench *)p;
    if (peer)
        return tx_peer_run(p->peer, p->set->count, time);
    const double begin = tx_now(), processor = tx_seconds(CLOCK_PROCESS_CPUTIME_ID);
    const tx_sink sink = {.emit = count_token, .context = b};
    const tx_lm_listener listener = {.size = sizeof listener, .context = b, .token = count_lm_token};
    tx_generation how = tx_generation_defaults(-1);
    how.max_new_tokens = p->set->count;
    b->emitted = 0;
    TX_TRY(b->lm ? tx_lm_generate(b->lm, b->lm_prompts, p->set->batch, &how, &listener)
                 : tx_generator_run(b->generator, b->prompts, p->set->batch, 0, &how, &sink));
    time->clock = tx_now() - begin;
    time->processor = tx_seconds(CLOCK_PROCESS_CPUTIME_ID) - processor;
    if (b->emitted != p->set->batch * p->set->count)
        return tx_fail(TX_INTERNAL, "generate: %" PRId64 " tokens instead of %" PRId64, b->emitted,
                       p->set->batch * p->set->count);
    return TX_OK;
}

static double new_tokens(const settings *set)
{
    return (double)(set->batch * set->count);
}

static tx_status run(const void *set, char *const *argv)
{
    static const tx_pairs_task task = {"generate", "seconds", false, open_all, generate, new_tokens, NULL};
    bench b = {0};
    (void)argv;
    tx_status status = tx_pairs_run(&task, &tx_bench_generate.program, set, &b.pairs);
    tx_generator_free(b.generator);
    tx_lm_free(b.lm);
    tx_pairs_close(&b.pairs);
    free(b.prompts);
    free(b.lm_prompts);
    return status;
}

TX_BENCH_COMMAND(generate, "",
                 "Times greedy generation (prefill and decoding with key-value caches) from random prompts. Random\n"
                 "weights are fp32.");
