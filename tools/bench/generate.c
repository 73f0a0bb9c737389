/* SPDX-License-Identifier: Apache-2.0
 * txbench generate: tokens a second of greedy generation, alone and beside transformers. */
#include "models/arch/find.h"
#include "models/generate/generate.h"
#include "api/base/clock.h"
#include "tools/bench/bench.h"
#include "tools/bench/peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *config, *device;
    int64_t batch, prompt, new_tokens, pairs, threads;
    int32_t peer;
    bool json;
} settings;

enum { PEER_NONE, PEER_TORCH };

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    {TX_OPTION_TEXT, "config", AT(config), .choices = "FILE|NAME",
     .help = "a config.json, a folder with one, or gpt2, gpt2-medium, gpt2-large, gpt2-xl; weights are random"},
    {TX_OPTION_INTEGER, "batch", AT(batch), 1, 4096, "N", "prompts at once"},
    {TX_OPTION_INTEGER, "prompt", AT(prompt), 1, 1 << 24, "N", "tokens of a prompt"},
    {TX_OPTION_INTEGER, "new_tokens", AT(new_tokens), 1, 1 << 24, "N", "tokens added to each"},
    {TX_OPTION_INTEGER, "pairs", AT(pairs), 1, TX_BENCH_PAIRS, "N",
     "measurements; with a peer each is a pair, taken in turn"},
    {TX_OPTION_CHOICE, "peer", AT(peer), .choices = "none|torch",
     .help = "whom to run beside: torch is transformers' generate by PyTorch with the Python in $TX_PYTHON"},
    {TX_OPTION_TEXT, "device", AT(device), .choices = "cpu|opencl|opencl:N|opencl:NAME|gpu",
     .help = "where to compute"},
    {TX_OPTION_INTEGER, "threads", AT(threads), 0, 4096, "N", "of the cpu backend and the peer; 0: all there are"},
    {TX_OPTION_FLAG, "json", AT(json), .help = "print the figures as one JSON object"},
};
#undef AT

static const settings defaults = {
    .config = "gpt2", .device = "cpu", .batch = 1, .prompt = 32, .new_tokens = 64, .pairs = 5};

const tx_cli tx_bench_generate_program = {
    .name = "txbench",
    .usage = "txbench generate [options]",
    .about = "Times greedy generation (prefill and decoding with key-value caches, fp32) from random prompts.",
    .options = options,
    .count = (int32_t)(sizeof options / sizeof options[0]),
    .values = &defaults,
};

typedef struct bench {
    const settings *set;
    tx_config *config;
    tx_engine *engine;
    tx_model *model;
    tx_generator *generator;
    tx_peer *peer;
    tx_prompt *prompts;
    int32_t *ids;
    int64_t emitted;
    double ours[TX_BENCH_PAIRS], theirs[TX_BENCH_PAIRS]; /* seconds a measurement */
} bench;

/* ---- Measuring ---------------------------------------------------------------------------------------- */

static tx_status make_prompts(bench *b)
{
    const settings *set = b->set;
    b->prompts = malloc((size_t)set->batch * sizeof *b->prompts);
    b->ids = malloc((size_t)(set->batch * set->prompt) * sizeof *b->ids);
    if (!b->prompts || !b->ids)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " prompts of %" PRId64 " tokens", set->batch, set->prompt);
    uint64_t random = 1;
    for (int64_t i = 0; i < set->batch * set->prompt; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u; /* Knuth's linear congruence */
        b->ids[i] = (int32_t)((random >> 33) % (uint64_t)b->config->vocab_size);
    }
    for (int64_t i = 0; i < set->batch; i++)
        b->prompts[i] = (tx_prompt){b->ids + i * set->prompt, set->prompt};
    return TX_OK;
}

static tx_status prepare(bench *b)
{
    const settings *set = b->set;
    tx_status status = tx_config_find(set->config, &b->config);
    if (!status)
        status = make_prompts(b);
    tx_engine_options engine = {.size = sizeof engine, .device = set->device, .threads = (int32_t)set->threads};
    const tx_generator_options generator = {.size = sizeof generator,
                                            .batch = set->batch,
                                            .beams = 1,
                                            .prompt = set->prompt,
                                            .context = set->prompt + set->new_tokens};
    if (!status)
        status = tx_engine_create(&engine, &b->engine);
    if (!status)
        status = tx_model_create(b->engine, &b->model);
    if (!status)
        status = tx_generator_create(b->model, b->config, &generator, &b->generator);
    if (!status)
        status = tx_model_init(b->model, 1);
    if (!status && set->peer == PEER_TORCH)
        status = tx_peer_start("generate", b->config, set->batch, set->prompt, set->threads, &b->peer);
    return status;
}

static bool count_token(void *context, int64_t row, int32_t id)
{
    bench *b = context;
    (void)row;
    (void)id;
    b->emitted++;
    return true;
}

static tx_status run_ours(bench *b, double *seconds)
{
    const double begin = tx_now();
    const tx_sink sink = {.emit = count_token, .context = b};
    tx_generation how = tx_generation_defaults(-1);
    how.max_new_tokens = b->set->new_tokens;
    b->emitted = 0;
    tx_status status = tx_generator_run(b->generator, b->prompts, b->set->batch, 0, &how, &sink);
    *seconds = tx_now() - begin;
    if (!status && b->emitted != b->set->batch * b->set->new_tokens)
        status = tx_fail(TX_INTERNAL, "generate: %" PRId64 " tokens came", b->emitted);
    return status;
}

/* Warm-up of both, then measurements in turn, so that what else the machine does meets both alike. */
static tx_status measure(bench *b)
{
    double ignored;
    tx_status status = run_ours(b, &ignored);
    if (!status && b->peer)
        status = tx_peer_run(b->peer, b->set->new_tokens, &ignored);
    for (int64_t i = 0; i < b->set->pairs && !status; i++) {
        status = run_ours(b, &b->ours[i]);
        if (status || !b->peer)
            continue;
        status = tx_peer_run(b->peer, b->set->new_tokens, &b->theirs[i]);
        fprintf(stderr, "pair %" PRId64 ": %.3f s, peer %.3f s, ratio %.3f\n", i + 1, b->ours[i], b->theirs[i],
                b->theirs[i] / b->ours[i]);
    }
    return status;
}

/* ---- Printing ------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tx_bench_median(const double *value, int64_t count)
{
    double sorted[TX_BENCH_PAIRS];
    memcpy(sorted, value, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
    return count % 2 ? sorted[count / 2] : 0.5 * (sorted[count / 2 - 1] + sorted[count / 2]);
}

static void print_text(const bench *b, double ours, double theirs, double ratio)
{
    const settings *set = b->set;
    const tx_device_info *device = tx_engine_device(b->engine);
    printf("txbench generate --config %s --batch %" PRId64 " --prompt %" PRId64 " --new_tokens %" PRId64
           " --pairs %" PRId64 " --threads %" PRId64 " --device %s%s\n",
           set->config, set->batch, set->prompt, set->new_tokens, set->pairs, set->threads, set->device,
           b->peer ? " --peer torch" : "");
    printf("tx     %s, %s: %.1f tokens/s (median of %" PRId64 ")\n", device->id, device->name, ours, set->pairs);
    if (b->peer)
        printf("peer   %s: %.1f tokens/s\nratio  %.3f (tokens/s of tx over the peer's, median of pairs)\n",
               tx_peer_name(b->peer), theirs, ratio);
}

static tx_status print_json(const bench *b, double ours, double theirs, double ratio)
{
    const settings *set = b->set;
    tx_json *all = tx_json_object();
    tx_json_set_string(all, "config", set->config);
    tx_json_set_string(all, "device", tx_engine_device(b->engine)->name);
    tx_json_set_int(all, "batch", set->batch);
    tx_json_set_int(all, "prompt", set->prompt);
    tx_json_set_int(all, "new_tokens", set->new_tokens);
    tx_json_set_number(all, "tx_tokens_per_second", ours);
    if (b->peer) {
        tx_json_set_number(all, "peer_tokens_per_second", theirs);
        tx_json_set_string(all, "peer_name", tx_peer_name(b->peer));
        tx_json_set_number(all, "ratio", ratio);
    }
    return tx_bench_print(all);
}

static tx_status print(const bench *b)
{
    const int64_t pairs = b->set->pairs;
    const double tokens = (double)(b->set->batch * b->set->new_tokens);
    double ratio[TX_BENCH_PAIRS], theirs = 0.0, middle = 0.0;
    const double ours = tokens / tx_bench_median(b->ours, pairs);
    for (int64_t i = 0; i < pairs; i++)
        ratio[i] = b->theirs[i] / b->ours[i];
    if (b->peer) {
        theirs = tokens / tx_bench_median(b->theirs, pairs);
        middle = tx_bench_median(ratio, pairs);
    }
    if (b->set->json)
        return print_json(b, ours, theirs, middle);
    print_text(b, ours, theirs, middle);
    return TX_OK;
}

int tx_bench_generate(int argc, char *const *argv)
{
    settings set = defaults;
    int result = tx_options_parse(&tx_bench_generate_program, argc, argv, &set);
    if (result != TX_GO_ON)
        return result;
    bench b = {.set = &set};
    tx_status status = prepare(&b);
    if (!status)
        status = measure(&b);
    if (!status)
        status = print(&b);
    tx_peer_stop(b.peer);
    tx_generator_free(b.generator);
    tx_model_free(b.model);
    tx_engine_free(b.engine);
    tx_config_free(b.config);
    free(b.prompts);
    free(b.ids);
    return status ? tx_complain(&tx_bench_generate_program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
}
