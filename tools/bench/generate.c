/* SPDX-License-Identifier: Apache-2.0
 * txbench generate: tokens a second of greedy generation, alone and beside transformers. */
#include "models/generate/generate.h"
#include "api/base/check.h"
#include "api/base/clock.h"
#include "models/arch/find.h"
#include "tools/bench/bench.h"
#include "tools/bench/peer.h"
#include "tools/bench/training.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct settings {
    const char *config, *device;
    int64_t batch, prompt, new_tokens, pairs, threads;
    int32_t peer;
    bool json;
} settings;

enum { PEER_NONE, PEER_TORCH };

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    TX_BENCH_MODEL(AT),
    {TX_OPTION_INTEGER, "batch", AT(batch), 1, 4096, "N", "prompts at once"},
    {TX_OPTION_INTEGER, "prompt", AT(prompt), 1, 1 << 24, "N", "tokens of a prompt"},
    {TX_OPTION_INTEGER, "new_tokens", AT(new_tokens), 1, 1 << 24, "N", "tokens added to each"},
    TX_BENCH_MEASUREMENTS(AT),
    {TX_OPTION_CHOICE, "peer", AT(peer), .choices = "none|torch",
     .help = "whom to run beside: torch is transformers' generate by PyTorch with the Python in $TX_PYTHON"},
    TX_BENCH_DEVICE(AT),
    TX_BENCH_JSON(AT),
};
#undef AT

static const settings defaults = {
    .config = "gpt2", .device = "cpu", .batch = 1, .prompt = 32, .new_tokens = 64, .pairs = 5};

typedef struct bench {
    const settings *set;
    tx_config *config;
    tx_engine *engine;
    tx_model *model;
    tx_generator *generator;
    tx_peer *peer;
    tx_prompt *prompts;
    tx_bench_tokens tokens;
    int64_t emitted;
    tx_pairs pairs;
} bench;

/* ---- Measuring ---------------------------------------------------------------------------------------- */

static tx_status make_prompts(bench *b)
{
    const settings *set = b->set;
    TX_CHECK(tx_bench_tokens_make(set->batch, set->prompt, &b->tokens));
    tx_bench_tokens_next(b->config->vocab_size, &b->tokens);
    b->prompts = malloc((size_t)set->batch * sizeof *b->prompts);
    if (!b->prompts)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " prompts", set->batch);
    for (int64_t i = 0; i < set->batch; i++)
        b->prompts[i] = (tx_prompt){b->tokens.tokens + i * set->prompt, set->prompt};
    return TX_OK;
}

static tx_status prepare(bench *b)
{
    const settings *set = b->set;
    const tx_engine_options engine = {.size = sizeof engine, .device = set->device, .threads = (int32_t)set->threads};
    const tx_generator_options generator = {.size = sizeof generator,
                                            .batch = set->batch,
                                            .beams = 1,
                                            .prompt = set->prompt,
                                            .context = set->prompt + set->new_tokens};
    TX_CHECK(tx_config_find(set->config, &b->config));
    TX_CHECK(make_prompts(b));
    TX_CHECK(tx_engine_create(&engine, &b->engine));
    TX_CHECK(tx_model_create(b->engine, &b->model));
    TX_CHECK(tx_generator_create(b->model, b->config, &generator, &b->generator));
    TX_CHECK(tx_model_init(b->model, 1));
    if (set->peer == PEER_TORCH)
        TX_CHECK(tx_peer_start("generate", b->config, set->batch, set->prompt, set->threads, &b->peer));
    if (b->peer)
        b->pairs.peer = tx_peer_name(b->peer);
    return TX_OK;
}

static bool count_token(void *context, int64_t row, int32_t id)
{
    bench *b = context;
    (void)row;
    (void)id;
    b->emitted++;
    return true;
}

static tx_status generate(void *context, bool peer, double *seconds)
{
    bench *b = context;
    if (peer)
        return tx_peer_run(b->peer, b->set->new_tokens, seconds);
    const double begin = tx_now();
    const tx_sink sink = {.emit = count_token, .context = b};
    tx_generation how = tx_generation_defaults(-1);
    how.max_new_tokens = b->set->new_tokens;
    b->emitted = 0;
    TX_CHECK(tx_generator_run(b->generator, b->prompts, b->set->batch, 0, &how, &sink));
    *seconds = tx_now() - begin;
    if (b->emitted != b->set->batch * b->set->new_tokens)
        return tx_fail(TX_INTERNAL, "generate: %" PRId64 " tokens came", b->emitted);
    return TX_OK;
}

static tx_status measure(bench *b)
{
    const settings *set = b->set;
    TX_CHECK(prepare(b));
    TX_CHECK(tx_pairs_measure(&b->pairs, generate, b));
    tx_json *all = tx_bench_figures(&tx_bench_generate.program, set);
    tx_pairs_figures(&b->pairs, tx_engine_device(b->engine), "seconds", (double)(set->batch * set->new_tokens), all);
    return tx_bench_print(all, set->json);
}

static tx_status run(const void *set, char *const *argv)
{
    bench b = {.set = set, .pairs.count = ((const settings *)set)->pairs};
    (void)argv;
    tx_status status = measure(&b);
    tx_peer_stop(b.peer);
    tx_generator_free(b.generator);
    tx_model_free(b.model);
    tx_engine_free(b.engine);
    tx_config_free(b.config);
    free(b.prompts);
    free(b.tokens.tokens);
    return status;
}

TX_BENCH_COMMAND(generate, "",
                 "Times greedy generation (prefill and decoding with key-value caches, fp32) from random prompts.");
