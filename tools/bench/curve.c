/* SPDX-License-Identifier: Apache-2.0
 * txbench curve: trains a small model on the device and on the CPU, and compares the losses. */
#include "models/arch/find.h"
#include "tools/bench/bench.h"
#include "tools/bench/training.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Rounding differs between devices and grows with the steps. The first steps agree to far more digits than this. */
#define FIRST_STEPS 10
#define LIMIT 1e-3
#define RATE 1e-3 /* learning rate */

typedef struct settings {
    const char *device;
    int64_t batch, block, steps, threads;
    double seconds;
    int32_t dtype; /* a tx_dtype */
    bool json;
} settings;

static const tx_option options[] = {
    TX_BENCH_BATCH(AT),
    {TX_OPTION_INTEGER, "steps", AT(steps), FIRST_STEPS, 1 << 20, "N", "steps on each device"},
    {TX_OPTION_CHOICE, "dtype", AT(dtype), .choices = "fp32|bf16", .help = "precision of the steps"},
    {TX_OPTION_REAL, "seconds", AT(seconds), 0, 1e6, "X", "run no more than the first 10 steps after X seconds"},
    TX_BENCH_DEVICE(AT),
    TX_BENCH_JSON(AT),
};

static const settings defaults = {.device = "auto", .batch = 4, .block = 64, .steps = 60, .seconds = 1e6};

/* Trains for `steps` steps on the same rows, whose loss falls. Returns the number of steps in `done`. */
static tx_status train(const settings *set, const char *device, const tx_config *config, double *loss, int64_t steps,
                       int64_t *done)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = device, .threads = (int32_t)set->threads};
    tx_trainer_options trainer = tx_bench_trainer_options(config, set->batch, set->block);
    tx_bench_training training;
    double spent, begin = tx_now();
    trainer.autocast = (tx_dtype)set->dtype;
    TX_TRY(tx_bench_training_open(&engine, config, &trainer, &training));
    training.rate = RATE;
    training.repeats = true;
    tx_status status = tx_bench_training_first(&training, &spent);
    loss[0] = training.loss;
    for (*done = 1; !status && *done < steps && (*done < FIRST_STEPS || tx_now() - begin < set->seconds); ++*done) {
        status = tx_bench_training_run(&training, 1, &spent);
        loss[*done] = training.loss;
    }
    tx_bench_training_close(&training);
    return status;
}

static tx_status print(const settings *set, const double *loss, const double *cpu, int64_t steps)
{
    tx_json *figures = tx_bench_figures(&tx_bench_curve.program, set), *rows = tx_json_array();
    double first = 0.0, largest = 0.0;
    for (int64_t i = 0; i < steps; i++) {
        const double difference = fabs(loss[i] / cpu[i] - 1.0);
        largest = fmax(largest, difference);
        first = i < FIRST_STEPS ? largest : first;
        tx_json_append(rows, tx_json_pack("{s:I, s:f, s:f, s:f}", "step", i + 1, "loss", loss[i], "cpu_loss", cpu[i],
                                          "difference", difference));
    }
    tx_json_set_number(figures, "largest_difference", largest);
    tx_json_set_number(figures, "first_difference", first);
    tx_json_set(figures, "curve", rows);
    TX_TRY(tx_bench_print(figures, set->json, NULL));
    return first <= LIMIT && loss[steps - 1] < loss[0]
               ? TX_OK
               : tx_fail(TX_DEVICE,
                         "the losses of %s differ from those of the cpu by up to %.2g of them in the first %d "
                         "steps, or do not fall: see the table",
                         set->device, first, FIRST_STEPS);
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    tx_config *config = NULL;
    double *loss = calloc((size_t)set->steps, 2 * sizeof *loss);
    int64_t done = 0;
    (void)argv;
    tx_status status = loss ? tx_config_small(&config) : tx_fail(TX_MEMORY, "no memory for the losses");
    TX_THEN(status, train(set, set->device, config, loss, set->steps, &done));
    TX_THEN(status, train(set, "cpu", config, loss + set->steps, done, &done));
    TX_THEN(status, print(set, loss, loss + set->steps, done));
    tx_config_free(config);
    free(loss);
    return status;
}

TX_BENCH_COMMAND(
    curve, "",
    "Trains a small GPT-2 on the same random rows on the device and on the CPU, and prints the loss of each\n"
    "step. Exit status: 1 if the first 10 losses differ by more than 0.1 %.");
