/* SPDX-License-Identifier: Apache-2.0
 * txtune: the autotuner. It measures which kernel is fastest for each matrix product and attention of a model on a
 * device, and stores the results in the cache folder for later runs. */
#include "models/arch/find.h"
#include "tools/bench/training.h"

#include "tools/cli/alive.h"
#include "tools/cli/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    const char *device, *model;
    int64_t batch, eval_batch, block;
    double seconds;
    bool tf32, show;
} settings;

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    {TX_OPTION_TEXT, "device", AT(device), .choices = "opencl|opencl:N|opencl:NAME|gpu|cpu",
     .help = "device to tune for"},
    {TX_OPTION_TEXT, "model", AT(model), .choices = "FILE|NAME",
     .help = "model to tune for: a config.json, a folder with one, or " TX_PRESETS},
    {TX_OPTION_INTEGER, "batch", AT(batch), 1, 1 << 20, "N", "rows of a micro-batch"},
    {TX_OPTION_INTEGER, "eval_batch", AT(eval_batch), 1, 1 << 20, "N", "rows of an evaluation batch"},
    {TX_OPTION_INTEGER, "block", AT(block), 2, 1 << 24, "N", "tokens of a row, at most the model's positions"},
    {TX_OPTION_REAL, "seconds", AT(seconds), 1.0, 86400.0, "X", "start no new measurement after X seconds"},
    {TX_OPTION_FLAG, "tf32", AT(tf32), .help = "tune products that may round to tf32 (txtrain --tf32)"},
    {TX_OPTION_FLAG, "show", AT(show), .help = "print the stored results of the device and measure nothing"},
};
#undef AT

static const settings defaults = {
    .device = "opencl", .model = "gpt2", .batch = 8, .eval_batch = 8, .block = 1024, .seconds = 300.0};

static const tx_cli program = {
    .name = "txtune",
    .one_process = "start it without the launcher",
    .usage = "txtune [options]",
    .about = "Measures all kernels for the matrix products and attention of a model's training step and evaluation\n"
             "on a device, and stores the fastest by device and driver in the cache folder ($TX_CACHE_DIR,\n"
             "~/.cache/tx). Without stored results, a run tunes its products itself for a few seconds.",
    .example = "  txtune --device gpu",
    .table = {TX_CLI_OPTIONS(options)},
    .values = &defaults,
};

/* ---- Progress ------------------------------------------------------------------------------------------------ */

#define BAR 30

typedef struct bar {
    double seconds;
    bool terminal;
    tx_alive *alive;
} bar;

static void on_progress(void *user, const char *what, double spent)
{
    const bar *b = user;
    tx_alive_printed(b->alive);
    if (!b->terminal) {
        fprintf(stderr, "%6.1f s  %s\n", spent, what);
        return;
    }
    char cells[BAR + 1];
    for (int i = 0; i < BAR; i++)
        cells[i] = (double)i < BAR * spent / b->seconds ? '#' : '.';
    cells[BAR] = '\0';
    fprintf(stderr, "\r[%s] %.0f of %.0f s  %-50.50s", cells, spent, b->seconds, what);
}

/* ---- Work ------------------------------------------------------------------------------------------------------ */

static tx_status show(tx_engine *engine)
{
    char *text;
    const tx_device_info *device = tx_engine_device(engine);
    TX_TRY(tx_engine_tuned(engine, &text));
    printf("%s: %s, driver %s\n", device->id, device->name, device->driver);
    if (*text)
        printf("attention: kernel, head size, heads/key heads, upper powers of two of rows and tokens; then its form\n"
               "product: transposes, types, batched, upper powers of two of m, n, k; then its provider\n%s",
               text);
    else
        printf("no results are stored\n");
    free(text);
    return TX_OK;
}

/* Compiles the plans, which runs the measurements. The caller frees the configuration after the training. */
static tx_status compile(const settings *set, const tx_engine_options *engine, tx_config **config,
                         tx_bench_training *training)
{
    TX_TRY(tx_config_find(set->model, config));
    const int64_t positions = (*config)->positions;
    tx_trainer_options wanted =
        tx_bench_trainer_options(*config, set->batch, set->block < positions ? set->block : positions);
    wanted.eval_batch = set->eval_batch;
    return tx_bench_training_open(engine, *config, &wanted, training);
}

static tx_status run(const settings *set)
{
    tx_alive *alive = tx_alive_start(&program, stderr, "compiling");
    bar progress = {set->seconds, isatty(STDERR_FILENO), alive};
    const tx_tune_options tune = {sizeof tune, set->seconds, on_progress, &progress};
    const tx_engine_options open = {.size = sizeof open,
                                    .device = set->device,
                                    .tf32 = set->tf32,
                                    .tune = set->show ? NULL : &tune,
                                    .report = tx_alive_reporter()};
    tx_config *config = NULL;
    tx_bench_training training = {0};
    tx_status status;
    if (set->show)
        status = tx_engine_create(&open, &training.engine);
    else {
        status = compile(set, &open, &config, &training);
        if (progress.terminal)
            fprintf(stderr, "\r\033[K");
    }
    tx_alive_stop(alive);
    TX_THEN(status, show(training.engine));
    tx_bench_training_close(&training);
    tx_config_free(config);
    return status;
}

int main(int argc, char **argv)
{
    settings set = defaults;
    tx_engine_workers(argc, argv);
    int result = tx_options_parse(&program, argc, argv, &set);
    if (result != TX_GO_ON)
        return result;
    return tx_end(&program, run(&set) ? tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error()) : 0);
}
