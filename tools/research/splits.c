/* SPDX-License-Identifier: Apache-2.0
 * txresearch splits: finds the fastest split of a model among many devices. models/split/split.h has the formulas. */
#include "models/split/split.h"

#include "tests/scale/shapes.h"
#include "tools/bench/training.h"
#include "tools/research/predict.h"
#include "tools/research/research.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FEWEST 8
#define MOST 4096

typedef struct settings {
    const char *config, *card;
    int64_t block, tokens, devices, top, host;
    int64_t tensor, pipeline, expert, context, batch, zero;
    double memory_gb, tflops, inside_gbyte, inside_us, outside_gbyte, outside_us;
    bool json;
} settings;

static const tx_option options[] = {
    {TX_OPTION_TEXT, "config", AT(config), .choices = "FILE|NAME",
     .help = "llama-7b, llama-70b, mixtral-8x7b, another name such as gpt2-xl, a config.json or a folder with one"},
    {TX_OPTION_INTEGER, "block", AT(block), 0, 1 << 24, "N",
     "tokens of a row; 0 means the model's positions, at most 4096"},
    {TX_OPTION_INTEGER, "tokens", AT(tokens), 1, 1e12, "N", "tokens of a step of all devices"},
    {TX_OPTION_INTEGER, "devices", AT(devices), 0, 1 << 20, "N", "number of devices; 0 means 8, 16 and so on to 4096"},
    {TX_OPTION_INTEGER, "top", AT(top), 1, TX_SPLIT_MOST, "N",
     "number of fastest splits to print for each number of devices"},
    {TX_OPTION_INTEGER, "tensor", AT(tensor), 0, 1 << 20, "N", "only this tensor-parallel size; 0 means any"},
    {TX_OPTION_INTEGER, "pipeline", AT(pipeline), 0, 1 << 20, "N", "only this number of pipeline stages; 0 means any"},
    {TX_OPTION_INTEGER, "expert", AT(expert), 0, 1 << 20, "N", "only this expert-parallel size; 0 means any"},
    {TX_OPTION_INTEGER, "context", AT(context), 0, 1 << 20, "N", "only this context-parallel size; 0 means any"},
    {TX_OPTION_INTEGER, "zero", AT(zero), -1, 3, "N", "only this ZeRO stage; -1 means any"},
    {TX_OPTION_INTEGER, "batch", AT(batch), 0, 1 << 20, "N",
     "only this number of rows of a micro-batch, 1 to 8; 0 means any"},
    {TX_OPTION_TEXT, "card", AT(card), .choices = "h200|a100|mi300x|rtx4090|rtx5090",
     .help = "the devices and their hosts (tools/research/hosts.def); the options below override its figures unless "
             "they are 0"},
    {TX_OPTION_REAL, "tflops", AT(tflops), 0, 1e6, "X", "attained TFLOP/s of bf16 products"},
    {TX_OPTION_REAL, "memory_gb", AT(memory_gb), 0, 1e6, "X", "GB of device memory; a plan may use 95 % of it"},
    {TX_OPTION_INTEGER, "host", AT(host), 0, 1 << 20, "N", "number of devices of a host"},
    {TX_OPTION_REAL, "inside_gbyte", AT(inside_gbyte), 0, 1e6, "X",
     "GB/s in each direction between devices of a host; data get 80 % of it. TX sums in host memory, and txbench comm "
     "measures the rate"},
    {TX_OPTION_REAL, "inside_us", AT(inside_us), 0, 1e6, "X", "latency between devices of a host"},
    {TX_OPTION_REAL, "outside_gbyte", AT(outside_gbyte), 0, 1e6, "X",
     "GB/s in each direction between a device and other hosts"},
    {TX_OPTION_REAL, "outside_us", AT(outside_us), 0, 1e6, "X", "latency between hosts"},
    TX_BENCH_JSON(AT),
};

static const settings defaults = {.config = "llama-7b", .card = "h200", .tokens = 1 << 22, .top = 1, .zero = -1};

/* ---- Machines --------------------------------------------------------------------------------------------- */

static const struct {
    const char *card;
    double memory;
    int64_t host;
    double inside, inside_us, outside, outside_us;
} hosts[] = {
#define TX_HOST(card, memory, host, inside, inside_us, outside, outside_us) \
    {#card, memory, host, inside, inside_us, outside, outside_us},
#include "tools/research/hosts.def"
};
enum { HOSTS = sizeof hosts / sizeof hosts[0] };

static double or_own(double given, double own)
{
    return given > 0.0 ? given : own;
}

static tx_status find_machine(const settings *set, tx_split_machine *machine)
{
    const tx_card *card = NULL;
    int h = 0;
    while (h < HOSTS && strcmp(hosts[h].card, set->card) != 0)
        h++;
    for (int i = 0; (card = tx_card_at(i)) != NULL && strcmp(card->id, set->card) != 0;)
        i++;
    if (h == HOSTS || !card) {
        char known[256] = "";
        for (h = 0; h < HOSTS; h++)
            tx_list_add(known, sizeof known, ", ", "%s", hosts[h].card);
        return tx_fail(TX_INVALID, "--card: \"%s\" is not one of %s", set->card, known);
    }
    const double rate = 1e12 * or_own(set->tflops, card->aim);
    *machine = (tx_split_machine){
        .peak = fmax(rate, 1e9 * card->units * card->ghz * card->half),
        .rate = rate,
        .moving = 1e9 * card->memory,
        .memory = 1e9 * or_own(set->memory_gb, hosts[h].memory),
        .room = TX_SPLIT_MEMORY * 1e9 * or_own(set->memory_gb, hosts[h].memory),
        .host = set->host ? set->host : hosts[h].host,
        .inside = {TX_SPLIT_GOODPUT * 1e9 * or_own(set->inside_gbyte, hosts[h].inside),
                   1e-6 * or_own(set->inside_us, hosts[h].inside_us)},
        .outside = {TX_SPLIT_GOODPUT * 1e9 * or_own(set->outside_gbyte, hosts[h].outside),
                    1e-6 * or_own(set->outside_us, hosts[h].outside_us)},
    };
    return TX_OK;
}

/* Returns the figures of the machine as JSON. */
static tx_json *machine_json(const tx_split_machine *m)
{
    tx_json *json = tx_json_object();
    tx_json_set_number(json, "peak_tflops", 1e-12 * m->peak);
    tx_json_set_number(json, "product_tflops", 1e-12 * m->rate);
    tx_json_set_number(json, "memory_gbyte_per_second", 1e-9 * m->moving);
    tx_json_set_number(json, "memory_gb", 1e-9 * m->memory);
    tx_json_set_int(json, "devices_a_host", m->host);
    tx_json_set_number(json, "inside_gbyte_per_second", 1e-9 * m->inside.rate);
    tx_json_set_number(json, "inside_us", 1e6 * m->inside.latency);
    tx_json_set_number(json, "outside_gbyte_per_second", 1e-9 * m->outside.rate);
    tx_json_set_number(json, "outside_us", 1e6 * m->outside.latency);
    return json;
}

/* ---- Rows ------------------------------------------------------------------------------------------------- */

static tx_json *row_json(const settings *set, int64_t devices, const tx_split_found *one, double memory)
{
    static const char *const schedules[] = {
#define X(name, word) word,
        TX_PIPELINE_MAP(X)
#undef X
    };
    static const char *const terms[] = {
#define X(name, word) word "_ms",
        TX_SPLIT_TERM_MAP(X)
#undef X
    };
    const tx_split *s = &one->split;
    tx_json *row = tx_json_object();
    tx_json_set_int(row, "devices", devices);
    tx_json_set_int(row, "data", s->data);
    tx_json_set_int(row, "zero", s->zero);
    tx_json_set_int(row, "tensor", s->tensor);
    tx_json_set_int(row, "pipeline", s->pipeline);
    tx_json_set_string(row, "schedule", s->pipeline > 1 ? schedules[s->schedule] : "-");
    tx_json_set_int(row, "chunks", s->chunks);
    tx_json_set_int(row, "expert", s->expert);
    tx_json_set_int(row, "context", s->context);
    tx_json_set_int(row, "batch", s->batch);
    tx_json_set_int(row, "micro", s->micro);
    tx_json_set_bool(row, "checkpointing", s->again);
    tx_json_set_number(row, "step_ms", round(1e5 * one->figures.seconds) / 1e2);
    for (int t = 0; t < TX_SPLIT_TERMS; t++)
        tx_json_set_number(row, terms[t], round(1e5 * one->figures.term[t]) / 1e2);
    tx_json_set_number(row, "memory_gb", round(1e-7 * memory) / 1e2);
    tx_json_set_number(row, "mfu", round(1e4 * one->figures.mfu) / 1e4);
    tx_json_set_int(row, "tokens_per_second_at_most", (int64_t)((double)set->tokens / one->figures.seconds));
    return row;
}

typedef struct report {
    const settings *set;
    const tx_config *config;
    const tx_split_machine *machine;
    tx_engine *engine;
    int64_t block;
    tx_trainer_options base;
    tx_json *best, *built;
    char none[256]; /* numbers of devices for which no split fits */
} report;

/* Adds the fastest splits that the engine supports and whose plans fit in memory. */
static tx_status add_built(const report *r, const tx_split_model *model, int64_t devices, const tx_split_search *search)
{
    int32_t added = 0;
    for (int32_t i = 0; i < search->count && added < r->set->top; i++) {
        const tx_split_found *one = &search->found[i];
        tx_memory memory;
        TX_TRY(tx_split_plan(r->engine, r->config, &r->base, model, r->machine, &one->split, &memory));
        const double bytes = (double)tx_memory_total(&memory);
        if (bytes > TX_SPLIT_MEMORY * r->machine->memory)
            continue;
        tx_json_append(r->built, row_json(r->set, devices, one, bytes));
        added++;
    }
    return TX_OK;
}

/* Describes how much slower the split would be without each of its dimensions. */
static void tell_why(const report *r, const tx_split_model *model, const tx_split_limits *limits,
                     const tx_split_found *best, char why[256])
{
    const tx_split *s = &best->split;
    const struct {
        const char *word;
        bool has;
    } axes[] = {{"zero", s->zero > 0},     {"tensor", s->tensor > 1},   {"pipeline", s->pipeline > 1},
                {"expert", s->expert > 1}, {"context", s->context > 1}, {"checkpointing", s->again}};
    *why = '\0';
    for (int axis = 0; axis < 6; axis++) {
        tx_split_limits without = *limits;
        int64_t *const wanted[] = {NULL, &without.tensor, &without.pipeline, &without.expert, &without.context, NULL};
        tx_split_search search;
        if (wanted[axis])
            *wanted[axis] = *wanted[axis] ? *wanted[axis] : 1;
        else
            *(axis == 0 ? &without.zero : &without.again) = 0;
        if (!axes[axis].has || (wanted[axis] && *wanted[axis] > 1) || (axis == 0 && limits->zero > 0))
            continue;
        tx_split_search_all(model, r->machine, &without, &search);
        if (search.count)
            tx_list_add(why, 256, ", ", "without %s %+.0f %%", axes[axis].word,
                        100.0 * (search.found[0].figures.seconds / best->figures.seconds - 1.0));
        else if (isfinite(search.least))
            tx_list_add(why, 256, ", ", "without %s nothing fits", axes[axis].word);
    }
}

static tx_status look(report *r, const tx_split_model *model, int64_t devices)
{
    const settings *set = r->set;
    tx_split_limits limits = {devices,    set->tokens,        set->tensor, set->pipeline, set->expert, set->context,
                              set->batch, (int32_t)set->zero, -1,          false};
    tx_split_search search;
    tx_split_search_all(model, r->machine, &limits, &search);
    for (int32_t i = 0; i < search.count && i < set->top; i++) {
        char why[256];
        tx_json *row = row_json(set, devices, &search.found[i], search.found[i].figures.memory);
        tell_why(r, model, &limits, &search.found[i], why);
        tx_json_set_string(row, "why", why);
        tx_json_append(r->best, row);
    }
    if (!search.count && set->devices)
        return isfinite(search.least)
                   ? tx_fail(TX_MEMORY, "no such split fits: the smallest takes %.1f GB of a device's %.1f",
                             1e-9 * search.least, 1e-9 * TX_SPLIT_MEMORY * r->machine->memory)
                   : tx_fail(
                         TX_INVALID,
                         "no such split: each pipeline stage needs a layer or more; heads and rows of a step (%d) must "
                         "be multiples of the sizes that divide them",
                         (int)(set->tokens / r->block));
    if (!search.count)
        tx_list_add(r->none, sizeof r->none, ", ", "%d", (int)devices);
    limits.built = true;
    tx_split_search_all(model, r->machine, &limits, &search);
    return add_built(r, model, devices, &search);
}

static tx_status look_at_all(report *r)
{
    tx_split_model model;
    const tx_engine_options engine = {.size = sizeof engine, .threads = 1};
    TX_TRY(tx_engine_create(&engine, &r->engine));
    TX_TRY(tx_split_model_make(r->engine, r->config, &r->base, &model));
    const int64_t first = r->set->devices ? r->set->devices : FEWEST, last = r->set->devices ? first : MOST;
    for (int64_t devices = first; devices <= last; devices *= 2)
        TX_TRY(look(r, &model, devices));
    return TX_OK;
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    tx_split_machine machine;
    tx_config *config = NULL;
    (void)argv;
    TX_TRY(find_machine(set, &machine));
    report r = {.set = set, .machine = &machine, .best = tx_json_array(), .built = tx_json_array()};
    tx_status status = tx_shape_config(set->config, set->block, &config);
    if (!status) {
        r.config = config;
        r.block = set->block ? set->block : config->positions < 4096 ? config->positions : 4096;
        r.base = tx_bench_trainer_options(config, 1, r.block);
        r.base.autocast = TX_BF16;
        status = look_at_all(&r);
    }
    tx_engine_free(r.engine);
    tx_config_free(config);
    if (status) {
        tx_json_free(r.best);
        tx_json_free(r.built);
        return status;
    }
    tx_json *all = tx_bench_figures(&tx_bench_splits.program, set);
    tx_json_set_string(all, "measured", TX_AT_MOST);
    tx_json_set(all, "machine", machine_json(&machine));
    tx_json_set_int(all, "rows", set->tokens / r.block);
    tx_json_set_string(all, "nothing_fits", *r.none ? r.none : "-");
    tx_json_set(all, "best", r.best);
    tx_json_set(all, "built", r.built);
    return tx_bench_print(all, set->json, NULL);
}

TX_BENCH_COMMAND(
    splits, "",
    "Predicts steps, memory and pipeline bubbles of training on 8 to 4096 devices with bf16 and AdamW, for "
    "every split,\ndata (ZeRO 0 to 3) x tensor x pipeline x expert x context, and prints the fastest that "
    "fits\n(models/split/split.h has the formulas). The first table is for all splits, with memory by "
    "formula and the cost of\nleaving out each dimension. The second table has only splits that TX "
    "supports without experts and contexts, with the\nmemory of their plans.");
