/* SPDX-License-Identifier: Apache-2.0
 * txresearch splits: predicts the efficiency of training on more and more devices of a machine that is described by its
 * figures. models/split/split.h has the formulas. */
#include "models/split/split.h"

#include "tests/scale/shapes.h"
#include "tools/research/research.h"

#include <math.h>
#include <stdlib.h>

typedef struct settings {
    const char *config;
    int64_t block, rows, first, last, host;
    double tflops, moving_gbyte, memory_gb, inside_gbyte, inside_us, outside_gbyte, outside_us;
    bool fp32, json;
} settings;

#define GB 1e9
static const tx_option options[] = {
    {TX_OPTION_TEXT, "config", AT(config), .choices = "FILE|NAME",
     .help = "llama-7b, llama-70b, another name such as gpt2-xl, a config.json or a folder with one"},
    {TX_OPTION_INTEGER, "block", AT(block), 1, 1 << 24, "N", "tokens of a row"},
    {TX_OPTION_INTEGER, "rows", AT(rows), 1, 1 << 20, "N", "rows of a step for each device"},
    {TX_OPTION_INTEGER, "first", AT(first), 1, 1 << 20, "N", "smallest number of devices; it doubles"},
    {TX_OPTION_INTEGER, "last", AT(last), 1, 1 << 20, "N", "largest number of devices"},
    {TX_OPTION_INTEGER, "host", AT(host), 1, 1 << 20, "N", "devices of a host"},
    {TX_OPTION_FLAG, "fp32", AT(fp32), .help = "products of fp32 instead of bf16"},
    {TX_OPTION_REAL, "tflops", AT(tflops), 1e-6, 1e6, "X", "TFLOP/s that products of a device attain"},
    {TX_OPTION_REAL, "moving_gbyte", AT(moving_gbyte), 1e-6, 1e6, "X", "GB/s of a device's memory"},
    {TX_OPTION_REAL, "memory_gb", AT(memory_gb), 1e-6, 1e6, "X", "GB of a device's memory"},
    {TX_OPTION_REAL, "inside_gbyte", AT(inside_gbyte), 1e-6, 1e6, "X",
     "GB/s between devices of a host; TX sums in host memory, and txbench comm measures the rate"},
    {TX_OPTION_REAL, "inside_us", AT(inside_us), 0, 1e6, "X", "latency between devices of a host"},
    {TX_OPTION_REAL, "outside_gbyte", AT(outside_gbyte), 1e-6, 1e6, "X",
     "GB/s in each direction between hosts, for each device of a host"},
    {TX_OPTION_REAL, "outside_us", AT(outside_us), 0, 1e6, "X", "latency between hosts"},
    TX_BENCH_JSON(AT),
};

static const settings defaults = {.config = "gpt2",
                                  .block = 1024,
                                  .rows = 8,
                                  .first = 8,
                                  .last = 1024,
                                  .host = 8,
                                  .tflops = 100,
                                  .moving_gbyte = 1000,
                                  .memory_gb = 80,
                                  .inside_gbyte = 10,
                                  .inside_us = 10,
                                  .outside_gbyte = 1,
                                  .outside_us = 20};

static tx_split_machine machine_of(const settings *s)
{
    return (tx_split_machine){.peak = 1e12 * s->tflops,
                              .rate = 1e12 * s->tflops,
                              .moving = GB * s->moving_gbyte,
                              .memory = GB * s->memory_gb,
                              .room = TX_SPLIT_MEMORY * GB * s->memory_gb,
                              .host = s->host,
                              .inside = {GB * s->inside_gbyte, 1e-6 * s->inside_us},
                              .outside = {GB * s->outside_gbyte, 1e-6 * s->outside_us}};
}

/* Finds the fastest split that TX supports. */
static tx_status find(const settings *set, const tx_split_model *model, const tx_split_machine *machine,
                      int64_t devices, tx_split_found *found)
{
    const tx_split_limits limits = {.devices = devices,
                                    .tokens = devices * set->rows * set->block,
                                    .expert = 1,
                                    .context = 1,
                                    .zero = -1,
                                    .again = -1,
                                    .hybrid = -1,
                                    .built = true};
    tx_split_search *search = malloc(sizeof *search);
    if (!search)
        return tx_fail(TX_MEMORY, "no memory to search for a split");
    tx_split_search_all(model, machine, &limits, search);
    const tx_status status =
        search->count ? TX_OK
                      : tx_fail(TX_MEMORY,
                                "no split over %d devices fits: the smallest takes %.1f GB of a device's "
                                "%.1f",
                                (int)devices, 1e-9 * search->least, 1e-9 * TX_SPLIT_MEMORY * machine->memory);
    *found = search->found[0];
    free(search);
    return status;
}

static void add_row(tx_json *rows, int64_t devices, const tx_split_found *found, double alone)
{
    static const char *const terms[] = {
#define X(name, word) word "_ms",
        TX_SPLIT_TERM_MAP(X)
#undef X
    };
    const tx_split *s = &found->split;
    tx_json *row = tx_json_object();
    tx_json_set_int(row, "devices", devices);
    tx_json_set_int(row, "data", s->data);
    tx_json_set_int(row, "tensor", s->tensor);
    tx_json_set_int(row, "pipeline", s->pipeline);
    tx_json_set_int(row, "zero", s->zero);
    tx_json_set_string(row, "sharded", s->hybrid ? "hosts" : "all");
    tx_json_set_int(row, "batch", s->batch);
    tx_json_set_bool(row, "checkpointing", s->again);
    tx_json_set_number(row, "memory_gb", 1e-9 * found->figures.memory);
    for (int t = 0; t < TX_SPLIT_TERMS; t++)
        if (t != TX_SPLIT_T_CONTEXT && t != TX_SPLIT_T_EXPERT)
            tx_json_set_number(row, terms[t], 1e3 * found->figures.term[t]);
    tx_json_set_number(row, "step_ms", 1e3 * found->figures.seconds);
    tx_json_set_number(row, "efficiency", alone / found->figures.seconds);
    tx_json_append(rows, row);
}

/* The step of one device with the rows of a device, whatever its memory, is the reference of the efficiency. */
static tx_status add_rows(const settings *set, const tx_config *config, tx_engine *engine, tx_json *rows)
{
    tx_trainer_options base = tx_bench_trainer_options(config, 1, set->block);
    tx_split_machine machine = machine_of(set), boundless = machine;
    tx_split_model model;
    tx_split_found one;
    base.autocast = set->fp32 ? TX_F32 : TX_BF16;
    boundless.memory = HUGE_VAL;
    boundless.room = 0.0; /* unknown */
    TX_TRY(tx_split_model_make(engine, config, &base, &model));
    TX_TRY(find(set, &model, &boundless, 1, &one));
    const double alone = one.figures.seconds;
    for (int64_t devices = set->first; devices <= set->last; devices *= 2) {
        TX_TRY(find(set, &model, &machine, devices, &one));
        add_row(rows, devices, &one, alone);
    }
    return TX_OK;
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    const tx_engine_options one_thread = {.size = sizeof one_thread, .threads = 1};
    tx_engine *engine = NULL;
    tx_config *config = NULL;
    tx_json *rows = tx_json_array();
    (void)argv;
    tx_status status = tx_shape_config(set->config, set->block, &config);
    TX_THEN(status, tx_engine_create(&one_thread, &engine));
    TX_THEN(status, add_rows(set, config, engine, rows));
    tx_engine_free(engine);
    tx_config_free(config);
    if (status) {
        tx_json_free(rows);
        return status;
    }
    tx_json *all = tx_bench_figures(&tx_bench_splits.program, set);
    tx_json_set_string(all, "measured", TX_AT_MOST);
    tx_json_set(all, "splits", rows);
    return tx_bench_print(all, set->json, NULL);
}

TX_BENCH_COMMAND(splits, "",
                 "Predicts the fastest split that TX supports for more and more devices of a machine, each with the "
                 "same rows.\n`efficiency` is the step of one device divided by that of all. Times are of one "
                 "device with AdamW\n(models/split/split.h has the formulas).");
